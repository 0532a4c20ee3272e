//! Requests to a director's routes, without a network between.

use std::collections::BTreeSet;

use axum::http::{Method, Request};
use base64::Engine;
use serde_json::{Value, json};

use super::*;
use crate::store::{Busy, Event, Lane};
use crate::testing::TestDirector;

/// Needs no credentials.
const OPEN: [&str; 2] = ["/health", "/info"];

/// Every path in a part of the routes' source, with something in the place of its parameters.
fn paths(source: &str) -> BTreeSet<String> {
    let literals = source.split('"').skip(1).step_by(2).filter(|literal| literal.starts_with('/'));
    literals.map(|path| path_with(path, "1")).collect()
}

/// A path with a word in the place of each of its parameters.
pub(super) fn path_with(path: &str, word: &str) -> String {
    path.split('/').map(|part| if part.starts_with('{') { word } else { part }).collect::<Vec<_>>().join("/")
}

fn source() -> &'static str {
    include_str!("mod.rs")
}

fn source_of_admins() -> &'static str {
    source().split("fn for_makers()").nth(1).unwrap().split("\nfn kind_to_read").next().unwrap()
}

const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH];

#[tokio::test]
async fn no_request_without_credentials_gets_more_than_info() {
    let bench = TestDirector::new().await;
    for path in paths(source()) {
        let mut refused = 0;
        for method in METHODS {
            for user in [None, Some("nobody")] {
                let (status, text) = bench.send(user, method.clone(), &path, "{}").await;
                match status {
                    StatusCode::UNAUTHORIZED => {
                        assert_eq!(text, format!("Not authorized: '{path}'\n"), "{method} {path}");
                        refused += 1;
                    }
                    StatusCode::NOT_FOUND => assert_eq!(text, format!("Not Found: {path}"), "{method} {path}"),
                    other => assert!(OPEN.contains(&path.as_str()), "{method} {path} answers {other}: {text}"),
                }
            }
        }
        assert!(
            refused > 0 || OPEN.contains(&path.as_str()) || path.starts_with("/tasks/1") && path.len() < 3,
            "{path} is no route"
        );
    }
    let (_, info) = bench.send(Some("nobody"), Method::GET, "/info", "").await;
    assert_eq!(serde_json::from_str::<Value>(&info).unwrap()["user"], Value::Null);
}

#[tokio::test]
async fn readers_look_and_change_nothing() {
    let bench = TestDirector::new().await;
    let with_names = [BLOB, DEPLOYMENTS, RELEASE].map(|path| path_with(path, "1"));
    for path in paths(source_of_admins()).into_iter().chain(with_names) {
        for method in [Method::POST, Method::PUT, Method::DELETE] {
            let (status, text) = bench.send(Some("reader"), method.clone(), &path, "{}").await;
            let right = status == StatusCode::NOT_FOUND && text.starts_with("Not Found: ")
                || status == StatusCode::UNAUTHORIZED && text.contains("\"code\":600000");
            assert!(right, "{method} {path} answers {status}: {text}");
        }
    }
    for path in ["/deployments", "/configs?latest=true", "/tasks", "/events", "/stemcells", "/locks"] {
        assert_eq!(
            bench.send(Some("reader"), Method::GET, path, "").await,
            (StatusCode::OK, "[]".to_owned()),
            "{path}"
        );
    }
}

/// Every operation that `/openapi.json` describes, with something in the place of its parameters, and whether it needs
/// credentials.
fn operations() -> Vec<(Method, String, bool)> {
    let document = openapi::built();
    let paths = document["paths"].as_object().unwrap();
    let mut operations = Vec::new();
    for (path, described) in paths {
        for (method, operation) in described.as_object().unwrap() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let is_open = operation["security"] == json!([]);
            operations.push((method, path_with(path, "1"), !is_open));
        }
    }
    assert!(operations.len() > 80);
    operations
}

/// These compare and change nothing, although they have bodies.
fn only_looks(method: &Method, path: &str) -> bool {
    method == Method::GET
        || path.ends_with("/diff")
        || path.starts_with("/packages/matches")
        || path == "/stemcell_uploads"
        || path == "/windlass/plan"
}

/// Generated from what is described, so that a route that comes with the next change is tried as well.
#[tokio::test]
async fn every_operation_wants_credentials_and_every_change_those_of_an_admin() {
    let bench = TestDirector::new().await;
    let everything_known = async || {
        let mut known = Vec::new();
        for path in ["/tasks?verbose=2", "/configs?latest=false", "/events", "/resurrection", "/deployments"] {
            known.push(bench.ask(Method::GET, path, "").await.1);
        }
        known
    };
    let before = everything_known().await;
    for (method, path, is_closed) in operations() {
        for user in [None, Some("nobody")] {
            let (status, text) = bench.send(user, method.clone(), &path, "{}").await;
            let expected = if is_closed { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
            assert_eq!(status, expected, "{method} {path} without credentials: {text}");
        }
        let (status, text) = bench.send(Some("reader"), method.clone(), &path, "{}").await;
        if is_closed && !only_looks(&method, &path) {
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {path} as reader: {text}");
        }
        assert!(!text.starts_with("Not Found: "), "{method} {path} is described, but no route");
    }
    assert_eq!(everything_known().await, before, "nobody without an admin's credentials changed anything");
}

/// Bodies of every kind, good and bad, the same in every run.
fn bodies() -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = [
        "",
        "{}",
        "[]",
        "null",
        "7",
        "\"x\"",
        "{\"a\":",
        "[[[[",
        "a: [",
        "- - -",
        "{\"type\": 7, \"name\": [], \"content\": {}}",
        "{\"resolutions\": {\"x\": null}}",
        "{\"jobs\": {\"g\": [7]}}",
        "{\"stemcell\": {}}",
        "name: {a: b}",
        "name: d\ninstance_groups: 7\n",
        "{\"location\": \"file:///etc/passwd\"}",
        "a: &a [*a]",
        "\u{feff}a: b",
        "---\n---\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    let mut seed = 1_u64;
    for length in (0..400).step_by(17) {
        let byte = |_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 56) as u8
        };
        bodies.push((0..length).map(byte).collect());
    }
    bodies.push([b"{\"a\":".repeat(5000), b"1".to_vec(), b"}".repeat(5000)].concat());
    bodies.push(b"[".repeat(100_000));
    bodies.push([&b"a: "[..], &b"[".repeat(100_000)].concat());
    bodies
}

/// Whatever an admin sends by mistake is answered, and never with a failure of the director.
#[tokio::test]
async fn no_body_and_no_path_makes_the_director_fail() {
    let bench = TestDirector::new().await;
    let odd = ["1", "-1", "%00", "%2e%2e%2f%2e%2e", "%F0%9F%92%A9", "9223372036854775808", "a'%20OR%20'1'='1", "*"];
    for (method, path, _) in operations() {
        let has_body = matches!(method, Method::POST | Method::PUT);
        let bodies = if has_body { bodies() } else { vec![Vec::new()] };
        for body in bodies {
            // Only uploads look at it.
            let kinds: &[&str] = match path.as_str() {
                "/stemcells" | "/releases" => &["application/json", "application/x-compressed", "text/plain"],
                _ => &["application/json"],
            };
            for kind in kinds {
                let pair = base64::engine::general_purpose::STANDARD.encode("admin:admin-password");
                let request = Request::builder().method(method.clone()).uri(&path);
                let request = request.header(header::AUTHORIZATION, format!("Basic {pair}"));
                let request = request.header(header::CONTENT_TYPE, *kind);
                let (status, text) = bench.answer(request.body(body.clone().into()).unwrap()).await;
                let sent = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
                assert!(!status.is_server_error(), "{method} {path} with {kind} '{sent}' answers {status}: {text}");
            }
        }
    }
    for word in odd {
        for (method, path, _) in operations() {
            let path = path.split('/').map(|part| if part == "1" { word } else { part }).collect::<Vec<_>>().join("/");
            for query in ["", "?limit=x&force=7&state=%00&before_time=%FF&context=%7B"] {
                let (status, text) = bench.send(Some("admin"), method.clone(), &format!("{path}{query}"), "{}").await;
                assert!(!status.is_server_error(), "{method} {path}{query} answers {status}: {text}");
            }
        }
    }
}

#[tokio::test]
async fn configs_of_every_type_come_change_and_go() {
    let bench = TestDirector::new().await;
    let (status, empty) = bench.ask(Method::GET, "/cloud_configs?limit=1&name=", "").await;
    assert_eq!((status, empty), (StatusCode::OK, json!([])));
    for (path, content) in [
        ("/cloud_configs?name=", "azs: [{name: z1}]\n"),
        ("/runtime_configs?name=", "tags: {a: b}\n"),
        ("/cpi_configs", "cpis: []\n"),
    ] {
        let (status, answer) = bench.ask(Method::POST, path, content).await;
        assert_eq!(status, StatusCode::CREATED, "{path}: {answer}");
        assert_eq!(bench.ask(Method::POST, path, content).await.0, StatusCode::CREATED, "the same again: {path}");
    }
    let (_, listed) = bench.ask(Method::GET, "/configs?latest=false&limit=9", "").await;
    let kinds: Vec<_> = listed.as_array().unwrap().iter().map(|config| config["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["cloud", "cpi", "runtime"], "what is posted again is no new version");

    let new = |content: &str, expected: &str| {
        json!({"type": "deploy", "name": "n", "content": content, "expected_latest_id": expected}).to_string()
    };
    let compared = json!({"type": "deploy", "name": "n", "content": "a: 1\n"}).to_string();
    let (_, first) = bench.ask(Method::POST, "/configs/diff", compared.clone()).await;
    assert_eq!(first, json!({"from": {"id": "0"}, "diff": [["a: 1", "added"]]}));
    let (status, one) = bench.ask(Method::POST, "/configs", new("a: 1\n", "0")).await;
    assert_eq!((status, &one["current"], &one["name"]), (StatusCode::CREATED, &json!(true), &json!("n")));
    let (status, refusal) = bench.ask(Method::POST, "/configs", new("a: 2\n", "0")).await;
    assert_eq!(status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(refusal["latest_id"], one["id"], "{refusal}");
    let (_, two) = bench.ask(Method::POST, "/configs", new("a: 2\n", one["id"].as_str().unwrap())).await;
    let both = json!({"from": {"id": one["id"], "content": ""}, "to": {"id": two["id"], "content": ""}}).to_string();
    let (_, change) = bench.ask(Method::POST, "/configs/diff", both).await;
    assert_eq!(change, json!({"diff": [["a: 1", "removed"], ["", null], ["a: 2", "added"]]}));
    let (_, old) = bench.ask(Method::GET, &format!("/configs/{}", one["id"].as_str().unwrap()), "").await;
    assert_eq!(old["current"], json!(false));
    let (_, recent) = bench.ask(Method::GET, "/configs?latest=false&limit=2&type=deploy", "").await;
    assert_eq!(recent.as_array().unwrap().len(), 2);

    assert_eq!(bench.ask(Method::DELETE, "/configs?type=deploy&name=n", "").await.0, StatusCode::NO_CONTENT);
    let (status, text) = bench.ask(Method::DELETE, "/configs?type=deploy&name=n", "").await;
    assert_eq!((status, text), (StatusCode::NOT_FOUND, json!("Endpoint '/configs' not found.")));
    assert_eq!(bench.ask(Method::GET, "/configs?latest=true&type=deploy", "").await.1, json!([]));

    let (_, events) = bench.ask(Method::GET, "/events", "").await;
    let events: Vec<_> = events.as_array().unwrap().iter().rev().map(|event| event["object_type"].clone()).collect();
    assert_eq!(events[..2], [json!("cloud-config"), json!("cloud-config")]);
    assert_eq!(events[6..], [json!("config/deploy"), json!("config/deploy"), json!("config/deploy")]);
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_with_its_place() {
    let bench = TestDirector::new().await;
    for (method, path, body, expected) in [
        (Method::POST, "/cloud_configs", "azs: [", "line 2, column 1"),
        (Method::POST, "/cloud_configs?verbatim=true", "azs: 7\n", "azs"),
        (Method::POST, "/configs", "{\"type\":", "line 1 column 8"),
        (Method::POST, "/configs", "{\"type\":\"t\",\"name\":\"\",\"content\":\"{}\"}", "'name' must be"),
        (Method::POST, "/configs", "{\"type\":\"t\",\"name\":\"n\",\"content\":\"[]\"}", "must be a map"),
        (Method::POST, "/configs/diff", "{\"from\":{\"id\":\"1\",\"content\":\"x\"},\"to\":{}}", "not both"),
        (Method::GET, "/configs?limit=0", "", "'limit'"),
        (Method::GET, "/events?before_time=yesterday", "", "'before_time' is 'yesterday'"),
        (Method::GET, "/events?task=-1", "", "'task' must be a number"),
        (Method::POST, "/tasks/cancel", "{\"states\":[\"done\"]}", "'done'"),
        (Method::POST, "/deployments", "name: [", "line 2, column 1"),
        (Method::POST, "/deployments", "name: ../x\n", "'../x'"),
    ] {
        let (status, answer) = bench.ask(method.clone(), path, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{method} {path}: {answer}");
        let description = answer["description"].as_str().unwrap_or_default();
        assert!(description.contains(expected), "{method} {path}: expected '{expected}' in {answer}");
    }
    let huge = "a".repeat(LARGEST_DOCUMENT + 1);
    for path in ["/cloud_configs", "/configs", "/deployments", "/deployments/d/diff"] {
        let (status, answer) = bench.ask(Method::POST, path, huge.clone()).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{path}: {answer}");
    }
    for path in ["/tasks/x", "/tasks/99999999999999999999", "/events/x", "/configs/x", "/deployments/none"] {
        assert_eq!(bench.ask(Method::GET, path, "").await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn events_are_found_by_what_is_known_of_them() {
    let bench = TestDirector::new().await;
    let store = &bench.director.store;
    let begun = Event { task: Some(7), deployment: Some("d".into()), ..Event::new("me", "delete", "vm", Some("vm-1")) };
    let begun = store.add_event(&begun).await.unwrap();
    store.end_event(begun, Some("it broke")).await.unwrap();
    let other = json!({"action": "create", "object_type": "alert", "object_name": "x"}).to_string();
    assert_eq!(bench.ask(Method::POST, "/events", other).await.0, StatusCode::OK);
    let (_, ended) = bench.ask(Method::GET, &format!("/events/{}", begun + 1), "").await;
    let expected = json!({
        "id": (begun + 1).to_string(), "parent_id": begun.to_string(), "timestamp": ended["timestamp"], "user": "me",
        "action": "delete", "object_type": "vm", "object_name": "vm-1", "error": "it broke", "task": "7",
        "deployment": "d", "context": {},
    });
    assert_eq!(ended, expected);
    for (query, count) in [
        ("", 3),
        ("task=7", 2),
        ("deployment=d&action=delete", 2),
        ("object_name=vm-1&user=me", 2),
        ("object_type=alert", 1),
        ("user=admin", 1),
        ("instance=db/1", 0),
        (&format!("before_id={}", begun + 1), 1),
        ("before_time=2020-01-01%2000:00:00%20UTC", 0),
        ("after_time=2020-01-01%2000:00:00%20UTC", 3),
    ] {
        let (_, found) = bench.ask(Method::GET, &format!("/events?{query}"), "").await;
        assert_eq!(found.as_array().unwrap().len(), count, "{query}: {found}");
    }
}

#[tokio::test]
async fn operators_see_when_certificates_end() {
    let bench = TestDirector::new().await;
    let keychain =
        windlass_pki::Keychain::new(&bench.director.folders.pki(), vec!["localhost".into()], Default::default());
    keychain.refresh(time::OffsetDateTime::now_utc(), false).unwrap();
    let (_, listed) = bench.ask(Method::GET, "/director/certificate_expiry", "").await;
    let server = listed.as_array().unwrap().iter().find(|one| one["certificate_path"] == "server.pem").unwrap();
    assert!(server["days_left"].as_i64().unwrap() > 300, "{listed}");
    assert!(windlass_operations::clock::parse(server["expiry"].as_str().unwrap()).is_some(), "{listed}");
}

#[tokio::test]
async fn errands_with_names_that_nothing_can_have_make_no_task() {
    let bench = TestDirector::new().await;
    bench.director.store.add_deployment(&"a".into(), &[]).await.unwrap();
    for name in ["e%1B[2Jvil", "a%2Fb", "..%0A", &"a".repeat(300)] {
        let (status, answer) = bench.ask(Method::POST, &format!("/deployments/a/errands/{name}/runs"), "{}").await;
        assert_eq!((status, &answer["code"]), (StatusCode::BAD_REQUEST, &json!(70009)), "{name}: {answer}");
    }
    assert_eq!(bench.ask(Method::GET, "/tasks?verbose=2", "").await.1, json!([]));
}

/// The path of the task that an answer leads to.
pub(super) async fn location(bench: &TestDirector, user: &str, method: Method, path: &str, body: &str) -> String {
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{user}-password"));
    let request = Request::builder().method(method).uri(path).header(header::AUTHORIZATION, format!("Basic {pair}"));
    let answer = bench.whole_answer(request.body(body.to_owned().into()).unwrap()).await;
    assert_eq!(answer.status(), StatusCode::FOUND);
    answer.headers()[header::LOCATION].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn who_asks_for_the_same_look_gets_the_task_that_has_not_begun() {
    let bench = TestDirector::new().await;
    for deployment in ["a", "b"] {
        bench.director.store.add_deployment(&deployment.into(), &[]).await.unwrap();
    }
    let look = |user: &'static str, path: &'static str| location(&bench, user, Method::GET, path, "");
    let first = look("reader", "/deployments/a/vms?format=full").await;
    for _ in 0..400 {
        assert_eq!(look("reader", "/deployments/a/vms?format=full").await, first);
    }
    for (user, path) in [
        ("admin", "/deployments/a/vms?format=full"),
        ("reader", "/deployments/b/vms?format=full"),
        ("reader", "/deployments/a/instances?format=full"),
    ] {
        assert_ne!(look(user, path).await, first);
    }
    // What has begun may be older than the question.
    bench.director.store.claim_task::<Job>("me", Lane::LookUps, &Busy::default()).await.unwrap().unwrap();
    assert_ne!(look("reader", "/deployments/a/vms?format=full").await, first);
}

#[tokio::test]
async fn looks_do_not_stand_in_the_way_of_work() {
    let bench = TestDirector::new().await;
    bench.director.store.add_deployment(&"a".into(), &[]).await.unwrap();
    location(&bench, "reader", Method::GET, "/deployments/a/vms?format=full", "").await;
    let work = location(&bench, "admin", Method::POST, "/deployments", "name: a").await;
    let claimed = bench.director.store.claim_task::<Job>("me", Lane::Work, &Busy::default()).await.unwrap().unwrap();
    assert_eq!(format!("/tasks/{}", claimed.record.id), work);
    assert!(bench.director.store.claim_task::<Job>("me", Lane::Work, &Busy::default()).await.unwrap().is_none());
    let claimed = bench.director.store.claim_task::<Job>("me", Lane::LookUps, &Busy::default()).await.unwrap().unwrap();
    assert_eq!(claimed.job.unwrap().kind(), "vms");
}

#[tokio::test]
async fn who_has_very_many_tasks_is_asked_to_wait() {
    let bench = TestDirector::new().await;
    bench.director.store.add_deployment(&"a".into(), &[]).await.unwrap();
    bench
        .director
        .store
        .tamper(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
             INSERT INTO tasks (state, type, description, username, context_id, job, created_at)
             SELECT 'queued', 'x', '', 'admin', '', '{}', 0 FROM n",
        )
        .await;
    let (status, answer) = bench.ask(Method::POST, "/deployments", "name: a").await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{answer}");
    let said = "the user 'admin' has 500 tasks that have not ended; wait for them, or cancel some with cancel-tasks";
    assert_eq!(answer["description"], said);
    location(&bench, "reader", Method::GET, "/deployments/a/vms?format=full", "").await;
    bench.director.store.tamper("UPDATE tasks SET state = 'done' WHERE id = 1").await;
    location(&bench, "admin", Method::POST, "/deployments", "name: a").await;
}

#[tokio::test]
async fn a_document_larger_than_any_is_refused() {
    let bench = TestDirector::new().await;
    for path in ["/deployments/x/diff", "/windlass/plan", "/cloud_configs/diff"] {
        let huge = format!("name: {}\n", "x".repeat(LARGEST_DOCUMENT));
        let (status, answer) = bench.send(Some("reader"), Method::POST, path, huge).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{path}: {answer}");
    }
}

/// Somebody would plan what no deploy takes, or see a row without a name.
#[tokio::test]
async fn a_plan_and_a_deploy_refuse_the_same_names() {
    let bench = TestDirector::new().await;
    bench.director.store.add_deployment(&"\u{a0}".into(), &[]).await.unwrap();
    for path in ["/windlass/plan", "/deployments"] {
        for (name, why) in [
            (" ", "a name needs a letter that can be seen"),
            ("\u{3000}", "a name needs a letter that can be seen"),
            ("\u{2800}", "a name must not contain the letter U+2800, which cannot be printed"),
            ("a\u{202e}b", "a name must not contain the letter U+202E, which cannot be printed"),
        ] {
            let (status, answer) = bench.ask(Method::POST, path, format!("name: \"{name}\"")).await;
            let said = json!({"code": 440001, "description": format!("the manifest cannot be used: name: {why}")});
            assert_eq!((status, answer), (StatusCode::BAD_REQUEST, said), "{path} {name:?}");
        }
        // What is there keeps its name.
        let (_, answer) = bench.send(Some("admin"), Method::POST, path, "name: \"\u{a0}\"").await;
        assert!(!answer.contains("440001"), "{path}: {answer}");
    }
}
