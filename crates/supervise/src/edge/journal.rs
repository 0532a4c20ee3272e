//! What outlives the supervisor, in its folder: `state.json`, which is whole at every moment, and `journal`, to which a line is added
//! for each round of changes since. So starting many services costs as much per service as starting a few.
//!
//! A journal belongs to one state, by a number that both have. A state that is rewritten has the next number, and what
//! the journal before it says is in it. A line that was cut off by a kill was never relied on.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use windlass_durable::file;

use super::RunError;
use crate::machine::snapshot::{Change, Record, Snapshot, VERSION};

const STATE: &str = "state.json";
const JOURNAL: &str = "journal";

/// A journal may have so many bytes more than the state that it continues. Then the state is rewritten.
const MOST_MORE: u64 = 64 * 1024;

/// The state as it is stored.
#[derive(Serialize, Deserialize)]
struct Stored<S> {
    #[serde(flatten)]
    snapshot: S,
    /// The number of the journal that continues it; the first version had none.
    #[serde(default)]
    journal: u64,
}

/// A line of a journal: the first says which state it continues.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Continues(u64),
    Services(BTreeMap<String, Option<Record>>),
}

#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    number: u64,
    lines: Lines,
    /// Bytes of the state and of the journal.
    state_size: u64,
    size: u64,
}

#[derive(Debug)]
enum Lines {
    /// Nothing may follow: the state has to be rewritten.
    Closed,
    /// The state was just written, and nothing follows it yet.
    None,
    Open(File),
}

impl Journal {
    /// What an earlier supervisor left in `folder`, if there was one.
    pub(super) fn open(folder: &Path) -> Result<(Self, Option<Snapshot>), RunError> {
        let path = folder.join(STATE);
        let stored = match read(&path) {
            Ok(stored) => stored,
            Err(source) => return Err(RunError::State { path, source }),
        };
        let mut journal = Self { folder: folder.to_owned(), number: 0, lines: Lines::Closed, state_size: 0, size: 0 };
        let Some(Stored { mut snapshot, journal: number }) = stored else { return Ok((journal, None)) };
        journal.number = number;
        let path = folder.join(JOURNAL);
        match fs::read(&path).and_then(|text| replay(&text, number, &mut snapshot)) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(RunError::State { path, source }),
            _ => Ok((journal, Some(snapshot))),
        }
    }

    pub(super) fn state(&self) -> PathBuf {
        self.folder.join(STATE)
    }

    /// Makes `change` last; `all` is what it leads to.
    pub(super) fn save(&mut self, change: &Change, all: impl FnOnce() -> Snapshot) -> io::Result<()> {
        let saved = match change {
            Change::All(snapshot) => self.write(snapshot),
            Change::Of(_) if matches!(self.lines, Lines::Closed) || self.size > self.state_size + MOST_MORE => {
                self.write(&all())
            }
            Change::Of(records) => self.add(records),
        };
        if saved.is_err() {
            // Of a line, a part may be there.
            self.lines = Lines::Closed;
        }
        saved
    }

    fn write(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let number = self.number + 1;
        let mut bytes = serde_json::to_vec_pretty(&Stored { snapshot, journal: number })?;
        bytes.push(b'\n');
        file::write(&self.state(), &bytes, file::PRIVATE)?;
        (self.number, self.lines, self.state_size, self.size) = (number, Lines::None, bytes.len() as u64, 0);
        Ok(())
    }

    fn add(&mut self, records: &BTreeMap<String, Option<Record>>) -> io::Result<()> {
        if let Lines::None = self.lines {
            let path = self.folder.join(JOURNAL);
            file::write(&path, &line(&Line::Continues(self.number))?, file::PRIVATE)?;
            self.lines = Lines::Open(OpenOptions::new().append(true).open(path)?);
        }
        if let Lines::Open(file) = &mut self.lines {
            let line = line(&Line::Services(records.clone()))?;
            file::append(file, &line)?;
            self.size += line.len() as u64;
        }
        Ok(())
    }
}

fn line(line: &Line) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn read(path: &Path) -> io::Result<Option<Stored<Snapshot>>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let stored: Stored<Snapshot> = serde_json::from_slice(&text)?;
    let version = stored.snapshot.version;
    if !(1..=VERSION).contains(&version) {
        return Err(io::Error::other(format!("it has version {version}, and {VERSION} is the newest that is known")));
    }
    Ok(Some(stored))
}

/// Does to `snapshot` what the journal of this number says; that of another one is over.
fn replay(text: &[u8], number: u64, snapshot: &mut Snapshot) -> io::Result<()> {
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((index, bytes)) = lines.next() {
        let is_last = lines.peek().is_none();
        match serde_json::from_slice(bytes) {
            Ok(Line::Continues(other)) if index == 0 && other == number => {}
            Ok(Line::Continues(_)) if index == 0 => return Ok(()),
            Ok(Line::Services(records)) if index > 0 && bytes.ends_with(b"\n") => snapshot.apply(records),
            _ if is_last => {}
            _ => return Err(io::Error::other(format!("line {} is damaged", index + 1))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::snapshot::MonitText;
    use crate::machine::state::Goal;

    fn record(goal: Goal) -> Record {
        let text = serde_json::json!({"goal": goal});
        serde_json::from_value(text).unwrap()
    }

    fn all(names: &[&str]) -> Snapshot {
        let services = names.iter().map(|&name| (name.to_owned(), record(Goal::Keep))).collect();
        let files = vec![MonitText { name: "job".into(), text: "#".into() }];
        Snapshot { version: VERSION, boot: "boot".into(), files, services }
    }

    fn change(name: &str, goal: Option<Goal>) -> Change {
        Change::Of([(name.to_owned(), goal.map(record))].into())
    }

    /// A journal of two changes, and what is found when it is opened.
    fn rig() -> (tempfile::TempDir, Journal, impl Fn() -> Result<Snapshot, RunError>) {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, nothing) = Journal::open(folder.path()).unwrap();
        assert_eq!(nothing, None);
        journal.save(&Change::All(all(&["a", "b"])), || unreachable!()).unwrap();
        journal.save(&change("a", Some(Goal::Stop)), || unreachable!()).unwrap();
        journal.save(&change("b", None), || unreachable!()).unwrap();
        let path = folder.path().to_owned();
        (folder, journal, move || Journal::open(&path).map(|(_, snapshot)| snapshot.unwrap()))
    }

    #[test]
    fn changes_are_found_again_also_when_the_last_one_was_cut_off() {
        let (folder, _journal, found) = rig();
        let mut expected = all(&["a"]);
        expected.services.insert("a".into(), record(Goal::Stop));
        assert_eq!(found().unwrap(), expected);
        let path = folder.path().join(JOURNAL);
        let whole = fs::read(&path).unwrap();
        let first_change = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let second_change = first_change + whole[first_change..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let found = found().unwrap();
            let goal = if length < second_change { Goal::Keep } else { Goal::Stop };
            assert_eq!(found.services["a"].goal, goal, "{length} of {} bytes", whole.len());
            assert!(found.services.contains_key("b"), "{length} of {} bytes", whole.len());
        }
        // A power cut may leave zeros.
        fs::write(&path, [&whole[..second_change], &[0; 100]].concat()).unwrap();
        assert_eq!(found().unwrap().services["a"].goal, Goal::Stop);
        fs::write(&path, [&whole[..first_change], b"xxx\n", &whole[first_change..]].concat()).unwrap();
        let damaged = found().unwrap_err();
        assert_eq!(std::error::Error::source(&damaged).unwrap().to_string(), "line 2 is damaged");
        assert!(damaged.to_string().contains("journal is not a supervisor's state"), "{damaged}");
    }

    #[test]
    fn a_journal_does_not_outlive_its_state() {
        let (folder, mut journal, found) = rig();
        let before = fs::read(folder.path().join(JOURNAL)).unwrap();
        journal.save(&Change::All(all(&["c"])), || unreachable!()).unwrap();
        assert_eq!(fs::read(folder.path().join(JOURNAL)).unwrap(), before, "nothing follows the new state yet");
        assert_eq!(found().unwrap(), all(&["c"]));
        journal.save(&change("c", None), || unreachable!()).unwrap();
        assert_eq!(found().unwrap(), all(&[]));
    }

    #[test]
    fn a_long_journal_becomes_a_state_and_what_could_not_be_added_does_too() {
        let (folder, mut journal, found) = rig();
        let mut states = 0;
        // Long names make it long sooner.
        for round in 0..200 {
            let (number, name) = (journal.number, format!("{}-{}", "x".repeat(2000), round % 7));
            journal.save(&change(&name, Some(Goal::Leave)), || all(&["x"])).unwrap();
            states += journal.number - number;
        }
        let size = fs::metadata(folder.path().join(JOURNAL)).unwrap().len();
        assert!(size < 2 * MOST_MORE && (2..40).contains(&states), "{size} bytes, {states} states");
        // A descriptor that takes nothing stands for a full disk.
        journal.lines = Lines::Open(File::open(folder.path().join(JOURNAL)).unwrap());
        journal.save(&change("y", Some(Goal::Leave)), || unreachable!()).unwrap_err();
        journal.save(&change("y", Some(Goal::Leave)), || all(&["y"])).unwrap();
        assert_eq!(found().unwrap(), all(&["y"]));
    }

    #[test]
    fn the_first_form_of_a_state_is_read_and_a_later_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = |version| format!(r#"{{"version": {version}, "boot": "b", "files": [], "services": {{}}}}"#);
        fs::write(folder.path().join(STATE), state(1)).unwrap();
        let (_, snapshot) = Journal::open(folder.path()).unwrap();
        assert_eq!(snapshot.unwrap().boot, "b");
        fs::write(folder.path().join(STATE), state(3)).unwrap();
        let refused = Journal::open(folder.path()).unwrap_err();
        assert!(std::error::Error::source(&refused).unwrap().to_string().starts_with("it has version 3"));
    }
}
