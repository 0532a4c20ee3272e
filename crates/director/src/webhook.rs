//! Tells one webhook what somebody should wake up for. Notices wait in the database, so a restart forgets none; they are delivered one after
//! the other, in their order, each until the server takes it. Nobody waits for that but the notices themselves.
//!
//! A notice is a `POST` of JSON. `X-Windlass-Signature` has `sha256=` and the HMAC-SHA256, in hexadecimal, of `X-Windlass-Timestamp`, a full
//! stop and the body, with the secret as key. `X-Windlass-Delivery` is the same in every try.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use reqwest::redirect::Policy;
use serde_json::{Value, json};
use tokio::sync::Notify;
use windlass_contract::{Secret, explain};
use windlass_operations::clock;
use windlass_planning::names::{DeploymentName, InstanceName};

use crate::Director;
use crate::store::{StoreError, TaskRecord, TaskState};
use crate::tasks::Job;

/// How many notices wait at most; of more, the oldest of the deployment that has most are dropped, and the next one says how many.
const MOST_WAITING: i64 = 1000;
/// How long a delivery may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a failure it is tried again, after twice the time each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);
/// So often a notice is tried whose content the server refuses: what is in it may be anybody's words, and others wait behind it.
const TRIES_OF_REFUSED: u32 = 3;
/// How much of a message is told.
const LONGEST_MESSAGE: usize = 4000;

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    /// A VM's agent does not answer.
    VmUnresponsive,
    /// A process of an instance does not run, or its agent raised an alert.
    JobFailing,
    /// The resurrector recreates VMs.
    ResurrectionBegun,
    ResurrectionEnded,
    /// It could not.
    ResurrectionFailed,
    DeployFailed,
    /// A certificate of the director ends soon, so it was not renewed by itself.
    CertificateExpires,
}

impl NoticeKind {
    /// Every word and what it means.
    pub const WORDS: [(&'static str, Self); 7] = [
        ("vm_unresponsive", Self::VmUnresponsive),
        ("job_failing", Self::JobFailing),
        ("resurrection_begun", Self::ResurrectionBegun),
        ("resurrection_ended", Self::ResurrectionEnded),
        ("resurrection_failed", Self::ResurrectionFailed),
        ("deploy_failed", Self::DeployFailed),
        ("certificate_expires", Self::CertificateExpires),
    ];

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, kind)| *kind == self).map_or("", |(word, _)| word)
    }
}

/// Where notices go, and which.
#[derive(Debug, Clone)]
pub struct WebhookSettings {
    /// `http` or `https`. May have a secret in it, too.
    pub url: Secret,
    /// What notices are signed with.
    pub secret: Secret,
    /// Those that are told.
    pub events: Vec<NoticeKind>,
}

/// Wakes who delivers.
#[derive(Debug, Default)]
pub(crate) struct Webhook {
    wake: Notify,
}

/// Something that somebody should wake up for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notice<'a> {
    pub(crate) kind: NoticeKind,
    pub(crate) deployment: Option<&'a str>,
    pub(crate) instance: Option<&'a InstanceName>,
    pub(crate) task: Option<i64>,
    pub(crate) message: &'a str,
}

impl<'a> Notice<'a> {
    /// About a deployment.
    pub(crate) fn of(kind: NoticeKind, deployment: &'a DeploymentName, message: &'a str) -> Self {
        Self { kind, deployment: Some(deployment), instance: None, task: None, message }
    }
}

impl Director {
    /// Keeps a notice for the webhook, if there is one that wants to hear of this.
    pub(crate) async fn notify(&self, notice: Notice<'_>) {
        let Some(settings) = &self.settings.webhook else { return };
        if !settings.events.contains(&notice.kind) {
            return;
        }
        let mut body = self.body(notice.kind.word(), notice.message);
        body["deployment"] = json!(notice.deployment);
        body["instance"] = json!(notice.instance);
        body["task"] = json!(notice.task);
        let deployment = notice.deployment.unwrap_or_default();
        if let Err(error) = self.store.add_notice(deployment, &body.to_string(), MOST_WAITING).await {
            tracing::error!(
                error = explain(&error),
                event = notice.kind.word(),
                "cannot keep a notice for the webhook"
            );
        }
        self.webhook.wake.notify_one();
    }

    fn body(&self, event: &str, message: &str) -> Value {
        let message: String = message.chars().take(LONGEST_MESSAGE).collect();
        json!({
            "id": uuid::Uuid::new_v4().to_string(), "event": event, "happened_at": clock::rfc3339(clock::now()),
            "director": {"name": self.name, "uuid": self.uuid}, "message": message,
        })
    }
}

/// why a notice was not delivered
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeliveryError {
    /// there is nobody to deliver to
    #[error("director.yml has no webhook")]
    None,
    /// the server cannot be reached
    #[error("the webhook cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    /// the server refused it
    #[error("the webhook answered {0}; redirects are not followed")]
    Refused(reqwest::StatusCode),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DeliveryError {
    /// Whether the server takes notices, and not this one.
    fn is_about_content(&self) -> bool {
        use reqwest::StatusCode;
        let about_content = [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY];
        matches!(self, Self::Refused(status) if about_content.contains(status))
    }
}

fn client() -> Result<reqwest::Client, DeliveryError> {
    // Somebody else in this process may have chosen it already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client = reqwest::Client::builder().redirect(Policy::none()).timeout(PATIENCE).no_proxy();
    client.build().map_err(DeliveryError::Unreachable)
}

/// Delivers notices until `stop` resolves; what is left then is for the next start.
pub(crate) async fn run(director: Arc<Director>, stop: impl Future<Output = ()>) {
    if director.settings.webhook.is_none() {
        return;
    }
    tokio::pin!(stop);
    let (mut pause, mut refused) = (FIRST_PAUSE, 0);
    loop {
        let delivered = tokio::select! {
            () = &mut stop => return,
            delivered = deliver_next(&director) => delivered,
        };
        match delivered {
            Ok(true) => (pause, refused) = (FIRST_PAUSE, 0),
            Ok(false) => tokio::select! {
                () = &mut stop => return,
                () = director.webhook.wake.notified() => {}
            },
            Err(error) if error.is_about_content() && refused + 1 == TRIES_OF_REFUSED => {
                tracing::error!(error = explain(&error), "a notice is given up");
                (pause, refused) = (FIRST_PAUSE, 0);
                if let Err(error) = director.store.give_up_notice().await {
                    tracing::error!(error = explain(&error), "a notice cannot be given up");
                    tokio::time::sleep(LONGEST_PAUSE).await;
                }
            }
            Err(error) => {
                refused = if error.is_about_content() { refused + 1 } else { 0 };
                tracing::warn!(error = explain(&error), again_after = ?pause, "a notice was not delivered");
                tokio::select! {
                    () = &mut stop => return,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Whether there was one.
async fn deliver_next(director: &Director) -> Result<bool, DeliveryError> {
    let Some((notice, dropped)) = director.store.next_notice().await? else { return Ok(false) };
    let mut body: Value = serde_json::from_str(&notice.body).unwrap_or_else(|_| director.body("damaged", &notice.body));
    body["dropped"] = json!(dropped);
    post(director, &body).await?;
    director.store.delivered(notice.id, dropped).await?;
    Ok(true)
}

/// Sends something to see whether it arrives.
pub(crate) async fn test(director: &Director) -> Result<(), DeliveryError> {
    let mut body = director.body("test", "this is a test of the webhook");
    body["dropped"] = json!(0);
    post(director, &body).await
}

async fn post(director: &Director, body: &Value) -> Result<(), DeliveryError> {
    let settings = director.settings.webhook.as_ref().ok_or(DeliveryError::None)?;
    let (text, now) = (body.to_string(), clock::now());
    let key = hmac::Key::new(hmac::HMAC_SHA256, settings.secret.reveal().as_bytes());
    let tag = hmac::sign(&key, format!("{now}.{text}").as_bytes());
    let signature: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    windlass_durable::kill_point("webhook");
    let answer = client()?
        .post(settings.url.reveal())
        .header("content-type", "application/json")
        .header("x-windlass-event", body["event"].as_str().unwrap_or_default())
        .header("x-windlass-delivery", body["id"].as_str().unwrap_or_default())
        .header("x-windlass-timestamp", now)
        .header("x-windlass-signature", format!("sha256={signature}"))
        .body(text)
        .send()
        .await
        // Its address may have a secret in it.
        .map_err(|error| DeliveryError::Unreachable(error.without_url()))?;
    if answer.status().is_success() { Ok(()) } else { Err(DeliveryError::Refused(answer.status())) }
}

/// Tasks whose end somebody may want to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Deploy,
    Resurrection,
}

impl Ending {
    pub(crate) fn of(job: &Job) -> Option<Self> {
        match job {
            Job::UpdateDeployment { options, .. } if !options.dry_run => Some(Self::Deploy),
            Job::ScanAndFix { .. } => Some(Self::Resurrection),
            _ => None,
        }
    }

    /// Tells how a task ended.
    pub(crate) async fn tell(self, director: &Director, task: &TaskRecord, state: TaskState, result: &str) {
        let kind = match (self, state) {
            (Self::Deploy, TaskState::Error) => NoticeKind::DeployFailed,
            (Self::Resurrection, TaskState::Done) => NoticeKind::ResurrectionEnded,
            (Self::Resurrection, TaskState::Error) => NoticeKind::ResurrectionFailed,
            _ => return,
        };
        let notice = Notice {
            kind,
            deployment: task.deployment.as_deref(),
            instance: None,
            task: Some(task.id),
            message: result,
        };
        director.notify(notice).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;

    use super::*;
    use crate::testing::TestDirector;

    /// What a server does with a connection.
    #[derive(Debug, Clone, Copy)]
    enum Answer {
        Status(&'static str),
        Hangs,
        Closes,
    }

    /// A server that answers one connection after the other as it is told, the last answer for ever, and tells what it got.
    fn server(answers: &'static [Answer]) -> (String, mpsc::Receiver<(String, String)>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook?token=hidden", listener.local_addr().unwrap());
        let (told, got) = mpsc::channel();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for number in 0.. {
                let Ok((mut connection, _)) = listener.accept() else { return };
                let request = read(&mut connection);
                match answers[number.min(answers.len() - 1)] {
                    Answer::Hangs => held.push(connection),
                    Answer::Closes => {}
                    Answer::Status(status) => {
                        let answer = format!(
                            "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\nlocation: /other\r\n\r\n"
                        );
                        let _ = connection.write_all(answer.as_bytes());
                    }
                }
                if told.send(request).is_err() {
                    return;
                }
            }
        });
        (url, got)
    }

    fn read(connection: &mut TcpStream) -> (String, String) {
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
                if body.len() >= length.unwrap_or(0) {
                    return (head.to_owned(), body.to_owned());
                }
            }
            match connection.read(&mut piece) {
                Ok(length) if length > 0 => bytes.extend_from_slice(&piece[..length]),
                _ => return (text, String::new()),
            }
        }
    }

    async fn with_webhook(url: &str, events: Vec<NoticeKind>) -> TestDirector {
        let secret = Secret::new("shh".to_owned());
        TestDirector::with(|settings| {
            settings.webhook = Some(WebhookSettings { url: Secret::new(url.to_owned()), secret, events });
        })
        .await
    }

    async fn failed(bench: &TestDirector, message: &str) {
        let kind = NoticeKind::DeployFailed;
        bench.director.notify(Notice { kind, deployment: Some("shop"), instance: None, task: Some(7), message }).await;
    }

    fn header<'h>(head: &'h str, name: &str) -> &'h str {
        head.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap_or_default()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_notice_is_signed_and_told_again_until_the_server_takes_it() {
        let (url, got) = server(&[
            Answer::Status("500 Broken"),
            Answer::Closes,
            Answer::Status("302 Found"),
            Answer::Status("204 No Content"),
        ]);
        let bench = with_webhook(&url, vec![NoticeKind::DeployFailed]).await;
        failed(&bench, "no room").await;
        let ignored =
            Notice { kind: NoticeKind::JobFailing, deployment: None, instance: None, task: None, message: "x" };
        bench.director.notify(ignored).await;
        let begun = std::time::Instant::now();
        let running = tokio::spawn(run(bench.director.clone(), std::future::pending()));
        let mut deliveries = Vec::new();
        for _ in 0..4 {
            deliveries.push(tokio::task::block_in_place(|| got.recv_timeout(Duration::from_secs(30))).unwrap());
        }
        assert!(begun.elapsed() >= Duration::from_secs(1 + 2 + 4), "{:?}", begun.elapsed());
        for (head, body) in &deliveries {
            assert!(head.starts_with("POST /hook?token=hidden HTTP/1.1"), "no redirect is followed: {head}");
            let body: Value = serde_json::from_str(body).unwrap();
            assert_eq!((&body["event"], &body["message"]), (&json!("deploy_failed"), &json!("no room")));
            assert_eq!((&body["deployment"], &body["task"], &body["dropped"]), (&json!("shop"), &json!(7), &json!(0)));
        }
        let ids: Vec<_> = deliveries.iter().map(|(head, _)| header(head, "x-windlass-delivery")).collect();
        assert!(ids[0].len() == 36 && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        let (head, body) = &deliveries[3];
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"shh");
        let tag: Vec<u8> = (0..64)
            .step_by(2)
            .map(|at| {
                u8::from_str_radix(&header(head, "x-windlass-signature")["sha256=".len()..][at..at + 2], 16).unwrap()
            })
            .collect();
        let signed = format!("{}.{body}", header(head, "x-windlass-timestamp"));
        hmac::verify(&key, signed.as_bytes(), &tag).unwrap();
        // Once it is taken, nothing is left.
        for _ in 0..100 {
            if bench.director.store.next_notice().await.unwrap().is_none() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(bench.director.store.next_notice().await.unwrap(), None);
        running.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_that_stalls_holds_nobody_up_and_a_restart_forgets_nothing() {
        let (url, got) = server(&[Answer::Hangs, Answer::Status("200 OK")]);
        let bench = with_webhook(&url, vec![NoticeKind::DeployFailed]).await;
        failed(&bench, "first").await;
        let running = tokio::spawn(run(bench.director.clone(), std::future::pending()));
        tokio::task::block_in_place(|| got.recv_timeout(Duration::from_secs(30))).unwrap();
        let begun = std::time::Instant::now();
        failed(&bench, "second").await;
        assert!(begun.elapsed() < Duration::from_secs(5), "who tells something does not wait for the server");
        // The director ends while a delivery is under way; the next one begins where it was.
        running.abort();
        let running = tokio::spawn(run(bench.director.clone(), std::future::pending()));
        for expected in ["first", "second"] {
            let (_, body) = tokio::task::block_in_place(|| got.recv_timeout(Duration::from_secs(30))).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["message"], expected);
        }
        running.abort();
    }

    /// What a deploy failed with may be words of its user, and the notices of all others waited behind it for ever.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_notice_whose_content_is_refused_holds_up_no_others() {
        let refused = Answer::Status("422 Unprocessable Entity");
        let (url, got) = server(Box::leak(Box::new([refused, refused, refused, Answer::Status("200 OK")])));
        let bench = with_webhook(&url, vec![NoticeKind::DeployFailed]).await;
        failed(&bench, "odd").await;
        failed(&bench, "second").await;
        let running = tokio::spawn(run(bench.director.clone(), std::future::pending()));
        for (expected, dropped) in [("odd", 0), ("odd", 0), ("odd", 0), ("second", 1)] {
            let (_, body) = tokio::task::block_in_place(|| got.recv_timeout(Duration::from_secs(30))).unwrap();
            let body: Value = serde_json::from_str(&body).unwrap();
            assert_eq!((&body["message"], &body["dropped"]), (&json!(expected), &json!(dropped)));
        }
        running.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn more_notices_than_may_wait_are_dropped_and_counted() {
        let bench = TestDirector::new().await;
        let store = &bench.director.store;
        for number in 0..5 {
            store.add_notice("", &json!({"id": number}).to_string(), 3).await.unwrap();
        }
        let (notice, dropped) = store.next_notice().await.unwrap().unwrap();
        assert_eq!((notice.body.as_str(), dropped), ("{\"id\":2}", 2));
        store.delivered(notice.id, dropped).await.unwrap();
        let (notice, dropped) = store.next_notice().await.unwrap().unwrap();
        assert_eq!((notice.body.as_str(), dropped), ("{\"id\":3}", 0), "what was dropped is told once");
    }

    /// A VM that raises alerts without end had the notices of all others dropped.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_deployment_with_very_many_notices_sends_away_none_of_others() {
        let bench = TestDirector::new().await;
        let store = &bench.director.store;
        store.add_notice("quiet", "\"first\"", 3).await.unwrap();
        for number in 0..20 {
            store.add_notice("loud", &number.to_string(), 3).await.unwrap();
        }
        store.add_notice("", "\"of none\"", 3).await.unwrap();
        let mut left = Vec::new();
        while let Some((notice, dropped)) = store.next_notice().await.unwrap() {
            store.delivered(notice.id, dropped).await.unwrap();
            left.push(notice.body);
        }
        assert_eq!(left, ["\"first\"", "19", "\"of none\""]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn neither_the_secret_nor_the_address_is_told_to_anybody() {
        let bench = with_webhook("http://127.0.0.1:1/hook?token=hidden", Vec::new()).await;
        let said = explain(&test(&bench.director).await.unwrap_err());
        assert!(said.contains("the webhook cannot be reached") && !said.contains("hidden"), "{said}");
        let shown = format!("{:?}", bench.director.settings);
        assert!(!shown.contains("hidden") && !shown.contains("shh"), "{shown}");
    }
}
