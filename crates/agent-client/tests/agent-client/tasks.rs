//! What is waited for, cancelled and told of tasks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use windlass_agent_client::{Begun, CallError, Cancellation, Drain, Outcome, Stage};

use crate::rig::{disk, scripted, unknown};

#[tokio::test]
async fn a_caller_need_not_wait_for_a_task_and_can_cancel_it() {
    let mut cancelled = false;
    let agent = scripted(move |method, arguments| match method {
        "drain" => Some(json!({"value": {"agent_task_id": "t-1", "state": "running"}})),
        "cancel_task" => {
            assert_eq!(arguments, ["t-1"]);
            cancelled = true;
            Some(json!({"value": "canceled"}))
        }
        "get_task" if cancelled => Some(json!({"exception": {"message": "Script was cancelled by user request"}})),
        "get_task" => Some(json!({"value": {"agent_task_id": "t-1", "state": "running"}})),
        _ => Some(json!({"value": "pong"})),
    })
    .await;
    let Begun::Task(task) = agent.begin("drain", vec![json!("shutdown")]).await.unwrap() else { panic!("no task") };
    assert_eq!((task.id.as_str(), task.method.as_str()), ("t-1", "drain"));
    assert_eq!(agent.begin("ping", vec![]).await.unwrap(), Begun::Done(json!("pong")));
    agent.cancel_task(&task).await.unwrap();
    let error = agent.finish(&task).await.unwrap_err().to_string();
    assert!(error.contains("failed to drain: Script was cancelled by user request"), "{error}");
}

/// A drain that hangs would keep its caller for hours.
#[tokio::test]
async fn an_agent_is_told_once_to_end_what_was_cancelled() {
    for can_end_it in [true, false] {
        let told = Arc::new(Mutex::new(0));
        let counted = told.clone();
        let agent = scripted(move |method, arguments| {
            let running = Some(json!({"value": {"agent_task_id": "t-1", "state": "running"}}));
            let mut told = counted.lock().unwrap();
            match method {
                "cancel_task" => {
                    assert_eq!(arguments, ["t-1"]);
                    *told += 1;
                    match can_end_it {
                        true => Some(json!({"value": "canceled"})),
                        false => Some(json!({"exception": {"message": "Action Failed cancel_task: not supported"}})),
                    }
                }
                "get_task" if *told > 0 => Some(json!({"exception": {"message": "Script was cancelled"}})),
                _ => running,
            }
        })
        .await;
        let is_cancelled = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let looked = is_cancelled.clone();
        let agent = agent.until(Cancellation::when(move || looked.load(std::sync::atomic::Ordering::SeqCst)));
        let mut drain = std::pin::pin!(agent.drain(Drain::Shutdown(None)));
        assert!(tokio::time::timeout(Duration::from_millis(200), &mut drain).await.is_err(), "it goes on");
        is_cancelled.store(true, std::sync::atomic::Ordering::SeqCst);
        let error = tokio::time::timeout(Duration::from_secs(20), drain).await.unwrap().unwrap_err();
        assert!(matches!(&error, CallError::Cancelled { method, .. } if method == "drain"), "{error:?}");
        assert_eq!(*told.lock().unwrap(), 1);
    }
}

#[tokio::test]
async fn what_old_agents_do_not_know_is_told_apart_from_failure() {
    let agent = scripted(|method, _| unknown(method)).await;
    let (cid, hint) = disk();
    assert_eq!(agent.info().await.unwrap(), 0);
    assert_eq!(agent.add_persistent_disk(&cid, &hint).await.unwrap(), Outcome::UnknownToAgent);
    assert_eq!(agent.remove_persistent_disk(&cid).await.unwrap(), Outcome::UnknownToAgent);
    assert_eq!(agent.run_script("pre-start", &Default::default()).await.unwrap(), Outcome::UnknownToAgent);
    assert_eq!(agent.update_settings(&Default::default()).await.unwrap(), Outcome::UnknownToAgent);
    let error = agent.mount_disk(&cid, None).await.unwrap_err();
    assert!(matches!(&error, CallError::Exception { method, .. } if method == "mount_disk"), "{error}");
}

#[tokio::test]
async fn a_task_is_waited_for_through_a_restart_of_the_agent() {
    let mut polls = 0;
    let agent = scripted(move |method, arguments| match method {
        "apply" => Some(json!({"value": {"agent_task_id": "t-1", "state": "running"}})),
        "get_task" => {
            assert_eq!(arguments, ["t-1"]);
            polls += 1;
            match polls {
                1 => Some(json!({"value": {"agent_task_id": "t-1", "state": "running"}})),
                // Over the kept connection and over a new one.
                2..5 => None,
                _ => Some(json!({"value": "applied"})),
            }
        }
        other => unknown(other),
    })
    .await;
    agent.apply(&Default::default()).await.unwrap();
}

#[tokio::test]
async fn a_failed_task_is_told_with_the_action_it_was() {
    let agent = scripted(|method, _| match method {
        "stop" => Some(json!({"value": {"agent_task_id": "t-1", "state": "running"}})),
        _ => Some(json!({"exception": {"message": "Action Failed get_task: Task t-1 result: no", "backtrace": ["x"]}})),
    })
    .await;
    let error = agent.stop().await.unwrap_err().to_string();
    assert!(error.contains("failed to stop: Action Failed get_task: Task t-1 result: no"), "{error}");
}

#[tokio::test]
async fn long_words_of_an_agent_are_cut() {
    let agent = scripted(|method, _| {
        let long = "a".repeat(60_000);
        Some(match method {
            "get_state" => json!({"value": {"job_state": long}}),
            "list_disk" => json!({"value": long}),
            _ => json!({"exception": {"message": format!("begin {long} end")}}),
        })
    })
    .await;
    let error = agent.stop().await.unwrap_err().to_string();
    assert!(error.len() < 17_000 && error.contains("failed to stop: begin a") && error.ends_with("a end"), "{error}");
    assert!(error.contains("bytes are left out"), "{error}");
    assert_eq!(agent.get_state(false).await.unwrap().job_state.len(), 255);
    assert!(agent.list_disk().await.unwrap_err().to_string().len() < 17_000);
    let folder = tempfile::tempdir().unwrap();
    let error = agent.get_blob(&"b".repeat(60_000), &folder.path().join("blob"), 1).await.unwrap_err().to_string();
    assert!(error.contains("a blob id of 60000 bytes"), "{error}");
}

#[tokio::test]
async fn a_script_is_not_run_twice_because_a_connection_broke() {
    let runs = Arc::new(Mutex::new(0));
    let count = runs.clone();
    let agent = scripted(move |method, _| match method {
        "ping" => Some(json!({"value": "pong"})),
        _ => {
            *count.lock().unwrap() += 1;
            None
        }
    })
    .await;
    agent.ping().await.unwrap();
    let error = agent.run_script("pre-start", &Default::default()).await.unwrap_err();
    assert!(matches!(error, CallError::Unreachable { stage: Stage::Tls, .. }), "{error:?}");
    assert_eq!(*runs.lock().unwrap(), 1);
}

#[tokio::test]
async fn an_answer_that_is_none_is_told() {
    let agent = scripted(|method, _| match method {
        "ping" => Some(json!({"value": "pang"})),
        _ => Some(json!({"nothing": true})),
    })
    .await;
    for error in [agent.ping().await.unwrap_err(), agent.start().await.unwrap_err()] {
        assert!(matches!(error, CallError::BadReply { .. }), "{error:?}");
    }
    assert!(matches!(agent.list_disk().await, Err(CallError::BadReply { .. })));
}
