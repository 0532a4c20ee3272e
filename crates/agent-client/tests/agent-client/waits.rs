//! How far a wait for an agent got.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use windlass_agent_client::{Agent, CallError, Deadlines, Stage};

use crate::rig::{Certificates, LOOPBACK, scripted};

/// The stage at which a wait gave up, and its last error.
async fn gave_up(agent: &Agent) -> (Stage, String) {
    let started = Instant::now();
    let not_ready = agent.wait_until_ready(Duration::from_millis(100)).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(&not_ready.agent, agent.id());
    (not_ready.stage, format!("{not_ready}: {}", not_ready.last))
}

#[tokio::test]
async fn a_wait_says_how_far_it_got() {
    let certificates = Certificates::new();
    let free = TcpListener::bind((LOOPBACK, 0)).await.unwrap().local_addr().unwrap().port();
    let (stage, message) = gave_up(&certificates.agent(vec![LOOPBACK], free)).await;
    assert_eq!(stage, Stage::VmCreated);
    assert!(message.contains(&format!("127.0.0.1:{free}")) && message.contains("check that the VM runs"), "{message}");
    assert_eq!(gave_up(&certificates.agent(vec![], free)).await.0, Stage::VmCreated);

    // Something else listens there: one that talks at once, one that says nothing.
    let talker = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = talker.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = talker.accept().await {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await;
        }
    });
    assert_eq!(gave_up(&certificates.agent(vec![LOOPBACK], port)).await.0, Stage::AddressAnswers);
    let silent = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port();
    assert_eq!(gave_up(&certificates.agent(vec![LOOPBACK], port)).await.0, Stage::AddressAnswers);

    let agent = scripted(|_, _| Some(json!({"exception": {"message": "restarting agent"}}))).await;
    assert_eq!(gave_up(&agent).await.0, Stage::Authenticated);
    let agent = scripted(|_, _| None).await;
    assert_eq!(gave_up(&agent).await.0, Stage::Tls);
}

#[tokio::test]
async fn a_silent_agent_costs_no_more_than_the_deadline() {
    let silent = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let agent = Certificates::new().agent(vec![LOOPBACK], silent.local_addr().unwrap().port());
    let hasty = agent.with_deadlines(Deadlines { message: Duration::from_millis(50), ..Deadlines::default() });
    let error = hasty.start().await.unwrap_err();
    let CallError::TimedOut { method, stage, .. } = &error else { panic!("{error:?}") };
    assert_eq!((method.as_str(), *stage), ("start", Stage::AddressAnswers));
}
