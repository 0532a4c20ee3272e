//! What clients see of links, from the first deploy that notes them until their deployment is gone.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use windlass_planning::links::{LinkConsumer, LinkProvider, LinkSource, PlannedLink, PlannedLinks, ProviderKind};

use crate::store::RoomForLinks;
use crate::testing::TestDirector;

fn planned(instances: &[&str]) -> PlannedLinks {
    let shown =
        |id: &&str| json!({"name": "db", "id": id, "address": id, "addresses": {"a": id}, "dns_addresses": {"a": id}});
    let content = json!({
        "deployment_name": "My_Shop", "domain": "bosh", "default_network": "a", "networks": ["a"], "instance_group": "db",
        "properties": {"password": "secret"}, "instances": instances.iter().map(shown).collect::<Vec<_>>(),
    });
    let provider = LinkProvider {
        id: 0,
        deployment: "My_Shop".into(),
        group: "db".into(),
        owner: "pg".into(),
        kind: ProviderKind::Job,
        original_name: "db".into(),
        link_type: "sql".into(),
        name: "main".into(),
        shared: true,
        consumable: true,
        content,
        aliases: Vec::new(),
    };
    let private =
        LinkProvider { original_name: "admin".into(), name: "admin".into(), shared: false, ..provider.clone() };
    let consumer = LinkConsumer {
        group: "web".into(),
        job: "app".into(),
        original_name: "store".into(),
        link_type: "sql".into(),
        name: "main".into(),
        optional: true,
        blocked: false,
    };
    let content = provider.content_for(None, None).unwrap();
    let links = vec![PlannedLink { consumer, source: Some(LinkSource::Own(0)), content }];
    PlannedLinks { providers: vec![provider, private], links, renamed: vec![("old".into(), "web".into())] }
}

async fn list(bench: &TestDirector, what: &str) -> Vec<Value> {
    let (status, answer) = bench.ask(Method::GET, &format!("/{what}?deployment=My_Shop"), "").await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer.as_array().unwrap().clone()
}

#[tokio::test]
async fn links_have_numbers_that_stay_and_a_new_one_where_the_content_changes() {
    let bench = TestDirector::new().await;
    let store = &bench.director.store;
    store.add_deployment(&"My_Shop".into(), &[]).await.unwrap();
    store.note_links(&"My_Shop".into(), &planned(&["one"])).await.unwrap();
    assert_eq!(
        list(&bench, "link_providers").await[0],
        json!({
            "id": "1", "name": "main", "shared": true, "deployment": "My_Shop",
            "link_provider_definition": {"type": "sql", "name": "db"},
            "owner_object": {"type": "job", "name": "pg", "info": {"instance_group": "db"}},
        })
    );
    assert_eq!(
        list(&bench, "link_consumers").await,
        [json!({
            "id": "1", "name": "main", "optional": true, "deployment": "My_Shop",
            "owner_object": {"type": "job", "name": "app", "info": {"instance_group": "web"}},
            "link_consumer_definition": {"name": "store", "type": "sql"},
        })]
    );
    let links = list(&bench, "links").await;
    assert_eq!(
        (&links[0]["id"], &links[0]["link_provider_id"], &links[0]["link_consumer_id"]),
        (&json!("1"), &json!("1"), &json!("1"))
    );
    assert!(!links[0].to_string().contains("secret"));

    store.note_links(&"My_Shop".into(), &planned(&["one"])).await.unwrap();
    store.finish_deployment(&"My_Shop".into(), "", &[], None).await.unwrap();
    assert_eq!(list(&bench, "links").await, links, "the same content is the same link");
    store.note_links(&"My_Shop".into(), &planned(&["one", "two"])).await.unwrap();
    assert_eq!(list(&bench, "links").await.len(), 2, "the old one is there until the deploy has succeeded");
    store.finish_deployment(&"My_Shop".into(), "", &[], None).await.unwrap();
    assert_eq!(list(&bench, "links").await[0]["id"], "2");

    let nothing = PlannedLinks::default();
    store.note_links(&"My_Shop".into(), &nothing).await.unwrap();
    store.finish_deployment(&"My_Shop".into(), "", &[], None).await.unwrap();
    for what in ["link_providers", "link_consumers", "links"] {
        assert_eq!(list(&bench, what).await, Vec::<Value>::new(), "{what}");
    }
    assert_eq!(bench.ask(Method::GET, "/links", "").await.1["code"], 190024);
    assert_eq!(bench.ask(Method::GET, "/links?deployment=nowhere", "").await.1["code"], 70000);
}

#[tokio::test]
async fn a_shared_link_is_given_to_somebody_outside_and_taken_back() {
    let bench = TestDirector::new().await;
    let store = &bench.director.store;
    store.add_deployment(&"My_Shop".into(), &[]).await.unwrap();
    store.note_links(&"My_Shop".into(), &planned(&["one"])).await.unwrap();
    let request = |provider: Value, rest: Value| {
        let mut request = json!({
            "link_provider_id": provider, "link_consumer": {"owner_object": {"name": "broker", "type": "external"}},
        });
        request.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        request.to_string()
    };
    for (body, status, code, said) in [
        (request(json!(1), json!({})), 400, 810001, "Invalid request: `link_provider_id` must be a String"),
        (request(json!("1"), json!({"link_consumer": null})), 400, 810001, "`link_consumer` section must be defined"),
        (
            request(json!("1"), json!({"link_consumer": {"owner_object": {"name": "a\u{1b}[2J", "type": "external"}}})),
            400,
            810001,
            "`link_consumer.owner_object.name`: a name must not contain the letter U+001B",
        ),
        (request(json!("99"), json!({})), 400, 810002, "Invalid link_provider_id: 99"),
        (request(json!("2"), json!({})), 403, 810009, "Provider not `shared`"),
        (
            request(json!("1"), json!({"network": "far"})),
            400,
            810003,
            "Can't resolve network: `far` in provider id: 1 for `broker`",
        ),
    ] {
        let (found, answer) = bench.ask(Method::POST, "/links", body).await;
        assert_eq!((found.as_u16(), &answer["code"]), (status, &json!(code)), "{answer}");
        assert!(answer["description"].as_str().unwrap().contains(said), "{answer}");
    }
    let (status, made) = bench.ask(Method::POST, "/links", request(json!("1"), json!({"network": "a"}))).await;
    assert_eq!((status, &made["name"], &made["link_provider_id"]), (StatusCode::OK, &json!("db"), &json!("1")));
    let owner = list(&bench, "link_consumers").await[1]["owner_object"].clone();
    assert_eq!(owner, json!({"type": "external", "name": "broker"}));
    let id = made["id"].as_str().unwrap();
    let address = bench.ask(Method::GET, &format!("/link_address?link_id={id}&status=healthy"), "").await.1;
    assert_eq!(address, json!({"address": "q-s3.db.a.my-shop.bosh"}));
    assert_eq!(bench.ask(Method::GET, "/link_address", "").await.1["code"], 810006);
    assert_eq!(bench.ask(Method::GET, &format!("/link_address?link_id={id}&status=odd"), "").await.1["code"], 810007);

    store.finish_deployment(&"My_Shop".into(), "", &[], None).await.unwrap();
    store.note_links(&"My_Shop".into(), &planned(&["two"])).await.unwrap();
    store.finish_deployment(&"My_Shop".into(), "", &[], None).await.unwrap();
    assert_eq!(list(&bench, "links").await.len(), 2, "a deploy takes no link from those outside");
    assert_eq!(bench.ask(Method::DELETE, "/links/99", "").await.0, StatusCode::NOT_FOUND);
    let own = list(&bench, "links").await[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(bench.ask(Method::DELETE, &format!("/links/{own}"), "").await.1["code"], 810005);
    assert_eq!(bench.ask(Method::DELETE, &format!("/links/{id}"), "").await.0, StatusCode::NO_CONTENT);
    assert_eq!(list(&bench, "link_consumers").await.len(), 1);
    let (status, _) = bench.send(Some("reader"), Method::POST, "/links", request(json!("1"), json!({}))).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);

    bench.ask(Method::POST, "/links", request(json!("1"), json!({}))).await;
    store.remove_deployment(&"My_Shop".into()).await.unwrap();
    assert!(
        store.listed_link_providers(&"My_Shop".into()).await.unwrap().is_empty(),
        "links do not keep a deployment from going"
    );
}

/// A manifest of a few lines that names thirty deployments with large links took 80 MiB for each, in every plan of a reader.
#[tokio::test]
async fn a_plan_reads_no_links_of_others_but_those_that_it_names_and_not_without_limit() {
    let bench = TestDirector::new().await;
    let store = &bench.director.store;
    store.add_deployment(&"My_Shop".into(), &[]).await.unwrap();
    let mut links = planned(&["one"]);
    let large = LinkProvider { original_name: "large".into(), name: "large".into(), ..links.providers[0].clone() };
    links.providers.push(LinkProvider { content: json!({"properties": {"x": "x".repeat(5 << 20)}}), ..large.clone() });
    let name = "many".to_owned();
    let content = json!({"properties": {"x": vec![1; 300_000]}});
    links.providers.push(LinkProvider { original_name: name.clone(), name, content, ..large });
    store.note_links(&"My_Shop".into(), &links).await.unwrap();
    let mut room = RoomForLinks::default();
    let mut read = async |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let found = store.shared_link_providers(&"My_Shop".into(), &names, &mut room).await;
        found.map(|found| found.len()).map_err(|error| error.to_string())
    };
    assert_eq!(read(&["main", "admin", "other"]).await, Ok(1), "'admin' is not shared");
    let told = read(&["many"]).await.unwrap_err();
    assert!(told.contains("many of My_Shop") && told.contains("300,000 values"), "{told}");
    assert_eq!(read(&["large"]).await, Ok(1));
    let told = read(&["large"]).await.unwrap_err();
    assert!(told.contains("large of My_Shop") && told.contains("8 MiB"), "{told}");
}

/// BOSH lets every team do this; here links belong to deployments, as everything that they have.
#[tokio::test]
async fn links_that_are_not_shared_are_for_the_teams_of_their_deployment() {
    let bench = TestDirector::new().await;
    let store = &bench.director.store;
    store.add_deployment(&"My_Shop".into(), &["shop".to_owned()]).await.unwrap();
    store.note_links(&"My_Shop".into(), &planned(&["one"])).await.unwrap();
    let create = async |user: &str, provider: &str| {
        let owner = json!({"owner_object": {"name": user, "type": "external"}});
        let body = json!({"link_provider_id": provider, "link_consumer": owner}).to_string();
        bench.send(Some(user), Method::POST, "/links", body).await
    };
    assert_eq!(create("bank-admin", "2").await.0, StatusCode::UNAUTHORIZED, "nobody is told what others have");
    assert_eq!(create("shop-admin", "2").await.0, StatusCode::FORBIDDEN);
    let (status, made) = create("bank-admin", "1").await;
    assert_eq!(status, StatusCode::OK, "{made}");
    let external = serde_json::from_str::<Value>(&made).unwrap()["id"].as_str().unwrap().to_owned();
    let own = list(&bench, "links").await[0]["id"].as_str().unwrap().to_owned();
    assert_ne!(external, own);
    for (user, id, expected) in [
        ("bank-admin", &own, StatusCode::UNAUTHORIZED),
        ("shop-reader", &own, StatusCode::OK),
        ("reader", &own, StatusCode::OK),
        ("bank-admin", &external, StatusCode::OK),
    ] {
        let (status, text) = bench.send(Some(user), Method::GET, &format!("/link_address?link_id={id}"), "").await;
        assert_eq!(status, expected, "{user} {id}: {text}");
    }
    for (user, id, expected) in [
        ("bank-admin", &own, StatusCode::UNAUTHORIZED),
        ("bank-admin", &external, StatusCode::UNAUTHORIZED),
        ("shop-admin", &external, StatusCode::NO_CONTENT),
    ] {
        let (status, text) = bench.send(Some(user), Method::DELETE, &format!("/links/{id}"), "").await;
        assert_eq!(status, expected, "{user} {id}: {text}");
    }
}

/// Each deploy that failed left megabytes of links under other names, and nothing removed them but one that succeeded.
#[tokio::test]
async fn links_of_failed_deploys_go_when_they_are_many() {
    let bench = TestDirector::new().await;
    let store = &bench.director.store;
    store.add_deployment(&"My_Shop".into(), &[]).await.unwrap();
    let large = "x".repeat(512 << 10);
    let mut most = 0;
    for round in 0..12 {
        let mut links = planned(&[large.as_str()]);
        links.providers.iter_mut().for_each(|provider| provider.group = format!("db{round}"));
        links.links.iter_mut().for_each(|link| link.consumer.group = format!("web{round}"));
        store.note_links(&"My_Shop".into(), &links).await.unwrap();
        most = most.max(store.links(&"My_Shop".into()).await.unwrap().len());
    }
    assert!((2..12).contains(&most), "{most}");
    let listed = store.listed_link_providers(&"My_Shop".into()).await.unwrap();
    assert!(listed.len() == 2 && listed.iter().all(|provider| provider.group == "db11"), "{listed:?}");
}

/// Every user who may deploy may make links of what others share, each with a copy of all that is in it.
#[tokio::test]
async fn links_for_those_outside_have_a_limit_and_lists_read_no_contents() {
    let bench = TestDirector::new().await;
    let store = &bench.director.store;
    store.add_deployment(&"My_Shop".into(), &[]).await.unwrap();
    let large = "x".repeat(2 << 20);
    store.note_links(&"My_Shop".into(), &planned(&[large.as_str()])).await.unwrap();
    assert!(
        store.listed_link_providers(&"My_Shop".into()).await.unwrap().iter().all(|provider| provider.content.is_null())
    );
    let add = async |owner: &str| {
        let body =
            json!({"link_provider_id": "1", "link_consumer": {"owner_object": {"type": "external", "name": owner}}});
        bench.send(Some("bank-admin"), Method::POST, "/links", body.to_string()).await
    };
    let refused = loop {
        let (status, said) = add(&format!("d{}", store.links(&"My_Shop".into()).await.unwrap().len())).await;
        if status != StatusCode::OK {
            break said;
        }
        assert!(store.links(&"My_Shop".into()).await.unwrap().len() < 10, "nothing bounds it");
    };
    assert!(refused.contains("which are the most") && refused.contains("My_Shop"), "{refused}");
    assert!(store.links(&"My_Shop".into()).await.unwrap().iter().all(|link| link.content.is_null()));
}
