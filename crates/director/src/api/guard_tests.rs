//! What keeps strangers, guesses, large documents and odd names from doing harm; and how a lock is removed by hand.

use axum::http::{Method, Request};
use base64::Engine;
use serde_json::json;

use super::tests::location;
use super::*;
use crate::store::Lane;
use crate::testing::TestDirector;

#[tokio::test]
async fn a_manifest_of_more_packages_than_any_release_has_is_refused() {
    let bench = TestDirector::new().await;
    let package = |number: usize| {
        format!("- {{name: p{number}, version: v{number}, fingerprint: f{number}, sha1: s, dependencies: []}}\n")
    };
    let manifest = |count: usize| {
        let packages: String = (0..count).map(package).collect();
        format!("name: r\nversion: '1'\ncommit_hash: c\nuncommitted_changes: false\njobs: []\npackages:\n{packages}")
    };
    for (count, said) in [(5_000, "the manifest has 5000 packages; 2000 are the most"), (20_000, "values")] {
        let (status, answer) = bench.send(Some("reader"), Method::POST, "/packages/matches", manifest(count)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert!(answer.contains(said), "{answer}");
    }
    let (status, answer) = bench.send(Some("reader"), Method::POST, "/packages/matches", manifest(1200)).await;
    assert_eq!((status, answer.as_str()), (StatusCode::OK, "[]"));
}

#[tokio::test]
async fn which_files_change_is_told_to_admins_alone() {
    let bench = TestDirector::new().await;
    let config = crate::store::NewConfig::new("cloud", "default", "azs: [{name: z1}]\n");
    bench.director.store.add_config(config, |_| true).await.unwrap();
    let manifest = "name: shop\nreleases: []\nstemcells: []\nupdate: {canaries: 1, max_in_flight: 1, canary_watch_time: 1, \
        update_watch_time: 1}\ninstance_groups: []\n";
    let path = "/windlass/changed_files?deployment=shop";
    assert_eq!(bench.send(Some("reader"), Method::POST, path, manifest).await.0, StatusCode::UNAUTHORIZED);
    let answer = bench.send(Some("admin"), Method::POST, path, manifest).await;
    assert_eq!(answer, (StatusCode::OK, r#"{"files":[],"notes":[]}"#.to_owned()));
}

#[tokio::test]
async fn a_lock_is_removed_unless_its_task_runs() {
    let bench = TestDirector::new().await;
    let store = &bench.director.store;
    let path = "/windlass/locks/deployment%3Aa";
    let (status, answer) = bench.ask(Method::DELETE, path, "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(answer["description"].as_str().unwrap().contains("there is no lock 'deployment:a'"), "{answer}");
    store.add_deployment("a", &[]).await.unwrap();
    location(&bench, "admin", Method::POST, "/deployments", "name: a").await;
    let task = store.claim_task::<Job>("me", Lane::Work, &[]).await.unwrap().unwrap().record.id;
    store.take_lock("deployment:a", task, "me").await.unwrap();
    bench.director.workers.pretend_to_run(&bench.director, task);
    let (status, answer) = bench.ask(Method::DELETE, path, "").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(answer["description"].as_str().unwrap().contains(&format!("task {task} runs")), "{answer}");
    assert_eq!(store.holder("deployment:a").await.unwrap(), Some(task));
    bench.director.workers.pretend_to_end(task);
    assert!(store.resume_task(task).await.unwrap());
    let (status, answer) = bench.ask(Method::DELETE, path, "").await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    assert!(answer["description"].as_str().unwrap().contains("about to go on"), "{answer}");
    store.claim_task::<Job>("me", Lane::Work, &[]).await.unwrap().unwrap();
    assert_eq!(bench.send(Some("reader"), Method::DELETE, path, "").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(bench.ask(Method::DELETE, path, "").await.0, StatusCode::NO_CONTENT);
    assert_eq!(store.holder("deployment:a").await.unwrap(), None);
    assert_eq!(store.task(task).await.unwrap().unwrap().state, crate::store::TaskState::Error, "nobody would end it");
}

#[tokio::test]
async fn health_is_told_by_writing_and_at_most_once_a_second() {
    let bench = TestDirector::new().await;
    let ask = || bench.send(None, Method::GET, "/health", "");
    assert_eq!(ask().await, (StatusCode::OK, "ok\n".to_owned()));
    bench.director.store.tamper("DROP TABLE attributes").await;
    assert_eq!(ask().await.0, StatusCode::OK, "strangers do not make the director write");
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_eq!(ask().await, (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n".to_owned()));
}

/// A browser adds the password that it remembers to what any page lets it send.
#[tokio::test]
async fn what_pages_of_others_let_a_browser_send_is_refused() {
    let bench = TestDirector::new().await;
    let send = async |method: Method, path: &str, headers: &[(&str, &str)]| {
        let pair = base64::engine::general_purpose::STANDARD.encode("admin:admin-password");
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::AUTHORIZATION, format!("Basic {pair}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        bench.answer(request.body("cpis: []\n".to_owned().into()).unwrap()).await.0
    };
    for headers in [
        &[("origin", "https://evil.example"), ("content-type", "text/plain")][..],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "null")],
    ] {
        for path in ["/cpi_configs", "/deployments?dry_run=true", "/configs", "/tasks/cancel"] {
            assert_eq!(send(Method::POST, path, headers).await, StatusCode::FORBIDDEN, "{path} {headers:?}");
        }
    }
    assert_eq!(send(Method::GET, "/tasks", &[("sec-fetch-site", "cross-site")]).await, StatusCode::FORBIDDEN);
    assert_eq!(send(Method::GET, "/tasks", &[("sec-fetch-site", "none")]).await, StatusCode::OK);
    assert_eq!(send(Method::POST, "/cpi_configs", &[]).await, StatusCode::CREATED);
}

#[tokio::test]
async fn who_tries_passwords_is_answered_slowly_and_who_knows_one_is_not() {
    let bench = TestDirector::new().await;
    let eve = windlass_connections::Peer::new(([192, 0, 2, 1], 7).into());
    let send = async |path: &str, pair: &str| {
        let pair = base64::engine::general_purpose::STANDARD.encode(pair);
        let request = Request::builder().uri(path).header(header::AUTHORIZATION, format!("Basic {pair}"));
        let begun = std::time::Instant::now();
        let (status, _) = bench.answer(request.extension(eve.clone()).body("".into()).unwrap()).await;
        (status, begun.elapsed().as_millis())
    };
    for path in ["/tasks", "/info", "/tasks", "/info"] {
        send(path, "admin:guess").await;
    }
    for path in ["/tasks", "/info"] {
        assert!(send(path, "admin:guess").await.1 >= 500, "{path}");
    }
    let (status, took) = send("/tasks", "admin:admin-password").await;
    assert!(status == StatusCode::OK && took < 500, "{status} after {took} ms");
}

#[test]
fn connections_leave_files_for_everything_else() {
    assert_eq!(most_connections(512, 64), 32);
    assert_eq!(most_connections(512, 1024), 512);
    assert_eq!(most_connections(512, u64::MAX), 512);
}

#[tokio::test]
async fn nothing_new_gets_a_name_that_deceives_and_what_has_one_keeps_it() {
    let bench = TestDirector::new().await;
    let odd = ["\"n\\0ul\"", "\"a\\nb\"", "\"\\u202eabc\"", "..", &"a".repeat(5000)];
    for name in odd {
        let (status, answer) = bench.ask(Method::POST, "/deployments", format!("name: {name}\n")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{name}: {answer}");
    }
    assert_eq!(bench.ask(Method::GET, "/deployments", "").await.1, json!([]));
    bench.director.store.add_deployment("a\nb", &[]).await.unwrap();
    let (status, answer) = bench.ask(Method::POST, "/deployments", "name: \"a\\nb\"\n").await;
    assert_eq!(status, StatusCode::FOUND, "{answer}");
}
