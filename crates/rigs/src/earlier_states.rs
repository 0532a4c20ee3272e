//! What earlier versions stored, kept in `crates/windlass/tests/windlass/earlier_states`; its README says how.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// One of the states of a version.
#[derive(Debug)]
pub struct Kept {
    data: PathBuf,
}

/// An entry of `files.txt`.
#[derive(Debug)]
pub struct Entry {
    pub path: String,
    pub content: Content,
}

/// What an entry is.
#[derive(Debug)]
pub enum Content {
    Folder {
        mode: u32,
    },
    File {
        mode: u32,
        /// What is in it.
        bytes: Vec<u8>,
    },
    /// A symbolic link.
    Link {
        /// Where it leads.
        target: String,
    },
}

/// The state of this name in every version that has one.
pub fn of_every_version(name: &str) -> Vec<Kept> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../windlass/tests/windlass/earlier_states");
    let versions = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join(name));
    let mut kept: Vec<_> = versions.filter(|data| data.is_dir()).map(|data| Kept { data }).collect();
    kept.sort_by(|one, other| one.data.cmp(&other.data));
    assert!(!kept.is_empty(), "no version has a state '{name}'");
    kept
}

impl Kept {
    /// Everything that goes into `folder`, folders before what is in them.
    pub fn entries(&self, folder: &Path) -> Vec<Entry> {
        let text = self.read("files.txt", folder);
        let mut lines = text.lines().peekable();
        let mut entries = Vec::new();
        while let Some(head) = lines.next() {
            let mut content = String::new();
            while let Some(line) = lines.next_if(|line| line.starts_with(['|', '>'])) {
                content.push_str(&line[1..]);
                if line.starts_with('|') {
                    content.push('\n');
                }
            }
            entries.push(entry(head, content));
        }
        entries
    }

    /// Puts everything into `folder`, for the program at `windlass`.
    pub fn unpack(&self, folder: &Path, windlass: &str) {
        eprintln!("{} in {}", self.data.display(), folder.display());
        for Entry { path, content } in self.entries(folder) {
            let path = folder.join(path);
            let mode = match content {
                Content::Link { target } => {
                    std::os::unix::fs::symlink(target, path).unwrap();
                    continue;
                }
                Content::Folder { mode } => {
                    fs::create_dir(&path).unwrap();
                    mode
                }
                Content::File { mode, bytes } => {
                    let text = String::from_utf8(bytes).map(|text| text.replace("@WINDLASS@", windlass).into_bytes());
                    fs::write(&path, text.unwrap_or_else(std::string::FromUtf8Error::into_bytes)).unwrap();
                    mode
                }
            };
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    /// The statements that make a database as it was left, for a state in `folder`.
    pub fn statements(&self, database: &str, folder: &Path) -> String {
        // A dump has its tables in an order of its own.
        format!("PRAGMA foreign_keys = OFF;\n{}", self.read(&format!("{database}.sql"), folder))
    }

    fn read(&self, name: &str, folder: &Path) -> String {
        fs::read_to_string(self.data.join(name)).unwrap().replace("@FOLDER@", folder.to_str().unwrap())
    }
}

fn entry(head: &str, content: String) -> Entry {
    let (kind, rest) = head.split_once(' ').unwrap();
    if kind == "link" {
        let (path, target) = rest.split_once(" -> ").unwrap();
        return Entry { path: path.to_owned(), content: Content::Link { target: target.to_owned() } };
    }
    let (mode, path) = rest.split_once(' ').unwrap();
    let mode = u32::from_str_radix(mode, 8).unwrap();
    let content = match kind {
        "folder" => Content::Folder { mode },
        "file" => Content::File { mode, bytes: content.into_bytes() },
        "base64" => Content::File { mode, bytes: BASE64_STANDARD.decode(content.replace('\n', "")).unwrap() },
        _ => panic!("what is '{head}'?"),
    };
    Entry { path: path.to_owned(), content }
}

/// What is missing or different in `written`, if anything is.
fn lost(stored: &Value, written: &Value, at: &str) -> Option<String> {
    match (stored, written) {
        (Value::Object(stored), Value::Object(written)) => stored.iter().find_map(|(key, value)| {
            let at = format!("{at}.{key}");
            written.get(key).map_or_else(|| Some(at.clone()), |written| lost(value, written, &at))
        }),
        (Value::Array(stored), Value::Array(written)) if stored.len() == written.len() => {
            let mut pairs = stored.iter().zip(written).enumerate();
            pairs.find_map(|(index, (stored, written))| lost(stored, written, &format!("{at}[{index}]")))
        }
        _ => (stored != written).then(|| at.to_owned()),
    }
}

/// Reads a stored document as today's type and writes it again: nothing may be lost, and something may be added.
pub fn check<T: Serialize + DeserializeOwned>(what: &str, text: &str) {
    let stored: Value = serde_json::from_str(text).unwrap();
    let read: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{what} cannot be read: {error}\n{text}"));
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!(lost(&stored, &written, what), None, "{stored:#}\nis written as\n{written:#}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_renamed_changed_or_left_out_is_found_and_what_is_added_is_not() {
        let stored: Value = serde_json::json!({"a": {"b": [1, {"c": null}]}});
        assert_eq!(lost(&stored, &serde_json::json!({"a": {"b": [1, {"c": null, "new": 1}]}, "new": 2}), "it"), None);
        for (written, at) in [
            (serde_json::json!({"other": {"b": [1, {"c": null}]}}), "it.a"),
            (serde_json::json!({"a": {"b": [1, {}]}}), "it.a.b[1].c"),
            (serde_json::json!({"a": {"b": [2, {"c": null}]}}), "it.a.b[0]"),
            (serde_json::json!({"a": {"b": [1]}}), "it.a.b"),
        ] {
            assert_eq!(lost(&stored, &written, "it").as_deref(), Some(at), "{written}");
        }
    }
}
