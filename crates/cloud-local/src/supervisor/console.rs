//! `console.log`: what the agent and its supervisor print, bounded in size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use windlass_durable::file::PRIVATE;

/// When the console is this long it becomes `console.log.1`, in place of the one before.
const LONGEST: u64 = 1024 * 1024;

/// Where a line of the supervisor's own goes.
pub(super) trait Notes {
    fn note(&mut self, line: &str);
}

/// In a container's first process, whose stderr is the console of the VM.
pub(super) struct Stderr;

impl Notes for Stderr {
    fn note(&mut self, line: &str) {
        eprintln!("supervisor: {line}");
    }
}

pub(super) struct Console {
    path: PathBuf,
    file: File,
    length: u64,
    reader: Reader,
    /// Kept open, so that the reader does not end with the agent.
    writer: PipeWriter,
    buffer: Vec<u8>,
}

/// The end of the pipe that is read, before and after there is a runtime to read it.
enum Reader {
    Waiting(PipeReader),
    Reading(Receiver),
    Broken,
}

impl Reader {
    fn receiver(&mut self) -> Option<&mut Receiver> {
        if let Self::Waiting(_) = self
            && let Self::Waiting(pipe) = std::mem::replace(self, Self::Broken)
            && let Ok(receiver) = Receiver::from_owned_fd(pipe.into())
        {
            *self = Self::Reading(receiver);
        }
        match self {
            Self::Reading(receiver) => Some(receiver),
            Self::Waiting(_) | Self::Broken => None,
        }
    }
}

impl Notes for Console {
    fn note(&mut self, line: &str) {
        self.append(format!("supervisor: {line}\n").as_bytes());
    }
}

impl Console {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let file = append(&path)?;
        let length = file.metadata()?.len();
        Ok(Self { path, file, length, reader: Reader::Waiting(reader), writer, buffer: vec![0; 8192] })
    }

    /// What the VM gets as its stdout and stderr.
    pub(super) fn pipe(&self) -> &PipeWriter {
        &self.writer
    }

    /// Copies what the agent printed.
    pub(super) async fn copy(&mut self) {
        let Some(reader) = self.reader.receiver() else { return std::future::pending().await };
        match reader.read(&mut self.buffer).await {
            Ok(length) => {
                let printed = std::mem::take(&mut self.buffer);
                self.append(&printed[..length]);
                self.buffer = printed;
            }
            // The pipe stays open as long as we live, so this cannot spin; if it fails, the console is silent.
            Err(_) => std::future::pending().await,
        }
    }

    /// A full disk must not stop the VM, so failures are dropped.
    fn append(&mut self, bytes: &[u8]) {
        if self.length + bytes.len() as u64 > LONGEST && self.length > 0 {
            let _ = fs::rename(&self.path, self.path.with_extension("log.1"));
            if let Ok(file) = append(&self.path) {
                (self.file, self.length) = (file, 0);
            }
        }
        if self.file.write_all(bytes).is_ok() {
            self.length += bytes.len() as u64;
        }
    }
}

fn append(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(PRIVATE).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_console_is_bounded_and_keeps_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console.log");
        let mut console = Console::open(path.clone()).unwrap();
        console.pipe().write_all(b"hello").unwrap();
        console.copy().await;
        assert_eq!(fs::read(&path).unwrap(), b"hello");
        for _ in 0..3 * LONGEST / 8192 {
            console.append(&[b'x'; 8192]);
        }
        console.note("the end");
        assert!(fs::read_to_string(&path).unwrap().ends_with("the end\n"));
        let sizes: u64 = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(sizes <= 2 * LONGEST, "{sizes}");
    }
}
