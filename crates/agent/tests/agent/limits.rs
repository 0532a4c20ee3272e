//! What strangers and slow callers cannot do.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::machine::Machine;

#[tokio::test]
async fn connections_that_say_nothing_do_not_keep_the_director_out() {
    let machine = Machine::started().await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(tokio::net::TcpStream::connect((machine.address, machine.port)).await.unwrap());
    }
    machine.director().with_deadlines(Default::default()).ping().await.unwrap();
}

/// Environments that bring their own certificates ask for a password alone, which somebody chose.
#[tokio::test]
async fn who_guesses_passwords_waits_and_who_knows_it_does_not() {
    let machine = Machine::started_without_client_certificates().await;
    let begun = std::time::Instant::now();
    let guess = async |number: usize| {
        let wrong = crate::machine::base64_of(&format!("director:{number}"));
        let head = format!("Authorization: Basic {wrong}\r\n");
        assert_eq!(machine.request_with("POST", "/agent", &head, b"{}").await.status, 401);
    };
    let known = async {
        assert_eq!(machine.message(json!({"method": "ping"})).await["value"], "pong");
        begun.elapsed()
    };
    let guesses = async || {
        for number in 0..10 {
            guess(number).await;
        }
    };
    let ((), (), known) = tokio::join!(guesses(), guesses(), known);
    let took = begun.elapsed();
    assert!(took >= std::time::Duration::from_secs(2), "{took:?}");
    assert!(known < took, "the right one took {known:?}, and all {took:?}");
}

#[tokio::test]
async fn a_half_sent_blob_is_not_kept() {
    let machine = Machine::started_without_client_certificates().await;
    let authorization = crate::machine::base64_of(&format!("director:{}", crate::machine::PASSWORD));
    let head = format!(
        "PUT /blobs/ab/x HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {authorization}\r\nContent-Length: 50\r\n\r\nhalf"
    );
    let mut broken = machine.connect().await;
    broken.write_all(head.as_bytes()).await.unwrap();
    broken.flush().await.unwrap();
    let folder = machine.base().join("data/blobs");
    let count = || std::fs::read_dir(&folder).unwrap().count();
    let deadline = std::time::Instant::now() + crate::machine::PATIENCE;
    while count() == 0 {
        assert!(std::time::Instant::now() < deadline, "the blob does not arrive");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(machine.request("GET", "/blobs/ab/x", b"").await.status, 404);
    drop(broken);
    while count() > 0 {
        assert!(std::time::Instant::now() < deadline, "something is left of it");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_head_without_end_and_a_message_too_big_are_cut_off() {
    let machine = Machine::started_without_client_certificates().await;
    let mut endless = machine.connect().await;
    endless.write_all(b"POST /agent HTTP/1.1\r\n").await.unwrap();
    let line = format!("X-Filler: {}\r\n", "x".repeat(1000));
    let mut answer = Vec::new();
    // The agent answers or closes long before all of this is sent.
    for _ in 0..1000 {
        if endless.write_all(line.as_bytes()).await.is_err() {
            break;
        }
    }
    let _ = tokio::time::timeout(crate::machine::PATIENCE, endless.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));

    let big = vec![b' '; 64 * 1024 * 1024 + 1];
    assert_eq!(machine.request("POST", "/agent", &big).await.status, 400);
    assert_eq!(machine.message(json!({"method": "ping"})).await["value"], "pong");
}

/// How much memory the agent has for itself, in KiB.
fn memory_kib(machine: &Machine) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", machine.pid())).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Each caller would leave a session with its certificates behind; a machine may have thousands of agents.
#[tokio::test]
async fn an_agent_does_not_grow_with_the_number_of_its_callers() {
    let machine = Machine::started().await;
    for _ in 0..5 {
        machine.director().ping().await.unwrap();
    }
    let before = memory_kib(&machine);
    for _ in 0..100 {
        machine.director().ping().await.unwrap();
    }
    let grown = memory_kib(&machine).saturating_sub(before);
    assert!(grown < 200, "the agent has grown by {grown} KiB");
}
