//! The processes that are measured. Dropped, they end and leave nothing behind.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use windlass_durable::kill_point;
use windlass_installation::own_programs;

use crate::load::Requests;

const PATIENCE: Duration = Duration::from_secs(30);
/// Gives `windlass registry` the credentials for writing.
const CREDENTIALS: &str = "WINDLASS_REGISTRY_CREDENTIALS";
/// How the first line that it prints begins.
const LISTENS_ON: &str = "The registry listens on ";

/// A registry in a process of its own.
pub(super) struct RegistryProcess {
    pub(super) address: SocketAddr,
    _process: Child,
    _folder: tempfile::TempDir,
}

impl RegistryProcess {
    pub(super) async fn start(db: Option<&str>, credentials: &str) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["registry", "--listen", "127.0.0.1:0", "--state-dir"]).arg(folder.path());
        command
            .env(CREDENTIALS, credentials)
            .env("RUST_LOG", "error")
            .envs(db.map(|url| ("WINDLASS_REGISTRY_DB", url)));
        kill_point("before a registry is started");
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let stdout = process.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await??.unwrap_or_default();
        let address = line.strip_prefix(LISTENS_ON).and_then(|endpoint| endpoint.strip_prefix("http://"));
        let address = address.and_then(|address| address.parse().ok());
        let address = address.ok_or_else(|| io::Error::other(format!("it did not start: '{line}'")))?;
        Ok(Self { address, _process: process, _folder: folder })
    }
}

/// nginx that serves one file, as its documentation says that it is fastest.
pub(super) struct Nginx {
    pub(super) address: SocketAddr,
    process: Child,
    _folder: tempfile::TempDir,
}

impl Nginx {
    /// None if nginx is not installed.
    pub(super) async fn start(file: &[u8]) -> io::Result<Option<Self>> {
        let Some(executable) = own_programs::find("nginx") else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        // nginx cannot say which port it was given, so it is told one that was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let path = folder.path().display();
        // As root, its workers would become somebody who cannot read the folder.
        let user = if geteuid().is_root() { "user root;" } else { "" };
        let config = format!(
            "{user} daemon off; worker_processes auto; pid {path}/pid; error_log stderr crit;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; default_type application/json;\n\
             keepalive_requests 1000000000; keepalive_timeout 600; open_file_cache max=16; open_file_cache_valid 600;\n\
             client_body_temp_path {path}/a; proxy_temp_path {path}/b; fastcgi_temp_path {path}/c;\n\
             uwsgi_temp_path {path}/d; scgi_temp_path {path}/e;\n\
             server {{ listen {address}; root {path}; }} }}\n"
        );
        std::fs::write(folder.path().join("nginx.conf"), config)?;
        std::fs::write(folder.path().join("settings"), file)?;
        let mut command = Command::new(executable);
        command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
        kill_point("before nginx is started");
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let mut nginx = Self { address, process, _folder: folder };
        nginx.wait_until_ready().await?;
        Ok(Some(nginx))
    }

    /// With as much in its head as a request to a registry.
    pub(super) fn request(&self) -> Vec<u8> {
        Requests::new(self.address, "nobody", &"x".repeat(98)).get("/settings")
    }

    async fn wait_until_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).await.is_err() {
            if let Some(status) = self.process.try_wait()? {
                return Err(io::Error::other(format!("it ended with {status}")));
            }
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

impl Drop for Nginx {
    /// Its workers end with it when it is asked to end, not when it is killed.
    fn drop(&mut self) {
        let pid = self.process.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let deadline = Instant::now() + PATIENCE;
        if pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok()) {
            while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
