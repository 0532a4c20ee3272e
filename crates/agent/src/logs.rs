//! Logs in one file: those of the kinds and names that were asked for.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use windlass_durable::file;

use crate::layout::Base;
use crate::log_file;

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

/// A folder of logs, and where they are in the file.
struct Folder {
    path: PathBuf,
    prefix: &'static str,
}

/// Packs the logs of `kinds`, a list with commas, whose paths match one of the `filters`; all of them if there is none.
/// Returns the path of the file.
pub(crate) fn pack(
    base: &Base,
    system: Option<PathBuf>,
    kinds: &str,
    filters: &[String],
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
    let written = write(&path, &folders, &filters);
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

fn write(path: &Path, folders: &[Folder], filters: &[glob::Pattern]) -> Result<(), LogsError> {
    let failed = |source| LogsError::Io { path: path.to_owned(), source };
    let file = OpenOptions::new().write(true).create_new(true).mode(file::PRIVATE).open(path).map_err(failed)?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    archive.follow_symlinks(false);
    // Every file of logs has this entry, also one without a log, so that none is empty.
    let root = path.parent().unwrap_or(path);
    archive.append_dir(".", root).map_err(failed)?;
    for folder in folders {
        match File::open(&folder.path) {
            Ok(opened) => append(&mut archive, folder, &opened, Path::new(""), filters)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(LogsError::Io { path: folder.path.clone(), source }),
        }
    }
    archive.into_inner().and_then(GzEncoder::finish).and_then(|file| file.sync_all()).map_err(failed)
}

fn append(
    archive: &mut tar::Builder<GzEncoder<File>>,
    folder: &Folder,
    opened: &File,
    below: &Path,
    filters: &[glob::Pattern],
) -> Result<(), LogsError> {
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: false,
    };
    let path = folder.path.join(below);
    let failed = |source| LogsError::Io { path: path.clone(), source };
    // By a handle, because jobs may put links in the place of anything here while it is read.
    let name = log_file::name_of(opened);
    let entries = std::fs::read_dir(&name).map_err(failed)?;
    let mut names: Vec<_> = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>().map_err(failed)?;
    names.sort();
    for file in names {
        let (relative, path) = (below.join(&file), name.join(&file));
        let failed = |source| LogsError::Io { path: folder.path.join(&relative), source };
        if let Ok(inner) = log_file::open_folder(&path) {
            append(archive, folder, &inner, &relative, filters)?;
        } else if filters.iter().any(|filter| filter.matches_path_with(&relative, options))
            && let Some(mut log) = log_file::read(&path).map_err(failed)?
        {
            append_log(archive, &Path::new(folder.prefix).join(&relative), &mut log).map_err(failed)?;
        }
    }
    Ok(())
}

/// A log may grow or shrink while it is read; its entry has exactly the size that the archive says.
fn append_log(archive: &mut tar::Builder<GzEncoder<File>>, name: &Path, log: &mut File) -> io::Result<()> {
    use std::io::Read;
    let metadata = log.metadata()?;
    let mut header = tar::Header::new_gnu();
    header.set_metadata(&metadata);
    header.set_size(metadata.len());
    let exactly = log.chain(io::repeat(0)).take(metadata.len());
    archive.append_data(&mut header, name, exactly)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(base: &Base, kinds: &str, filters: &[&str]) -> Result<Vec<String>, String> {
        let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
        let path = pack(base, None, kinds, &filters).map_err(|error| error.to_string())?;
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
}
