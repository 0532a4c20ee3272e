//! The body of an answer that holds something until it was sent.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// A server takes as much of a body as it is given, and forgets the body while most of it still waits for the client. Of pieces it takes
/// no more than a few ahead.
const PIECE: usize = 16 << 10;

/// A body that is sent in pieces, and holds a place, say, until the last one is taken.
#[derive(Debug)]
pub struct Held<B, T> {
    body: B,
    /// What was given and not taken yet.
    rest: Bytes,
    taken: Arc<AtomicU64>,
    _held: T,
}

impl<B, T> Held<B, T> {
    pub fn new(body: B, held: T) -> Self {
        Self { body, rest: Bytes::new(), taken: Arc::default(), _held: held }
    }

    /// How many bytes the server took, which it does as the client takes them.
    pub fn taken(&self) -> Arc<AtomicU64> {
        self.taken.clone()
    }
}

impl<B: Body<Data = Bytes> + Unpin, T: Unpin> Body for Held<B, T> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()?.map(Frame::into_data) {
                None => return Poll::Ready(None),
                Some(Err(trailers)) => return Poll::Ready(Some(Ok(trailers))),
                Some(Ok(given)) => self.rest = given,
            }
        }
        let length = self.rest.len().min(PIECE);
        self.taken.fetch_add(length as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http_body_util::Full;
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Places were given back as soon as answers were made, and all that nobody took were in memory.
    #[tokio::test]
    async fn what_an_answer_holds_is_held_until_the_client_took_it() {
        const LENGTH: usize = 1 << 20;
        let place = Arc::new(());
        let held = Arc::downgrade(&place);
        let place = Mutex::new(Some(place));
        let (mut client, server) = tokio::io::duplex(4096);
        let service = service_fn(move |_: Request<Incoming>| {
            let body = Held::new(Full::new(Bytes::from(vec![b'x'; LENGTH])), place.lock().unwrap().take());
            async { Ok::<_, Infallible>(Response::new(body)) }
        });
        let connection = http1::Builder::new().max_buf_size(64 << 10).serve_connection(TokioIo::new(server), service);
        let serving = tokio::spawn(connection);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut head = [0; 100];
        client.read_exact(&mut head).await.unwrap();
        // The server takes what it takes.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(held.upgrade().is_some(), "most of it waits for the client");
        assert!(String::from_utf8_lossy(&head).contains("content-length: 1048576"));
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        let body = rest.iter().rev().take_while(|byte| **byte == b'x').count();
        assert!(body > LENGTH - head.len() && body <= LENGTH, "{body}");
        serving.await.unwrap().unwrap();
        assert!(held.upgrade().is_none());
    }
}
