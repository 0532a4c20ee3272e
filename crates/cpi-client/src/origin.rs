//! What a CPI is made of on this machine, and whether that changed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::CpiCommand;

/// The files that decide how a CPI behaves, as they were: its executable, files among its arguments (such as its
/// configuration), and the configuration of a CPI that was installed as a BOSH job, which stands beside its `bin` folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    files: Vec<(PathBuf, Option<State>)>,
}

/// What changes with a file's content, also when its length and its time stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Origin {
    /// As it is now. Looks at each file and reads none, so it can be asked before every call.
    pub(crate) fn of(command: &CpiCommand) -> Self {
        let job = command.executable.parent().and_then(Path::parent).map(|job| job.join("config/cpi.json"));
        let arguments = command.arguments.iter().filter_map(|argument| {
            let text = argument.to_str()?;
            let path = if text.starts_with("--") { text.split_once('=')?.1 } else { text };
            Path::new(path).is_absolute().then(|| PathBuf::from(path))
        });
        let files = std::iter::once(command.executable.clone()).chain(job).chain(arguments);
        Self { files: files.map(|path| (path.clone(), state(&path))).collect() }
    }
}

fn state(path: &Path) -> Option<State> {
    std::fs::metadata(path).ok().filter(Metadata::is_file).map(|file| State {
        device: file.dev(),
        inode: file.ino(),
        length: file.len(),
        modified: (file.mtime(), file.mtime_nsec()),
        changed: (file.ctime(), file.ctime_nsec()),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Environment;

    #[test]
    fn a_cpi_is_another_when_its_executable_or_its_configuration_changed_and_not_when_it_was_only_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["bin", "config"] {
            fs::create_dir(path(name)).unwrap();
        }
        for name in ["bin/cpi", "given.json", "named.json"] {
            fs::write(path(name), "1").unwrap();
        }
        let command = CpiCommand {
            executable: path("bin/cpi"),
            arguments: vec![
                "sim".into(),
                "--config".into(),
                path("given.json").into(),
                format!("--other={}", path("named.json").display()).into(),
            ],
            environment: Environment::Director,
        };
        let mut before = Origin::of(&command);
        for name in ["bin/cpi", "given.json", "named.json", "config/cpi.json"] {
            fs::read(path("bin/cpi")).unwrap();
            assert_eq!(Origin::of(&command), before);
            // Renamed into its place, as everything is written that must survive a kill.
            fs::write(path("new"), "2").unwrap();
            fs::rename(path("new"), path(name)).unwrap();
            let after = Origin::of(&command);
            assert_ne!(after, before, "{name} was replaced");
            before = after;
        }
        fs::remove_file(path("given.json")).unwrap();
        assert_ne!(Origin::of(&command), before);
    }
}
