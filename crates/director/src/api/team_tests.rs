//! Who may ask for what: every route, as everybody.

use std::collections::BTreeMap;

use axum::http::{Method, Request};
use base64::Engine;
use serde_json::{Value, json};
use windlass_planning::names::DeploymentName;

use super::*;
use crate::testing::TestDirector;

/// Users beside the admin, in an order in which nobody takes away what another asks for.
const USERS: [(char, &str); 5] =
    [('u', "uploader"), ('r', "reader"), ('t', "shop-reader"), ('b', "bank-admin"), ('s', "shop-admin")];

/// By the users who may, beside the admin; the deployment, the config and the task `1` are of the team `shop`.
const RIGHTS: &[(&str, &[&str])] = &[
    ("urtbs", &["GET /openapi.json"]),
    (
        "r",
        &[
            "GET /networks",
            "GET /configs/{id}",
            "GET /cloud_configs",
            "POST /cloud_configs/diff",
            "GET /runtime_configs",
            "POST /runtime_configs/diff",
            "GET /cpi_configs",
            "POST /cpi_configs/diff",
            "GET /resurrection",
            "GET /metrics",
            "GET /events/{id}",
            "GET /locks",
            "GET /disks",
            "GET /orphaned_vms",
            "GET /cleanup/dryrun",
            "GET /director/certificate_expiry",
            "GET /windlass/leaks",
            "GET /windlass/known",
        ],
    ),
    ("rtbs", &["GET /configs", "POST /configs/diff", "GET /events", "GET /link_address"]),
    (
        "rbs",
        &[
            "GET /stemcells",
            "POST /stemcell_uploads",
            "GET /releases",
            "GET /releases/{name}",
            "GET /deployments",
            "GET /deployed_variables/{name}",
            "GET /deployment_configs",
            "GET /tasks",
            "POST /windlass/plan",
            "GET /windlass/disks",
        ],
    ),
    ("ur", &["POST /packages/matches", "POST /packages/matches_compiled"]),
    (
        "rts",
        &[
            "GET /deployments/{deployment}",
            "GET /deployments/{deployment}/vms",
            "GET /deployments/{deployment}/instances",
            "GET /deployments/{deployment}/problems",
            "GET /deployments/{deployment}/snapshots",
            "GET /deployments/{deployment}/errands",
            "GET /deployments/{deployment}/variables",
            "GET /deployments/{deployment}/certificate_expiry",
            "POST /deployments/{deployment}/diff",
            "GET /link_providers",
            "GET /link_consumers",
            "GET /links",
            "GET /windlass/deployments/{deployment}/instances/{group}/{instance}",
        ],
    ),
    ("rs", &["GET /tasks/{id}"]),
    (
        "s",
        &[
            "GET /tasks/{id}/output",
            "DELETE /task/{id}",
            "DELETE /configs/{id}",
            "DELETE /deployments/{deployment}",
            "PUT /deployments/{deployment}/jobs/{group}",
            "PUT /deployments/{deployment}/jobs/{group}/{instance}",
            "POST /deployments/{deployment}/scans",
            "PUT /deployments/{deployment}/problems",
            "PUT /deployments/{deployment}/scan_and_fix",
            "GET /deployments/{deployment}/jobs/{group}/{instance}/logs",
            "POST /deployments/{deployment}/jobs/{group}/{instance}/snapshots",
            "PUT /deployments/{deployment}/jobs/{group}/{instance}/resurrection",
            "POST /deployments/{deployment}/instance_groups/{group}/{instance}/actions/{action}",
            "PUT /deployments/{deployment}/instance_groups/{group}/{instance}/ignore",
            "POST /deployments/{deployment}/snapshots",
            "DELETE /deployments/{deployment}/snapshots",
            "DELETE /deployments/{deployment}/snapshots/{cid}",
            "POST /deployments/{deployment}/ssh",
            "POST /deployments/{deployment}/errands/{errand}/runs",
            "POST /windlass/deployments/{deployment}/instances/{group}/{instance}/way-in",
        ],
    ),
    (
        "bs",
        &[
            "POST /configs",
            "DELETE /configs",
            "POST /deployments",
            "POST /links",
            "DELETE /links/{id}",
            "GET /resources/{id}",
        ],
    ),
    ("u", &["POST /stemcells", "POST /releases"]),
    (
        "",
        &[
            "DELETE /stemcells/{name}/{version}",
            "POST /cloud_configs",
            "POST /runtime_configs",
            "POST /cpi_configs",
            "PUT /resurrection",
            "DELETE /releases/{name}",
            "POST /releases/export",
            "DELETE /networks/{name}",
            "DELETE /disks/{cid}",
            "PUT /disks/{cid}/attachments",
            "DELETE /vms/{cid}",
            "POST /cleanup",
            "POST /windlass/changed_files",
            "DELETE /windlass/locks/{name}",
            "POST /windlass/leaks/deletions",
            "POST /windlass/webhook/test",
            "POST /events",
            "POST /tasks/cancel",
            "GET /v1/data",
            "PUT /v1/data",
            "POST /v1/data",
            "DELETE /v1/data",
            "GET /v1/data/{id}",
            "GET /windlass/variables",
        ],
    ),
];

const CLOUD: &str = "azs: [{name: z1}]\nnetworks: [{name: n, type: dynamic}]\n";

fn config(kind: &str, name: &str, content: &str) -> String {
    json!({"type": kind, "name": name, "content": content}).to_string()
}

/// With a deployment `1`, a task 1 about it and a config 1, all of the team `shop`.
async fn with_a_team() -> TestDirector {
    let bench = TestDirector::new().await;
    let (status, said) = bench.send(Some("shop-admin"), Method::POST, "/configs", config("cloud", "shop", CLOUD)).await;
    assert_eq!(status, StatusCode::CREATED, "{said}");
    let (status, said) = bench.send(Some("shop-admin"), Method::POST, "/deployments", "name: '1'\n").await;
    assert_eq!(status, StatusCode::FOUND, "{said}");
    bench
}

async fn seen(bench: &TestDirector, user: &str, path: &str) -> Value {
    let (status, text) = bench.send(Some(user), Method::GET, path, "").await;
    assert_eq!(status, StatusCode::OK, "{path} as {user}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// What is described and not listed here fails: the author of a new route adds who may ask for it.
#[tokio::test]
async fn every_route_is_for_those_whom_bosh_lets_ask_and_for_nobody_else() {
    let mut rights: BTreeMap<&str, &str> = BTreeMap::new();
    for (who, operations) in RIGHTS {
        operations.iter().for_each(|operation| assert_eq!(rights.insert(operation, who), None, "{operation}"));
    }
    let bench = with_a_team().await;
    let document = openapi::built();
    let mut tried = 0;
    for (path, described) in document["paths"].as_object().unwrap() {
        for (method, operation) in described.as_object().unwrap() {
            if operation["security"] == json!([]) {
                continue;
            }
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let name = format!("{method} {path}");
            let who = rights.remove(name.as_str()).unwrap_or_else(|| panic!("{name}: who may ask for it?"));
            let mut asked = super::tests::path_with(path, "1");
            if matches!(path.as_str(), "/links" | "/link_providers" | "/link_consumers") && method == Method::GET {
                asked.push_str("?deployment=1");
            }
            for (letter, user) in USERS {
                let (status, text) = bench.send(Some(user), method.clone(), &asked, "{}").await;
                if who.contains(letter) {
                    assert_ne!(status, StatusCode::UNAUTHORIZED, "{name} as {user}: {text}");
                } else {
                    assert_eq!(status, StatusCode::UNAUTHORIZED, "{name} as {user}: {text}");
                    assert!(
                        text.contains("\"code\":600000") && text.contains("bosh.admin"),
                        "{name} as {user}: {text}"
                    );
                }
                tried += 1;
            }
            let (status, text) = bench.send(Some("admin"), method, &asked, "{}").await;
            assert_ne!(status, StatusCode::UNAUTHORIZED, "{name} as admin: {text}");
        }
    }
    assert_eq!(rights, BTreeMap::new(), "these are no routes");
    assert!(tried > 400, "{tried}");
}

#[tokio::test]
async fn a_deployment_belongs_to_the_team_of_who_made_it_and_other_teams_see_nothing_of_it() {
    let bench = with_a_team().await;
    assert_eq!(
        bench.send(Some("bank-admin"), Method::POST, "/deployments", "name: vault\n").await.0,
        StatusCode::FOUND
    );
    assert_eq!(bench.ask(Method::POST, "/deployments", "name: all\n").await.0, StatusCode::FOUND);
    let names = async |user: &str| {
        let listed = seen(&bench, user, "/deployments").await;
        let shown = |one: &Value| (one["name"].as_str().unwrap().to_owned(), one["teams"].clone());
        listed.as_array().unwrap().iter().map(shown).collect::<Vec<_>>()
    };
    let (shop, bank, all) =
        (("1".to_owned(), json!(["shop"])), ("vault".to_owned(), json!(["bank"])), ("all".to_owned(), json!([])));
    assert_eq!(names("shop-admin").await, std::slice::from_ref(&shop));
    assert_eq!(names("bank-admin").await, std::slice::from_ref(&bank));
    assert_eq!(names("reader").await, [shop.clone(), all.clone(), bank.clone()]);
    assert_eq!(names("admin").await, [shop, all, bank]);

    let refused = |admins: &str| {
        let reason = format!("Require one of the scopes: bosh.admin, bosh.uuid.admin{admins}");
        (StatusCode::UNAUTHORIZED, json!({"code": 600000, "description": reason}).to_string())
    };
    let deploy =
        async |user: &str, manifest: &'static str| bench.send(Some(user), Method::POST, "/deployments", manifest).await;
    assert_eq!(deploy("bank-admin", "name: '1'\n").await, refused(", bosh.teams.shop.admin"));
    assert_eq!(deploy("shop-admin", "name: all\n").await, refused(""), "what is nobody's is the admins'");
    assert_eq!(deploy("reader", "name: new\n").await, refused(""));
    assert_eq!(deploy("admin", "name: '1'\n").await.0, StatusCode::FOUND);
    assert_eq!(seen(&bench, "shop-admin", "/deployments").await[0]["teams"], json!(["shop"]), "an admin takes nothing");
    let look = bench.send(Some("bank-admin"), Method::GET, "/deployments/1", "").await;
    assert_eq!(look, refused(", bosh.teams.shop.admin, bosh.teams.shop.read, bosh.read, bosh.uuid.read"));
    let (status, text) = bench.send(Some("bank-admin"), Method::GET, "/deployments/none", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{text}");
    assert_eq!(seen(&bench, "bank-admin", "/deployment_configs?deployment[]=1").await, json!([]));

    let tasks = async |user: &str| {
        let listed = seen(&bench, user, "/tasks").await;
        listed.as_array().unwrap().iter().map(|task| task["id"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(tasks("shop-admin").await, [4, 1]);
    assert_eq!(tasks("bank-admin").await, [2]);
    assert_eq!(tasks("reader").await, [4, 3, 2, 1]);
    let (status, text) = bench.send(Some("bank-admin"), Method::GET, "/tasks/1", "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let reason = "One of the following scopes is required to access this task: bosh.admin, bosh.uuid.admin, \
        bosh.teams.shop.admin, bosh.teams.shop.read, bosh.read, bosh.uuid.read";
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!({"code": 600000, "description": reason}));
    for (user, output, expected) in [
        ("shop-reader", "event", StatusCode::OK),
        ("shop-reader", "debug", StatusCode::UNAUTHORIZED),
        ("shop-admin", "debug", StatusCode::NO_CONTENT),
        ("bank-admin", "event", StatusCode::UNAUTHORIZED),
        ("bank-admin", "none", StatusCode::UNAUTHORIZED),
        ("reader", "debug", StatusCode::UNAUTHORIZED),
    ] {
        let path = format!("/tasks/1/output?type={output}");
        assert_eq!(bench.send(Some(user), Method::GET, &path, "").await.0, expected, "{user} {output}");
    }
    assert_eq!(bench.send(Some("bank-admin"), Method::DELETE, "/task/1", "").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(bench.send(Some("shop-admin"), Method::DELETE, "/task/1", "").await.0, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn who_may_upload_sees_how_the_upload_ends_and_nothing_else() {
    let bench = with_a_team().await;
    let body = json!({"location": "https://127.0.0.1:1/s.tgz"}).to_string();
    let pair = base64::engine::general_purpose::STANDARD.encode("uploader:uploader-password");
    let request =
        Request::builder().method(Method::POST).uri("/stemcells").header(header::CONTENT_TYPE, "application/json");
    let request = request.header(header::AUTHORIZATION, format!("Basic {pair}")).body(body.into()).unwrap();
    let (status, text) = bench.answer(request).await;
    assert_eq!(status, StatusCode::FOUND, "{text}");
    assert_eq!(seen(&bench, "uploader", "/tasks/2").await["user"], "uploader");
    assert_eq!(bench.send(Some("uploader"), Method::GET, "/tasks/2/output?type=event", "").await.0, StatusCode::OK);
    for path in ["/tasks/1", "/tasks/1/output?type=event", "/tasks", "/tasks/2/output?type=debug", "/deployments/1"] {
        assert_eq!(bench.send(Some("uploader"), Method::GET, path, "").await.0, StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[tokio::test]
async fn configs_of_a_team_are_for_its_deployments_alone() {
    let bench = with_a_team().await;
    let post = async |user: &str, body: String| bench.send(Some(user), Method::POST, "/configs", body).await;
    assert_eq!(post("admin", config("cloud", "default", CLOUD)).await.0, StatusCode::CREATED);
    let bank = "azs: [{name: z9}]\n";
    assert_eq!(post("bank-admin", config("cloud", "bank", bank)).await.0, StatusCode::CREATED);
    let of = async |user: &str| {
        let listed = seen(&bench, user, "/configs?latest=true").await;
        let shown = |one: &Value| format!("{} {}", one["name"].as_str().unwrap(), one["team"]);
        listed.as_array().unwrap().iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(of("shop-admin").await, ["shop \"shop\""]);
    assert_eq!(of("shop-reader").await, ["shop \"shop\""]);
    assert_eq!(of("bank-admin").await, ["bank \"bank\""]);
    assert_eq!(of("admin").await, ["default null", "bank \"bank\"", "shop \"shop\""]);

    for (user, name) in [("bank-admin", "shop"), ("shop-admin", "default")] {
        let (status, text) = post(user, config("cloud", name, "azs: []\n")).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{user} {name}: {text}");
        let path = format!("/configs?type=cloud&name={name}");
        let (status, text) = bench.send(Some(user), Method::DELETE, &path, "").await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{user} {name}: {text}");
        let (status, text) =
            bench.send(Some(user), Method::POST, "/configs/diff", config("cloud", name, "azs: []\n")).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{user} {name}: {text}");
    }
    for kind in ["cpi", "resurrection"] {
        let (status, text) = post("shop-admin", config(kind, "mine", "cpis: []\nrules: []\n")).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{kind} configs concern all: {text}");
    }
    // Each deploy uses the configs of nobody and those of its team.
    let used = async |user: &str, deployment: &DeploymentName| {
        let path = format!("/deployments/{deployment}/diff");
        let (status, text) = bench.send(Some(user), Method::POST, &path, "name: x\n").await;
        assert_eq!(status, StatusCode::OK, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["context"]["cloud_config_ids"].clone()
    };
    assert_eq!(used("shop-admin", &"1".into()).await, json!([2, 1]));
    assert_eq!(used("admin", &"1".into()).await, json!([2, 1]));
    assert_eq!(used("bank-admin", &"new".into()).await, json!([2, 3]));
    assert_eq!(used("admin", &"new".into()).await, json!([2]));
    let context = "/deployments?context=%7B%22cloud_config_ids%22%3A%5B1%5D%7D";
    let (status, text) = bench.send(Some("bank-admin"), Method::POST, context, "name: new\n").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    assert_eq!(bench.send(Some("bank-admin"), Method::GET, "/deployments/new", "").await.0, StatusCode::NOT_FOUND);
    assert_eq!(bench.send(Some("bank-admin"), Method::DELETE, "/configs/1", "").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(bench.send(Some("shop-admin"), Method::DELETE, "/configs/1", "").await.0, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_team_sees_the_events_of_its_deployments_and_of_its_own_doing() {
    let bench = with_a_team().await;
    assert_eq!(
        bench.send(Some("bank-admin"), Method::POST, "/deployments", "name: vault\n").await.0,
        StatusCode::FOUND
    );
    for deployment in ["1", "vault", "1"] {
        let event = json!({"action": "create", "object_type": "vm", "object_name": "x", "deployment": deployment});
        assert_eq!(bench.ask(Method::POST, "/events", event.to_string()).await.0, StatusCode::OK);
    }
    let of = async |user: &str, path: &str| {
        let listed = seen(&bench, user, path).await;
        let shown = |one: &Value| format!("{} {}", one["object_type"].as_str().unwrap(), one["deployment"]);
        listed.as_array().unwrap().iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(of("shop-admin", "/events").await, ["vm \"1\"", "vm \"1\"", "config/cloud null"]);
    assert_eq!(of("shop-reader", "/events").await, ["vm \"1\"", "vm \"1\""]);
    assert_eq!(of("bank-admin", "/events").await, ["vm \"vault\""]);
    assert_eq!(of("bank-admin", "/events?deployment=1").await, Vec::<String>::new());
    assert_eq!(of("reader", "/events").await.len(), 4);
}

/// Plans tell of zones and networks, and the errors of one quote what is wrong with it.
#[tokio::test]
async fn a_plan_uses_configs_of_others_as_little_as_a_deploy() {
    let bench = with_a_team().await;
    let (status, text) =
        bench.send(Some("admin"), Method::POST, "/configs", config("cpi", "default", "cpis: []\n")).await;
    assert_eq!(status, StatusCode::CREATED, "{text}");
    let with = async |user: &str, path: &str, ids: &str| {
        let path = format!("{path}?context=%7B%22cloud_config_ids%22%3A%5B{ids}%5D%7D");
        bench.send(Some(user), Method::POST, &path, "name: new\n").await
    };
    for path in ["/windlass/plan", "/deployments"] {
        for (user, ids, expected) in [
            ("bank-admin", "1", "'context' names the config 1, which does not exist"),
            ("shop-admin", "2", "'context' names the config 2, which does not exist"),
            ("shop-admin", "1,1", "'context' names the cloud config 'shop' more than once"),
        ] {
            let (status, text) = with(user, path, ids).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path} {user} {ids}: {text}");
            assert!(text.contains(expected), "{path} {user} {ids}: {text}");
        }
    }
    let (_, text) = with("shop-admin", "/windlass/plan", "1").await;
    assert!(!text.contains("'context'"), "{text}");
    assert_eq!(with("shop-admin", "/deployments", "1").await.0, StatusCode::FOUND);
}

#[tokio::test]
async fn configs_of_a_team_have_a_limit_and_cost_others_nothing() {
    let bench = with_a_team().await;
    let post = async |name: &str, content: String| {
        bench.send(Some("shop-admin"), Method::POST, "/configs", config("notes", name, &content)).await
    };
    let large = |letter: char| format!("a: 1\n# {}\n", letter.to_string().repeat((1 << 20) / letter.len_utf8()));
    // Bytes count, and not letters.
    for name in ["one", "two", "three"] {
        assert_eq!(post(name, large('😀')).await.0, StatusCode::CREATED);
    }
    let (status, text) = post("four", large('x')).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    assert!(text.contains("may have 4194304; make them smaller, or delete some with delete-config"), "{text}");
    assert_eq!(post("three", large('y')).await.0, StatusCode::CREATED, "it is no larger than before");
    bench
        .director
        .store
        .tamper(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 96)
             INSERT INTO configs (type, name, content, created_at, team) SELECT 'notes', 'more' || i, 'a: 1', 0, 'shop' FROM n",
        )
        .await;
    let (status, text) = post("last", "a: 1\n".to_owned()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    assert!(
        text.contains("the team 'shop' has 100 configs, and may have 100; delete some with delete-config"),
        "{text}"
    );

    // As an earlier version took them.
    bench.director.store.tamper("UPDATE configs SET content = hex(zeroblob(200000)) WHERE type = 'notes'").await;
    let (status, text) = bench.send(Some("admin"), Method::GET, "/configs?latest=true", "").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("ask for one 'type' and 'name', or for a smaller 'limit'"), "{text}");
    assert_eq!(seen(&bench, "bank-admin", "/configs?latest=true").await, json!([]), "others read nothing of it");
    assert_eq!(seen(&bench, "admin", "/configs?latest=true&type=cloud").await.as_array().unwrap().len(), 1);
}

/// A user who makes and deletes configs again and again would fill the disk with what nobody else can remove.
#[tokio::test]
async fn old_versions_of_a_teams_configs_have_a_limit() {
    let bench = with_a_team().await;
    let store = &bench.director.store;
    let large = "x".repeat(1_900_000);
    let add = async |name: &str| {
        let new = crate::store::NewConfig { team: Some("shop"), ..crate::store::NewConfig::new("notes", name, &large) };
        let added = store.add_config(new, |_| true).await.unwrap();
        assert!(matches!(added, crate::store::AddConfig::Current(_)), "{name}");
    };
    add("stays").await;
    for number in 0..20 {
        let name = format!("n{number}");
        add(&name).await;
        let current = store.current_config("notes", &name).await.unwrap().unwrap();
        assert!(store.delete_configs(&current).await.unwrap());
    }
    let mut kept = 0;
    for id in 1..100 {
        kept += store.config(id).await.unwrap().map_or(0, |config| config.content.len());
    }
    assert!((20 << 20..36 << 20).contains(&kept), "{kept} bytes");
    let current = store.current_config("notes", "stays").await.unwrap();
    assert!(current.is_some_and(|config| config.content == large), "what is current stays");
}

/// What a team's deploy compiles is given to deployments of all teams: who comes onto such a VM would choose what others run.
#[tokio::test]
async fn a_team_comes_into_no_vm_that_compiles_for_all() {
    use windlass_contract::VmCid;
    use windlass_operations::ledger::{Fact, Ledger};
    use windlass_operations::testing::{new_instance_record, new_vm_record};
    let bench = TestDirector::new().await;
    let store = &bench.director.store;
    store.add_deployment(&"market".into(), &["shop".to_owned()]).await.unwrap();
    let worker = "compilation-7f1d5b0e-5c0a-4d0e-9f4e-0d9d4a5f6a11";
    for (number, group) in [worker, "db"].into_iter().enumerate() {
        let instance = new_instance_record("market", group, format!("i{number}"));
        store.begin_instances(&[instance], &[]).await.unwrap();
        let cid = VmCid::new(format!("vm-{number}")).unwrap();
        let vm = new_vm_record(cid, &format!("i{number}").into(), false);
        store.record(&Fact::VmCreated { vm: Box::new(vm) }).await.unwrap();
    }
    let enter = async |user: &str, group: &str| {
        let path = format!("/windlass/deployments/market/instances/{group}/0/way-in");
        bench.send(Some(user), Method::POST, &path, "").await.0
    };
    assert_eq!(enter("shop-admin", worker).await, StatusCode::UNAUTHORIZED);
    // Those who may come in have to say what they want.
    assert_eq!(enter("shop-admin", "db").await, StatusCode::BAD_REQUEST);
    assert_eq!(enter("admin", worker).await, StatusCode::BAD_REQUEST);
}

/// While a slow request comes in, the deployment may become another team's.
#[tokio::test]
async fn the_right_to_a_deployment_is_looked_at_when_its_task_is_made() {
    let bench = TestDirector::new().await;
    bench.director.store.add_deployment(&"staging".into(), &["bank".to_owned()]).await.unwrap();
    let user = |name: &str, scope: &str| User {
        name: name.into(),
        scopes: std::sync::Arc::new(crate::users::Scopes::parse([scope]).unwrap()),
        context_id: String::new(),
    };
    let ask = async |user: User| {
        let job = Job::DeleteDeployment { deployment: "staging".into(), force: true };
        queue(&bench.director, user, job)
            .await
            .map(|answer| answer.status())
            .map_err(|error| error.into_response().status())
    };
    assert_eq!(ask(user("sue", "bosh.teams.shop.admin")).await, Err(StatusCode::UNAUTHORIZED));
    assert_eq!(ask(user("bob", "bosh.teams.bank.admin")).await, Ok(StatusCode::FOUND));
    assert_eq!(ask(user("amy", "bosh.admin")).await, Ok(StatusCode::FOUND));
}

/// A user who may look at everything but logs, and is an admin of one team, would have the logs of all: tasks name them.
#[tokio::test]
async fn logs_that_were_fetched_are_for_the_teams_of_their_deployment() {
    let bench = TestDirector::new().await;
    let store = &bench.director.store;
    store.add_deployment(&"bank".into(), &["bank".to_owned()]).await.unwrap();
    let (job, user) = (Job::Scan { deployment: "bank".into() }, "bank-admin".to_owned());
    let task = store.add_task(&NewTask { job, user, context_id: String::new() }).await.unwrap();
    let packed = bench.director.folders.temporary().join("packed");
    std::fs::write(&packed, "secrets").unwrap();
    let blob = crate::blobs::keep_logs(&bench.director, task, &packed).await.unwrap();
    let fetch = async |user: &str| bench.send(Some(user), Method::GET, &format!("/resources/{blob}"), "").await;
    assert_eq!(fetch("shop-admin").await.0, StatusCode::UNAUTHORIZED);
    for user in ["bank-admin", "admin"] {
        assert_eq!(fetch(user).await, (StatusCode::OK, "secrets".to_owned()));
    }
}

/// A request that waited, for its turn or for its own body, was judged by whose the deployment was before: it read what another team
/// had deployed there meanwhile, and changed it.
#[tokio::test]
async fn whose_a_deployment_is_counts_when_a_request_has_its_turn() {
    use crate::limits::LISTS_OF_A_USER;
    let patience = std::time::Duration::from_millis(100);
    let bench = TestDirector::new().await;
    let director = &bench.director;
    let store = &director.store;
    store.add_deployment(&"vault".into(), &["shop".to_owned()]).await.unwrap();
    store
        .begin_instances(&[windlass_operations::testing::new_instance_record("vault", "db", "1f")], &[])
        .await
        .unwrap();
    for (method, path, body) in [
        (Method::GET, "/deployments/vault", ""),
        (Method::GET, "/deployments/vault/instances", ""),
        (Method::POST, "/deployments/vault/diff?redact=false", "name: vault\n"),
        (Method::PUT, "/deployments/vault/instance_groups/db/1f/ignore", "{\"ignore\": true}"),
        (Method::GET, "/deployments/vault", ""),
    ] {
        store.tamper("UPDATE deployment_teams SET team = 'shop'").await;
        let mut places = Vec::new();
        for _ in 0..LISTS_OF_A_USER {
            places.push(director.limits.lists.place_of(director.users.party("shop-admin")).await);
        }
        let (send, receive) = tokio::sync::oneshot::channel::<&str>();
        let late = futures_util::stream::once(async { receive.await.map_err(std::io::Error::other) });
        let request = Request::builder().method(method.clone()).uri(path);
        let request = request.header(header::AUTHORIZATION, bench.basic("shop-admin"));
        let body_comes_late = method != Method::GET;
        let body_of = match body_comes_late {
            true => axum::body::Body::from_stream(late),
            false => body.into(),
        };
        let mut answer = std::pin::pin!(bench.answer(request.body(body_of).unwrap()));
        assert!(tokio::time::timeout(patience, &mut answer).await.is_err(), "{path} does not wait");
        store.tamper("UPDATE deployment_teams SET team = 'bank'").await;
        drop(places);
        if body_comes_late {
            send.send(body).unwrap();
        }
        let (status, said) = answer.await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}: {said}");
        let record = store.instance(&"1f".into()).await.unwrap().unwrap();
        assert!(!record.ignored, "{path}");
    }
}

/// A team that deleted a config that was not there yet deleted what another one made in the same moment.
#[tokio::test]
async fn a_config_that_others_make_while_one_of_its_name_is_deleted_stays() {
    let bench = with_a_team().await;
    let store = &bench.director.store;
    let current = store.current_config("cloud", "shop").await.unwrap().unwrap();
    let of_others =
        crate::store::NewConfig { team: Some("bank"), ..crate::store::NewConfig::new("cloud", "shop", "azs: []\n") };
    store.add_config(of_others, |_| true).await.unwrap();
    assert!(store.delete_configs(&current).await.unwrap());
    assert_eq!(store.current_config("cloud", "shop").await.unwrap().unwrap().team.as_deref(), Some("bank"));
    let delete = bench.send(Some("shop-admin"), Method::DELETE, "/configs?type=cloud&name=none", "").await;
    assert_eq!(delete.0, StatusCode::NOT_FOUND);
}
