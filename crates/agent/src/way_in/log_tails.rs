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
use crate::logs::MATCHING;
use crate::{log_file, log_walk};

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

/// Logs of a folder.
struct WantedLogs {
    folder: PathBuf,
    /// One of them matches their paths below it.
    patterns: Vec<glob::Pattern>,
}

/// Until nobody takes them any more, or once.
pub(super) fn show(base: &Base, system: Option<&Path>, logs: &Logs) -> Result<ExitCode, TailError> {
    let wanted = wanted(base, system, logs)?;
    let mut shown = Shown { out: io::stdout().lock(), quiet: logs.quiet, last: None };
    let mut tails = BTreeMap::new();
    for (path, mut tail) in new_tails(&wanted, &tails) {
        let begin = last_lines(&mut tail.file, tail.offset, logs.lines).unwrap_or(tail.offset);
        tail.offset = shown.from(&path, &mut tail.file, begin)?;
        tails.insert(path, tail);
    }
    if !logs.follow {
        return Ok(ExitCode::SUCCESS);
    }
    for look in 1u32.. {
        std::thread::sleep(LOOK);
        if look.is_multiple_of(FILES_EVERY) {
            for (path, mut tail) in new_tails(&wanted, &tails) {
                // Whatever is left of the one that was rotated away comes first.
                if let Some(old) = tails.get_mut(&path) {
                    shown.from(&path, &mut old.file, old.offset)?;
                }
                tail.offset = 0;
                tails.insert(path, tail);
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

/// The files that are wanted and not followed yet, at their ends. What cannot be looked at has none.
fn new_tails(wanted: &[WantedLogs], known: &BTreeMap<PathBuf, Tail>) -> BTreeMap<PathBuf, Tail> {
    let mut new = BTreeMap::new();
    for WantedLogs { folder, patterns } in wanted {
        let _ = log_walk::each(folder, |below, at| {
            let is_wanted = patterns.iter().any(|pattern| pattern.matches_path_with(below, MATCHING));
            if !is_wanted || !is_worth_reading(below) || new.len() + known.len() >= MOST_FILES {
                return Ok(());
            }
            let path = folder.join(below);
            let is_known = |tail: &Tail| std::fs::symlink_metadata(at).is_ok_and(|now| now.ino() == tail.inode);
            if !known.get(&path).is_some_and(is_known)
                && let Some(tail) = open(at)
            {
                new.insert(path, tail);
            }
            Ok(())
        });
    }
    new
}

/// Among the system's logs are compressed, rotated and binary ones, which nobody wants to see.
fn is_worth_reading(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_rotated = name.rsplit_once('.').is_some_and(|(_, end)| matches!(end.as_bytes(), [b'1'..=b'9']));
    let is_binary = matches!(name, "wtmp" | "btmp" | "lastlog" | "faillog") || name.ends_with(".journal");
    !(is_rotated || is_binary || name.ends_with(".gz") || name.ends_with(".xz"))
}

/// What files are wanted, as BOSH's client says it to `tail`.
fn wanted(base: &Base, system: Option<&Path>, logs: &Logs) -> Result<Vec<WantedLogs>, TailError> {
    let pattern = |filter: &str| {
        glob::Pattern::new(filter).map_err(|source| TailError::Filter { filter: filter.to_owned(), source })
    };
    let mut of_jobs = Vec::new();
    for job in &logs.jobs {
        if !crate::layout::is_name(job) {
            return Err(TailError::Elsewhere(job.clone()));
        }
        of_jobs.push(pattern(&format!("{}/*.log", glob::Pattern::escape(job)))?);
    }
    for filter in &logs.filters {
        if filter.starts_with('/') || filter.split('/').any(|part| part == "..") {
            return Err(TailError::Elsewhere(filter.clone()));
        }
        of_jobs.push(pattern(filter)?);
    }
    if logs.of_jobs && of_jobs.is_empty() {
        of_jobs.push(pattern("**/*.log")?);
    }
    let mut wanted = vec![WantedLogs { folder: base.job_logs(), patterns: of_jobs }];
    if logs.agent {
        wanted.push(WantedLogs { folder: base.agent_logs(), patterns: vec![pattern("current")?] });
    }
    if let Some(system) = system.filter(|_| logs.system) {
        wanted.push(WantedLogs { folder: system.to_owned(), patterns: vec![pattern("**/*")?] });
    }
    wanted.retain(|wanted| !wanted.patterns.is_empty());
    Ok(wanted)
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
        let wanted = |logs: Logs| wanted(&base, Some(Path::new("/var/log")), &logs);
        let patterns = |logs: Logs| -> Vec<String> {
            let wanted = wanted(Logs { of_jobs: true, ..logs }).unwrap();
            assert!(wanted.iter().all(|wanted| wanted.folder == base.job_logs()));
            wanted.iter().flat_map(|wanted| &wanted.patterns).map(|pattern| pattern.as_str().to_owned()).collect()
        };
        assert_eq!(patterns(Logs::default()), ["**/*.log"]);
        assert_eq!(patterns(Logs { jobs: vec!["web".into()], ..Logs::default() }), ["web/*.log"]);
        for name in ["..", "a/b", "/etc"] {
            assert!(wanted(Logs { jobs: vec![name.into()], ..Logs::default() }).is_err());
        }
        for filter in ["../x", "/etc/passwd", "a/../../x", "***"] {
            assert!(wanted(Logs { filters: vec![filter.into()], ..Logs::default() }).is_err());
        }
        assert!(!is_worth_reading(Path::new("/l/syslog.1")) && is_worth_reading(Path::new("/l/syslog")));
    }

    #[test]
    fn links_of_jobs_show_nothing_of_what_they_lead_to_and_lead_nobody_round_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let base = Base::prepare(folder.path()).unwrap();
        let job = base.job_logs().join("web");
        std::fs::create_dir_all(job.join("deep")).unwrap();
        for path in [job.join("web.log"), job.join("deep/er.log"), base.bosh().join("settings.log")] {
            std::fs::write(path, "line\n").unwrap();
        }
        std::os::unix::fs::symlink(base.bosh(), job.join("settings")).unwrap();
        std::os::unix::fs::symlink("web.log", job.join("link.log")).unwrap();
        for round in ["a", "b", "c", "d"] {
            std::os::unix::fs::symlink(".", job.join(round)).unwrap();
        }
        let found = |filters: &[&str]| -> Vec<PathBuf> {
            let filters = filters.iter().map(ToString::to_string).collect();
            let wanted = wanted(&base, None, &Logs { of_jobs: true, filters, ..Logs::default() }).unwrap();
            new_tails(&wanted, &BTreeMap::new()).into_keys().collect()
        };
        assert_eq!(found(&[]), [job.join("deep/er.log"), job.join("web.log")]);
        assert!(found(&["web/settings/*", "**/*.none"]).is_empty());
    }
}
