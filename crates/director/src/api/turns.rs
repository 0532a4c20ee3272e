//! Requests wait for their turn: those with documents for one of their user's places, lists for another one of those, and then for
//! each other. A client that takes an answer slowly keeps a place of its own, and no turn of others. Nor does an answer for which somebody
//! else is asked keep a turn of lists, or one that somebody waits for who is not making it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Body as _;
use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit};
use windlass_connections::Held;

use super::auth::only_looks;
use super::{ApiError, BLOB, CERTIFICATES, DEPLOYMENTS, EXPLAIN, INSTANCES, OUTPUT, RELEASE, RUBBISH, TASK, User, VMS};
use crate::Director;
use crate::limits::Limits;

/// An answer of so many bytes keeps no place: a connection has as much anyway.
const SMALL: u64 = 64 << 10;

/// Lets a request of a known user wait for its turn before anything of its body is read.
pub(super) async fn in_turn(State(director): State<Arc<Director>>, request: Request, next: Next) -> Response {
    let Some(user) = request.extensions().get::<User>().map(|user| user.name.clone()) else {
        return ApiError::unauthorized(600000, "credentials are needed").into_response();
    };
    if only_looks(request.method()) {
        let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
        let (place, turn) = wait(&director.limits, path, director.users.party(&user)).await;
        let answer = next.run(request).await;
        drop(turn);
        // What is streamed, or small, is not kept in memory until the client takes it.
        return match answer.body().size_hint().exact() {
            Some(length) if length > SMALL => placed(answer, place),
            _ => answer,
        };
    }
    let place = director.limits.place_of(&user).await;
    // Answers may be as large as what was asked.
    placed(next.run(request).await, place)
}

/// Waits for one of a user's places, and for a turn where whoever answers does not take it.
async fn wait<'l>(
    limits: &'l Limits,
    path: &str,
    user: &str,
) -> (Option<OwnedSemaphorePermit>, Option<SemaphorePermit<'l>>) {
    match path {
        // Who makes the answer takes the turn, and others wait for the same answer without one.
        DEPLOYMENTS | VMS | INSTANCES => (limits.lists.place_of(user).await, None),
        CERTIFICATES => (limits.asking.place_of(user).await, None),
        TASK | OUTPUT => (limits.following.place_of(user).await, limits.following.turn().await),
        BLOB | RELEASE | RUBBISH => (limits.asking.place_of(user).await, limits.asking.turn().await),
        EXPLAIN => (limits.lists.place_of(user).await, limits.explaining().await),
        _ => (limits.lists.place_of(user).await, limits.lists.turn().await),
    }
}

fn placed(answer: Response, place: Option<OwnedSemaphorePermit>) -> Response {
    answer.map(|body| Body::new(Held::new(body, place)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::{Method, StatusCode, header};
    use serde_json::json;

    use super::*;
    use crate::limits::LISTS_OF_A_USER;
    use crate::testing::TestDirector;

    async fn ask_for(patience: Duration, test: &TestDirector, user: &str, path: &str) -> Option<Response> {
        let request = Request::builder().uri(path).header(header::AUTHORIZATION, test.basic(user));
        tokio::time::timeout(patience, test.whole_answer(request.body(Body::empty()).unwrap())).await.ok()
    }

    async fn ask(test: &TestDirector, user: &str, path: &str) -> Option<Response> {
        ask_for(Duration::from_secs(30), test, user, path).await
    }

    /// Forty answers that nobody takes were kept in memory, and five hundred would have been.
    #[tokio::test]
    async fn who_does_not_take_large_answers_gets_no_more_of_them_and_others_are_served() {
        let test = TestDirector::new().await;
        let config =
            json!({"type": "x", "name": "large", "content": format!("a: {}", "y".repeat(100_000))}).to_string();
        let (status, said) = test.send(Some("shop-admin"), Method::POST, "/configs", config).await;
        assert_eq!(status, StatusCode::CREATED, "{said}");
        let large = "/configs?latest=true";
        let mut untaken = Vec::new();
        for _ in 0..LISTS_OF_A_USER {
            let answer = ask(&test, "reader", large).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            untaken.push(answer);
        }
        assert!(ask_for(Duration::from_millis(200), &test, "reader", large).await.is_none(), "nothing bounds it");
        assert!(ask(&test, "admin", large).await.is_some(), "others wait");
        untaken.pop();
        assert!(ask(&test, "reader", large).await.is_some());
        drop(untaken);
        // Small ones are sent at once, and keep no place.
        let mut small = Vec::new();
        for _ in 0..20 {
            small.push(ask(&test, "reader", "/stemcells").await.unwrap());
        }
    }

    /// Two readers who announced bodies and sent none kept everybody from all lists.
    #[tokio::test]
    async fn who_looks_is_answered_before_a_body_that_never_comes() {
        let test = TestDirector::new().await;
        test.director.store.add_deployment(&"shop".into(), &[]).await.unwrap();
        for method in [Method::GET, Method::HEAD] {
            let never = futures_util::stream::pending::<std::io::Result<String>>();
            let request = Request::builder().method(method.clone()).uri("/deployments/shop/vms");
            let request = request.header(header::AUTHORIZATION, test.basic("reader"));
            let answer = test.whole_answer(request.body(Body::from_stream(never)).unwrap());
            let answer = tokio::time::timeout(Duration::from_secs(30), answer).await;
            assert_eq!(answer.map(|answer| answer.status()), Ok(StatusCode::OK), "{method}");
        }
    }

    /// Two megabytes of such values took gigabytes, and stopped everybody for half a minute.
    #[tokio::test]
    async fn bodies_of_very_many_values_are_refused_before_they_take_memory() {
        let test = TestDirector::new().await;
        let values = format!("[{}0]", "{\"\":0},".repeat(30_000));
        for (user, method, path, key) in [
            ("shop-admin", Method::POST, "/links", "link_consumer"),
            ("secret-keeper", Method::PUT, "/v1/data", "value"),
            ("admin", Method::POST, "/events", "context"),
        ] {
            let body = format!("{{\"name\":\"/x\",\"{key}\":{values}}}");
            let request = Request::builder().method(method).uri(path).header(header::AUTHORIZATION, test.basic(user));
            let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body)).unwrap();
            let (status, said) = test.answer(request).await;
            assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{path}: {said}");
            assert!(said.contains("more than 50000 values"), "{path}: {said}");
        }
    }

    /// Two users could stop all lists of everybody for as long as another config server takes its time, and each deploy's client.
    #[tokio::test]
    async fn who_waits_for_a_config_server_keeps_nobody_from_lists_and_tasks() {
        let all = [("shopdep", "shop"), ("bankdep", "bank")];
        let (test, mut asked) = TestDirector::with_silent_config_server(&all).await;
        let job = crate::tasks::Job::Scan { deployment: "shopdep".into() };
        let task = crate::store::NewTask { job, user: "me".into(), context_id: String::new() };
        test.director.store.add_task(&task).await.unwrap();
        let attacks = [("shop-admin", "shopdep"), ("bank-admin", "bankdep")].into_iter().cycle();
        let of = |deployment: &str| format!("/deployments/{deployment}/certificate_expiry");
        let attacks: Vec<_> = attacks.take(2 * LISTS_OF_A_USER).map(|(user, name)| (user, of(name))).collect();
        let attacks = futures_util::future::join_all(attacks.iter().map(|(user, path)| ask(&test, user, path)));
        let others = async {
            // One of each deployment is under way.
            for _ in 0..2 {
                asked.recv().await.unwrap();
            }
            for path in ["/deployments", "/tasks", "/tasks/1", "/tasks/1/output?type=event", "/configs?latest=true"] {
                for user in ["admin", "shop-admin"] {
                    let answer = ask_for(Duration::from_secs(10), &test, user, path).await;
                    assert!(answer.is_some_and(|answer| answer.status().is_success()), "{user}: {path}");
                }
            }
        };
        tokio::select! {
            _ = attacks => panic!("the config server answered"),
            () = others => {}
        }
    }

    /// Eight users who looked at the same large deployment at once stopped all lists.
    #[tokio::test]
    async fn who_waits_for_the_same_answer_as_others_keeps_no_turn() {
        let test = TestDirector::new().await;
        let director = &test.director;
        director.store.add_deployment(&"shop".into(), &[]).await.unwrap();
        let (begun_told, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let make = async || {
            begun_told.send(()).unwrap();
            std::future::pending::<Result<Vec<u8>, ApiError>>().await
        };
        let first = director.known_answers.get("vms of shop".to_owned(), || 1, make);
        let same = ["reader", "admin"].into_iter().cycle().take(2 * LISTS_OF_A_USER);
        let same = futures_util::future::join_all(same.map(|user| ask(&test, user, "/deployments/shop/vms")));
        let others = async {
            begun.recv().await.unwrap();
            for path in ["/stemcells", "/deployments", "/tasks"] {
                let answer = ask_for(Duration::from_secs(10), &test, "shop-admin", path).await;
                assert!(answer.is_some_and(|answer| answer.status().is_success()), "{path}");
            }
        };
        tokio::select! {
            _ = first => panic!("it was not pending"),
            _ = same => panic!("they did not wait"),
            () = others => {}
        }
    }

    /// A client that follows a deploy waited for the lists of others.
    #[tokio::test]
    async fn who_follows_a_task_waits_for_no_lists() {
        let test = TestDirector::new().await;
        let director = &test.director;
        let job = crate::tasks::Job::DeleteOrphanedVms;
        let task = crate::store::NewTask { job, user: "me".into(), context_id: String::new() };
        director.store.add_task(&task).await.unwrap();
        let mut held = Vec::new();
        for _ in 0..LISTS_OF_A_USER {
            held.push(director.limits.lists.place_of("admin").await);
        }
        for path in ["/tasks/1", "/tasks/1/output?type=event"] {
            let answer = ask_for(Duration::from_secs(10), &test, "admin", path).await;
            assert!(answer.is_some_and(|answer| answer.status().is_success()), "{path}");
        }
    }
}
