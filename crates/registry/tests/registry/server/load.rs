//! Crowds, slow clients and requests that never end.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use windlass_contract::settings::AgentSettings;
use windlass_registry::Client;
use windlass_registry::server::{Config, Limits, Registry};

use super::desk::{Base, as_writer, ask, basic, eventually, read_answer, writer};

/// Both ends of all connections are in this process.
fn allow_many_connections() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let allowed = getrlimit(Resource::Nofile).current;
    assert!(allowed.is_none_or(|allowed| allowed >= 4096), "this test needs 4096 descriptors: raise the hard limit");
}

async fn connected(address: SocketAddr, first_bytes: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(first_bytes.as_bytes()).await.unwrap();
    stream
}

async fn connections(registry: &Registry) -> usize {
    let metrics = ask(registry, "GET", "/metrics", "", "").await.body;
    let line = metrics.lines().find_map(|line| line.strip_prefix("windlass_registry_connections "));
    line.unwrap().parse().unwrap()
}

fn settings(of: &str, number: usize) -> AgentSettings {
    serde_json::from_str(&format!(r#"{{"agent_id": "{of}-{number}"}}"#)).unwrap()
}

/// Forty VMs come and go, and each finds what was stored for it.
async fn serves_everybody(registry: &Registry) {
    let mut vms = JoinSet::new();
    for vm in 0..40 {
        let client = writer(registry);
        vms.spawn(async move {
            let id = format!("vm-{vm}");
            for number in 0..5 {
                client.put(&id, &settings(&id, number)).await.unwrap();
                assert_eq!(client.get(&id).await.unwrap(), Some(settings(&id, number)));
            }
            client.delete(&id).await.unwrap();
            assert_eq!(client.get(&id).await.unwrap(), None);
        });
    }
    while let Some(vm) = vms.join_next().await {
        vm.unwrap();
    }
}

/// `times` connections of each kind that a registry has to put up with: one that says nothing, one with half of
/// a head, one with half of some settings, and one that asks for much and takes nothing.
async fn crowd(registry: &Registry, times: usize) -> Vec<TcpStream> {
    let address = registry.address();
    let large = format!(r#"{{"a": "{}"}}"#, "x".repeat(500_000));
    assert_eq!(ask(registry, "PUT", "/instances/large/settings", &as_writer(), &large).await.status, 200);
    let mut crowd = Vec::new();
    for number in 0..times {
        crowd.push(connected(address, "").await);
        crowd.push(connected(address, "GET /instances/vm-1/settings HTTP/1.1\r\nHos").await);
        let id = if number % 2 == 0 { "kept" } else { "half" };
        let head = format!("PUT /instances/{id}/settings HTTP/1.1\r\nHost: r\r\n{}", as_writer());
        crowd.push(connected(address, &format!("{head}Content-Length: 100\r\n\r\n{{\"agent_id\": \"half\"}}")).await);
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut slow = socket.connect(address).await.unwrap();
        let ask = format!("GET /instances/large/settings HTTP/1.1\r\nHost: r\r\n{}\r\n", as_writer());
        slow.write_all(ask.as_bytes()).await.unwrap();
        crowd.push(slow);
    }
    crowd
}

fn patient(base: &Base, patience: Duration) -> Config {
    let limits = Limits { head_patience: patience, body_patience: patience, ..Limits::default() };
    Config { limits, ..base.config() }
}

async fn nothing_was_replaced(registry: &Registry) {
    let client = writer(registry);
    assert_eq!(client.get("kept").await.unwrap(), Some(settings("kept", 1)), "half of something replaces nothing");
    assert_eq!(client.get("half").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_connections_slow_clients_and_half_sent_bodies_keep_nobody_out() {
    allow_many_connections();
    let base = Base::sqlite();
    let registry = Registry::start(patient(&base, Duration::from_secs(3600))).await.unwrap();
    writer(&registry).put("kept", &settings("kept", 1)).await.unwrap();
    let crowd = crowd(&registry, 250).await;
    assert_eq!(crowd.len(), 1000);
    eventually("all are let in", async || connections(&registry).await == 1001).await;
    serves_everybody(&registry).await;
    eventually("only they are still there", async || connections(&registry).await == 1001).await;
    drop(crowd);
    eventually("they are gone", async || connections(&registry).await == 1).await;
    nothing_was_replaced(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_take_too_long_are_sent_away() {
    let base = Base::sqlite();
    let registry = Registry::start(patient(&base, Duration::from_secs(1))).await.unwrap();
    writer(&registry).put("kept", &settings("kept", 1)).await.unwrap();
    let mut crowd = crowd(&registry, 10).await;
    eventually("they are sent away", async || connections(&registry).await == 1).await;
    let mut half_sent = crowd.swap_remove(2);
    assert_eq!(read_answer(&mut half_sent).await.status, 408);
    nothing_was_replaced(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_places_are_taken_silence_makes_room() {
    let base = Base::sqlite();
    let mut config = base.config();
    config.limits.connections = 50;
    let registry = Registry::start(config).await.unwrap();
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(connected(registry.address(), "GET /instances/x/settings HT").await);
    }
    serves_everybody(&registry).await;
    eventually("no more than allowed", async || connections(&registry).await <= 50).await;
}

/// On four thousand connections it took four gigabytes, and others waited for seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_does_not_take_its_large_settings_gets_no_more_of_them_and_others_are_served() {
    let base = Base::sqlite();
    let registry = base.registry().await;
    let cpi = writer(&registry);
    let large = format!(r#"{{"a": "{}"}}"#, "x".repeat(1_000_000));
    assert_eq!(ask(&registry, "PUT", "/instances/large/settings", &as_writer(), &large).await.status, 200);
    cpi.put("small", &settings("small", 1)).await.unwrap();
    let own = cpi.credentials_for("large");
    let head = basic(&own.user, own.password.reveal());
    let question = format!("GET /instances/large/settings HTTP/1.1\r\nHost: r\r\n{head}\r\n");
    let asked = async |times: usize| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(registry.address()).await.unwrap();
        stream.write_all(question.repeat(times).as_bytes()).await.unwrap();
        stream
    };
    let waits =
        async |stream: &TcpStream| tokio::time::timeout(Duration::from_millis(300), stream.readable()).await.is_err();
    // More than the kernel keeps for them.
    let untaken = [asked(16).await, asked(16).await];
    eventually("a further question waits", async || waits(&asked(1).await).await).await;
    let third = asked(1).await;
    assert!(waits(&third).await);
    let other = Client::new(&cpi.endpoint_for("small")).unwrap();
    assert_eq!(other.get("small").await.unwrap(), Some(settings("small", 1)));
    drop(untaken);
    tokio::time::timeout(Duration::from_secs(20), third.readable()).await.unwrap().unwrap();
}

/// Hundreds of VMs of a team, each with a megabyte, took several hundred.
#[tokio::test(flavor = "multi_thread")]
async fn many_vms_with_large_settings_take_no_more_memory_than_a_few() {
    allow_many_connections();
    let base = Base::sqlite();
    let registry = base.registry().await;
    let cpi = writer(&registry);
    let large = format!(r#"{{"a": "{}"}}"#, "x".repeat(1_000_000));
    let mut questions = Vec::new();
    for vm in 0..150 {
        let id = format!("vm-{vm}");
        let path = format!("/instances/{id}/settings");
        assert_eq!(ask(&registry, "PUT", &path, &as_writer(), &large).await.status, 200);
        let own = cpi.credentials_for(&id);
        let head = basic(&own.user, own.password.reveal());
        questions.push(format!("GET {path} HTTP/1.1\r\nHost: r\r\n{head}\r\n"));
    }
    let status = || std::fs::read_to_string("/proc/self/status").unwrap();
    let kilobytes = |name: &str| -> u64 {
        let status = status();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let before = kilobytes("VmHWM:");
    let mut untaken = Vec::new();
    for question in questions.iter().chain(&questions) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(registry.address()).await.unwrap();
        stream.write_all(question.as_bytes()).await.unwrap();
        untaken.push(stream);
    }
    eventually("those who take nothing make room", async || connections(&registry).await < 290).await;
    // Whoever asks after them is answered after them.
    assert_eq!(cpi.get("nobody").await.unwrap(), None);
    let more = kilobytes("VmHWM:").saturating_sub(before) / 1024;
    assert!(more < 100, "{more} MiB");
}

/// Three hundred VMs that took none of their megabyte kept the settings of another one for twelve minutes and more.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_gets_its_large_settings_while_hundreds_take_nothing_of_theirs() {
    const LONGEST: Duration = Duration::from_secs(30);
    allow_many_connections();
    let base = Base::sqlite();
    let registry = base.registry().await;
    let cpi = writer(&registry);
    let path = |id: &str| format!("/instances/{id}/settings");
    let stored = async |id: &str, size: usize| {
        let large = format!(r#"{{"agent_id": "{id}", "a": "{}"}}"#, "x".repeat(size));
        assert_eq!(ask(&registry, "PUT", &path(id), &as_writer(), &large).await.status, 200);
        let own = cpi.credentials_for(id);
        format!("GET {} HTTP/1.1\r\nHost: r\r\n{}\r\n", path(id), basic(&own.user, own.password.reveal()))
    };
    stored("other", 17_000).await;
    let mut questions = Vec::new();
    for vm in 0..300 {
        questions.push(stored(&format!("vm-{vm}"), 1_000_000).await);
    }
    let mut untaken = Vec::new();
    for question in questions.iter().chain(&questions) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(registry.address()).await.unwrap();
        stream.write_all(question.as_bytes()).await.unwrap();
        untaken.push(stream);
    }
    let other = Client::new(&cpi.endpoint_for("other")).unwrap();
    for time in 0..3 {
        let began = std::time::Instant::now();
        let answered = tokio::time::timeout(LONGEST, other.get("other")).await;
        println!("settings {time} came after {:?}", began.elapsed());
        assert!(answered.expect("they come soon").unwrap().is_some());
    }
    assert_eq!(untaken.len(), 600);
}

#[tokio::test]
async fn heads_without_end_are_cut_off() {
    let base = Base::sqlite();
    let registry = base.registry().await;
    let endless = format!("GET /instances/x/settings HTTP/1.1\r\nHost: r\r\nX: {}", "x".repeat(200_000));
    let mut stream = TcpStream::connect(registry.address()).await.unwrap();
    let _ = stream.write_all(endless.as_bytes()).await;
    assert!(matches!(read_answer(&mut stream).await.status, 0 | 431));
    // Thousands of strangers may send as much as one may.
    let long = format!("GET /instances/x/settings HTTP/1.1\r\nHost: r\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let mut stream = TcpStream::connect(registry.address()).await.unwrap();
    let _ = stream.write_all(long.as_bytes()).await;
    assert!(matches!(read_answer(&mut stream).await.status, 0 | 431));
    assert_eq!(ask(&registry, "GET", "/health", "", "").await.status, 200);
}

#[tokio::test]
async fn a_registry_that_is_stopped_finishes_what_it_began() {
    let base = Base::sqlite();
    let registry = base.registry().await;
    let head = format!("PUT /instances/vm-1/settings HTTP/1.1\r\nHost: r\r\n{}Content-Length: 20\r\n\r\n", as_writer());
    let mut begun = connected(registry.address(), &head).await;
    eventually("the request is there", async || connections(&registry).await == 2).await;
    let stopped = tokio::spawn(registry.stop());
    begun.write_all(br#"{"agent_id": "vm-1"}"#).await.unwrap();
    assert_eq!(read_answer(&mut begun).await.status, 200);
    stopped.await.unwrap();
    let registry = base.registry().await;
    assert!(writer(&registry).get("vm-1").await.unwrap().is_some());
}
