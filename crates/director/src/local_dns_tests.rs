use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Instant;

use serde_json::{Value, json};
use windlass_agent_client::AGENT_PORT;
use windlass_contract::VmCid;
use windlass_database::PrivatePostgres;
use windlass_operations::ledger::{Fact, Ledger};
use windlass_operations::testing::{new_instance_record, new_vm_record};
use windlass_planning::records::{InstanceRecord, InstanceState};

use super::*;
use crate::testing::TestDirector;

async fn director() -> TestDirector {
    TestDirector::with(|settings| settings.local_dns.enabled = true).await
}

fn instance(id: &str, index: i64, state: InstanceState) -> InstanceRecord {
    InstanceRecord {
        index,
        az: Some("z1".to_owned()),
        bootstrap: index == 0,
        state,
        ..new_instance_record("shop", "db", id)
    }
}

fn vm(cid: &str, instance: &str, address: &str) -> VmRecord {
    let mut vm = new_vm_record(VmCid::new(cid).unwrap(), &instance.into(), false);
    vm.networks = serde_json::from_value(json!({"a": {"type": "manual", "ip": address}})).unwrap();
    vm
}

async fn has_vm(store: &Store, vm: &VmRecord) {
    store.record(&Fact::VmCreated { vm: Box::new(vm.clone()) }).await.unwrap();
    store.record(&Fact::VmReady { cid: vm.cid.clone() }).await.unwrap();
}

fn document(version: &Version) -> Value {
    serde_json::from_slice(&std::fs::read(version.file.path()).unwrap()).unwrap()
}

fn names(version: &Version) -> Vec<String> {
    let document = document(version);
    document["records"].as_array().unwrap().iter().map(|record| record[1].as_str().unwrap().to_owned()).collect()
}

/// Agents refuse what is not newer: one that is not told of a deletion goes on calling a stranger.
async fn lives(dns: &LocalDns) {
    let store = &dns.store;
    store.add_deployment(&"shop".into(), &[]).await.unwrap();
    let empty = dns.publish().await.unwrap();
    let started = InstanceState::Started;
    store.begin_instances(&[instance("u1", 0, started), instance("u2", 1, started)], &[]).await.unwrap();
    assert_eq!(dns.publish().await.unwrap().number, empty.number, "without a VM it has no name");

    has_vm(store, &vm("vm-1", "u1", "10.0.0.1")).await;
    has_vm(store, &vm("vm-2", "u2", "10.0.0.2")).await;
    let both = dns.publish().await.unwrap();
    assert!(both.number > empty.number);
    assert_eq!(names(&both), ["u1.db.a.shop.bosh", "u2.db.a.shop.bosh"]);
    let written = document(&both);
    assert_eq!(written["version"], both.number);
    // As BOSH's director sends it: `["<uuid>", "sha256:<64 digits>", 1]`.
    assert_eq!(both.digest, format!("sha256:{}", digest(&std::fs::read(both.file.path()).unwrap())));
    assert!(
        both.file.path().starts_with(&dns.temporary),
        "a director that is killed leaves it where the next one looks"
    );
    assert!(both.digest.len() == 71 && uuid::Uuid::try_parse(&both.blob).is_ok());
    let info = &written["record_infos"][0];
    assert_eq!(
        (&info[4], &info[9], &info[11], &info[12]),
        (&json!("z1"), &json!("10.0.0.1"), &json!("agent-of-vm-1"), &json!(0))
    );
    for number in [&info[3][0], &info[5], &info[7]] {
        assert_ne!(
            number.as_str().unwrap(),
            "0",
            "everything has a number, also what was deployed without one: {info}"
        );
    }
    assert_eq!(dns.publish().await.unwrap().number, both.number, "nothing changed");

    store.record(&Fact::VmDeleted { cid: VmCid::new("vm-2").unwrap() }).await.unwrap();
    let one = dns.publish().await.unwrap();
    assert!(one.number > both.number && names(&one) == ["u1.db.a.shop.bosh"]);
    has_vm(store, &vm("vm-3", "u2", "10.0.0.2")).await;
    let again = dns.publish().await.unwrap();
    assert!(again.number > one.number, "the agent of the VM is another one, also where the address is the same");
    assert_eq!(document(&again)["record_infos"][1][5], info[5], "numbers are kept");

    let later = LocalDns::new(dns.settings, store.clone(), dns.agents.clone(), dns.temporary.clone());
    assert_eq!(later.publish().await.unwrap().number, again.number, "a restart is no change");
}

#[tokio::test]
async fn versions_of_names_rise_with_every_change_also_with_deletions() {
    lives(&director().await.director.dns).await;
}

#[tokio::test]
async fn versions_of_names_rise_with_every_change_on_postgres_as_well() {
    let server = PrivatePostgres::start().unwrap();
    let store = Store::open(&server.url()).await.unwrap();
    let bench = director().await;
    let director = &bench.director;
    let temporary = director.folders.temporary();
    lives(&LocalDns::new(director.settings.local_dns, store, director.agents.clone(), temporary)).await;
}

/// A stranger who takes connections and says nothing.
fn silence() -> (Ipv4Addr, TcpListener) {
    for last in 1..=254 {
        let address = Ipv4Addr::new(127, 61, 9, last);
        if let Ok(listener) = TcpListener::bind((address, AGENT_PORT)) {
            return (address, listener);
        }
    }
    panic!("no free loopback address");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_are_silent_hold_nobody_up_and_are_told_again() {
    let bench = director().await;
    let dns = &bench.director.dns;
    dns.store.add_deployment(&"shop".into(), &[]).await.unwrap();
    let (address, _listener) = silence();
    let instances: Vec<_> = (0..30).map(|at| instance(&format!("u{at}"), at, InstanceState::Started)).collect();
    dns.store.begin_instances(&instances, &[]).await.unwrap();
    for at in 0..30 {
        has_vm(&dns.store, &vm(&format!("vm-{at}"), &format!("u{at}"), &address.to_string())).await;
    }
    let begun = Instant::now();
    dns.tell_all().await;
    assert!(begun.elapsed() < Duration::from_secs(11), "{:?}", begun.elapsed());
    let version = dns.publish().await.unwrap();
    assert_eq!(dns.store.vms_behind(version.number).await.unwrap().len(), 30, "nobody has it");
    let told: Vec<_> = (0..10).map(|at| VmCid::new(format!("vm-{at}")).unwrap()).collect();
    dns.store.note_dns_version(&told, version.number).await.unwrap();
    assert_eq!(dns.store.vms_behind(version.number).await.unwrap().len(), 20);
    assert_eq!(dns.store.vms_behind(version.number + 1).await.unwrap().len(), 30);
    dns.store.note_dns_version(&told, version.number - 1).await.unwrap();
    assert_eq!(dns.store.dns_version_of(&told[0]).await.unwrap(), version.number, "news that is late is none");
}

/// One VM that was taken over, or is out of order, would hold up the names of all others, and each deploy of anybody, by ten seconds.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_silent_is_told_apart_from_the_others() {
    let bench = director().await;
    let dns = &bench.director.dns;
    dns.store.add_deployment(&"shop".into(), &[]).await.unwrap();
    let (address, _listener) = silence();
    dns.store.begin_instances(&[instance("u0", 0, InstanceState::Started)], &[]).await.unwrap();
    has_vm(&dns.store, &vm("vm-0", "u0", &address.to_string())).await;
    let begun = Instant::now();
    dns.tell_all().await;
    let first = begun.elapsed();
    assert!(first < SOON + Duration::from_secs(2), "{first:?}");
    // What changes next is told to the others at once.
    dns.note_health(&[("agent-of-vm-0".to_owned(), Found::Ill)]);
    for _ in 0..2 {
        let begun = Instant::now();
        dns.tell_all().await;
        dns.converge().await.unwrap();
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
    // It is tried again beside them, with all patience.
    let begun = Instant::now();
    dns.converge_slow().await.unwrap();
    assert!(begun.elapsed() > SOON, "{:?}", begun.elapsed());
    assert!(dns.slow_agents().contains("agent-of-vm-0"));
    // Agents that are gone are forgotten.
    dns.store.record(&Fact::VmDeleted { cid: VmCid::new("vm-0").unwrap() }).await.unwrap();
    dns.publish().await.unwrap();
    dns.converge_slow().await.unwrap();
    assert!(dns.slow_agents().is_empty());
}

#[tokio::test]
async fn a_director_that_serves_no_names_tells_nobody() {
    let bench = TestDirector::new().await;
    let dns = &bench.director.dns;
    dns.store.add_deployment(&"shop".into(), &[]).await.unwrap();
    dns.store.begin_instances(&[instance("u1", 0, InstanceState::Started)], &[]).await.unwrap();
    let vm = vm("vm-1", "u1", "127.61.9.254");
    has_vm(&dns.store, &vm).await;
    let begun = Instant::now();
    dns.tell_all().await;
    dns.tell(&vm).await;
    assert!(begun.elapsed() < Duration::from_secs(1) && dns.newest.lock().await.is_none());
    let numbers = dns.store.dns_numbers().await.unwrap();
    assert_eq!(numbers.azs, BTreeMap::new());
}

/// Callers are sent to instances that are down, or each look at them would be a message to every agent.
#[tokio::test]
async fn names_tell_who_is_ill_and_versions_change_only_when_somebody_is() {
    let bench = director().await;
    let dns = &bench.director.dns;
    dns.store.add_deployment(&"shop".into(), &[]).await.unwrap();
    let started = InstanceState::Started;
    dns.store.begin_instances(&[instance("u1", 0, started), instance("u2", 1, started)], &[]).await.unwrap();
    has_vm(&dns.store, &vm("vm-1", "u1", "10.0.0.1")).await;
    has_vm(&dns.store, &vm("vm-2", "u2", "10.0.0.2")).await;
    let round = |second| [("agent-of-vm-1".to_owned(), Found::Well), ("agent-of-vm-2".to_owned(), second)];
    let first = dns.publish().await.unwrap();
    dns.note_health(&round(Found::Well));
    assert_eq!(dns.publish().await.unwrap().number, first.number);
    assert!(document(&first).get("unhealthy_agents").is_none());
    dns.note_health(&round(Found::Ill));
    assert!(dns.health_is_due());
    let ill = dns.publish().await.unwrap();
    assert!(ill.number > first.number);
    assert_eq!(document(&ill)["unhealthy_agents"], json!(["agent-of-vm-2"]));
    // It fails and comes back all the time.
    for found in [Found::Well, Found::Ill, Found::Well, Found::Silent] {
        dns.note_health(&round(found));
        assert_eq!(dns.publish().await.unwrap().number, ill.number);
    }
}
