//! Answers that are larger than they need to be, or never end.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use windlass_agent_client::{Agent, CallError, Deadlines};

use crate::rig::{Certificates, LOOPBACK, scripted, scripted_raw};

/// A VM that somebody else took over must not take the memory of its caller.
#[tokio::test]
async fn an_answer_larger_than_its_action_needs_is_refused() {
    let agent = scripted(|method, _| match method {
        "ping" => Some(json!({"value": "x".repeat(64 * 1024)})),
        "get_state" => Some(json!({"value": {"job_state": "running", "long": "x".repeat(1024 * 1024)}})),
        "list_disk" => Some(json!({"value": vec![0; 25_000]})),
        "fetch_logs" => Some(json!({"value": {"agent_task_id": "1", "state": "running"}})),
        _ => Some(json!({"value": {"value": "x".repeat(64 * 1024)}})),
    })
    .await;
    let said = [
        agent.ping().await.unwrap_err().to_string(),
        agent.get_state(true).await.unwrap_err().to_string(),
        agent.list_disk().await.unwrap_err().to_string(),
        agent.call("fetch_logs", vec![]).await.unwrap_err().to_string(),
    ];
    let problems = [
        "answered ping with more than 65536 bytes",
        "answered get_state with more than 1048576 bytes",
        "answered list_disk with more values than an answer has",
        "answered get_task with more than 65536 bytes",
    ];
    for (said, problem) in said.iter().zip(problems) {
        assert!(said.contains(problem), "{said}");
    }
}

#[tokio::test]
async fn large_answers_come_in_turn_and_small_ones_beside_them() {
    let agent = scripted(|method, _| match method {
        "get_state" => Some(json!({"value": {"job_state": "running", "long": "x".repeat(100 * 1024)}})),
        _ => Some(json!({"value": "pong"})),
    })
    .await;
    let states = (0..20).map(|_| agent.get_state(true));
    let (states, ping) = tokio::join!(futures_util::future::join_all(states), agent.ping());
    assert!(states.iter().all(Result::is_ok), "{states:?}");
    ping.unwrap();
}

#[tokio::test]
async fn a_blob_larger_than_expected_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("blob");
    let agent = scripted_raw("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", &[1_000_000]).await;
    let error = agent.get_blob("id", &into, 100_000).await.unwrap_err().to_string();
    assert!(error.contains("answered GET /blobs with a blob of more than 100000 bytes"), "{error}");
    assert!(!into.exists());
}

/// Each byte comes in time, and all of them would take hours.
#[tokio::test]
async fn a_blob_that_trickles_in_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let agent = scripted_raw("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", &[1; 200]).await;
    let hasty = agent.with_deadlines(Deadlines { message: Duration::from_millis(500), ..Deadlines::default() });
    let error = hasty.get_blob("id", &folder.path().join("blob"), 1 << 20).await.unwrap_err();
    let CallError::TimedOut { method, .. } = &error else { panic!("{error:?}") };
    assert_eq!(method.as_str(), "GET /blobs");
}

/// It would have kept a deploy for the hours that a drain may take.
#[tokio::test]
async fn an_agent_that_takes_no_blob_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blob");
    std::fs::write(&path, [0; 8 << 10]).unwrap();
    let agent = scripted_raw("", &[0; 200]).await;
    let hasty = agent.with_deadlines(Deadlines { message: Duration::from_millis(500), ..Deadlines::default() });
    let error = hasty.put_blob("id", &path).await.unwrap_err();
    let CallError::TimedOut { method, .. } = &error else { panic!("{error:?}") };
    assert_eq!(method.as_str(), "PUT /blobs");
}

/// Nobody asks how the blob goes on that is not there.
#[tokio::test]
async fn a_refusal_of_a_blob_that_trickles_in_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let agent = scripted_raw("HTTP/1.1 404 Not Found\r\nContent-Length: 60000\r\n\r\n", &[1; 200]).await;
    let hasty = agent.with_deadlines(Deadlines { message: Duration::from_millis(500), ..Deadlines::default() });
    let error = hasty.get_blob("id", &folder.path().join("blob"), 1 << 20).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { .. }), "{error:?}");
}

/// VMs of one team could keep the director from understanding those of others, and their errands would fail.
#[tokio::test]
async fn agents_that_never_end_a_large_answer_keep_no_turn_from_others() {
    let agents: Vec<Agent> = futures_util::future::join_all((0..8).map(|_| stalling())).await;
    let ask = async |patience: Duration| {
        let ask = |agent: &Agent| {
            let agent = agent.with_deadlines(Deadlines { message: patience, ..Deadlines::default() });
            async move { agent.get_state(true).await }
        };
        let answers = futures_util::future::join_all(agents.iter().map(ask)).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(CallError::TimedOut { .. }))), "{answers:?}");
    };
    ask(Duration::from_millis(700)).await;
    let others = async {
        // The others are on their way by then.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let long = json!({"value": {"job_state": "running", "long": "x".repeat(100 * 1024)}});
        let agent = scripted(move |_, _| Some(long.clone())).await;
        let agent = agent.with_deadlines(Deadlines { message: Duration::from_secs(2), ..Deadlines::default() });
        agent.get_state(true).await
    };
    let ((), answer) = tokio::join!(ask(Duration::from_secs(4)), others);
    assert!(answer.is_ok(), "{answer:?}");
}

/// Begins a large answer to each message, and never ends it.
async fn stalling() -> Agent {
    let certificates = Certificates::new();
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let agent = certificates.agent(vec![LOOPBACK], listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(certificates.acceptor.accept(stream).await.unwrap());
            let mut line = String::new();
            while stream.read_line(&mut line).await.unwrap() > 2 {
                line.clear();
            }
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
            stream.write_all(format!("{head}{}", "x".repeat(100 * 1024)).as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            open.push(stream);
        }
    });
    agent
}
