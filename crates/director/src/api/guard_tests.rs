//! What keeps strangers, guesses, large documents and odd names from doing harm; and how a lock is removed by hand.

use axum::body::Body;
use axum::http::{Method, Request};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use base64::Engine;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::json;

use super::tests::location;
use super::*;
use crate::store::{Busy, Lane, LockName};
use crate::testing::TestDirector;
use windlass_planning::records::{JobRecord, ReleaseRecord};

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
    store.add_deployment(&"a".into(), &[]).await.unwrap();
    location(&bench, "admin", Method::POST, "/deployments", "name: a").await;
    let task = store.claim_task::<Job>("me", Lane::Work, &Busy::default()).await.unwrap().unwrap().record.id;
    store.take_lock(&LockName::of_deployment(&"a".into()), task, "me").await.unwrap();
    bench.director.workers.pretend_to_run(&bench.director, task);
    let (status, answer) = bench.ask(Method::DELETE, path, "").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(answer["description"].as_str().unwrap().contains(&format!("task {task} runs")), "{answer}");
    assert_eq!(store.holder(&LockName::of_deployment(&"a".into())).await.unwrap(), Some(task));
    bench.director.workers.pretend_to_end(task);
    assert!(store.resume_task(task).await.unwrap());
    let (status, answer) = bench.ask(Method::DELETE, path, "").await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    assert!(answer["description"].as_str().unwrap().contains("about to go on"), "{answer}");
    store.claim_task::<Job>("me", Lane::Work, &Busy::default()).await.unwrap().unwrap();
    assert_eq!(bench.send(Some("reader"), Method::DELETE, path, "").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(bench.ask(Method::DELETE, path, "").await.0, StatusCode::NO_CONTENT);
    assert_eq!(store.holder(&LockName::of_deployment(&"a".into())).await.unwrap(), None);
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

/// The line that the director writes to look fits where nothing else does, in PostgreSQL always.
#[tokio::test]
async fn health_tells_of_a_full_disk_while_clients_are_told() {
    let bench = TestDirector::new().await;
    let ask = || bench.send(None, Method::GET, "/health", "");
    assert_eq!(ask().await.0, StatusCode::OK);
    let full = async || ApiError::from(std::io::Error::from(std::io::ErrorKind::StorageFull));
    let limit = async || ApiError::with_status(StatusCode::INSUFFICIENT_STORAGE, 100, "the limit of blobs is reached");
    let watched = axum::Router::new().route("/full", get(full)).route("/limit", get(limit));
    let watched = watched.layer(from_fn_with_state(bench.director.clone(), super::watching::count));
    let tell = async |path: &str| {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        assert_eq!(
            TowerToHyperService::new(watched.clone()).call(request).await.unwrap().status(),
            StatusCode::INSUFFICIENT_STORAGE
        );
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    };
    tell("/limit").await;
    assert_eq!(ask().await.0, StatusCode::OK);
    tell("/full").await;
    assert_eq!(ask().await, (StatusCode::INSUFFICIENT_STORAGE, "the director's disk is full\n".to_owned()));
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
    for kind in [
        "text/plain",
        "Text/Plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/yaml, text/plain",
    ] {
        let sent = send(Method::POST, "/cpi_configs", &[("content-type", kind)]).await;
        assert_eq!(sent, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    assert_eq!(send(Method::POST, "/cpi_configs", &[("content-type", "text/yaml")]).await, StatusCode::CREATED);
    assert_eq!(send(Method::POST, "/cpi_configs", &[]).await, StatusCode::CREATED);
}

/// With PostgreSQL, a deploy with a name that has one never ended.
#[tokio::test]
async fn zero_bytes_are_refused_wherever_they_stand() {
    let bench = TestDirector::new().await;
    for (method, path, body) in [
        (Method::GET, "/deployments/x%00/vms", ""),
        (Method::GET, "/events?object_name=%00", ""),
        (Method::POST, "/deployments", "name: d\nvariables: [{name: \"a\\0b\", type: password}]\n"),
        (Method::POST, "/configs", r#"{"type": "cloud\u0000", "name": "a", "content": "{}"}"#),
    ] {
        let (status, answer) = bench.send(Some("admin"), method, path, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {answer}");
        assert!(answer.contains("zero byte"), "{path}: {answer}");
    }
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
    bench.director.store.add_deployment(&"a\nb".into(), &[]).await.unwrap();
    let (status, answer) = bench.ask(Method::POST, "/deployments", "name: \"a\\nb\"\n").await;
    assert_eq!(status, StatusCode::FOUND, "{answer}");
}

/// Readers see what others uploaded, and cannot mend it; the director has not failed.
#[tokio::test]
async fn a_release_with_very_large_specs_is_shown_as_such() {
    let bench = TestDirector::new().await;
    let text = String::new;
    let spec = json!({"name": "app", "text": "x".repeat(9 << 20)});
    let job = JobRecord {
        id: 0,
        name: "app".into(),
        version: "1".into(),
        fingerprint: "f".into(),
        sha1: text(),
        blob: text(),
        spec,
    };
    let release = ReleaseRecord { name: "large".into(), version: "1".into(), ..ReleaseRecord::default() };
    bench.director.store.take_release(&ReleaseRecord { jobs: vec![job], ..release }, &[]).await.unwrap();
    let (status, said) = bench.send(Some("reader"), Method::GET, "/releases/large?version=1", "").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
    assert!(said.contains("more than 8 MiB or 400,000 values together, large/1 among them"), "{said}");
}

/// Each size is a call of a CPI, and readers plan as well.
#[tokio::test]
async fn a_plan_asks_no_cpi_about_hundreds_of_sizes() {
    let bench = TestDirector::new().await;
    let cloud = "azs: [{name: z1}]\nnetworks: [{name: n, type: dynamic}]\n";
    let config = crate::store::NewConfig::new("cloud", "default", cloud);
    bench.director.store.add_config(config, |_| true).await.unwrap();
    let stemcell = "INSERT INTO stemcells (name, version, operating_system, cid, cpi, sha1, api_version)
        VALUES ('s', '1', 'os', 'c', '', '', 2)";
    bench.director.store.tamper(stemcell).await;
    let told = async |sizes: usize| {
        let group = |size: usize| {
            format!(
                "- {{name: g{size}, instances: 1, azs: [z1], stemcell: s, networks: [{{name: n}}], jobs: [], \
                 vm_resources: {{cpu: 1, ram: {}, ephemeral_disk_size: 1024}}}}\n",
                size + 1
            )
        };
        let groups: String = (0..sizes).map(group).collect();
        let manifest = format!(
            "name: shop\nreleases: []\nstemcells: [{{alias: s, os: os, version: '1'}}]\nupdate: {{canaries: 1, max_in_flight: 1, \
             canary_watch_time: 1, update_watch_time: 1}}\ninstance_groups:\n{groups}"
        );
        bench.send(Some("reader"), Method::POST, "/windlass/plan", manifest).await.1
    };
    let said = told(501).await;
    assert!(said.contains("501 different vm_resources, and CPIs are asked about 500 at most"), "{said}");
    assert!(!told(500).await.contains("different vm_resources"));
}

/// A plan has what each of thousands of instances is to be, and is parsed for each who asks why one of them is as it is.
#[tokio::test]
async fn why_an_instance_is_as_it_is_costs_no_more_than_a_few_plans() {
    let bench = TestDirector::new().await;
    let store = &bench.director.store;
    store.add_deployment(&"shop".into(), &[]).await.unwrap();
    let instance = "INSERT INTO instances (id, deployment, instance_group, position, bootstrap, state, converged)
        VALUES ('u1', 'shop', 'db', 0, 1, 'started', 1)";
    store.tamper(instance).await;
    for number in 1..=3 {
        let job = crate::tasks::Job::Scan { deployment: "shop".into() };
        let task = NewTask { job, user: "me".into(), context_id: String::new() };
        assert_eq!(store.add_task(&task).await.unwrap(), number);
    }
    let explained = async || {
        let path = "/windlass/deployments/shop/instances/db/0";
        bench.ask(Method::GET, path, "").await.1
    };
    assert_eq!(explained().await["plans_left_out"], 0);
    let plan = "INSERT INTO plans (task, deployment, plan) VALUES (1, 'shop', '{\"deployment\":\"shop\",\"removed\":[],\"groups\":[]}')";
    store.tamper(plan).await;
    // One too large to be looked through, of which nothing is parsed: it is no plan at all.
    let large =
        "INSERT INTO plans (task, deployment, plan) VALUES (2, 'shop', REPLACE(HEX(ZEROBLOB(13 * 1048576)), '0', 'x'))";
    store.tamper(large).await;
    assert_eq!(explained().await["plans_left_out"], 1);
    // While somebody looks, others wait for them, and no plan is in memory twice.
    let turn = bench.director.limits.explaining().await;
    let patience = std::time::Duration::from_millis(100);
    assert!(tokio::time::timeout(patience, explained()).await.is_err());
    drop(turn);
    assert_eq!(explained().await["instance"], "db/u1");
}

/// What a task wrote may have gigabytes, and all of it was in memory for each who asked, twice.
#[tokio::test]
async fn why_an_instance_is_as_it_is_costs_no_more_than_a_part_of_what_tasks_wrote() {
    use crate::tasks::OutputKind;
    let bench = TestDirector::new().await;
    let (director, store) = (&bench.director, &bench.director.store);
    store.add_deployment(&"shop".into(), &[]).await.unwrap();
    store.begin_instances(&[windlass_operations::testing::new_instance_record("shop", "db", "1f")], &[]).await.unwrap();
    let instance = json!({"id": "1f", "group": "db", "index": 0, "az": null, "bootstrap": true, "state": "started", "spec": null,
        "actions": [{"what": "stop", "reason": "it is to stop"}]});
    let plan = json!({"deployment": "shop", "removed": [instance], "groups": []});
    for number in 1..=2 {
        let job = crate::tasks::Job::Scan { deployment: "shop".into() };
        let task = NewTask { job, user: "me".into(), context_id: String::new() };
        assert_eq!(store.add_task(&task).await.unwrap(), number);
        let plan = format!("INSERT INTO plans (task, deployment, plan) VALUES ({number}, 'shop', '{plan}')");
        store.tamper(plan.leak()).await;
        let log = crate::tasks::TaskLog::open(director, number).unwrap();
        let line = |state: &str| {
            let line = json!({"time": 1, "stage": "Updating instance", "task": "db/1f (0)", "state": state});
            format!("{line}\n")
        };
        log.write(OutputKind::Event, &line("of events"));
        let steps = OutputKind::Steps.path(&director.folders.tasks(), number);
        if number == 1 {
            // Earlier versions had none of their own.
            std::fs::remove_file(steps).unwrap();
            continue;
        }
        log.write(OutputKind::Steps, &line("of steps"));
        // A gigabyte, of which nothing is on the disk.
        std::fs::OpenOptions::new().write(true).open(steps).unwrap().set_len(1 << 30).unwrap();
    }
    let (_, told) = bench.ask(Method::GET, "/windlass/deployments/shop/instances/db/0", "").await;
    let said = |number: usize| told["plans"][number]["timeline"][0]["what"].as_str();
    assert_eq!((said(0), said(1)), (Some("of steps"), Some("of events")), "{told}");
    assert!(told["plans"][0]["bytes_left_out"].as_u64().is_some_and(|left_out| left_out > 1 << 29), "{told}");
    assert_eq!(told["plans"][1]["bytes_left_out"], 0, "{told}");
}

/// A list may have a thousand tasks, and each may have failed with much to say.
#[tokio::test]
async fn lists_of_tasks_and_events_have_the_beginnings_of_what_failed() {
    let bench = TestDirector::new().await;
    let store = &bench.director.store;
    let job = crate::tasks::Job::Scan { deployment: "shop".into() };
    let task = store.add_task(&NewTask { job, user: "me".into(), context_id: String::new() }).await.unwrap();
    let event = store.add_event(&crate::store::Event::new("me", "update", "deployment", Some("shop"))).await.unwrap();
    let reason = "why ".repeat(2_000);
    store.finish_task(task, crate::store::TaskState::Error, &reason).await.unwrap();
    store.end_event(event, Some(&reason)).await.unwrap();
    let all = store.tasks(&crate::store::TaskFilter { limit: 10, ..Default::default() }).await.unwrap();
    assert_eq!(all[0].result.as_ref().unwrap().len(), 2000);
    let (_, listed) = bench.ask(Method::GET, "/events", "").await;
    assert_eq!(listed[0]["error"].as_str().unwrap().len(), 2000);
    let (_, whole) = bench.ask(Method::GET, &format!("/events/{}", listed[0]["id"].as_str().unwrap()), "").await;
    assert_eq!(whole["error"].as_str().unwrap().len(), reason.len());
}
