//! The head of an answer ends. Before it a server may send interim ones (`100 Continue`), without end: whoever reads them is busy with
//! nothing else, and no patience ends, because something always comes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much may come before an answer has a head: more than is read at once of a body that follows it.
const MOST: usize = 1 << 20;

/// How much may still come.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<AtomicUsize>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(MOST)))
    }
}

impl Room {
    /// A request is about to be sent.
    pub(crate) fn expect_head(&self) {
        self.0.store(MOST, Ordering::Relaxed);
    }

    /// The head has come; how much follows is for others to say.
    pub(crate) fn has_head(&self) {
        self.0.store(usize::MAX, Ordering::Relaxed);
    }

    fn take(&self, bytes: usize) -> io::Result<()> {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
            usize::MAX => Some(left),
            left => left.checked_sub(bytes),
        });
        taken.map(drop).map_err(|_| io::Error::other("it sends more and more before its answer begins"))
    }
}

/// What is read from the stream takes room.
#[derive(Debug)]
pub(crate) struct HeadLimited<S> {
    stream: S,
    room: Room,
}

impl<S> HeadLimited<S> {
    pub(crate) fn new(stream: S, room: Room) -> Self {
        Self { stream, room }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadLimited<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        Poll::Ready(self.room.take(into.filled().len() - before))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadLimited<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::{BodyExt, Empty};
    use hyper::Request;
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn answered(server: impl AsyncFnOnce(tokio::io::DuplexStream)) -> Result<usize, String> {
        let (near, far) = tokio::io::duplex(64 << 10);
        let room = Room::default();
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(HeadLimited::new(near, room.clone()))).await.unwrap();
        let asking = async {
            let answer = sender.send_request(Request::new(Empty::<bytes::Bytes>::new())).await;
            let answer = answer.map_err(|error| windlass_contract::explain(&error))?;
            room.has_head();
            Ok(answer.into_body().collect().await.unwrap().to_bytes().len())
        };
        let talking = async {
            let served = async {
                let mut far = far;
                // The request.
                assert!(far.read(&mut [0; 1024]).await.unwrap() > 0);
                server(far).await;
            };
            let _ = tokio::join!(connection, served);
            std::future::pending().await
        };
        tokio::select! {
            answer = asking => answer,
            () = talking => unreachable!(),
        }
    }

    /// Forty VMs that did this kept a director from answering anybody for seconds.
    #[tokio::test]
    async fn a_server_that_never_comes_to_its_answer_is_given_up() {
        let endless = async |mut server: tokio::io::DuplexStream| {
            let interim = "HTTP/1.1 100 \r\n\r\n".repeat(1000);
            while server.write_all(interim.as_bytes()).await.is_ok() {}
        };
        let told = tokio::time::timeout(Duration::from_secs(30), answered(endless)).await.unwrap().unwrap_err();
        assert!(told.contains("more and more before its answer begins"), "{told}");
    }

    #[tokio::test]
    async fn an_answer_after_some_interim_ones_may_be_as_long_as_it_is() {
        let long = async |mut server: tokio::io::DuplexStream| {
            let head =
                format!("{}HTTP/1.1 200 OK\r\ncontent-length: 4000000\r\n\r\n", "HTTP/1.1 100 \r\n\r\n".repeat(9));
            server.write_all(head.as_bytes()).await.unwrap();
            server.write_all(&vec![b'x'; 4_000_000]).await.unwrap();
        };
        assert_eq!(answered(long).await, Ok(4_000_000));
    }
}
