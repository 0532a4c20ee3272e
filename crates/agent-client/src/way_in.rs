//! A way into a VM through its agent: input goes there and output comes back, frame by frame, for as long as it takes.

use std::io;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame as BodyFrame;
use hyper::{Method, StatusCode, Uri};
use windlass_contract::shortened;
use windlass_contract::way_in::{AGENT_PATH, Frame, Frames, SILENCE, WayIn};

use crate::agent::Agent;
use crate::connection::Opened;
use crate::error::CallError;
use crate::limits::{LONGEST_WORDS, SMALL};

const METHOD: &str = "let somebody in";

/// why an agent lets nobody in
#[derive(Debug, thiserror::Error)]
pub enum NoWayIn {
    /// it is BOSH's, or older
    #[error("the agent knows no way in but ssh")]
    Unknown,
    /// it does not want to
    #[error("{0}")]
    Refused(String),
    /// it cannot be asked
    #[error(transparent)]
    Call(#[from] CallError),
}

/// A way in that is open. Dropped, what runs there is ended.
#[derive(Debug)]
pub struct Conversation {
    agent: Agent,
    opened: Opened,
    frames: Frames,
}

impl Agent {
    /// Has an agent do some work. `input` are the caller's frames as they travel; when it breaks off, what runs there is ended.
    pub async fn let_in(
        &self,
        wanted: &WayIn,
        input: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<Conversation, NoWayIn> {
        self.must_be_permitted(METHOD).await?;
        let words = serde_json::to_vec(wanted).map_err(|error| NoWayIn::Refused(error.to_string()))?;
        let begin = Bytes::from(Frame::Begin(words).encode());
        let frames = stream::once(async { Ok(begin) }).chain(input).map_ok(BodyFrame::data);
        let body = StreamBody::new(frames).boxed_unsync();
        let request = self.request_with(Method::POST, Uri::from_static(AGENT_PATH), body);
        let (connections, patience) = (self.connections(), self.deadlines().message);
        let late = || self.timed_out(METHOD, patience);
        let broken = |(stage, source)| self.unreachable(stage, source);
        let opened = tokio::time::timeout(patience, connections.exchange_once(request));
        let opened = opened.await.map_err(|_| late())?.map_err(broken)?;
        match opened.response.status() {
            StatusCode::OK => Ok(Conversation { agent: self.clone(), opened, frames: Frames::default() }),
            StatusCode::NOT_FOUND => Err(NoWayIn::Unknown),
            StatusCode::UNPROCESSABLE_ENTITY => {
                let read = tokio::time::timeout(patience, connections.read_once(opened, SMALL));
                let answer = read.await.map_err(|_| late())?.map_err(broken)?;
                Err(NoWayIn::Refused(shortened(String::from_utf8_lossy(&answer).into_owned(), LONGEST_WORDS)))
            }
            status => Err(self.refused(METHOD, status).into()),
        }
    }
}

impl Conversation {
    /// What the agent says next; none if it says nothing more.
    pub async fn next(&mut self) -> Result<Option<Frame>, CallError> {
        loop {
            match self.frames.take() {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(error) => return Err(self.agent.bad_reply(METHOD, error.to_string())),
            }
            let connections = self.agent.connections().clone();
            let part = tokio::time::timeout(SILENCE, connections.part(&mut self.opened));
            let part = part.await.map_err(|_| self.agent.timed_out(METHOD, SILENCE))?;
            match part.map_err(|(stage, source)| self.agent.unreachable(stage, source))? {
                Some(part) => self.frames.add(&part),
                None => return Ok(None),
            }
        }
    }
}
