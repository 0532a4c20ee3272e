//! A private PostgreSQL from the system's packages, reached through a socket in its own folder.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// PostgreSQL refuses to run as root; as root, it runs as this user (nobody).
const OTHER_USER: u32 = 65534;

/// A server. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Postgres {
    folder: tempfile::TempDir,
    server: Child,
}

fn binaries() -> PathBuf {
    let versions =
        fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is not installed: install the package postgresql");
    let mut folders: Vec<PathBuf> = versions.map(|version| version.unwrap().path().join("bin")).collect();
    folders.retain(|folder| folder.join("initdb").exists());
    folders.sort();
    folders.pop().expect("PostgreSQL is not installed: install the package postgresql")
}

/// A command that runs as an ordinary user.
fn command(program: &Path, folder: &Path) -> Command {
    let mut words: Vec<OsString> = Vec::new();
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        let user = OTHER_USER.to_string();
        words.extend(["setpriv".into(), format!("--reuid={user}").into(), format!("--regid={user}").into()]);
        words.push("--clear-groups".into());
    }
    words.push(program.into());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

impl Postgres {
    pub(crate) fn start() -> Self {
        let (folder, binaries) = (tempfile::tempdir().unwrap(), binaries());
        let path = folder.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            chown(path, Some(OTHER_USER), Some(OTHER_USER)).unwrap();
        }
        let made = command(&binaries.join("initdb"), path)
            .args(["--username=windlass", "--auth=trust", "--no-sync", "-D"])
            .arg(path.join("data"))
            .status();
        assert!(made.unwrap().success());
        let server = command(&binaries.join("postgres"), path)
            .arg("-D")
            .arg(path.join("data"))
            .arg("-k")
            .arg(path)
            .args(["-c", "listen_addresses="])
            .stderr(fs::File::create(path.join("log")).unwrap())
            .spawn()
            .unwrap();
        let postgres = Self { folder, server };
        let deadline = Instant::now() + PATIENCE;
        while !fs::read_to_string(postgres.folder.path().join("log")).unwrap().contains("ready to accept connections") {
            assert!(Instant::now() < deadline, "PostgreSQL does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        postgres
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://windlass@localhost/postgres?host={}", self.folder.path().display())
    }
}

impl Drop for Postgres {
    /// Its other processes end with it.
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-INT", &self.server.id().to_string()]).status();
        let _ = self.server.wait();
    }
}
