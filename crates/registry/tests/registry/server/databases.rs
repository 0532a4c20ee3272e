//! What is kept, and by whom it may be shared.

use windlass_contract::settings::AgentSettings;
use windlass_database::Database;
use windlass_database::sqlx;

use super::desk::{Base, as_writer, ask, exchange, request, writer};

fn settings(number: usize) -> AgentSettings {
    serde_json::from_str(&format!(r#"{{"agent_id": "a-{number}"}}"#)).unwrap()
}

#[tokio::test]
async fn what_was_answered_is_there_for_the_next_registry() {
    for base in Base::each() {
        let registry = base.registry().await;
        writer(&registry).put("vm-1", &settings(1)).await.unwrap();
        writer(&registry).put("vm-2", &settings(2)).await.unwrap();
        writer(&registry).delete("vm-2").await.unwrap();
        // Not stopped, but dropped: nothing is left to be written.
        drop(registry);
        let registry = base.registry().await;
        assert_eq!(writer(&registry).get("vm-1").await.unwrap(), Some(settings(1)));
        assert_eq!(writer(&registry).get("vm-2").await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn registries_that_share_a_database_see_each_others_writes_at_once_and_never_block() {
    let base = Base::postgres();
    let registries = [base.registry().await, base.registry().await];
    let [one, other] = registries.each_ref().map(writer);
    for number in 0..20 {
        one.put("vm-1", &settings(number)).await.unwrap();
        assert_eq!(other.get("vm-1").await.unwrap(), Some(settings(number)));
    }
    let mut writes = tokio::task::JoinSet::new();
    for (number, client) in (0..200).map(|number| (number, if number % 2 == 0 { one.clone() } else { other.clone() })) {
        writes.spawn(async move { client.put(&format!("vm-{}", number * 7 % 10), &settings(number)).await });
    }
    while let Some(written) = writes.join_next().await {
        written.unwrap().unwrap();
    }
    for number in 0..10 {
        let id = format!("vm-{number}");
        assert_eq!(one.get(&id).await.unwrap(), other.get(&id).await.unwrap());
    }
}

#[tokio::test]
async fn the_originals_database_is_taken_over_as_it_is() {
    let base = Base::postgres();
    let original = Database::open(&base.url(), &[]).await.unwrap();
    for statement in [
        "CREATE TABLE registry_instances (id SERIAL PRIMARY KEY, instance_id VARCHAR(255) NOT NULL UNIQUE, \
         settings TEXT NOT NULL)",
        "CREATE TABLE registry_schema (filename TEXT PRIMARY KEY)",
        "INSERT INTO registry_instances (instance_id, settings) VALUES ('i-1', '{\"agent_id\":\"a-1\"}')",
    ] {
        sqlx::query(statement).execute(original.pool()).await.unwrap();
    }
    let registry = base.registry().await;
    let client = writer(&registry);
    assert_eq!(client.get("i-1").await.unwrap(), Some(settings(1)));
    client.put("i-1", &settings(2)).await.unwrap();
    client.put("i-2", &settings(3)).await.unwrap();
    let rows = sqlx::query("SELECT 1 FROM registry_instances").fetch_all(original.pool()).await.unwrap();
    assert_eq!(rows.len(), 2);
    registry.stop().await;
}

#[tokio::test]
async fn what_the_database_refuses_takes_nothing_else_with_it() {
    let base = Base::postgres();
    let registry = base.registry().await;
    let database = Database::open(&base.url(), &[]).await.unwrap();
    sqlx::query("ALTER TABLE registry_instances ADD CONSTRAINT bad CHECK (instance_id <> 'bad')")
        .execute(database.pool())
        .await
        .unwrap();
    let mut writes = tokio::task::JoinSet::new();
    for number in 0..40 {
        let id = if number % 10 == 0 { "bad".to_owned() } else { format!("vm-{number}") };
        let request = request("PUT", &format!("/instances/{id}/settings"), &as_writer(), "{}");
        let address = registry.address();
        writes.spawn(async move { (exchange(address, &request).await.status, id) });
    }
    while let Some(written) = writes.join_next().await {
        let (status, id) = written.unwrap();
        assert_eq!(status, if id == "bad" { 500 } else { 200 }, "{id}");
    }
}

#[tokio::test]
async fn a_database_that_is_gone_is_told_and_missed_no_longer_than_it_is_gone() {
    let mut base = Base::postgres();
    let registry = base.registry().await;
    let Base::Postgres(server) = &mut base else { unreachable!() };
    server.stop().unwrap();
    let health = ask(&registry, "GET", "/health", "", "").await;
    let write = ask(&registry, "PUT", "/instances/vm-1/settings", &as_writer(), "{}").await;
    assert_eq!((health.status, write.status), (503, 503), "{health:?} {write:?}");
    assert!(write.body.contains("database does not answer"), "{write:?}");
    server.start_again().unwrap();
    writer(&registry).put("vm-1", &settings(1)).await.unwrap();
    assert_eq!(ask(&registry, "GET", "/health", "", "").await.status, 200);
}
