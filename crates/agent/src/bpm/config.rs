//! `config/bpm.yml` of a job: which processes it has, and what each may have.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use windlass_manifest::{Content, Document, Node, Position};

use super::BpmError;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BpmFile {
    processes: Option<Vec<ProcessConfig>>,
}

/// One process. What a container would be needed for is read, and not done.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProcessConfig {
    pub(super) name: String,
    pub(super) executable: String,
    pub(super) args: Option<Vec<String>>,
    pub(super) env: Option<BTreeMap<String, String>>,
    pub(super) workdir: Option<String>,
    pub(super) hooks: Option<Hooks>,
    pub(super) limits: Option<Limits>,
    pub(super) persistent_disk: bool,
    pub(super) additional_volumes: Option<Vec<BpmVolume>>,
    pub(super) capabilities: Option<Vec<String>>,
    #[serde(rename = "unsafe")]
    pub(super) rights: Option<Rights>,
    pub(super) shutdown_signal: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Hooks {
    pub(super) pre_start: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Limits {
    pub(super) memory: Option<String>,
    #[serde(deserialize_with = "whole")]
    pub(super) open_files: Option<u64>,
    pub(super) processes: Option<f64>,
    #[serde(deserialize_with = "whole")]
    pub(super) core_file_size: Option<u64>,
}

/// What bpm calls unsafe.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rights {
    pub(super) privileged: bool,
}

/// A whole number. As bpm does, it takes `12500.0` for one, because templates calculate.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match Option::<f64>::deserialize(deserializer)? {
        Some(number) if number < 0.0 => Err(D::Error::custom(format!("{number} cannot be a limit"))),
        number => Ok(number.map(|number| number as u64)),
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct BpmVolume {
    pub(super) path: String,
    /// Somebody else makes it.
    pub(super) mount_only: bool,
}

/// The processes in the text of a job's file, each with what is wrong with it found out.
pub(super) fn read(job: &str, base: &Path, text: &str) -> Result<Vec<ProcessConfig>, BpmError> {
    let wrong = |message: String| BpmError::Config { job: job.to_owned(), message };
    let document = Document::parse(text).map_err(|error| wrong(error.to_string()))?;
    let mut root = document.root().node().clone();
    write_texts(&mut root, text);
    let file: BpmFile = root.decode().map_err(|error| wrong(error.to_string()))?;
    let processes = file.processes.unwrap_or_default();
    for process in &processes {
        process.check(job, base).map_err(wrong)?;
    }
    Ok(processes)
}

/// Where bpm wants text, it takes any word as it is written: `PORT: 8080`, `MODE: 0755`, `DEBUG: yes`.
fn write_texts(root: &mut Node, text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    let Some(Content::List(processes)) = field(root, "processes").map(|node| &mut node.content) else { return };
    for process in processes {
        if let Some(Content::List(words)) = field(process, "args").map(|node| &mut node.content) {
            words.iter_mut().for_each(|word| write_text(word, &lines));
        }
        if let Some(Content::Object(words)) = field(process, "env").map(|node| &mut node.content) {
            words.values_mut().for_each(|word| write_text(word, &lines));
        }
        if let Some(memory) = field(process, "limits").and_then(|limits| field(limits, "memory")) {
            write_text(memory, &lines);
        }
    }
}

fn field<'a>(node: &'a mut Node, name: &str) -> Option<&'a mut Node> {
    match &mut node.content {
        Content::Object(entries) => entries.get_mut(name),
        _ => None,
    }
}

fn write_text(node: &mut Node, lines: &[&str]) {
    let meant = match &node.content {
        Content::Number(number) => number.to_string(),
        Content::Boolean(boolean) => boolean.to_string(),
        Content::Null => String::new(),
        _ => return,
    };
    let Position { line, column } = node.position;
    let rest = lines.get(line - 1).into_iter().flat_map(|line| line.chars().skip(column - 1));
    let written: String =
        rest.take_while(|letter| letter.is_ascii_alphanumeric() || "+-._".contains(*letter)).collect();
    // Behind a tag or an anchor stands something else.
    let is_it = Document::parse(&written).is_ok_and(|document| document.root().node().content == node.content);
    node.content = Content::String(if is_it { written } else { meant });
}

impl ProcessConfig {
    /// In bpm's words.
    pub(super) fn check(&self, job: &str, base: &Path) -> Result<(), String> {
        if self.name.is_empty() {
            return Err("invalid config: name".to_owned());
        }
        if self.executable.is_empty() {
            return Err("invalid config: executable".to_owned());
        }
        if let Some(signal) = self.shutdown_signal.as_deref().filter(|signal| !["", "TERM", "INT"].contains(signal)) {
            return Err(format!(
                "shutdown signal should either be 'TERM' or 'INT' (or left unspecified), but got '{signal}'"
            ));
        }
        self.additional_volumes.iter().flatten().try_for_each(|volume| volume.check(job, base))
    }

    pub(super) fn is_privileged(&self) -> bool {
        self.rights.as_ref().is_some_and(|rights| rights.privileged)
    }
}

impl BpmVolume {
    /// `PATH[:OPTION,…]`, as the command line has it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split(':').collect();
        let (path, options) = match fields.as_slice() {
            [path] => (*path, Vec::new()),
            [path, options] => (*path, options.split(',').collect()),
            _ => return Err(format!("invalid volume definition (format: <path>[:<options>]): {text}")),
        };
        let known = ["writable", "mount_only", "allow_executions", "shared"];
        if let Some(option) = options.iter().find(|option| !known.contains(option)) {
            return Err(format!("invalid volume option: {option}"));
        }
        Ok(Self { path: path.to_owned(), mount_only: options.contains(&"mount_only") })
    }

    fn check(&self, job: &str, base: &Path) -> Result<(), String> {
        let path = Path::new(&self.path);
        let clean: std::path::PathBuf = path.components().collect();
        let is_canonical =
            clean.as_os_str() == path.as_os_str() && !path.components().any(|part| part == Component::ParentDir);
        if !is_canonical {
            return Err(format!("volume path must be canonical, expected {} but got {}", clean.display(), self.path));
        }
        if [base.join("data").join(job), base.join("store").join(job)].contains(&clean) {
            return Err(format!(
                "invalid volume path: {} cannot conflict with default job data or store directories",
                self.path
            ));
        }
        if !path.starts_with(base) || path == base {
            return Err(format!("invalid volume path: {} must be within {}", self.path, base.display()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<ProcessConfig>, String> {
        super::read("web", Path::new("/var/vcap"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_bpm_file_is_read_and_what_bpm_refuses_is_refused() {
        let text = "processes:\n- name: web\n  executable: /bin/web\n  args: [--port, \"80\"]\n  env: {A: b}\n  \
            limits: {memory: 1G, open_files: 100, processes: -1}\n  hooks: {pre_start: /bin/hook}\n  ephemeral_disk: true\n  \
            additional_volumes: [{path: /var/vcap/data/shared, writable: true}]\n  capabilities: [NET_BIND_SERVICE]\n  \
            unsafe: {privileged: true}\n  shutdown_signal: INT\n";
        let process = read(text).unwrap().remove(0);
        assert!(process.is_privileged());
        assert_eq!((process.name.as_str(), process.args.unwrap().len()), ("web", 2));
        assert_eq!(process.limits.unwrap().open_files, Some(100));
        // As the release of redis writes it.
        let calculated = read("processes: [{name: web, executable: /x, limits: {open_files: 12500.0}}]").unwrap();
        assert_eq!(calculated[0].limits.as_ref().unwrap().open_files, Some(12500));
        assert_eq!(read("{}").unwrap().len(), 0);
        let one = |more: &str| read(&format!("processes: [{{name: web, executable: /x, {more}}}]")).unwrap_err();
        for (error, words) in [
            (read("processes: [{name: web}]").unwrap_err(), "invalid config: executable"),
            (read("processes: [{executable: /x}]").unwrap_err(), "invalid config: name"),
            (one("limits: {open_files: -1}"), "-1 cannot be a limit"),
            (one("shutdown_signal: HUP"), "either be 'TERM' or 'INT'"),
            (one("additional_volumes: [{path: /etc}]"), "must be within /var/vcap"),
            (one("additional_volumes: [{path: /var/vcap/../x}]"), "must be canonical"),
            (one("additional_volumes: [{path: /var/vcap/data/web}]"), "cannot conflict with default job data"),
            (read("processes: 5").unwrap_err(), "processes"),
        ] {
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn numbers_and_words_reach_a_process_as_they_are_written() {
        let text = "processes:\n- name: web\n  executable: /x\n  args: [-p, 8080, 1.10, yes, -1]\n  env:\n    PORT: 8080\n    \
            MODE: 0755 # octal\n    DEBUG: on\n    QUOTED: \"007\"\n    NOTHING:\n  limits: {memory: 1024}\n";
        let process = read(text).unwrap().remove(0);
        assert_eq!(process.args.unwrap(), ["-p", "8080", "1.10", "yes", "-1"]);
        let env: Vec<(String, String)> = process.env.unwrap().into_iter().collect();
        let expected = [("DEBUG", "on"), ("MODE", "0755"), ("NOTHING", ""), ("PORT", "8080"), ("QUOTED", "007")];
        assert_eq!(env, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(process.limits.unwrap().memory.unwrap(), "1024");
    }

    #[test]
    fn volumes_of_the_command_line_are_understood() {
        let volume = |path: &str, mount_only| Ok(BpmVolume { path: path.to_owned(), mount_only });
        assert_eq!(BpmVolume::parse("/var/vcap/data/a"), volume("/var/vcap/data/a", false));
        assert_eq!(BpmVolume::parse("/a:writable,mount_only"), volume("/a", true));
        assert_eq!(BpmVolume::parse("/a:loud").unwrap_err(), "invalid volume option: loud");
        assert!(BpmVolume::parse("/a:writable:b").unwrap_err().starts_with("invalid volume definition"));
    }
}
