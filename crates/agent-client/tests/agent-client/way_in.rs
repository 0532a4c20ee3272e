//! What agents say to who comes into their VMs.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use windlass_agent_client::{Agent, CallError, Deadlines, NoWayIn};
use windlass_contract::way_in::{Frame, WayIn, Work};

use crate::rig::{Certificates, LOOPBACK};

/// An agent that answers any way in with these bytes, whatever they are, and then ends the connection or keeps it.
async fn lets_in_with(answer: Vec<u8>, keeps: bool) -> Agent {
    let certificates = Certificates::new();
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let agent = certificates.agent(vec![LOOPBACK], listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = certificates.acceptor.accept(stream).await.unwrap();
        let mut asked = vec![0; 4096];
        let _ = stream.read(&mut asked).await;
        let _ = stream.write_all(&answer).await;
        let _ = stream.flush().await;
        while keeps && matches!(stream.read(&mut asked).await, Ok(1..)) {}
    });
    agent
}

fn way_in() -> WayIn {
    WayIn { root: false, work: Work::Run { command: vec!["true".into()] } }
}

/// Input that never ends.
fn endless() -> impl futures_util::Stream<Item = std::io::Result<bytes::Bytes>> + Send + 'static {
    futures_util::stream::pending()
}

async fn let_in(head: &str, body: &[u8]) -> Result<Vec<Result<Frame, String>>, String> {
    let answer = [format!("HTTP/1.1 {head}\r\nTransfer-Encoding: chunked\r\n\r\n").as_bytes(), body].concat();
    let agent = lets_in_with(answer, false).await;
    let mut conversation = agent.let_in(&way_in(), endless()).await.map_err(|error| error.to_string())?;
    let mut said = Vec::new();
    loop {
        match conversation.next().await {
            Ok(Some(frame)) => said.push(Ok(frame)),
            Ok(None) => return Ok(said),
            Err(error) => {
                said.push(Err(windlass_contract::explain(&error)));
                return Ok(said);
            }
        }
    }
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// A VM could make its director wait, grow or fail by what it says to somebody who comes in.
#[tokio::test]
async fn whatever_an_agent_says_to_who_comes_in_is_a_frame_or_an_end() {
    let frames = [Frame::Output(b"out".to_vec()), Frame::Alive, Frame::Ended(3)];
    let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
    let said = let_in("200 OK", &[chunk(&bytes[..4]), chunk(&bytes[4..]), b"0\r\n\r\n".to_vec()].concat()).await;
    assert_eq!(said.unwrap(), frames.map(Ok));
    for garbage in [&b"garbage of a VM"[..], &[5, 0xff, 0xff, 0xff, 0xff], &[8, 0, 0, 0, 1, 0]] {
        let said = let_in("200 OK", &chunk(garbage)).await.unwrap();
        let [Err(why)] = said.as_slice() else { panic!("{said:?}") };
        assert!(why.contains("a frame of"), "{why}");
    }
    // It breaks off.
    let said = let_in("200 OK", &chunk(&frames_of_output())).await.unwrap();
    assert!(matches!(said.as_slice(), [Ok(Frame::Output(_)), Err(_)]), "{said:?}");
    assert!(let_in("404 Not Found", b"0\r\n\r\n").await.unwrap_err().contains("no way in but ssh"));
    let refused = let_in("422 Unprocessable Content", &[chunk(b"not here"), b"0\r\n\r\n".to_vec()].concat()).await;
    assert_eq!(refused.unwrap_err(), "not here");
    let long = let_in("422 Unprocessable Content", &chunk(&vec![b'x'; 100_000])).await.unwrap_err();
    assert!(long.len() < 1000, "{}", long.len());
}

fn frames_of_output() -> Vec<u8> {
    Frame::Output(b"out".to_vec()).encode()
}

/// A VM that says nothing more would hold its visitor for ever.
#[tokio::test]
async fn an_agent_that_does_not_answer_who_comes_in_is_given_up() {
    let agent = lets_in_with(Vec::new(), true).await;
    let agent = agent.with_deadlines(Deadlines { message: Duration::from_millis(200), ..Deadlines::default() });
    let began = Instant::now();
    let error = agent.let_in(&way_in(), endless()).await.unwrap_err();
    assert!(matches!(error, NoWayIn::Call(CallError::TimedOut { .. })), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(20));
}
