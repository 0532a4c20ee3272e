//! Blobs that a director hands over or fetches: `PUT` and `GET /blobs/<anything>/<id>`.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Either};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::{Response, StatusCode};
use percent_encoding::percent_decode_str;
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use windlass_connections::Received;
use windlass_durable::file;

use super::routes::{Body, empty, text};
use crate::layout::is_name;

/// The size of the parts in which a blob is sent.
const PART: usize = 64 * 1024;

/// The id of a blob: the last part of its path. None if that cannot be a file's name.
pub(super) fn id(path: &str) -> Option<String> {
    let path = percent_decode_str(path).decode_utf8().ok()?;
    let id = path.rsplit('/').next()?;
    is_name(id).then(|| id.to_owned())
}

/// Keeps a blob; it is there as a whole or not at all.
pub(super) async fn put(path: &Path, body: Received) -> Response<Body> {
    match receive(path, body).await {
        Ok(()) => empty(StatusCode::CREATED),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot keep the blob: {error}")),
    }
}

async fn receive(path: &Path, mut body: Received) -> io::Result<()> {
    let partial = Partial(file::beside(path)?);
    let mut writer = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&partial.0).await?;
    while let Some(frame) = body.frame().await {
        if let Ok(part) = frame.map_err(io::Error::other)?.into_data() {
            writer.write_all(&part).await?;
        }
    }
    writer.sync_all().await?;
    let (from, to) = (partial.0.clone(), path.to_owned());
    tokio::task::spawn_blocking(move || file::rename(&from, &to)).await?
}

/// A file that is removed unless it was renamed, also when the connection goes away in the middle.
struct Partial(std::path::PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        file::discard(&self.0);
    }
}

/// Sends a blob.
pub(super) async fn get(path: &Path) -> Response<Body> {
    match FileBody::open(path).await {
        Ok(body) => Response::new(Either::Right(Either::Left(body))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => empty(StatusCode::NOT_FOUND),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot read the blob: {error}")),
    }
}

/// A file as the body of a request or an answer, sent in parts.
#[derive(Debug)]
pub(crate) struct FileBody {
    file: File,
    left: u64,
}

impl FileBody {
    /// The file at `path`, with the length that it has now.
    pub(crate) async fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path).await?;
        let metadata = file.metadata().await?;
        if metadata.is_file() { Ok(Self { file, left: metadata.len() }) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// How much of it is not sent yet.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }
}

impl HttpBody for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let mut part = BytesMut::zeroed(PART.min(usize::try_from(self.left).unwrap_or(PART)));
        let mut buffer = ReadBuf::new(&mut part);
        std::task::ready!(Pin::new(&mut self.file).poll_read(context, &mut buffer))?;
        let read = buffer.filled().len();
        if read == 0 {
            return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
        }
        self.left -= read as u64;
        part.truncate(read);
        Poll::Ready(Some(Ok(Frame::data(part.freeze()))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_id_cannot_lead_out_of_its_folder() {
        assert_eq!(id("ab/x").as_deref(), Some("x"));
        assert_eq!(id("ab%2Fx").as_deref(), Some("x"));
        for path in ["", "ab/", "..", "a/..", "%2e%2e", "a/%2E%2E", ".", "a%00", "a/.new-x-1-1", "%ff"] {
            assert_eq!(id(path), None, "{path}");
        }
    }
}
