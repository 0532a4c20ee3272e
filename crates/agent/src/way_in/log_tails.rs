//! The ends of logs, and what is added to them, as `tail -F` shows them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use windlass_contract::way_in::Logs;

use crate::layout::Base;
use crate::log_file;

/// How often it is looked for more, and every how many looks for more files.
const LOOK: Duration = Duration::from_millis(200);
const FILES_EVERY: u32 = 5;
/// How many files are followed at most.
const MOST_FILES: usize = 1000;
/// How far back from its end a file is searched for its last lines.
const FURTHEST: u64 = 16 << 20;

/// why logs cannot be shown
#[derive(Debug, thiserror::Error)]
pub(super) enum TailError {
    /// a filter that cannot be understood
    #[error("the filter '{filter}' is not a valid pattern")]
    Filter {
        filter: String,
        #[source]
        source: glob::PatternError,
    },
    /// a name that leads elsewhere
    #[error("'{0}' is not the name of a job or of its logs")]
    Elsewhere(String),
    #[error("cannot show logs")]
    Output(#[source] io::Error),
}

/// A file that is followed.
struct Tail {
    file: File,
    inode: u64,
    offset: u64,
}

/// Until nobody takes them any more, or once.
pub(super) fn show(base: &Base, system: Option<&Path>, logs: &Logs) -> Result<ExitCode, TailError> {
    let patterns = patterns(base, system, logs)?;
    let mut shown = Shown { out: io::stdout().lock(), quiet: logs.quiet, last: None };
    let mut tails = BTreeMap::new();
    for path in found(&patterns) {
        if let Some(mut tail) = open(&path) {
            let begin = last_lines(&mut tail.file, tail.offset, logs.lines).unwrap_or(tail.offset);
            tail.offset = shown.from(&path, &mut tail.file, begin)?;
            tails.insert(path, tail);
        }
    }
    if !logs.follow {
        return Ok(ExitCode::SUCCESS);
    }
    for look in 1u32.. {
        std::thread::sleep(LOOK);
        if look.is_multiple_of(FILES_EVERY) {
            for path in found(&patterns) {
                let is_known = |tail: &Tail| std::fs::symlink_metadata(&path).is_ok_and(|now| now.ino() == tail.inode);
                if tails.len() < MOST_FILES
                    && !tails.get(&path).is_some_and(is_known)
                    && let Some(mut tail) = open(&path)
                {
                    // Whatever is left of the one that was rotated away comes first.
                    if let Some(old) = tails.get_mut(&path) {
                        shown.from(&path, &mut old.file, old.offset)?;
                    }
                    tail.offset = 0;
                    tails.insert(path, tail);
                }
            }
        }
        for (path, tail) in &mut tails {
            let length = tail.file.metadata().map_or(tail.offset, |found| found.len());
            if length < tail.offset {
                tail.offset = 0;
            }
            if length > tail.offset {
                tail.offset = shown.from(path, &mut tail.file, tail.offset)?;
            }
        }
        shown.out.flush().map_err(TailError::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Where logs are shown, with the names of their files.
struct Shown<W> {
    out: W,
    quiet: bool,
    last: Option<PathBuf>,
}

impl<W: Write> Shown<W> {
    /// Shows a file from an offset to its end, and says where that is. One that cannot be read any more is over.
    fn from(&mut self, path: &Path, file: &mut File, offset: u64) -> Result<u64, TailError> {
        let (mut offset, mut part) = (offset, vec![0; 32 * 1024]);
        if file.seek(SeekFrom::Start(offset)).is_err() {
            return Ok(offset);
        }
        // One that grows faster than it is read leaves the others their turn.
        for _ in 0..64 {
            let Ok(read @ 1..) = file.read(&mut part) else { break };
            if !self.quiet && self.last.as_deref() != Some(path) {
                let gap = if self.last.is_some() { "\n" } else { "" };
                writeln!(self.out, "{gap}==> {} <==", path.display()).map_err(TailError::Output)?;
                self.last = Some(path.to_owned());
            }
            self.out.write_all(&part[..read]).map_err(TailError::Output)?;
            offset += read as u64;
        }
        self.out.flush().map_err(TailError::Output)?;
        Ok(offset)
    }
}

/// Opens a log at its end. What is no plain file is not followed.
fn open(path: &Path) -> Option<Tail> {
    let file = log_file::read(path).ok()??;
    let found = file.metadata().ok()?;
    Some(Tail { file, inode: found.ino(), offset: found.len() })
}

/// Where the last `lines` of a file begin.
fn last_lines(file: &mut File, length: u64, lines: u32) -> io::Result<u64> {
    let (mut wanted, mut end) = (lines, length);
    let mut part = vec![0; 32 * 1024];
    if lines == 0 {
        return Ok(length);
    }
    while end > 0 && length - end < FURTHEST {
        let begin = end.saturating_sub(part.len() as u64);
        let read = usize::try_from(end - begin).unwrap_or(part.len());
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(&mut part[..read])?;
        for (place, byte) in part[..read].iter().enumerate().rev() {
            let place = begin + place as u64;
            // The end of the last line is none of another one.
            if *byte == b'\n' && place + 1 < length {
                wanted -= 1;
                if wanted == 0 {
                    return Ok(place + 1);
                }
            }
        }
        end = begin;
    }
    Ok(end)
}

fn found(patterns: &[String]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = patterns
        .iter()
        .filter_map(|pattern| glob::glob(pattern).ok())
        .flat_map(|paths| paths.flatten().take(MOST_FILES))
        .filter(|path| is_worth_reading(path))
        .collect();
    found.sort();
    found.dedup();
    found.truncate(MOST_FILES);
    found
}

/// Among the system's logs are compressed, rotated and binary ones, which nobody wants to see.
fn is_worth_reading(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_rotated = name.rsplit_once('.').is_some_and(|(_, end)| matches!(end.as_bytes(), [b'1'..=b'9']));
    let is_binary = matches!(name, "wtmp" | "btmp" | "lastlog" | "faillog") || name.ends_with(".journal");
    !(is_rotated || is_binary || name.ends_with(".gz") || name.ends_with(".xz"))
}

/// What files are wanted, as BOSH's client says it to `tail`.
fn patterns(base: &Base, system: Option<&Path>, logs: &Logs) -> Result<Vec<String>, TailError> {
    let jobs = base.job_logs();
    // The folder is a name, and not a pattern.
    let below = |folder: &Path, rest: &str| format!("{}/{rest}", glob::Pattern::escape(&folder.to_string_lossy()));
    let mut patterns = Vec::new();
    for job in &logs.jobs {
        if !crate::layout::is_name(job) {
            return Err(TailError::Elsewhere(job.clone()));
        }
        patterns.push(below(&jobs.join(job), "*.log"));
    }
    for filter in &logs.filters {
        if filter.starts_with('/') || filter.split('/').any(|part| part == "..") {
            return Err(TailError::Elsewhere(filter.clone()));
        }
        let source = glob::Pattern::new(filter);
        source.map_err(|source| TailError::Filter { filter: filter.clone(), source })?;
        patterns.push(below(&jobs, filter));
    }
    if logs.of_jobs && patterns.is_empty() {
        patterns.push(below(&jobs, "**/*.log"));
    }
    if logs.agent {
        patterns.push(below(&base.agent_logs(), "current"));
    }
    if let Some(system) = system.filter(|_| logs.system) {
        patterns.push(below(system, "**/*"));
    }
    Ok(patterns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found_also_across_parts_and_without_a_last_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let show = |text: &str, lines: u32| {
            std::fs::write(&path, text).unwrap();
            let mut tail = open(&path).unwrap();
            let begin = last_lines(&mut tail.file, tail.offset, lines).unwrap();
            text[usize::try_from(begin).unwrap()..].to_owned()
        };
        assert_eq!(show("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(show("a\nb\nc", 2), "b\nc");
        assert_eq!(show("a\nb\n", 5), "a\nb\n");
        assert_eq!(show("a\nb\n", 0), "");
        assert_eq!(show("", 3), "");
        let long = "x".repeat(40_000);
        assert_eq!(show(&format!("first\n{long}\nlast\n"), 2), format!("{long}\nlast\n"));
    }

    #[test]
    fn logs_of_others_are_not_asked_for() {
        let base = Base::at(Path::new("/b"));
        let wanted = |logs: Logs| patterns(&base, Some(Path::new("/var/log")), &logs);
        let all = wanted(Logs { of_jobs: true, ..Logs::default() }).unwrap();
        assert!(all.len() == 1 && all[0].ends_with("/log/**/*.log"), "{all:?}");
        let job = wanted(Logs { of_jobs: true, jobs: vec!["web".into()], ..Logs::default() }).unwrap();
        assert!(job.len() == 1 && job[0].ends_with("/log/web/*.log"), "{job:?}");
        for name in ["..", "a/b", "/etc"] {
            wanted(Logs { jobs: vec![name.into()], ..Logs::default() }).unwrap_err();
        }
        for filter in ["../x", "/etc/passwd", "a/../../x", "***"] {
            wanted(Logs { filters: vec![filter.into()], ..Logs::default() }).unwrap_err();
        }
        assert!(!is_worth_reading(Path::new("/l/syslog.1")) && is_worth_reading(Path::new("/l/syslog")));
    }
}
