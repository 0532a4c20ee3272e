//! What anybody on the network can do to a connection, and what must not come of it: one suite for our agent and, where
//! `WINDLASS_ORIGINAL_AGENT` names it, for the original. How much sooner ours cuts off is in `limits.rs`.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::machine::{Machine, PASSWORD, PATIENCE, Stream, base64_of};

fn head(length: usize) -> String {
    let authorization = base64_of(&format!("director:{PASSWORD}"));
    format!(
        "POST /agent HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {authorization}\r\nContent-Length: {length}\r\n\r\n"
    )
}

const PING: &[u8] = br#"{"method":"ping"}"#;

/// Fails unless others are served as if nothing had happened, by the same process.
async fn unharmed(machine: &mut Machine, pid: u32) {
    let message = json!({"method": "ping"});
    let pong = tokio::time::timeout(Duration::from_secs(10), machine.message(message)).await.expect("a pong in time");
    assert_eq!(pong["value"], "pong");
    assert!(machine.is_running() && machine.pid() == pid, "{}", machine.console());
}

/// Everything that comes until the end of a connection. The end may come without TLS's farewell.
async fn rest(stream: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes));
    let _ = read.await.expect("the agent ends the connection");
    bytes
}

#[tokio::test]
async fn a_half_sent_request_delays_nobody() {
    for mut machine in Machine::started_ours_and_the_original().await {
        let pid = machine.pid();
        let mut open: Vec<Stream> = Vec::new();
        for part in ["", "POST /agent HT", "POST /agent HTTP/1.1\r\nHost: a\r\n", &head(50), &format!("{}{{", head(50))]
        {
            let mut stream = machine.connect().await;
            stream.write_all(part.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            open.push(stream);
            unharmed(&mut machine, pid).await;
        }
        // Half a handshake, too.
        let mut raw = tokio::net::TcpStream::connect((machine.address, machine.port)).await.unwrap();
        raw.write_all(&[0x16, 3, 1]).await.unwrap();
        unharmed(&mut machine, pid).await;
        drop((open, raw));
        unharmed(&mut machine, pid).await;
    }
}

#[tokio::test]
async fn a_slow_request_is_answered_once_it_is_whole() {
    for mut machine in Machine::started_ours_and_the_original().await {
        let pid = machine.pid();
        let mut slow = machine.connect().await;
        let request = [head(PING.len()).as_bytes(), PING].concat();
        for byte in &request {
            slow.write_all(std::slice::from_ref(byte)).await.unwrap();
            slow.flush().await.unwrap();
        }
        let mut answer = vec![0; 15];
        slow.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"HTTP/1.1 200 OK");
        unharmed(&mut machine, pid).await;
    }
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    for machine in Machine::started_ours_and_the_original().await {
        let mut stream = machine.connect().await;
        for _ in 0..100 {
            assert_eq!(machine.message_over(&mut stream, json!({"method": "ping"})).await["value"], "pong");
        }
        // Two at once are answered in their order.
        let twice = [head(PING.len()).as_bytes(), PING].concat().repeat(2);
        stream.write_all(&twice).await.unwrap();
        let (mut heard, mut part) = (String::new(), [0; 1024]);
        while heard.matches(r#"{"value":"pong"}"#).count() < 2 {
            let read = tokio::time::timeout(PATIENCE, stream.read(&mut part)).await.unwrap().unwrap();
            assert!(read > 0, "{heard}");
            heard.push_str(std::str::from_utf8(&part[..read]).unwrap());
        }
    }
}

#[tokio::test]
async fn what_is_too_big_is_refused_or_read_and_forgotten() {
    for mut machine in Machine::started_ours_and_the_original().await {
        let pid = machine.pid();
        let mut endless = machine.connect().await;
        endless.write_all(b"POST /agent HTTP/1.1\r\n").await.unwrap();
        let line = format!("X-Filler: {}\r\n", "x".repeat(1000));
        for _ in 0..3000 {
            if endless.write_all(line.as_bytes()).await.is_err() {
                break;
            }
        }
        let answer = rest(&mut endless).await;
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
        unharmed(&mut machine, pid).await;

        let big = vec![b' '; 64 * 1024 * 1024 + 1];
        let answer = machine.request("POST", "/agent", &big).await;
        assert!([400, 500].contains(&answer.status) && answer.body.is_empty(), "{}", answer.status);
        unharmed(&mut machine, pid).await;
        // Without the password it need not even be sent.
        let mut stranger = machine.connect().await;
        let claim =
            format!("POST /agent HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", u32::MAX);
        stranger.write_all(claim.as_bytes()).await.unwrap();
        let mut answer = vec![0; 12];
        stranger.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"HTTP/1.1 401");
        drop(stranger);
        unharmed(&mut machine, pid).await;
    }
}

#[tokio::test]
async fn what_is_malformed_is_refused() {
    let authorization = base64_of(&format!("director:{PASSWORD}"));
    let request =
        |lines: &str| format!("POST /agent HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {authorization}\r\n{lines}");
    let malformed = [
        "garbage\r\n\r\n".to_owned(),
        "POST /agent HTTP/9.9\r\n\r\n".to_owned(),
        "POST  HTTP/1.1\r\n\r\n".to_owned(),
        "\0\0\0\0\r\n\r\n".to_owned(),
        request("Content-Length: -1\r\n\r\n"),
        request("Content-Length: 99999999999999999999\r\n\r\n"),
        request("Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
        request("Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
        request("Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"),
        request("no colon\r\n\r\n"),
    ];
    for mut machine in Machine::started_ours_and_the_original().await {
        let pid = machine.pid();
        for bytes in &malformed {
            let mut stream = machine.connect().await;
            stream.write_all(bytes.as_bytes()).await.unwrap();
            let _ = stream.shutdown().await;
            let answer = String::from_utf8_lossy(&rest(&mut stream).await).into_owned();
            let refused = answer.is_empty()
                || [" 400", " 401", " 500", " 501", " 505"].iter().any(|status| answer[8..].starts_with(status));
            assert!(refused, "{bytes:?}: {answer}");
            unharmed(&mut machine, pid).await;
        }
    }
}

#[tokio::test]
async fn what_is_not_tls_or_too_old_gets_nowhere() {
    // The greeting of a client that knows no TLS after 1.1.
    let mut hello = vec![0x03, 0x02];
    hello.extend([7; 32]);
    hello.extend([0, 0, 4, 0xc0, 0x14, 0xc0, 0x0a, 1, 0]);
    let mut old = vec![0x16, 3, 1, 0, hello.len() as u8 + 4, 1, 0, 0, hello.len() as u8];
    old.extend(hello);
    for mut machine in Machine::started_ours_and_the_original().await {
        let pid = machine.pid();
        for greeting in [&b"POST /agent HTTP/1.1\r\nHost: a\r\n\r\n"[..], b"SSH-2.0-x\r\n", &[0xff; 64], &old] {
            let mut raw = tokio::net::TcpStream::connect((machine.address, machine.port)).await.unwrap();
            raw.write_all(greeting).await.unwrap();
            let _ = raw.shutdown().await;
            let answer = rest(&mut raw).await;
            let text = String::from_utf8_lossy(&answer);
            assert!(
                answer.is_empty() || answer[0] == 0x15 || text.starts_with("HTTP/1.0 400"),
                "{greeting:?}: {answer:?}"
            );
            unharmed(&mut machine, pid).await;
        }
    }
}

#[tokio::test]
async fn connections_without_words_keep_nobody_out() {
    for mut machine in Machine::started_ours_and_the_original().await {
        let pid = machine.pid();
        let mut idle = Vec::new();
        for _ in 0..100 {
            idle.push(tokio::net::TcpStream::connect((machine.address, machine.port)).await.unwrap());
        }
        unharmed(&mut machine, pid).await;
    }
}

#[tokio::test]
async fn blobs_go_there_and_back_through_the_client() {
    for machine in Machine::started_ours_and_the_original().await {
        let director = machine.director();
        let [from, to] = ["from", "to"].map(|name| machine.folder.path().join(name));
        let content: Vec<u8> = (0..700_000u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&from, &content).unwrap();
        let id = "b3d5f0c2-9d6b-4d0f-8f57-0a9d2f3f9a11";
        assert!(!director.get_blob(id, &to, u64::MAX).await.unwrap());
        for _ in 0..2 {
            director.put_blob(id, &from).await.unwrap();
            assert!(director.get_blob(id, &to, u64::MAX).await.unwrap());
            assert!(std::fs::read(&to).unwrap() == content);
        }
        director.ping().await.unwrap();
        let error = director.put_blob(id, &machine.folder.path().join("nope")).await.unwrap_err().to_string();
        assert!(error.contains("because of the file"), "{error}");
        let error =
            director.get_blob(id, &machine.folder.path().join("no/where"), u64::MAX).await.unwrap_err().to_string();
        assert!(error.contains("because of the file"), "{error}");
    }
}
