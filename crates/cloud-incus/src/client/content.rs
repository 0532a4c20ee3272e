//! What a request carries.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use serde_json::Value;

/// What a request carries. It can be sent more than once, to one endpoint after the other.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Nothing,
    Json(Bytes),
    /// Of a file in an instance.
    Bytes(Bytes),
    /// An image in two parts, of which the second is a file that is too large for memory.
    Image {
        before: Bytes,
        file: PathBuf,
        after: Bytes,
    },
}

/// Separates the parts of an image. The parts are compressed, so it does not occur in them.
const BOUNDARY: &str = "windlass-7c1d0f5a6e3b49d2-part";

impl Content {
    pub(crate) fn json(value: &Value) -> Self {
        Self::Json(value.to_string().into())
    }

    /// An image whose metadata stand beside its root file system.
    pub(crate) fn image(metadata: &[u8], rootfs: PathBuf) -> Self {
        let part = |name: &str, file: &str| {
            format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\n\
                 Content-Type: application/octet-stream\r\n\r\n"
            )
        };
        let (first, second) = (part("metadata", "metadata.tar.gz"), part("rootfs", "rootfs"));
        let before = [first.as_bytes(), metadata, b"\r\n", second.as_bytes()];
        let after = format!("\r\n--{BOUNDARY}--\r\n");
        Self::Image { before: before.concat().into(), file: rootfs, after: after.into() }
    }

    pub(crate) fn kind(&self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Json(_) => Some("application/json".to_owned()),
            // With another type, the daemons answer 200 and write an empty file.
            Self::Bytes(_) => Some("application/octet-stream".to_owned()),
            Self::Image { .. } => Some(format!("multipart/form-data; boundary={BOUNDARY}")),
        }
    }

    pub(crate) fn to_send(&self) -> io::Result<Sent> {
        let parts = match self {
            Self::Nothing => VecDeque::new(),
            Self::Json(bytes) | Self::Bytes(bytes) => VecDeque::from([Part::Bytes(bytes.clone())]),
            Self::Image { before, file, after } => {
                let file = File::open(file)?;
                let length = file.metadata()?.len();
                VecDeque::from([Part::Bytes(before.clone()), Part::File(file, length), Part::Bytes(after.clone())])
            }
        };
        Ok(Sent { parts })
    }
}

/// What is still to be sent.
#[derive(Debug)]
pub(crate) struct Sent {
    parts: VecDeque<Part>,
}

#[derive(Debug)]
enum Part {
    Bytes(Bytes),
    /// With how much of it is left.
    File(File, u64),
}

const CHUNK: u64 = 256 * 1024;

impl Body for Sent {
    type Data = Bytes;
    type Error = io::Error;

    /// Reads the file in place: a process serves one call, and there is nothing else to do meanwhile.
    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let parts = &mut self.get_mut().parts;
        loop {
            let frame = match parts.pop_front() {
                None => return Poll::Ready(None),
                Some(Part::Bytes(bytes)) if bytes.is_empty() => continue,
                Some(Part::Bytes(bytes)) => Ok(Frame::data(bytes)),
                Some(Part::File(_, 0)) => continue,
                Some(Part::File(mut file, left)) => {
                    let mut chunk = vec![0; left.min(CHUNK) as usize];
                    match file.read_exact(&mut chunk) {
                        Ok(()) => {
                            parts.push_front(Part::File(file, left - chunk.len() as u64));
                            Ok(Frame::data(chunk.into()))
                        }
                        Err(error) => Err(error),
                    }
                }
            };
            return Poll::Ready(Some(frame));
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = |part: &Part| match part {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File(_, left) => *left,
        };
        SizeHint::with_exact(self.parts.iter().map(length).sum())
    }

    fn is_end_stream(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }
}
