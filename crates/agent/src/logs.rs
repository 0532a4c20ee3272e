//! Logs in one file: those of the kinds and names that were asked for.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use windlass_durable::file;

use crate::layout::Base;
use crate::log_file;
use crate::log_walk::{self, WalkError};

/// why there is no file of logs
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogsError {
    /// a kind that does not exist
    #[error("Invalid log type")]
    Kind,
    /// a filter that cannot be understood
    #[error("the filter '{filter}' is not a valid pattern")]
    Filter {
        filter: String,
        #[source]
        source: glob::PatternError,
    },
    /// a log cannot be read, or the file not written
    #[error("cannot pack {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// How a filter is compared with the path of a log.
pub(crate) const MATCHING: glob::MatchOptions =
    glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

/// How many zeros all sparse files together may stand for.
const MOST_HOLES: u64 = 4 << 30;
/// What file systems count in.
const BLOCK: u64 = 512;

/// A folder of logs, and where they are in the file.
struct Folder {
    path: PathBuf,
    prefix: &'static str,
}

/// Packs the logs of `kinds`, a list with commas, whose paths match one of the `filters`; all of them if there is none.
/// Returns the path of the file. What is cancelled fails.
pub(crate) fn pack(
    base: &Base,
    system: Option<PathBuf>,
    kinds: &str,
    filters: &[String],
    is_cancelled: &dyn Fn() -> bool,
) -> Result<PathBuf, LogsError> {
    let mut folders = Vec::new();
    for kind in kinds.split(',').map(str::trim) {
        match kind {
            "job" => folders.push(Folder { path: base.job_logs(), prefix: "" }),
            "agent" => folders.push(Folder { path: base.agent_logs(), prefix: "" }),
            "system" => folders.extend(system.clone().map(|path| Folder { path, prefix: "var/log" })),
            _ => return Err(LogsError::Kind),
        }
    }
    let filters = patterns(filters)?;
    let path = base.tmp().join(format!("logs-{}.tgz", uuid::Uuid::new_v4()));
    let written = write(&path, &folders, &filters, is_cancelled);
    if written.is_err() {
        file::discard(&path);
    }
    written.map(|()| path)
}

fn patterns(filters: &[String]) -> Result<Vec<glob::Pattern>, LogsError> {
    let all = ["**/*".to_owned()];
    let filters = if filters.is_empty() { &all } else { filters };
    // One that names a folder means everything below.
    let with_below =
        filters.iter().flat_map(|filter| [filter.clone(), format!("{}/**/*", filter.trim_end_matches('/'))]);
    with_below
        .map(|filter| glob::Pattern::new(&filter).map_err(|source| LogsError::Filter { filter, source }))
        .collect()
}

fn write(
    path: &Path,
    folders: &[Folder],
    filters: &[glob::Pattern],
    is_cancelled: &dyn Fn() -> bool,
) -> Result<(), LogsError> {
    let failed = |source| LogsError::Io { path: path.to_owned(), source };
    let file = OpenOptions::new().write(true).create_new(true).mode(file::PRIVATE).open(path).map_err(failed)?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    archive.follow_symlinks(false);
    // Every file of logs has this entry, also one without a log, so that none is empty.
    let root = path.parent().unwrap_or(path);
    archive.append_dir(".", root).map_err(failed)?;
    let mut packing = Packing { archive, holes: MOST_HOLES, is_cancelled };
    for folder in folders {
        let walked = log_walk::each(&folder.path, |below, at| {
            packing.go_on()?;
            match filters.iter().any(|filter| filter.matches_path_with(below, MATCHING)) {
                true => packing.add(&Path::new(folder.prefix).join(below), at),
                false => Ok(()),
            }
        });
        walked.map_err(|WalkError { below, source }| LogsError::Io { path: folder.path.join(below), source })?;
    }
    packing.archive.into_inner().and_then(GzEncoder::finish).and_then(|file| file.sync_all()).map_err(failed)
}

/// An archive that logs are added to.
struct Packing<'c> {
    archive: tar::Builder<GzEncoder<File>>,
    /// How many zeros that no disk holds may still be packed.
    holes: u64,
    is_cancelled: &'c dyn Fn() -> bool,
}

impl Packing<'_> {
    /// A job may have files without number, and empty ones are never read.
    fn go_on(&self) -> io::Result<()> {
        if (self.is_cancelled)() { Err(cancelled()) } else { Ok(()) }
    }

    /// A log may grow or shrink while it is read; its entry has exactly the size that the archive says.
    fn add(&mut self, name: &Path, at: &Path) -> io::Result<()> {
        let Some(log) = log_file::read(at)? else { return Ok(()) };
        let metadata = log.metadata()?;
        // A file may say that it has more than all disks together, and reading that would never end.
        let holes = metadata.len().saturating_sub(metadata.blocks().saturating_mul(BLOCK));
        let Some(left) = self.holes.checked_sub(holes) else {
            tracing::warn!("the log {name:?} is left out: it is a sparse file of {} bytes", metadata.len());
            return Ok(());
        };
        self.holes = left;
        let mut header = tar::Header::new_gnu();
        header.set_metadata(&metadata);
        header.set_size(metadata.len());
        let whole = UnlessCancelled { log: log.chain(io::repeat(0)), is_cancelled: self.is_cancelled };
        let exactly = whole.take(metadata.len());
        self.archive.append_data(&mut header, name, exactly)
    }
}

fn cancelled() -> io::Error {
    io::Error::other("cancelled by user request")
}

/// A log that is read as long as somebody wants it.
struct UnlessCancelled<'c, R> {
    log: R,
    is_cancelled: &'c dyn Fn() -> bool,
}

impl<R: Read> Read for UnlessCancelled<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match (self.is_cancelled)() {
            true => Err(cancelled()),
            false => self.log.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(base: &Base, kinds: &str, filters: &[&str]) -> Result<Vec<String>, String> {
        let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
        let path = pack(base, None, kinds, &filters, &|| false).map_err(|error| error.to_string())?;
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&path).unwrap()));
        let entries = archive.entries().unwrap();
        let names = entries.map(|entry| entry.unwrap().path().unwrap().to_str().unwrap().to_owned());
        Ok(names.filter(|name| !name.starts_with("./") && name != ".").collect())
    }

    #[test]
    fn the_logs_that_were_asked_for_are_packed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let base = Base::prepare(folder.path()).unwrap();
        for path in ["sys/log/web/web.stdout.log", "sys/log/web/deep/x.log", "sys/log/top.log", "bosh/log/current"] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "line\n").unwrap();
        }
        std::os::unix::fs::symlink("/proc/version", folder.path().join("sys/log/link.log")).unwrap();
        std::fs::write(folder.path().join("settings.json"), "secret").unwrap();
        std::fs::hard_link(folder.path().join("settings.json"), folder.path().join("sys/log/hard.log")).unwrap();
        let all = ["top.log", "web/deep/x.log", "web/web.stdout.log"];
        assert_eq!(packed(&base, "job", &[]).unwrap(), all);
        assert_eq!(packed(&base, "agent,job", &[]).unwrap(), [&["current"], &all[..]].concat());
        assert_eq!(packed(&base, "job", &["*.log"]).unwrap(), ["top.log"]);
        assert_eq!(packed(&base, "job", &["**/*.stdout.log"]).unwrap(), ["web/web.stdout.log"]);
        assert_eq!(packed(&base, "job", &["web", "nope"]).unwrap(), all[1..]);
        assert!(packed(&base, "job", &["nope"]).unwrap().is_empty());
        assert!(packed(&base, "system", &[]).unwrap().is_empty(), "the machine's logs are its owner's");
        for wrong in ["zzz", "", "job,"] {
            assert_eq!(packed(&base, wrong, &[]).unwrap_err(), "Invalid log type");
        }
        assert!(packed(&base, "job", &["a[b"]).unwrap_err().contains("'a[b' is not a valid pattern"));
    }

    /// What a job could do to the agent that packs its logs as root, in its only thread for tasks.
    #[test]
    fn logs_without_end_in_size_or_depth_are_left_out_and_the_others_are_packed() {
        // In memory, where there is such a folder: it is made and removed in no time.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let base = Base::prepare(folder.path()).unwrap();
        let logs = folder.path().join("sys/log/web");
        std::fs::create_dir_all(&logs).unwrap();
        std::fs::write(logs.join("web.log"), "line\n").unwrap();
        File::create(logs.join("sparse.log")).unwrap().set_len(4 << 40).unwrap();
        let mut deep = File::open(&logs).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&deep, "d", rustix::fs::Mode::RWXU).unwrap();
            deep = log_file::open_folder(&log_file::name_of(&deep).join("d")).unwrap();
        }
        std::fs::write(log_file::name_of(&deep).join("deepest.log"), "line\n").unwrap();
        assert_eq!(packed(&base, "job", &[]).unwrap(), ["web/web.log"]);
        file::remove_all(&logs.join("d")).unwrap();
    }

    #[test]
    fn nobody_waits_for_logs_that_nobody_wants_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let base = Base::prepare(folder.path()).unwrap();
        for content in ["line\n", ""] {
            std::fs::write(folder.path().join("sys/log/a.log"), content).unwrap();
            let error = pack(&base, None, "job", &[], &|| true).unwrap_err();
            assert!(windlass_contract::explain(&error).ends_with("a.log: cancelled by user request"), "{error:?}");
        }
        assert_eq!(std::fs::read_dir(base.tmp()).unwrap().count(), 0, "nothing of it stays");
    }
}
