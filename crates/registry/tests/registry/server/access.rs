//! Who may read what.

use windlass_contract::Secret;
use windlass_contract::settings::AgentSettings;
use windlass_registry::server::{Config, Counts, Registry};
use windlass_registry::{Client, Credentials, RegistryError};

use super::desk::{Base, PASSWORD, USER, as_writer, ask, basic, writer};

fn settings(agent: &str) -> AgentSettings {
    let networks = r#"{"default": {"type": "manual", "ip": "127.0.0.1"}}"#;
    serde_json::from_str(&format!(r#"{{"agent_id": "{agent}", "networks": {networks}}}"#)).unwrap()
}

#[tokio::test]
async fn a_vm_reads_its_own_settings_and_no_others_and_writes_none() {
    let base = Base::sqlite();
    let registry = base.registry().await;
    let cpi = writer(&registry);
    cpi.put("vm-1", &settings("a-1")).await.unwrap();
    cpi.put("vm-2", &settings("a-2")).await.unwrap();

    let vm = Client::new(&cpi.endpoint_for("vm-1")).unwrap();
    assert_eq!(vm.get("vm-1").await.unwrap(), Some(settings("a-1")));
    for other in ["vm-2", "vm-3", "cpi", ""] {
        let error = vm.get(other).await.unwrap_err();
        assert!(matches!(error, RegistryError::Refused { .. } | RegistryError::Status { status: 400, .. }), "{error}");
    }
    for refused in [vm.put("vm-1", &settings("a-3")).await, vm.delete("vm-1").await, vm.delete("vm-2").await] {
        assert!(matches!(refused, Err(RegistryError::Refused { .. })));
    }
    for headers in [String::new(), basic("vm-2", PASSWORD), basic(USER, "hunter3"), "Authorization: Basic ?\r\n".into()]
    {
        assert_eq!(ask(&registry, "GET", "/instances/vm-2/settings", &headers, "").await.status, 401);
        assert_eq!(ask(&registry, "DELETE", "/instances/vm-2/settings", &headers, "").await.status, 401);
    }
    assert_eq!(cpi.get("vm-1").await.unwrap(), Some(settings("a-1")));
    assert_eq!(cpi.get("vm-2").await.unwrap(), Some(settings("a-2")));
    assert_eq!(registry.writes(), 2);
    assert_eq!(registry.counts("vm-1"), Counts { reads: 1, lookups: 1, writes: 1, deletions: 0 });
    cpi.delete("vm-1").await.unwrap();
    assert_eq!(vm.get("vm-1").await.unwrap(), None, "unknown, and its own");
    assert_eq!(registry.counts("vm-1"), Counts { reads: 2, lookups: 1, writes: 1, deletions: 1 });
}

#[tokio::test]
async fn a_password_is_replaced_without_locking_out_the_vms_of_the_old_one() {
    let base = Base::sqlite();
    let registry = base.registry().await;
    writer(&registry).put("vm-1", &settings("a-1")).await.unwrap();
    registry.stop().await;

    let replaced = |also_old: bool| {
        let mut config = base.config();
        let new = Credentials { user: USER.into(), password: Secret::new("new") };
        config.writers.insert(0, new.clone());
        config.writers.truncate(if also_old { 2 } else { 1 });
        config
    };
    let registry = Registry::start(replaced(true)).await.unwrap();
    let old = writer(&registry);
    let new = old.clone().with_credentials(USER, Secret::new("new"));
    for endpoint in [old.endpoint_for("vm-1"), new.endpoint_for("vm-1")] {
        assert!(Client::new(&endpoint).unwrap().get("vm-1").await.unwrap().is_some());
    }
    registry.stop().await;
    let registry = Registry::start(replaced(false)).await.unwrap();
    let old = Client::new(&writer(&registry).endpoint_for("vm-1")).unwrap();
    assert!(matches!(old.get("vm-1").await, Err(RegistryError::Refused { .. })));
}

#[tokio::test]
async fn without_credentials_nobody_reads_unless_told_and_then_only_from_its_own_address() {
    let base = Base::sqlite();
    let here = "/instances/here/settings";
    let elsewhere = "/instances/elsewhere/settings";
    let registry = base.registry().await;
    ask(&registry, "PUT", here, &as_writer(), r#"{"networks": {"a": {"ip": "127.0.0.1"}}}"#).await;
    ask(&registry, "PUT", elsewhere, &as_writer(), r#"{"networks": {"a": {"ip": "10.0.0.9"}}}"#).await;
    let statuses = async |config: Config| {
        let registry = Registry::start(config).await.unwrap();
        let mut statuses = Vec::new();
        for (path, headers) in [
            (here, String::new()),
            (elsewhere, String::new()),
            ("/instances/unknown/settings", String::new()),
            (here, basic("here", "wrong")),
        ] {
            statuses.push(ask(&registry, "GET", path, &headers, "").await.status);
        }
        statuses.push(ask(&registry, "PUT", here, "", "{}").await.status);
        statuses.push(ask(&registry, "DELETE", here, "", "").await.status);
        statuses
    };
    assert_eq!(statuses(base.config()).await, [401, 401, 401, 401, 401, 401]);
    let by_address = Config { read_by_address: true, ..base.config() };
    assert_eq!(statuses(by_address).await, [200, 404, 404, 401, 401, 401], "not even whether there is another");
    let loopback = Config { trust_loopback: true, ..base.config() };
    assert_eq!(statuses(loopback).await, [200, 200, 404, 401, 401, 401]);
}

/// Fifty thousand a second could be tried.
#[tokio::test]
async fn who_guesses_passwords_waits_longer_and_longer_and_who_knows_one_does_not() {
    let base = Base::sqlite();
    let registry = base.registry().await;
    let path = "/instances/vm-1/settings";
    let began = std::time::Instant::now();
    for number in 0..6 {
        let headers = basic(USER, &format!("guess-{number}"));
        assert_eq!(ask(&registry, if number % 2 == 0 { "GET" } else { "PUT" }, path, &headers, "{}").await.status, 401);
    }
    assert!(began.elapsed() >= std::time::Duration::from_millis(1500));
    // The next guess waits for more than that; who knows the password does not wait with it.
    let guess = basic(USER, "guess");
    let known = as_writer();
    tokio::select! {
        biased;
        _ = ask(&registry, "GET", path, &guess, "") => panic!("the guess was answered first"),
        answer = ask(&registry, "PUT", path, &known, "{}") => assert_eq!(answer.status, 200),
    }
}

#[tokio::test]
async fn a_registry_that_anybody_could_write_to_does_not_start() {
    let base = Base::sqlite();
    let writer = |user: &str, password: &str| Credentials { user: user.into(), password: Secret::new(password) };
    for writers in [vec![], vec![writer("cpi", "")], vec![writer("", "x")], vec![writer("a", "x"), writer("b:c", "x")]]
    {
        let error = Registry::start(Config { writers, ..base.config() }).await.unwrap_err();
        assert!(error.to_string().contains("password"), "{error}");
    }
}
