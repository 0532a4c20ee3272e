//! Blobs in an agent: the caller puts them there and fetches them, so that nothing in a VM dials out.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;
use hyper::header::CONTENT_LENGTH;
use hyper::{Method, StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha1::{Digest, Sha1};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;

use crate::agent::{Agent, Deadlines};
use crate::connection::Body;
use crate::error::CallError;
use crate::limits::{LONGEST_NAME, SMALL};

/// What an id keeps of itself in a path.
const IN_A_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// How many bytes a second an agent sends or takes at least, once it has had the time for a message. Otherwise a caller that waits for a
/// blob could be made to wait for years.
const SLOWEST: u64 = 16 * 1024;

impl Agent {
    /// Puts the file at `path` into the agent as the blob `id`.
    pub async fn put_blob(&self, id: &str, path: &Path) -> Result<(), CallError> {
        const METHOD: &str = "PUT /blobs";
        let opened = async {
            let file = File::open(path).await?;
            let length = file.metadata().await?.len();
            Ok((file.into_std().await, length))
        };
        let (file, length) = opened.await.map_err(|source| self.no_file(path, source))?;
        let uri = self.blob_uri(METHOD, id)?;
        let request = || {
            let mut request = self.request_with(Method::PUT, uri.clone(), whole(&file));
            request.headers_mut().insert(CONTENT_LENGTH, length.into());
            request
        };
        let connections = self.connections();
        let exchange = async { connections.read(connections.exchange(&request, true).await?, SMALL).await };
        let Deadlines { message, task, .. } = *self.deadlines();
        let patience = task.min(message + Duration::from_secs(length / SLOWEST));
        match tokio::time::timeout(patience, exchange).await {
            Ok(Ok(answer)) if answer.status == StatusCode::CREATED => Ok(()),
            Ok(Ok(answer)) => Err(self.refused(METHOD, answer.status)),
            Ok(Err((stage, source))) => Err(self.unreachable(stage, source)),
            Err(_) => Err(self.timed_out(METHOD, patience)),
        }
    }

    /// Fetches the blob `id`, of `most` bytes at most, into the file at `path`; says whether the agent has it. Of one that is
    /// larger nothing is kept.
    #[expect(clippy::disallowed_methods, reason = "a temporary file of the caller, who renames it")]
    pub async fn get_blob(&self, id: &str, path: &Path, most: u64) -> Result<bool, CallError> {
        const METHOD: &str = "GET /blobs";
        let uri = self.blob_uri(METHOD, id)?;
        let request = || {
            let empty = Empty::new().map_err(|never| match never {}).boxed_unsync();
            self.request_with(Method::GET, uri.clone(), empty)
        };
        let (connections, patience) = (self.connections(), self.deadlines().message);
        let late = || self.timed_out(METHOD, patience);
        let broken = |(stage, source)| self.unreachable(stage, source);
        let exchange = tokio::time::timeout(patience, connections.exchange(&request, true));
        let mut opened = exchange.await.map_err(|_| late())?.map_err(broken)?;
        match opened.response.status() {
            StatusCode::OK => {}
            status => {
                let rest = tokio::time::timeout(patience, connections.read(opened, SMALL));
                rest.await.map_err(|_| late())?.map_err(broken)?;
                return if status == StatusCode::NOT_FOUND { Ok(false) } else { Err(self.refused(METHOD, status)) };
            }
        }
        let no_file = |source| self.no_file(path, source);
        let mut file = File::create(path).await.map_err(no_file)?;
        // However large it is, each part of it comes within the time for a message, and all of it at a bearable pace.
        let (begun, mut length) = (Instant::now(), 0);
        loop {
            let part = tokio::time::timeout(patience, connections.part(&mut opened));
            let Some(part) = part.await.map_err(|_| late())?.map_err(broken)? else { break };
            length += part.len() as u64;
            if begun.elapsed() > patience + Duration::from_secs(length / SLOWEST) {
                return Err(late());
            }
            if length > most {
                drop(file);
                tokio::fs::remove_file(path).await.map_err(no_file)?;
                return Err(self.bad_reply(METHOD, format!("a blob of more than {most} bytes")));
            }
            file.write_all(&part).await.map_err(no_file)?;
        }
        connections.done(opened).await;
        file.flush().await.map_err(no_file)?;
        Ok(true)
    }

    /// Agents look at the last part only; the one before is what other callers send.
    fn blob_uri(&self, method: &str, id: &str) -> Result<Uri, CallError> {
        if id.len() > LONGEST_NAME {
            return Err(self.bad_reply(method, format!("a blob id of {} bytes", id.len())));
        }
        let folder = Sha1::digest(id)[0];
        let path = format!("/blobs/{folder:02x}/{}", utf8_percent_encode(id, IN_A_PATH));
        path.parse().map_err(|_| self.bad_reply(method, format!("no path for the blob id '{id}'")))
    }

    fn no_file(&self, path: &Path, source: io::Error) -> CallError {
        CallError::File { agent: self.id().clone(), path: path.to_owned(), source }
    }
}

/// A file from its beginning. One that cannot be read is an error in the middle of the request.
fn whole(file: &std::fs::File) -> Body {
    let again = || -> io::Result<File> {
        use std::io::Seek;
        let mut file = file.try_clone()?;
        file.rewind()?;
        Ok(File::from_std(file))
    };
    match again() {
        Ok(file) => StreamBody::new(ReaderStream::with_capacity(file, 64 * 1024).map_ok(Frame::data)).boxed_unsync(),
        Err(error) => StreamBody::new(futures_util::stream::iter([Err(error)])).boxed_unsync(),
    }
}
