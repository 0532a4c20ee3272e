//! The log of a director: a file in its state directory, and where it is watched also the standard error.
//!
//! The file is replaced when it is large, and the one before it is kept. A director that a shell runs in the background
//! (`windlass director &`) is not watched: its lines would end up in the middle of what the next command prints.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::cli::LogFormat;

/// As large as one file becomes.
const LARGEST: u64 = 16 << 20;

/// From here on, what happens goes to `log` and to the standard error. `RUST_LOG` says how much of it. Where the file cannot be
/// written, only to the standard error: the director itself says why when it starts.
pub(crate) fn begin(log: &Path, format: LogFormat) {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let file = LogFile::open(log, LARGEST).ok();
    let is_log_itself = file.as_ref().is_some_and(LogFile::is_the_standard_error);
    let file = file.map(|file| layer(format, false, Mutex::new(file)));
    let watched = (!is_log_itself).then(|| layer(format, io::stderr().is_terminal(), || Watched(io::stderr())));
    // Only the first log of a process counts; one director runs in it.
    let layers: Vec<_> = file.into_iter().chain(watched).collect();
    let _ = tracing_subscriber::registry().with(layers).with(filter).try_init();
}

fn layer<W>(format: LogFormat, colours: bool, writer: W) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'a> fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = fmt::layer().with_ansi(colours).with_writer(writer);
    match format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    }
}

/// Whether somebody who looks at `stream` expects to see us there.
pub(crate) fn is_watched(stream: impl rustix::fd::AsFd + IsTerminal) -> bool {
    !stream.is_terminal() || rustix::termios::tcgetpgrp(&stream).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// A stream that nothing is written to while a shell has this process in the background.
struct Watched<W>(W);

impl Write for Watched<io::Stderr> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if is_watched(io::stderr()) { self.0.write(line) } else { Ok(line.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A file that is replaced when it is large; the one before it is kept.
struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
    largest: u64,
}

impl LogFile {
    fn open(path: &Path, largest: u64) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            windlass_durable::file::create_private_dir(folder)?;
        }
        let file = File::options().create(true).append(true).mode(0o600).open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, largest })
    }

    fn is_the_standard_error(&self) -> bool {
        let ours = self.file.metadata().map(|file| (file.dev(), file.ino()));
        let other = rustix::fs::fstat(io::stderr()).map(|file| (file.st_dev, file.st_ino));
        matches!((ours, other), (Ok(ours), Ok(other)) if ours == other)
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.size > 0 && self.size + line.len() as u64 > self.largest {
            #[expect(clippy::disallowed_methods, reason = "a log of bounded size; nothing depends on its older half")]
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
            *self = Self::open(&self.path, self.largest)?;
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_goes_on_for_years_takes_the_space_of_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/director.log");
        let mut log = LogFile::open(&path, 20).unwrap();
        for line in 0..100 {
            writeln!(log, "line {line:04}").unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "line 0098\nline 0099\n");
        assert_eq!(fs::read_to_string(path.with_extension("log.1")).unwrap(), "line 0096\nline 0097\n");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "it may name what others need not know");
        let mut again = LogFile::open(&path, 1000).unwrap();
        writeln!(again, "another run").unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with("line 0099\nanother run\n"));
    }
}
