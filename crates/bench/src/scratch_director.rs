//! A director with a simulated cloud in a folder of its own, for measurements and sweeps: a process as a user would start it,
//! spoken to by the verbs that a user would type.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};
use windlass_cloud_local::Isolation;
use windlass_cloud_sim::Inventory;
use windlass_director_client::environment;
use windlass_durable::kill_point::KILL_AT;
use windlass_durable::process::ProcessIdentity;

use crate::load::{Load, Requests};

/// How long a director may take to answer, or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a verb may take.
const VERB_PATIENCE: Duration = Duration::from_secs(3600);
/// The deployment of [`ScratchDirector::manifest_of_many`].
pub(crate) const MANY: &str = "many";
/// A file system in memory, where there is one.
const MEMORY: &str = "/dev/shm";
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Agents of many instances have addresses of their own in it.
const NETWORK: &str = "127.64.0.0/16";
const GATEWAY: &str = "127.64.0.1";
/// The same for containers.
const CONTAINERS: (&str, &str) = ("10.84.0.0/16", "10.84.0.1");
/// How long a director that has nothing to do is left alone before its memory is read.
const IDLE: Duration = Duration::from_secs(2);
/// What Linux counts processor time in.
const TICK: Duration = Duration::from_millis(10);

/// The director. Dropped, it leaves no process and no file behind.
#[derive(Debug)]
pub(crate) struct ScratchDirector {
    folder: tempfile::TempDir,
    cloud: tempfile::TempDir,
    /// How VMs of the embedded cloud are kept apart, where that is its cloud.
    embedded: Option<Isolation>,
    windlass: PathBuf,
    child: Option<Child>,
}

impl ScratchDirector {
    /// A director that does not run yet; `sim` is what its cloud is like.
    pub(crate) fn new(sim: &Value) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        // Other clouds do not write to the director's disk either.
        let cloud = tempfile::tempdir_in(MEMORY).or_else(|_| tempfile::tempdir())?;
        let director = Self { folder, cloud, embedded: None, windlass: std::env::current_exe()?, child: None };
        fs::write(director.file("cpi.json"), director.cpi_config(sim).to_string())?;
        Ok(director)
    }

    /// A director with the embedded cloud of this machine, that does not run yet.
    pub(crate) fn embedded(isolation: Isolation) -> io::Result<Self> {
        let (folder, cloud) = (tempfile::tempdir()?, tempfile::tempdir()?);
        Ok(Self { folder, cloud, embedded: Some(isolation), windlass: std::env::current_exe()?, child: None })
    }

    /// Another program than this one.
    pub(crate) fn use_program(&mut self, windlass: &Path) -> io::Result<()> {
        self.windlass = windlass.canonicalize()?;
        Ok(())
    }

    fn cpi_config(&self, sim: &Value) -> Value {
        let mut sim = sim.clone();
        sim["state_dir"] = json!(self.cloud());
        json!({"cloud": {"plugin": "sim", "properties": {"sim": sim}}})
    }

    /// A file beside the state directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file beside the state directory, and gives its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<String> {
        let path = self.file(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.file("state")
    }

    /// Where the cloud keeps everything.
    pub(crate) fn cloud(&self) -> PathBuf {
        self.cloud.path().join("cloud")
    }

    /// Makes the cloud another one from the next call on.
    pub(crate) fn change_cloud(&self, sim: &Value) -> io::Result<()> {
        let path = self.state_dir().join("cpi/sim.json");
        windlass_durable::file::write_json(&path, &self.cpi_config(sim), windlass_durable::file::PRIVATE)
    }

    /// What there really is in the cloud, whatever the director believes.
    pub(crate) fn inventory(&self) -> io::Result<Inventory> {
        windlass_cloud_sim::status(Some(&self.file("cpi.json"))).map_err(io::Error::other)
    }

    /// The director's process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Starts the director, to be killed at that point of its work, and waits until it answers or is dead.
    pub(crate) async fn start(&mut self, kill_at: Option<u64>) -> io::Result<()> {
        let env_sh = self.state_dir().join("env.sh");
        windlass_durable::file::remove_file(&env_sh)?;
        let log = fs::OpenOptions::new().create(true).append(true).open(self.file("director.log"))?;
        let mut command = Command::new(&self.windlass);
        command.arg("--state-dir").arg(self.state_dir()).args(["director", "--listen", "127.0.0.1:0"]);
        match self.embedded {
            Some(isolation) => command.args(["--isolation", &isolation.to_string()]),
            None => command.args(["--cpi", "sim", "--cpi-config"]).arg(self.file("cpi.json")),
        };
        // What a measurement sets beyond the flags.
        let settings = self.file("director.yml");
        if settings.exists() {
            command.arg("--config").arg(settings);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        command.envs(kill_at.map(|point| (KILL_AT, point.to_string())));
        self.child = Some(command.spawn()?);
        let deadline = Instant::now() + PATIENCE;
        while !env_sh.exists() && self.runs()? {
            if Instant::now() > deadline {
                return Err(self.failed("the director does not start"));
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Whether the director has not ended.
    pub(crate) fn runs(&mut self) -> io::Result<bool> {
        match &mut self.child {
            Some(child) => Ok(child.try_wait()?.is_none()),
            None => Ok(false),
        }
    }

    /// Ends the director as a power cut would.
    pub(crate) async fn kill(&mut self) -> io::Result<()> {
        match self.child.take() {
            Some(mut child) => child.kill().await,
            None => Ok(()),
        }
    }

    fn failed(&self, what: &str) -> io::Error {
        let log = fs::read_to_string(self.file("director.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(15)..].join("\n");
        io::Error::other(format!("{what}; the director's log ends with:\n{tail}"))
    }

    fn verb(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.windlass);
        for name in ["BOSH_ENVIRONMENT", "BOSH_CA_CERT", "BOSH_CLIENT", "BOSH_CLIENT_SECRET", "BOSH_DEPLOYMENT"] {
            command.env_remove(name);
        }
        command.arg("--state-dir").arg(self.state_dir()).arg("-n").args(arguments).stdin(Stdio::null());
        command.kill_on_drop(true);
        command
    }

    /// Runs a verb, however it ends.
    pub(crate) async fn attempt(&self, arguments: &[&str]) -> io::Result<Output> {
        let ended = tokio::time::timeout(VERB_PATIENCE, self.verb(arguments).output()).await;
        ended.map_err(|_| self.failed(&format!("{arguments:?} does not end")))?
    }

    /// Runs a verb that must succeed, and gives what it printed.
    pub(crate) async fn ok(&self, arguments: &[&str]) -> io::Result<String> {
        let output = self.attempt(arguments).await?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if !output.status.success() {
            let (stdout, stderr) = (said(&output.stdout), said(&output.stderr));
            return Err(self.failed(&format!("{arguments:?} failed: {stdout}{stderr}")));
        }
        Ok(said(&output.stdout))
    }

    /// Runs a verb until it ends or the director does. True if the verb succeeded.
    pub(crate) async fn ok_while_alive(&mut self, arguments: &[&str]) -> io::Result<bool> {
        let mut verb = self.verb(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = verb.try_wait()? {
                return Ok(status.success());
            }
            if !self.runs()? {
                verb.kill().await?;
                return Ok(false);
            }
            if Instant::now() > deadline {
                return Err(self.failed(&format!("{arguments:?} does not end")));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until all tasks have ended, also those that go on after a kill.
    pub(crate) async fn until_idle(&self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.rows(&["tasks"]).await?.is_empty() {
            if Instant::now() > deadline {
                return Err(self.failed("a task does not end"));
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// The rows of a verb that lists things.
    pub(crate) async fn rows(&self, arguments: &[&str]) -> io::Result<Vec<Value>> {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        let printed: Value = serde_json::from_str(&self.ok(&arguments).await?)?;
        let rows = printed.pointer("/Tables/0/Rows").and_then(Value::as_array);
        rows.cloned().ok_or_else(|| io::Error::other(format!("{arguments:?} printed no table")))
    }

    /// The way to its API, and who makes requests for it.
    pub(crate) fn under_load(&self) -> io::Result<(Load, Requests)> {
        let unusable = || io::Error::other("the director's env.sh says too little");
        let environment = environment::in_state_dir(&self.state_dir()).map_err(io::Error::other)?;
        let address = environment.url.strip_prefix("https://").and_then(|address| address.parse().ok());
        let address = address.ok_or_else(unusable)?;
        let (user, password) = environment.client.zip(environment.client_secret).ok_or_else(unusable)?;
        let load = Load::over_tls(address, &environment.ca.ok_or_else(unusable)?)?;
        Ok((load, Requests::new(address, &user, password.reveal())))
    }

    /// Memory of the director, by its name in `/proc/PID/status`.
    pub(crate) fn memory_kib(&self, what: &str) -> io::Result<u64> {
        let pid = self.pid().ok_or_else(|| self.failed("the director has ended"))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(what));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.ok_or_else(|| io::Error::other(format!("/proc/{pid}/status has no {what}")))
    }

    /// From now on `VmHWM` is the most that it has from now on.
    pub(crate) fn forget_peak(&self) -> io::Result<()> {
        let pid = self.pid().ok_or_else(|| self.failed("the director has ended"))?;
        fs::write(format!("/proc/{pid}/clear_refs"), "5")
    }

    /// Processor time that the director has used, without its CPIs.
    pub(crate) fn processor_time(&self) -> io::Result<Duration> {
        let pid = self.pid().ok_or_else(|| self.failed("the director has ended"))?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // Fields 14 and 15; the name before them may contain blanks and brackets.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(TICK * u32::try_from(ticks).unwrap_or(u32::MAX))
    }

    /// Memory of a director that has nothing to do.
    pub(crate) async fn idle_memory_kib(&self) -> io::Result<u64> {
        sleep(IDLE).await;
        self.memory_kib("VmRSS:")
    }

    /// Prepares a cloud for [`Self::manifest_of_many`].
    pub(crate) async fn prepare_for_many(&self) -> io::Result<()> {
        let (network, gateway) = match self.embedded {
            Some(Isolation::Container) => CONTAINERS,
            _ => (NETWORK, GATEWAY),
        };
        self.prepare(&format!(
            "azs: [{{name: z1}}]\nvm_types: [{{name: small}}]\ndisk_types: [{{name: disk, disk_size: 64}}]\n\
             networks: [{{name: default, subnets: [{{range: {network}, gateway: {gateway}, azs: [z1]}}]}}]\n"
        ))
        .await
    }

    /// A file with the manifest of [`MANY`] instances, so many of them at a time; `more` is what else is said of
    /// their group. Whether jobs run is asked at once: the waiting times of a manifest would be measured otherwise.
    pub(crate) fn manifest_of_many(&self, instances: usize, at_once: usize, more: &str) -> io::Result<String> {
        let releases = if more.contains("release: ") { "releases: [{name: bench, version: '1'}]\n" } else { "" };
        let text = format!(
            "name: {MANY}\n{releases}stemcells: [{{alias: default, os: windlass-minimal, version: latest}}]\n\
             update: {{canaries: 1, max_in_flight: {at_once}, canary_watch_time: 1-30000, update_watch_time: 1-30000}}\n\
             instance_groups:\n- {{name: node, instances: {instances}, azs: [z1], vm_type: small, stemcell: default, \
             {more}networks: [{{name: default}}]}}\n"
        );
        self.write("manifest.yml", &text)
    }

    /// Uploads a stemcell, without an image where that is all that the simulated cloud needs, and a cloud config.
    pub(crate) async fn prepare(&self, cloud_config: &str) -> io::Result<()> {
        let path = |name: &str| self.file(name).display().to_string();
        let (built, empty) = (path("built.tgz"), path("stemcell.tgz"));
        self.ok(&["stemcell", "build", "--output", &built]).await?;
        if self.embedded.is_none() {
            self.ok(&["stemcell", "repack", "--empty-image", &built, &empty]).await?;
        }
        self.ok(&["upload-stemcell", if self.embedded.is_some() { &built } else { &empty }]).await?;
        let cloud_config = self.write("cloud-config.yml", cloud_config)?;
        self.ok(&["update-cloud-config", &cloud_config]).await.map(drop)
    }
}

impl Drop for ScratchDirector {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.start_kill();
        }
        end_host(&self.cloud());
    }
}

/// Ends the process that hosts the agents.
fn end_host(cloud: &Path) {
    let process = fs::read(cloud.join("host.json")).ok();
    let process: Option<ProcessIdentity> = process.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if let Some(process) = process {
        let _ = process.signal(Signal::KILL);
    }
}
