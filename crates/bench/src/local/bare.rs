//! A container with nothing to it, started by a runtime of the machine: what a VM of the embedded cloud is measured against.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

/// The runtimes that are looked for.
const RUNTIMES: [&str; 2] = ["runc", "crun"];

/// Containers of one runtime, all with the same root file system.
pub(super) struct Bare {
    pub(super) runtime: &'static str,
    bundle: PathBuf,
    started: usize,
}

impl Bare {
    /// One per runtime that is installed and works here, and why the others do not.
    pub(super) fn of_this_machine(folder: &Path, root: &Path) -> io::Result<(Vec<Self>, Vec<io::Error>)> {
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        for runtime in RUNTIMES {
            if Command::new(runtime).arg("--version").output().is_ok_and(|output| output.status.success()) {
                let bundle = folder.join(runtime);
                fs::create_dir(&bundle)?;
                fs::write(bundle.join("config.json"), config(root).to_string())?;
                let mut bare = Self { runtime, bundle, started: 0 };
                match bare.start() {
                    Ok(_) => found.push(bare),
                    Err(error) => refused.push(error),
                }
            }
        }
        Ok((found, refused))
    }

    /// The time until the runtime has started a container; it is removed again.
    pub(super) fn start(&mut self) -> io::Result<Duration> {
        self.started += 1;
        let id = format!("windlass-bench-{}-{}", std::process::id(), self.started);
        let begun = Instant::now();
        let started = self.run(&["run", "--detach", "--bundle", &self.bundle.display().to_string(), &id]);
        let time = begun.elapsed();
        let removed = self.run(&["delete", "--force", &id]);
        started?;
        removed.map(|()| time)
    }

    fn run(&self, arguments: &[&str]) -> io::Result<()> {
        let said = self.bundle.join("said");
        let status = Command::new(self.runtime)
            .arg("--root")
            .arg(self.bundle.join("state"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Not a pipe: the container would hold it.
            .stderr(fs::File::create(&said)?)
            .status()?;
        if status.success() {
            return Ok(());
        }
        let said = fs::read_to_string(&said).unwrap_or_default();
        Err(io::Error::other(format!("{} {arguments:?}: {}", self.runtime, said.trim())))
    }
}

/// The same kinds of namespaces as a VM has, and a process that tells its version and ends.
fn config(root: &Path) -> serde_json::Value {
    let namespaces = ["pid", "mount", "network", "uts", "ipc"].map(|kind| json!({"type": kind}));
    json!({
        "ociVersion": "1.0.2",
        "hostname": "bare",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["/var/vcap/bosh/bin/bosh-agent", "-v"],
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
        },
        "root": {"path": root, "readonly": true},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        ],
        "linux": {"namespaces": namespaces},
    })
}
