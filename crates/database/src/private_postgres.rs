//! A private PostgreSQL from the system's packages, reached through a socket in its own folder: no port, no password, no trace.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use windlass_durable::kill_point;

const PATIENCE: Duration = Duration::from_secs(60);
/// PostgreSQL refuses to run as root; as root, it runs as this user (nobody).
const OTHER_USER: u32 = 65534;

/// A server. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub struct PrivatePostgres {
    folder: tempfile::TempDir,
    binaries: PathBuf,
    server: Option<Child>,
}

impl PrivatePostgres {
    /// Starts one; [`io::ErrorKind::NotFound`] if PostgreSQL is not installed.
    pub fn start() -> io::Result<Self> {
        let mut postgres = Self { folder: tempfile::tempdir()?, binaries: binaries()?, server: None };
        let path = postgres.folder.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        if geteuid().is_root() {
            chown(path, Some(OTHER_USER), Some(OTHER_USER))?;
        }
        let made = postgres
            .command("initdb")
            .args(["--username=windlass", "--auth=trust", "--no-sync", "-D"])
            .arg(postgres.data())
            .output()?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(io::Error::other(format!("initdb failed: {said}")));
        }
        postgres.start_again()?;
        Ok(postgres)
    }

    /// The URL of its database.
    pub fn url(&self) -> String {
        format!("postgres://windlass@localhost/postgres?host={}", self.folder.path().display())
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Stops the server; its other processes end with it, and its data stays.
    pub fn stop(&mut self) -> io::Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        if let Some(pid) = i32::try_from(server.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::INT)?;
        }
        server.wait()?;
        Ok(())
    }

    /// Starts the server after [`PrivatePostgres::stop`].
    #[expect(clippy::disallowed_methods, reason = "its log, in a folder that goes with it")]
    pub fn start_again(&mut self) -> io::Result<()> {
        let (path, log) = (self.folder.path(), self.folder.path().join("log"));
        kill_point("before PostgreSQL starts");
        let server = self
            .command("postgres")
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(path)
            .args(["-c", "listen_addresses="])
            .stderr(fs::File::create(&log)?)
            .spawn()?;
        self.server = Some(server);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = fs::read_to_string(&log)?;
            if said.contains("ready to accept connections") {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("PostgreSQL does not start: {said}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A command that runs as an ordinary user.
    fn command(&self, program: &str) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        if geteuid().is_root() {
            let (user, group) = (format!("--reuid={OTHER_USER}"), format!("--regid={OTHER_USER}"));
            words.extend(["setpriv".into(), user.into(), group.into(), "--clear-groups".into()]);
        }
        words.push(self.binaries.join(program).into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// The newest version's programs, where Debian puts them.
fn binaries() -> io::Result<PathBuf> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "PostgreSQL is missing: install the package postgresql");
    let versions = fs::read_dir("/usr/lib/postgresql").map_err(|_| missing())?;
    let mut folders: Vec<PathBuf> = versions.flatten().map(|version| version.path().join("bin")).collect();
    folders.retain(|folder| folder.join("initdb").exists());
    folders.sort();
    folders.pop().ok_or_else(missing)
}
