//! `config/bpm.yml` of a job: which processes it has, and what each may have.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use windlass_manifest::Document;

use super::BpmError;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
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
    pub(super) additional_volumes: Option<Vec<Volume>>,
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
    #[serde(deserialize_with = "whole")]
    pub(super) processes: Option<u64>,
    #[serde(deserialize_with = "whole")]
    pub(super) core_file_size: Option<u64>,
}

/// A whole number. As bpm does, it takes `12500.0` for one, because templates calculate.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match Option::<f64>::deserialize(deserializer)? {
        Some(number) if number < 0.0 => Err(D::Error::custom(format!("{number} cannot be a limit"))),
        number => Ok(number.map(|number| number as u64)),
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Volume {
    pub(super) path: String,
}

/// The processes in the text of a job's file, each with what is wrong with it found out.
pub(super) fn read(job: &str, base: &Path, text: &str) -> Result<Vec<ProcessConfig>, BpmError> {
    let wrong = |message: String| BpmError::Config { job: job.to_owned(), message };
    let document = Document::parse(text).map_err(|error| wrong(error.to_string()))?;
    let file: File = document.root().node().decode().map_err(|error| wrong(error.to_string()))?;
    let processes = file.processes.unwrap_or_default();
    for process in &processes {
        process.check(job, base).map_err(wrong)?;
    }
    Ok(processes)
}

impl ProcessConfig {
    /// In bpm's words.
    fn check(&self, job: &str, base: &Path) -> Result<(), String> {
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
}

impl Volume {
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
            limits: {memory: 1G, open_files: 100}\n  hooks: {pre_start: /bin/hook}\n  ephemeral_disk: true\n  \
            additional_volumes: [{path: /var/vcap/data/shared, writable: true}]\n  capabilities: [NET_BIND_SERVICE]\n  \
            unsafe: {privileged: true}\n  shutdown_signal: INT\n";
        let process = read(text).unwrap().remove(0);
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
            (one("limits: {processes: -1}"), "-1 cannot be a limit"),
            (one("shutdown_signal: HUP"), "either be 'TERM' or 'INT'"),
            (one("additional_volumes: [{path: /etc}]"), "must be within /var/vcap"),
            (one("additional_volumes: [{path: /var/vcap/../x}]"), "must be canonical"),
            (one("additional_volumes: [{path: /var/vcap/data/web}]"), "cannot conflict with default job data"),
            (read("processes: 5").unwrap_err(), "processes"),
        ] {
            assert!(error.contains(words), "{error}");
        }
    }
}
