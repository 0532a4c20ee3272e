//! The client against servers that answer what a test tells them: agents of other ages, and things that are no agents.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "in a test, a panic is the report")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use windlass_agent_client::{
    Agent, AgentClient, AgentEndpoint, Begun, CallError, Cancellation, ClientTls, Deadlines, Drain, NoWayIn, Outcome,
    Stage,
};
use windlass_contract::way_in::{Frame, WayIn, Work};
use windlass_contract::{AgentId, DiskCid, DiskHint, Secret};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

struct Certificates {
    agent_id: AgentId,
    ca_pem: String,
    acceptor: TlsAcceptor,
}

impl Certificates {
    fn new() -> Self {
        let mut ca = CertificateParams::new(vec![]).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let agent_id = AgentId::random();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![agent_id.dns_name()]).unwrap();
        let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap().pem();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
            )
            .unwrap();
        Self { agent_id, ca_pem, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }

    fn agent(&self, addresses: Vec<IpAddr>, port: u16) -> Agent {
        let tls = ClientTls {
            ca_pem: self.ca_pem.clone(),
            client_certificate_pem: String::new(),
            client_key_pem: Secret::new(""),
        };
        AgentClient::new(tls).unwrap().agent(AgentEndpoint {
            agent_id: self.agent_id.clone(),
            addresses,
            port,
            user: "u".into(),
            password: Secret::new("p"),
        })
    }
}

/// Serves what `answer` says to each message; none closes the connection without an answer.
async fn scripted(answer: impl FnMut(&str, &[Value]) -> Option<Value> + Send + 'static) -> Agent {
    let certificates = Certificates::new();
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    // The first address refuses, so that every test also passes by a dead one.
    let addresses = vec!["127.255.255.254".parse().unwrap(), LOOPBACK];
    let agent = certificates.agent(addresses, listener.local_addr().unwrap().port());
    let answer = Arc::new(Mutex::new(answer));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, answer) = (certificates.acceptor.clone(), answer.clone());
            tokio::spawn(async move {
                let mut stream = BufReader::new(acceptor.accept(stream).await.ok()?);
                loop {
                    let (mut line, mut length) = (String::new(), 0);
                    while stream.read_line(&mut line).await.ok()? > 2 {
                        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                            length = value.trim().parse().ok()?;
                        }
                        line.clear();
                    }
                    let mut body = vec![0; length];
                    stream.read_exact(&mut body).await.ok()?;
                    let message: Value = serde_json::from_slice(&body).ok()?;
                    assert_eq!(message["protocol"], 3);
                    let reply = {
                        let answer = &mut *answer.lock().unwrap();
                        answer(message["method"].as_str()?, message["arguments"].as_array()?)?.to_string()
                    };
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", reply.len());
                    stream.write_all(format!("{head}{reply}").as_bytes()).await.ok()?;
                }
                #[expect(unreachable_code, reason = "the loop ends by `?`, which needs a type")]
                Some(())
            });
        }
    });
    agent
}

fn unknown(method: &str) -> Option<Value> {
    Some(json!({"exception": {"message": format!("unknown message {method}")}}))
}

fn disk() -> (DiskCid, DiskHint) {
    (DiskCid::new("disk-1").unwrap(), DiskHint::path("/dev/sdc"))
}

/// Records the methods and arguments of an agent that knows only `known`.
async fn mounted_by(known: &'static [&'static str]) -> Vec<Value> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let agent = scripted(move |method, arguments| {
        if !known.contains(&method) {
            return unknown(method);
        }
        log.lock().unwrap().push(json!([method, arguments]));
        Some(json!({"value": {}}))
    })
    .await;
    let (cid, hint) = disk();
    agent.add_and_mount_disk(&cid, &hint).await.unwrap();
    std::mem::take(&mut *seen.lock().unwrap())
}

#[tokio::test]
async fn every_generation_of_agents_learns_where_the_disk_is() {
    let (cid, hint) = (json!("disk-1"), json!({"path": "/dev/sdc"}));
    let today = mounted_by(&["add_persistent_disk", "mount_disk"]).await;
    assert_eq!(today, [json!(["add_persistent_disk", [cid, hint]]), json!(["mount_disk", [cid]])]);
    let renamed = mounted_by(&["update_persistent_disk", "mount_disk"]).await;
    assert_eq!(renamed, [json!(["update_persistent_disk", [cid, hint]]), json!(["mount_disk", [cid, hint]])]);
    let oldest = mounted_by(&["mount_disk"]).await;
    assert_eq!(oldest, [json!(["mount_disk", [cid, hint]])]);
}

/// As the original's in a container: the data is on the new disk, and only has to be where jobs look for it.
#[tokio::test]
async fn a_migration_that_only_lacks_the_mount_is_finished() {
    async fn migrated(cause: &'static str, mounts: bool) -> (Result<(), CallError>, Vec<Value>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let agent = scripted(move |method, arguments| {
            log.lock().unwrap().push(json!([method, arguments]));
            let failed =
                |cause: &str| Some(json!({"exception": {"message": format!("Migrating persistent disk: {cause}")}}));
            match method {
                "migrate_disk" => failed(cause),
                "mount_disk" if !mounts => failed("no"),
                _ => Some(json!({"value": {}})),
            }
        });
        let (from, to) = (DiskCid::new("old").unwrap(), DiskCid::new("new").unwrap());
        let result = agent.await.migrate_disk(&from, &to).await;
        let seen = seen.lock().unwrap().clone();
        (result, seen)
    }
    let last = "Remounting new disk on original mountpoint: Device x is already mounted to y, can't mount to z";
    let (result, seen) = migrated(last, true).await;
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(seen, [json!(["migrate_disk", ["old", "new"]]), json!(["mount_disk", ["new"]])]);
    let (result, _) = migrated(last, false).await;
    assert!(result.unwrap_err().to_string().contains("Remounting new disk"), "the first error counts");
    // Before that, the old disk may be the only one with all the data.
    let (result, seen) = migrated("Copying files from old disk to new disk: no space", true).await;
    assert!(result.is_err() && seen.len() == 1, "{seen:?}");
}

#[tokio::test]
async fn an_old_agent_is_not_told_again_what_it_does_not_know() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let agent = scripted(move |method, _| {
        log.lock().unwrap().push(method.to_owned());
        if method == "mount_disk" { Some(json!({"value": {}})) } else { unknown(method) }
    })
    .await;
    let (cid, hint) = disk();
    assert_eq!(agent.add_persistent_disk(&cid, &hint).await.unwrap(), Outcome::UnknownToAgent);
    agent.mount_disk_as_before(&cid, &hint).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["add_persistent_disk", "update_persistent_disk", "mount_disk"]);
}

#[tokio::test]
async fn a_caller_need_not_wait_for_a_task_and_can_cancel_it() {
    let mut cancelled = false;
    let agent = scripted(move |method, arguments| match method {
        "drain" => Some(json!({"value": {"agent_task_id": "t-1", "state": "running"}})),
        "cancel_task" => {
            assert_eq!(arguments, ["t-1"]);
            cancelled = true;
            Some(json!({"value": "canceled"}))
        }
        "get_task" if cancelled => Some(json!({"exception": {"message": "Script was cancelled by user request"}})),
        "get_task" => Some(json!({"value": {"agent_task_id": "t-1", "state": "running"}})),
        _ => Some(json!({"value": "pong"})),
    })
    .await;
    let Begun::Task(task) = agent.begin("drain", vec![json!("shutdown")]).await.unwrap() else { panic!("no task") };
    assert_eq!((task.id.as_str(), task.method.as_str()), ("t-1", "drain"));
    assert_eq!(agent.begin("ping", vec![]).await.unwrap(), Begun::Done(json!("pong")));
    agent.cancel_task(&task).await.unwrap();
    let error = agent.finish(&task).await.unwrap_err().to_string();
    assert!(error.contains("failed to drain: Script was cancelled by user request"), "{error}");
}

/// A drain that hangs would keep its caller for hours.
#[tokio::test]
async fn an_agent_is_told_once_to_end_what_was_cancelled() {
    for can_end_it in [true, false] {
        let told = Arc::new(Mutex::new(0));
        let counted = told.clone();
        let agent = scripted(move |method, arguments| {
            let running = Some(json!({"value": {"agent_task_id": "t-1", "state": "running"}}));
            let mut told = counted.lock().unwrap();
            match method {
                "cancel_task" => {
                    assert_eq!(arguments, ["t-1"]);
                    *told += 1;
                    match can_end_it {
                        true => Some(json!({"value": "canceled"})),
                        false => Some(json!({"exception": {"message": "Action Failed cancel_task: not supported"}})),
                    }
                }
                "get_task" if *told > 0 => Some(json!({"exception": {"message": "Script was cancelled"}})),
                _ => running,
            }
        })
        .await;
        let is_cancelled = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let looked = is_cancelled.clone();
        let agent = agent.until(Cancellation::when(move || looked.load(std::sync::atomic::Ordering::SeqCst)));
        let mut drain = std::pin::pin!(agent.drain(Drain::Shutdown(None)));
        assert!(tokio::time::timeout(Duration::from_millis(200), &mut drain).await.is_err(), "it goes on");
        is_cancelled.store(true, std::sync::atomic::Ordering::SeqCst);
        let error = tokio::time::timeout(Duration::from_secs(20), drain).await.unwrap().unwrap_err();
        assert!(matches!(&error, CallError::Cancelled { method, .. } if method == "drain"), "{error:?}");
        assert_eq!(*told.lock().unwrap(), 1);
    }
}

#[tokio::test]
async fn what_old_agents_do_not_know_is_told_apart_from_failure() {
    let agent = scripted(|method, _| unknown(method)).await;
    let (cid, hint) = disk();
    assert_eq!(agent.info().await.unwrap(), 0);
    assert_eq!(agent.add_persistent_disk(&cid, &hint).await.unwrap(), Outcome::UnknownToAgent);
    assert_eq!(agent.remove_persistent_disk(&cid).await.unwrap(), Outcome::UnknownToAgent);
    assert_eq!(agent.run_script("pre-start", &Default::default()).await.unwrap(), Outcome::UnknownToAgent);
    assert_eq!(agent.update_settings(&Default::default()).await.unwrap(), Outcome::UnknownToAgent);
    let error = agent.mount_disk(&cid, None).await.unwrap_err();
    assert!(matches!(&error, CallError::Exception { method, .. } if method == "mount_disk"), "{error}");
}

#[tokio::test]
async fn a_task_is_waited_for_through_a_restart_of_the_agent() {
    let mut polls = 0;
    let agent = scripted(move |method, arguments| match method {
        "apply" => Some(json!({"value": {"agent_task_id": "t-1", "state": "running"}})),
        "get_task" => {
            assert_eq!(arguments, ["t-1"]);
            polls += 1;
            match polls {
                1 => Some(json!({"value": {"agent_task_id": "t-1", "state": "running"}})),
                // Over the kept connection and over a new one.
                2..5 => None,
                _ => Some(json!({"value": "applied"})),
            }
        }
        other => unknown(other),
    })
    .await;
    agent.apply(&Default::default()).await.unwrap();
}

#[tokio::test]
async fn a_failed_task_is_told_with_the_action_it_was() {
    let agent = scripted(|method, _| match method {
        "stop" => Some(json!({"value": {"agent_task_id": "t-1", "state": "running"}})),
        _ => Some(json!({"exception": {"message": "Action Failed get_task: Task t-1 result: no", "backtrace": ["x"]}})),
    })
    .await;
    let error = agent.stop().await.unwrap_err().to_string();
    assert!(error.contains("failed to stop: Action Failed get_task: Task t-1 result: no"), "{error}");
}

#[tokio::test]
async fn long_words_of_an_agent_are_cut() {
    let agent = scripted(|method, _| {
        let long = "a".repeat(60_000);
        Some(match method {
            "get_state" => json!({"value": {"job_state": long}}),
            "list_disk" => json!({"value": long}),
            _ => json!({"exception": {"message": format!("begin {long} end")}}),
        })
    })
    .await;
    let error = agent.stop().await.unwrap_err().to_string();
    assert!(error.len() < 17_000 && error.contains("failed to stop: begin a") && error.ends_with("a end"), "{error}");
    assert!(error.contains("bytes are left out"), "{error}");
    assert_eq!(agent.get_state(false).await.unwrap().job_state.len(), 255);
    assert!(agent.list_disk().await.unwrap_err().to_string().len() < 17_000);
    let folder = tempfile::tempdir().unwrap();
    let error = agent.get_blob(&"b".repeat(60_000), &folder.path().join("blob"), 1).await.unwrap_err().to_string();
    assert!(error.contains("a blob id of 60000 bytes"), "{error}");
}

#[tokio::test]
async fn a_script_is_not_run_twice_because_a_connection_broke() {
    let runs = Arc::new(Mutex::new(0));
    let count = runs.clone();
    let agent = scripted(move |method, _| match method {
        "ping" => Some(json!({"value": "pong"})),
        _ => {
            *count.lock().unwrap() += 1;
            None
        }
    })
    .await;
    agent.ping().await.unwrap();
    let error = agent.run_script("pre-start", &Default::default()).await.unwrap_err();
    assert!(matches!(error, CallError::Unreachable { stage: Stage::Tls, .. }), "{error:?}");
    assert_eq!(*runs.lock().unwrap(), 1);
}

#[tokio::test]
async fn an_answer_that_is_none_is_told() {
    let agent = scripted(|method, _| match method {
        "ping" => Some(json!({"value": "pang"})),
        _ => Some(json!({"nothing": true})),
    })
    .await;
    for error in [agent.ping().await.unwrap_err(), agent.start().await.unwrap_err()] {
        assert!(matches!(error, CallError::BadReply { .. }), "{error:?}");
    }
    assert!(matches!(agent.list_disk().await, Err(CallError::BadReply { .. })));
}

/// The stage at which a wait gave up, and its last error.
async fn gave_up(agent: &Agent) -> (Stage, String) {
    let started = Instant::now();
    let not_ready = agent.wait_until_ready(Duration::from_millis(100)).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(&not_ready.agent, agent.id());
    (not_ready.stage, format!("{not_ready}: {}", not_ready.last))
}

#[tokio::test]
async fn a_wait_says_how_far_it_got() {
    let certificates = Certificates::new();
    let free = TcpListener::bind((LOOPBACK, 0)).await.unwrap().local_addr().unwrap().port();
    let (stage, message) = gave_up(&certificates.agent(vec![LOOPBACK], free)).await;
    assert_eq!(stage, Stage::VmCreated);
    assert!(message.contains(&format!("127.0.0.1:{free}")) && message.contains("check that the VM runs"), "{message}");
    assert_eq!(gave_up(&certificates.agent(vec![], free)).await.0, Stage::VmCreated);

    // Something else listens there: one that talks at once, one that says nothing.
    let talker = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = talker.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = talker.accept().await {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await;
        }
    });
    assert_eq!(gave_up(&certificates.agent(vec![LOOPBACK], port)).await.0, Stage::AddressAnswers);
    let silent = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port();
    assert_eq!(gave_up(&certificates.agent(vec![LOOPBACK], port)).await.0, Stage::AddressAnswers);

    let agent = scripted(|_, _| Some(json!({"exception": {"message": "restarting agent"}}))).await;
    assert_eq!(gave_up(&agent).await.0, Stage::Authenticated);
    let agent = scripted(|_, _| None).await;
    assert_eq!(gave_up(&agent).await.0, Stage::Tls);
}

/// A VM that somebody else took over must not take the memory of its caller.
#[tokio::test]
async fn an_answer_larger_than_its_action_needs_is_refused() {
    let agent = scripted(|method, _| match method {
        "ping" => Some(json!({"value": "x".repeat(64 * 1024)})),
        "get_state" => Some(json!({"value": {"job_state": "running", "long": "x".repeat(1024 * 1024)}})),
        "list_disk" => Some(json!({"value": vec![0; 25_000]})),
        "fetch_logs" => Some(json!({"value": {"agent_task_id": "1", "state": "running"}})),
        _ => Some(json!({"value": {"value": "x".repeat(64 * 1024)}})),
    })
    .await;
    let said = [
        agent.ping().await.unwrap_err().to_string(),
        agent.get_state(true).await.unwrap_err().to_string(),
        agent.list_disk().await.unwrap_err().to_string(),
        agent.call("fetch_logs", vec![]).await.unwrap_err().to_string(),
    ];
    let problems = [
        "answered ping with more than 65536 bytes",
        "answered get_state with more than 1048576 bytes",
        "answered list_disk with more values than an answer has",
        "answered get_task with more than 65536 bytes",
    ];
    for (said, problem) in said.iter().zip(problems) {
        assert!(said.contains(problem), "{said}");
    }
}

#[tokio::test]
async fn large_answers_come_in_turn_and_small_ones_beside_them() {
    let agent = scripted(|method, _| match method {
        "get_state" => Some(json!({"value": {"job_state": "running", "long": "x".repeat(100 * 1024)}})),
        _ => Some(json!({"value": "pong"})),
    })
    .await;
    let states = (0..20).map(|_| agent.get_state(true));
    let (states, ping) = tokio::join!(futures_util::future::join_all(states), agent.ping());
    assert!(states.iter().all(Result::is_ok), "{states:?}");
    ping.unwrap();
}

#[tokio::test]
async fn a_blob_larger_than_expected_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("blob");
    let agent = scripted_raw("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", &[1_000_000]).await;
    let error = agent.get_blob("id", &into, 100_000).await.unwrap_err().to_string();
    assert!(error.contains("answered GET /blobs with a blob of more than 100000 bytes"), "{error}");
    assert!(!into.exists());
}

/// Each byte comes in time, and all of them would take hours.
#[tokio::test]
async fn a_blob_that_trickles_in_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let agent = scripted_raw("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", &[1; 200]).await;
    let hasty = agent.with_deadlines(Deadlines { message: Duration::from_millis(500), ..Deadlines::default() });
    let error = hasty.get_blob("id", &folder.path().join("blob"), 1 << 20).await.unwrap_err();
    let CallError::TimedOut { method, .. } = &error else { panic!("{error:?}") };
    assert_eq!(method.as_str(), "GET /blobs");
}

/// It would have kept a deploy for the hours that a drain may take.
#[tokio::test]
async fn an_agent_that_takes_no_blob_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blob");
    std::fs::write(&path, [0; 8 << 10]).unwrap();
    let agent = scripted_raw("", &[0; 200]).await;
    let hasty = agent.with_deadlines(Deadlines { message: Duration::from_millis(500), ..Deadlines::default() });
    let error = hasty.put_blob("id", &path).await.unwrap_err();
    let CallError::TimedOut { method, .. } = &error else { panic!("{error:?}") };
    assert_eq!(method.as_str(), "PUT /blobs");
}

/// Nobody asks how the blob goes on that is not there.
#[tokio::test]
async fn a_refusal_of_a_blob_that_trickles_in_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let agent = scripted_raw("HTTP/1.1 404 Not Found\r\nContent-Length: 60000\r\n\r\n", &[1; 200]).await;
    let hasty = agent.with_deadlines(Deadlines { message: Duration::from_millis(500), ..Deadlines::default() });
    let error = hasty.get_blob("id", &folder.path().join("blob"), 1 << 20).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { .. }), "{error:?}");
}

/// VMs of one team could keep the director from understanding those of others, and their errands would fail.
#[tokio::test]
async fn agents_that_never_end_a_large_answer_keep_no_turn_from_others() {
    let agents: Vec<Agent> = futures_util::future::join_all((0..8).map(|_| stalling())).await;
    let ask = async |patience: Duration| {
        let ask = |agent: &Agent| {
            let agent = agent.with_deadlines(Deadlines { message: patience, ..Deadlines::default() });
            async move { agent.get_state(true).await }
        };
        let answers = futures_util::future::join_all(agents.iter().map(ask)).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(CallError::TimedOut { .. }))), "{answers:?}");
    };
    ask(Duration::from_millis(700)).await;
    let others = async {
        // The others are on their way by then.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let long = json!({"value": {"job_state": "running", "long": "x".repeat(100 * 1024)}});
        let agent = scripted(move |_, _| Some(long.clone())).await;
        let agent = agent.with_deadlines(Deadlines { message: Duration::from_secs(2), ..Deadlines::default() });
        agent.get_state(true).await
    };
    let ((), answer) = tokio::join!(ask(Duration::from_secs(4)), others);
    assert!(answer.is_ok(), "{answer:?}");
}

/// Begins a large answer to each message, and never ends it.
async fn stalling() -> Agent {
    let certificates = Certificates::new();
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let agent = certificates.agent(vec![LOOPBACK], listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(certificates.acceptor.accept(stream).await.unwrap());
            let mut line = String::new();
            while stream.read_line(&mut line).await.unwrap() > 2 {
                line.clear();
            }
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
            stream.write_all(format!("{head}{}", "x".repeat(100 * 1024)).as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            open.push(stream);
        }
    });
    agent
}

/// Answers any request with this head and so many bytes, with a pause between each number of them. What was promised beyond them comes
/// at the end.
async fn scripted_raw(head: &'static str, lengths: &'static [usize]) -> Agent {
    let certificates = Certificates::new();
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let agent = certificates.agent(vec![LOOPBACK], listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(certificates.acceptor.accept(stream).await.unwrap());
        let mut line = String::new();
        while stream.read_line(&mut line).await.unwrap() > 2 {
            line.clear();
        }
        stream.write_all(head.as_bytes()).await.unwrap();
        for length in lengths {
            // The caller hangs up in the middle.
            if stream.write_all(&vec![0; *length]).await.is_err() || stream.flush().await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let _ = stream.write_all(&vec![0; 1_000_000 - lengths.iter().sum::<usize>()]).await;
    });
    agent
}

#[tokio::test]
async fn a_silent_agent_costs_no_more_than_the_deadline() {
    let silent = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let agent = Certificates::new().agent(vec![LOOPBACK], silent.local_addr().unwrap().port());
    let hasty = agent.with_deadlines(Deadlines { message: Duration::from_millis(50), ..Deadlines::default() });
    let error = hasty.start().await.unwrap_err();
    let CallError::TimedOut { method, stage, .. } = &error else { panic!("{error:?}") };
    assert_eq!((method.as_str(), *stage), ("start", Stage::AddressAnswers));
}

/// An agent that answers any way in with these bytes, whatever they are, and then ends the connection or keeps it.
async fn lets_in_with(answer: Vec<u8>, keeps: bool) -> Agent {
    let certificates = Certificates::new();
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let agent = certificates.agent(vec![LOOPBACK], listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = certificates.acceptor.accept(stream).await.unwrap();
        let mut asked = vec![0; 4096];
        let _ = stream.read(&mut asked).await;
        let _ = stream.write_all(&answer).await;
        let _ = stream.flush().await;
        while keeps && matches!(stream.read(&mut asked).await, Ok(1..)) {}
    });
    agent
}

fn way_in() -> WayIn {
    WayIn { root: false, work: Work::Run { command: vec!["true".into()] } }
}

/// Input that never ends.
fn endless() -> impl futures_util::Stream<Item = std::io::Result<bytes::Bytes>> + Send + 'static {
    futures_util::stream::pending()
}

async fn let_in(head: &str, body: &[u8]) -> Result<Vec<Result<Frame, String>>, String> {
    let answer = [format!("HTTP/1.1 {head}\r\nTransfer-Encoding: chunked\r\n\r\n").as_bytes(), body].concat();
    let agent = lets_in_with(answer, false).await;
    let mut conversation = agent.let_in(&way_in(), endless()).await.map_err(|error| error.to_string())?;
    let mut said = Vec::new();
    loop {
        match conversation.next().await {
            Ok(Some(frame)) => said.push(Ok(frame)),
            Ok(None) => return Ok(said),
            Err(error) => {
                said.push(Err(windlass_contract::explain(&error)));
                return Ok(said);
            }
        }
    }
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// A VM could make its director wait, grow or fail by what it says to somebody who comes in.
#[tokio::test]
async fn whatever_an_agent_says_to_who_comes_in_is_a_frame_or_an_end() {
    let frames = [Frame::Output(b"out".to_vec()), Frame::Alive, Frame::Ended(3)];
    let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
    let said = let_in("200 OK", &[chunk(&bytes[..4]), chunk(&bytes[4..]), b"0\r\n\r\n".to_vec()].concat()).await;
    assert_eq!(said.unwrap(), frames.map(Ok));
    for garbage in [&b"garbage of a VM"[..], &[5, 0xff, 0xff, 0xff, 0xff], &[8, 0, 0, 0, 1, 0]] {
        let said = let_in("200 OK", &chunk(garbage)).await.unwrap();
        let [Err(why)] = said.as_slice() else { panic!("{said:?}") };
        assert!(why.contains("a frame of"), "{why}");
    }
    // It breaks off.
    let said = let_in("200 OK", &chunk(&frames_of_output())).await.unwrap();
    assert!(matches!(said.as_slice(), [Ok(Frame::Output(_)), Err(_)]), "{said:?}");
    assert!(let_in("404 Not Found", b"0\r\n\r\n").await.unwrap_err().contains("no way in but ssh"));
    let refused = let_in("422 Unprocessable Content", &[chunk(b"not here"), b"0\r\n\r\n".to_vec()].concat()).await;
    assert_eq!(refused.unwrap_err(), "not here");
    let long = let_in("422 Unprocessable Content", &chunk(&vec![b'x'; 100_000])).await.unwrap_err();
    assert!(long.len() < 1000, "{}", long.len());
}

fn frames_of_output() -> Vec<u8> {
    Frame::Output(b"out".to_vec()).encode()
}

/// A VM that says nothing more would hold its visitor for ever.
#[tokio::test]
async fn an_agent_that_does_not_answer_who_comes_in_is_given_up() {
    let agent = lets_in_with(Vec::new(), true).await;
    let agent = agent.with_deadlines(Deadlines { message: Duration::from_millis(200), ..Deadlines::default() });
    let began = Instant::now();
    let error = agent.let_in(&way_in(), endless()).await.unwrap_err();
    assert!(matches!(error, NoWayIn::Call(CallError::TimedOut { .. })), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(20));
}
