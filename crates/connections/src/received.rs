//! The body of a request, as it comes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

/// The body of a request. It may be slow, but it ends with an error when nothing comes for too long.
#[derive(Debug)]
pub struct Received {
    body: Incoming,
    patience: Duration,
    /// Made when there is something to wait for: most bodies are there with their heads.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Nothing more is to be expected.
    is_over: bool,
    left_unread: Arc<AtomicBool>,
}

/// why a body did not arrive whole
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// the sender fell silent
    #[error("nothing more of the body came for {} seconds", .0.as_secs())]
    Silence(Duration),
    #[error("the body broke off")]
    Broken(#[source] hyper::Error),
}

impl Received {
    /// `left_unread` tells whether the body was dropped before its end.
    pub(crate) fn new(body: Incoming, patience: Duration, left_unread: Arc<AtomicBool>) -> Self {
        left_unread.store(false, Ordering::Relaxed);
        Self { body, patience, waiting: None, is_over: false, left_unread }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if !self.is_over && !self.body.is_end_stream() {
            self.left_unread.store(true, Ordering::Relaxed);
        }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = ReceiveError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReceiveError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.waiting = None;
            self.is_over = !matches!(frame, Some(Ok(_)));
            return Poll::Ready(frame.map(|frame| frame.map_err(ReceiveError::Broken)));
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + patience)));
        ready!(waiting.as_mut().poll(context));
        self.is_over = true;
        Poll::Ready(Some(Err(ReceiveError::Silence(patience))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
