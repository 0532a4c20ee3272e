//! A way into the VM for people, where there is no ssh server: a director opens it with a `POST`, and input and output of the
//! work travel as frames in the request and its answer for as long as it takes.
//!
//! - [`work`]: which process does it, as whom.
//! - [`attend`]: the process's input and output, and its end when nobody is there any more.
//! - [`terminal`]: what stands between the two for programs that draw.
//! - [`own_program`]: what the agent's program does itself as such a process: [`copies`] and [`log_tails`].

mod attend;
mod copies;
mod log_tails;
pub(crate) mod own_program;
mod terminal;
mod work;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame as BodyFrame};
use tokio::sync::{Semaphore, mpsc};
use windlass_connections::{ReceiveError, Received};
use windlass_contract::way_in::{Frame, FrameError, Frames, WayIn};

use crate::agent::Agent;
pub(crate) use work::WorkError;

/// How many of them are open at once.
const PLACES: usize = 32;
/// How many frames wait for a caller who does not take them.
const WAITING: usize = 4;

/// How many may come in.
#[derive(Debug, Clone)]
pub(crate) struct VisitorLimit(Arc<Semaphore>);

impl Default for VisitorLimit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PLACES)))
    }
}

/// why there is no way in
#[derive(Debug, thiserror::Error)]
pub(crate) enum WayInError {
    /// the caller says nothing that can be understood
    #[error("the caller does not say what to do: {0}")]
    Words(String),
    /// the caller fell silent
    #[error("the caller broke off")]
    Broken(#[from] ReceiveError),
    /// all places are taken
    #[error("{PLACES} others are in this VM already; wait until some have gone")]
    Full,
    /// it cannot be done
    #[error(transparent)]
    Work(#[from] WorkError),
}

impl From<FrameError> for WayInError {
    fn from(error: FrameError) -> Self {
        Self::Words(error.to_string())
    }
}

/// Frames of a caller, as they come.
#[derive(Debug)]
struct Incoming {
    body: Received,
    frames: Frames,
}

impl Incoming {
    /// The next one; none if the caller has gone.
    async fn next(&mut self) -> Result<Option<Frame>, WayInError> {
        loop {
            if let Some(frame) = self.frames.take()? {
                return Ok(Some(frame));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(part) => {
                    if let Ok(part) = part?.into_data() {
                        self.frames.add(&part);
                    }
                }
            }
        }
    }
}

/// What the caller is answered, frame by frame.
#[derive(Debug)]
pub(crate) struct Conversation(mpsc::Receiver<Bytes>);

impl Body for Conversation {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(context).map(|part| part.map(|part| Ok(BodyFrame::data(part))))
    }
}

/// Begins what the caller wants.
pub(crate) async fn open(agent: &Agent, body: Received) -> Result<Conversation, WayInError> {
    let mut incoming = Incoming { body, frames: Frames::default() };
    let wanted: WayIn = match incoming.next().await? {
        Some(Frame::Begin(words)) => {
            serde_json::from_slice(&words).map_err(|error| WayInError::Words(error.to_string()))?
        }
        _ => return Err(WayInError::Words("another frame comes first".to_owned())),
    };
    let place = agent.visitors.0.clone().try_acquire_owned().map_err(|_| WayInError::Full)?;
    let started = work::start(agent, &wanted)?;
    let (action, what) = wanted.work.describe();
    tracing::info!(action, what, "somebody is let in");
    let (output, answers) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        attend::attend(started, incoming, output).await;
        drop(place);
    });
    Ok(Conversation(answers))
}
