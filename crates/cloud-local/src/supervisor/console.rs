//! What the agent and its supervisor print: on the VM's console, `console.log`, and where the agent is asked for its own log. Files
//! are bounded in size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use windlass_durable::file::{self, PRIVATE};

/// When a file is this long it gets another name, in place of the one before, and a new one begins.
const LONGEST: u64 = 1024 * 1024;

/// Where a line of the supervisor's own goes.
pub(super) trait Notes {
    fn note(&mut self, line: &str);
}

pub(super) struct Console {
    outputs: Vec<Output>,
    reader: Reader,
    /// Kept open, so that the reader does not end with the agent.
    writer: PipeWriter,
    buffer: Vec<u8>,
}

/// Where what is printed goes.
enum Output {
    File(Bounded),
    /// In a container's first process, the console of the VM.
    Stderr,
}

/// A file of at most [`LONGEST`] bytes, and what was before them.
struct Bounded {
    path: PathBuf,
    file: File,
    length: u64,
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
    /// The console of a VM in a file. With `log`, the agent's log has the same.
    pub(super) fn of_vm(console: PathBuf, log: Option<PathBuf>) -> io::Result<Self> {
        let outputs = [Some(Bounded::open(console)?), log.and_then(open_log)];
        Self::to(outputs.into_iter().flatten().map(Output::File).collect())
    }

    /// In the VM itself, where the console is our stderr.
    pub(super) fn in_vm(log: PathBuf) -> io::Result<Self> {
        Self::to(open_log(log).map(Output::File).into_iter().chain([Output::Stderr]).collect())
    }

    fn to(outputs: Vec<Output>) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { outputs, reader: Reader::Waiting(reader), writer, buffer: vec![0; 8192] })
    }

    /// What the VM gets as its stdout and stderr.
    pub(super) fn pipe(&self) -> &PipeWriter {
        &self.writer
    }

    /// Copies what the agent printed.
    pub(super) async fn copy(&mut self) {
        let Some(reader) = self.reader.receiver() else { return std::future::pending().await };
        match reader.read(&mut self.buffer).await {
            Ok(length) => self.append_read(length),
            // The pipe stays open as long as we live, so this cannot spin; if it fails, the console is silent.
            Err(_) => std::future::pending().await,
        }
    }

    /// Copies while `work` goes on, and then what it printed last.
    pub(super) async fn copy_during(&mut self, work: impl Future<Output = ()>) {
        tokio::pin!(work);
        loop {
            tokio::select! {
                () = &mut work => break,
                () = self.copy() => {}
            }
        }
        // Asked of the kernel: the runtime may not have heard of it yet.
        while let Some(Ok(length @ 1..)) =
            self.reader.receiver().map(|reader| rustix::io::read(reader, &mut self.buffer))
        {
            self.append_read(length);
        }
    }

    fn append_read(&mut self, length: usize) {
        let printed = std::mem::take(&mut self.buffer);
        self.append(&printed[..length]);
        self.buffer = printed;
    }

    /// A full disk must not stop the VM, so failures are dropped.
    fn append(&mut self, bytes: &[u8]) {
        for output in &mut self.outputs {
            match output {
                Output::File(file) => file.append(bytes),
                Output::Stderr => drop(io::stderr().write_all(bytes)),
            }
        }
    }
}

/// A VM whose agent has no place for its log runs all the same.
fn open_log(path: PathBuf) -> Option<Bounded> {
    file::create_private_dir(path.parent()?).and_then(|()| Bounded::open(path)).ok()
}

impl Bounded {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = open_to_append(&path)?;
        let length = file.metadata()?.len();
        Ok(Self { path, file, length })
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.length + bytes.len() as u64 > LONGEST && self.length > 0 {
            let mut before = self.path.clone().into_os_string();
            before.push(".1");
            #[expect(clippy::disallowed_methods, reason = "a log of bounded size; nothing depends on its older half")]
            let _ = fs::rename(&self.path, before);
            if let Ok(file) = open_to_append(&self.path) {
                (self.file, self.length) = (file, 0);
            }
        }
        if self.file.write_all(bytes).is_ok() {
            self.length += bytes.len() as u64;
        }
    }
}

fn open_to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(PRIVATE).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_console_is_bounded_and_keeps_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (path, log) = (folder.path().join("console.log"), folder.path().join("bosh/log/current"));
        let mut console = Console::of_vm(path.clone(), Some(log.clone())).unwrap();
        console.pipe().write_all(b"hello").unwrap();
        console.copy().await;
        let last = console.pipe().try_clone().unwrap();
        let last = async move { (&last).write_all(b", good bye").unwrap() };
        console.copy_during(last).await;
        assert_eq!(fs::read(&path).unwrap(), b"hello, good bye");
        assert_eq!(fs::read(&log).unwrap(), b"hello, good bye", "people who ask for the agent's log get it");
        for _ in 0..3 * LONGEST / 8192 {
            console.append(&[b'x'; 8192]);
        }
        console.note("the end");
        assert!(fs::read_to_string(&path).unwrap().ends_with("the end\n"));
        for folder in [folder.path(), log.parent().unwrap()] {
            let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap());
            let sizes: u64 = files.filter(fs::Metadata::is_file).map(|file| file.len()).sum();
            assert!(sizes <= 2 * LONGEST, "{sizes}");
        }
    }
}
