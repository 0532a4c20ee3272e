//! A director with a simulated cloud for a test, in a network that nobody else uses.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_database::sqlx::{self, Connection};

pub(crate) const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");
/// Far more than any step takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A director with its state directory. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Site {
    folder: tempfile::TempDir,
    director: Option<Child>,
    /// `127.a.b`.
    pub(crate) prefix: String,
    _claim: UnixListener,
}

/// A group of one manifest.
pub(crate) const GROUP: &str = "{name: db, instances: 1, azs: [z1], vm_type: small, stemcell: default, \
     networks: [{name: default}], persistent_disk_type: disk}";

impl Site {
    /// A director whose cloud is as `properties` of `cpi.json` say, with what its `director.yml` says.
    pub(crate) fn start(properties: Value, settings: &str) -> Self {
        Self::start_in(properties, settings, |_| {})
    }

    /// The same with a state directory that is prepared before anything is in it.
    pub(crate) fn start_in(properties: Value, settings: &str, prepare: impl FnOnce(&Path)) -> Self {
        let (prefix, claim) = claim();
        let mut site = Self { folder: tempfile::tempdir().unwrap(), director: None, prefix, _claim: claim };
        fs::create_dir(site.state_dir()).unwrap();
        prepare(&site.state_dir());
        fs::write(site.state_dir().join("director.yml"), settings).unwrap();
        site.change_cpi(&site.file("cpi.json"), properties);
        site.start_director();
        site
    }

    /// A site whose stemcell and cloud config are uploaded.
    pub(crate) fn ready(properties: Value) -> Self {
        let site = Self::start(properties, "{}\n");
        site.upload_stemcell("2");
        site.update_cloud_config("{}", "{}");
        site
    }

    /// Ends the director as a power cut would.
    pub(crate) fn kill_director(&mut self) {
        if let Some(mut director) = self.director.take() {
            let _ = director.kill();
            let _ = director.wait();
        }
    }

    /// Ends the director as a power cut would, and starts it again.
    pub(crate) fn restart_director(&mut self) {
        self.kill_director();
        // One that was killed while it started has written none.
        let _ = fs::remove_file(self.state_dir().join("env.sh"));
        self.start_director();
    }

    /// Has the tasks of a director that was killed end at its next start instead of going on, as those do that kill it each time.
    pub(crate) fn give_up_killed_tasks(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            sqlx::any::install_default_drivers();
            let url = format!("sqlite:{}", self.state_dir().join("director.db").display());
            let mut database = sqlx::AnyConnection::connect(&url).await.unwrap();
            let update = sqlx::query("UPDATE tasks SET tries = 3 WHERE state = 'processing'");
            assert_eq!(update.execute(&mut database).await.unwrap().rows_affected(), 1);
            database.close().await.unwrap();
        });
    }

    fn start_director(&mut self) {
        self.spawn_director("127.0.0.1:0");
        let deadline = Instant::now() + PATIENCE;
        while !self.state_dir().join("env.sh").exists() {
            assert!(Instant::now() < deadline, "the director does not start:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the director, and waits for nothing.
    pub(crate) fn spawn_director(&mut self, listen: &str) {
        self.spawn_director_with(listen, &[]);
    }

    /// Ends the director as a power cut would, and starts it again, to be killed at the given point of its work.
    pub(crate) fn restart_director_to_be_killed(&mut self, point: u64) {
        self.kill_director();
        let env_sh = self.state_dir().join("env.sh");
        let _ = fs::remove_file(&env_sh);
        self.spawn_director_with("127.0.0.1:0", &[("WINDLASS_KILL_AT", point.to_string())]);
        let deadline = Instant::now() + PATIENCE;
        while !env_sh.exists() && self.director_runs() {
            assert!(Instant::now() < deadline, "the director does not start:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The director's process.
    pub(crate) fn director_pid(&self) -> u32 {
        self.director.as_ref().map(Child::id).unwrap()
    }

    /// Whether the director has not ended.
    pub(crate) fn director_runs(&mut self) -> bool {
        self.director.as_mut().is_some_and(|director| director.try_wait().unwrap().is_none())
    }

    /// Runs a verb until it ends or the director does.
    pub(crate) fn while_director_runs(&mut self, arguments: &[&str]) {
        let mut verb = self.verb(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while verb.try_wait().unwrap().is_none() {
            if !self.director_runs() {
                let _ = verb.kill();
                let _ = verb.wait();
                return;
            }
            assert!(Instant::now() < deadline, "{arguments:?} does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn spawn_director_with(&mut self, listen: &str, environment: &[(&str, String)]) {
        let log = fs::File::create(self.file("director.log")).unwrap();
        let mut command = Command::new(WINDLASS);
        command.arg("director").arg("--state-dir").arg(self.state_dir()).args(["--listen", listen, "--cpi", "sim"]);
        command.arg("--cpi-config").arg(self.file("cpi.json"));
        command.env("RUST_LOG", "info,windlass_cpi_client=debug");
        command.envs(environment.iter().map(|(name, value)| (*name, value)));
        self.director =
            Some(command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    }

    fn change_cpi(&self, path: &Path, mut properties: Value) {
        properties["sim"]["state_dir"] = json!(self.cloud());
        fs::write(path, json!({"cloud": {"plugin": "sim", "properties": properties}}).to_string()).unwrap();
    }

    /// Makes the cloud another one from the next call on; calls are counted from 1 again.
    pub(crate) fn change_cloud(&self, properties: Value) {
        let _ = fs::remove_dir_all(self.cloud().join("calls"));
        self.change_cpi(&self.state_dir().join("cpi/sim.json"), properties);
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.file(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.file("state")
    }

    pub(crate) fn cloud(&self) -> PathBuf {
        self.file("cloud")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("director.log")).unwrap_or_default()
    }

    /// What the CPI was asked, in order.
    pub(crate) fn requests(&self) -> Vec<Value> {
        let log = self.log();
        let requests = log.lines().filter_map(|line| line.split_once("calling the CPI request="));
        requests
            .map(|(_, text)| serde_json::Deserializer::from_str(text).into_iter().next().unwrap().unwrap())
            .collect()
    }

    /// Uploads a stemcell of this version of the contract.
    pub(crate) fn upload_stemcell(&self, api_version: &str) {
        self.upload_tarball(&empty_stemcell_of("windlass-minimal", "windlass-minimal", "1", api_version));
    }

    /// Uploads a stemcell without content, which is all that this cloud needs.
    pub(crate) fn upload_empty_stemcell(&self, name: &str, os: &str, version: &str) {
        self.upload_tarball(&empty_stemcell(name, os, version));
    }

    fn upload_tarball(&self, stemcell: &[u8]) {
        let path = self.file("stemcell.tgz");
        fs::write(&path, stemcell).unwrap();
        self.ok(&["upload-stemcell", path.to_str().unwrap()]);
    }

    /// A cloud config whose two zones have these keys on top of their names.
    pub(crate) fn update_cloud_config(&self, first: &str, second: &str) {
        let prefix = &self.prefix;
        let zone = |name: &str, more: &str| {
            let more = more.trim_matches(['{', '}']);
            format!("{{name: {name}{}{more}}}", if more.is_empty() { "" } else { ", " })
        };
        let path = self.write(
            "cloud-config.yml",
            &format!(
                "azs: [{}, {}]\nvm_types: [{{name: small}}, {{name: large, cloud_properties: {{ram: 2}}}}]\ndisk_types:\n\
                 - {{name: disk, disk_size: 64}}\n- {{name: larger, disk_size: 128}}\n- {{name: largest, disk_size: 256}}\n\
                 - {{name: huge, disk_size: 512}}\nnetworks:\n- name: default\n  subnets:\n\
                 \x20 - {{range: {prefix}.0/24, gateway: {prefix}.1, azs: [z1, z2]}}\n",
                zone("z1", first),
                zone("z2", second),
            ),
        );
        self.ok(&["-n", "update-cloud-config", &path]);
    }

    /// A manifest with these groups.
    pub(crate) fn manifest(&self, groups: &[&str]) -> String {
        let groups: String = groups.iter().map(|group| format!("- {group}\n")).collect();
        self.write(
            "manifest.yml",
            &format!(
                "name: example\nstemcells: [{{alias: default, os: windlass-minimal, version: latest}}]\n\
                 update: {{canaries: 1, max_in_flight: 2, canary_watch_time: 1-30000, update_watch_time: 1-30000}}\n\
                 instance_groups:\n{groups}"
            ),
        )
    }

    /// Deploys these groups, and gives what was printed.
    pub(crate) fn deploy(&self, groups: &[&str]) -> String {
        self.ok(&["-n", "-d", "example", "deploy", &self.manifest(groups)])
    }

    /// Deploys these groups, which must fail, and gives what was said.
    pub(crate) fn deploy_fails(&self, groups: &[&str]) -> String {
        let arguments = ["-n", "-d", "example", "deploy", &self.manifest(groups)];
        let output = self.windlass(&arguments);
        assert!(!output.status.success(), "should fail: {output:?}");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    pub(crate) fn windlass(&self, arguments: &[&str]) -> Output {
        self.verb(arguments).output().unwrap()
    }

    pub(crate) fn verb(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(WINDLASS);
        for name in ["BOSH_ENVIRONMENT", "BOSH_CA_CERT", "BOSH_CLIENT", "BOSH_CLIENT_SECRET", "BOSH_DEPLOYMENT"] {
            command.env_remove(name);
        }
        command.arg("--state-dir").arg(self.state_dir()).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs a verb that must succeed, and gives what it printed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.windlass(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// The rows of a verb that lists things.
    pub(crate) fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        let printed: Value = serde_json::from_str(&self.ok(&arguments)).unwrap();
        printed["Tables"][0]["Rows"].as_array().unwrap().clone()
    }

    /// Cids in the cloud: what really is there, whatever the director believes.
    pub(crate) fn in_cloud(&self, kind: &str) -> Vec<String> {
        in_folder(&self.cloud(), kind)
    }

    /// The one disk that is attached, and its content.
    pub(crate) fn attached_disk(&self) -> (String, Value, PathBuf) {
        let attached: Vec<_> = self
            .in_cloud("disks")
            .into_iter()
            .filter_map(|cid| {
                let folder = self.cloud().join("disks").join(&cid);
                let record: Value = serde_json::from_slice(&fs::read(folder.join("disk.json")).unwrap()).unwrap();
                let vm = record["attached_to"].as_str()?;
                let is_there = self.cloud().join("vms").join(vm).exists();
                is_there.then(|| (cid, record.clone(), folder.join("content")))
            })
            .collect();
        assert_eq!(attached.len(), 1, "{attached:?}");
        attached.into_iter().next().unwrap()
    }

    /// Where the VM has its persistent disk.
    pub(crate) fn store(&self, vm: &str) -> PathBuf {
        self.cloud().join("vms").join(vm).join("base/store")
    }
}

/// The tarball of a stemcell without content.
pub(crate) fn empty_stemcell(name: &str, os: &str, version: &str) -> Vec<u8> {
    empty_stemcell_of(name, os, version, "2")
}

fn empty_stemcell_of(name: &str, os: &str, version: &str, api_version: &str) -> Vec<u8> {
    let image = crate::software::release::archive(&[]);
    let manifest = format!(
        "name: {name}\nversion: '{version}'\noperating_system: {os}\napi_version: {api_version}\nsha1: sha256:{}\n\
         stemcell_formats: [warden-tar]\ncloud_properties: {{}}\n",
        crate::software::release::digest(&image)
    );
    crate::software::release::archive(&[("stemcell.MF", manifest.as_bytes()), ("image", &image)])
}

/// Cids in the folder of a cloud.
pub(crate) fn in_folder(cloud: &Path, kind: &str) -> Vec<String> {
    let entries = fs::read_dir(cloud.join(kind)).into_iter().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

/// Ends the process that hosts the agents of a cloud.
pub(crate) fn end_host(cloud: &Path) {
    let process = fs::read(cloud.join("host.json")).ok();
    let process: Option<Value> = process.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    if let Some(pid) = process.and_then(|process| process["pid"].as_u64()) {
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    }
}

pub(crate) fn claim() -> (String, UnixListener) {
    for second in 100..=250 {
        for third in 0..=255 {
            let prefix = format!("127.{second}.{third}");
            let address = SocketAddr::from_abstract_name(format!("windlass-test-network-{prefix}")).unwrap();
            if let Ok(claim) = UnixListener::bind_addr(&address) {
                return (prefix, claim);
            }
        }
    }
    panic!("no free loopback network");
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill_director();
        end_host(&self.cloud());
    }
}
