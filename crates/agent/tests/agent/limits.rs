//! What strangers and slow callers cannot do.

use std::time::{Duration, Instant};

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

#[tokio::test]
async fn a_half_sent_message_does_not_delay_others() {
    let machine = Machine::started_without_client_certificates().await;
    let authorization = crate::machine::base64_of(&format!("director:{}", crate::machine::PASSWORD));
    let mut slow = machine.connect().await;
    let head = format!(
        "POST /agent HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {authorization}\r\nContent-Length: 50\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    let started = Instant::now();
    for _ in 0..20 {
        assert_eq!(machine.message(json!({"method": "ping"})).await["value"], "pong");
    }
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
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
