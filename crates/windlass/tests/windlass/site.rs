//! A machine of its own for a test: a state directory, a director, a network that nobody else uses.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use windlass_rigs::vm_root;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");
/// Far more than any step takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The agent for stemcells: the small program of its own, or the large one that is everything where only that is built.
pub(crate) fn agent() -> String {
    let small = Path::new(WINDLASS).with_file_name("windlass-agent");
    if small.is_file() { small.display().to_string() } else { WINDLASS.to_owned() }
}

/// A director with its state directory. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Site {
    folder: tempfile::TempDir,
    director: Option<Child>,
    /// Another database than the embedded one.
    db: Option<String>,
    network: Network,
}

/// A /24 of the loopback network, claimed for as long as this lives.
#[derive(Debug)]
pub(crate) struct Network {
    /// The first three numbers of its addresses.
    pub(crate) prefix: String,
    _claim: UnixListener,
}

impl Network {
    pub(crate) fn claim() -> Self {
        for second in 100..=250 {
            for third in 0..=255 {
                let prefix = format!("127.{second}.{third}");
                let name = format!("windlass-test-network-{prefix}");
                let address = SocketAddr::from_abstract_name(name).unwrap();
                if let Ok(claim) = UnixListener::bind_addr(&address) {
                    return Self { prefix, _claim: claim };
                }
            }
        }
        panic!("no free loopback network");
    }
}

impl Site {
    /// A site whose director runs.
    pub(crate) fn start() -> Self {
        Self::start_with_database(None)
    }

    /// A site whose director has settings.
    pub(crate) fn start_with_settings(settings: &str) -> Self {
        Self::start_with(None, Some(settings))
    }

    /// A site whose director has settings, and whose stemcell and cloud config are uploaded.
    pub(crate) fn ready_with_settings(settings: &str) -> Self {
        Self::start_with(None, Some(&format!("isolation: process\n{settings}"))).with_stemcell()
    }

    /// The same with containers, for a test on a machine of its own.
    pub(crate) fn ready_with_containers(settings: &str) -> Self {
        let network = Network { prefix: "10.93.8".to_owned(), ..Network::claim() };
        Self::start_in(network, None, Some(&format!("isolation: container\n{settings}"))).with_stemcell()
    }

    /// The same in processes, whose VMs see the programs of this machine.
    pub(crate) fn ready_with_own_programs(settings: &str) -> Self {
        let site = Self::start_with(None, Some(&format!("isolation: process\n{settings}")));
        site.with_stemcell_of(&["--userland", "host"])
    }

    /// The same with somebody else's agent in a system of its own.
    pub(crate) fn ready_with_containers_of(system: &str, agent: &str, settings: &str) -> Self {
        let network = Network { prefix: "10.93.8".to_owned(), ..Network::claim() };
        let site = Self::start_in(network, None, Some(&format!("isolation: container\n{settings}")));
        site.with_stemcell_of(&["--rootfs", system, "--agent", agent, "--os", "windlass-minimal"])
    }

    /// The same with our agent in a system of its own.
    pub(crate) fn ready_with_containers_from(system: &str, settings: &str) -> Self {
        let network = Network { prefix: "10.93.8".to_owned(), ..Network::claim() };
        let site = Self::start_in(network, None, Some(&format!("isolation: container\n{settings}")));
        site.with_stemcell_of(&["--rootfs", system, "--os", "windlass-minimal"])
    }

    /// A director whose VMs are in a network of its CPI's, where this machine has the first address.
    pub(crate) fn ready_in_network(prefix: &str, settings: &str) -> Self {
        let network = Network { prefix: prefix.to_owned(), ..Network::claim() };
        Self::start_in(network, None, Some(settings)).with_stemcell()
    }

    /// The same with somebody else's agent in a system of its own.
    pub(crate) fn ready_in_network_of(prefix: &str, system: &str, agent: &str, settings: &str) -> Self {
        let network = Network { prefix: prefix.to_owned(), ..Network::claim() };
        let site = Self::start_in(network, None, Some(settings));
        site.with_stemcell_of(&["--rootfs", system, "--agent", agent, "--os", "windlass-minimal"])
    }

    /// A second director with the same settings, on another machine as far as it can tell. It stands by.
    pub(crate) fn standby(&self) -> Self {
        let network = Network { prefix: self.network.prefix.clone(), ..Network::claim() };
        let mut site = Self { folder: tempfile::tempdir().unwrap(), director: None, db: None, network };
        fs::create_dir(site.state_dir()).unwrap();
        fs::copy(self.state_dir().join("director.yml"), site.state_dir().join("director.yml")).unwrap();
        let machine = "hostname another-machine && exec \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c", machine]);
        command.arg(WINDLASS);
        site.spawn_director(command);
        site.wait_until("standing by", |site| site.director_log().contains("this one stands by"));
        site
    }

    /// Whether the director leads.
    pub(crate) fn leads(&self) -> bool {
        self.state_dir().join("env.sh").exists()
    }

    fn start_with_database(db: Option<String>) -> Self {
        Self::start_with(db, None)
    }

    fn start_with(db: Option<String>, settings: Option<&str>) -> Self {
        Self::start_in(Network::claim(), db, settings)
    }

    fn start_in(network: Network, db: Option<String>, settings: Option<&str>) -> Self {
        let mut site = Self { folder: tempfile::tempdir().unwrap(), director: None, db, network };
        if let Some(settings) = settings {
            fs::create_dir(site.state_dir()).unwrap();
            fs::write(site.state_dir().join("director.yml"), settings).unwrap();
        }
        site.write_documents(1);
        site.start_director(None);
        site
    }

    /// A site whose stemcell and cloud config are uploaded.
    pub(crate) fn ready_to_deploy() -> Self {
        Self::ready_to_deploy_with_database(None)
    }

    pub(crate) fn ready_to_deploy_with_database(db: Option<String>) -> Self {
        Self::start_with_database(db).with_stemcell()
    }

    fn with_stemcell(self) -> Self {
        self.with_stemcell_of(&[])
    }

    fn with_stemcell_of(self, what: &[&str]) -> Self {
        let stemcell = self.file("stemcell.tgz");
        let stemcell = stemcell.to_str().unwrap();
        self.ok(&[&["stemcell", "build", "--output", stemcell], what].concat());
        self.ok(&["upload-stemcell", stemcell]);
        self.ok(&["-n", "update-cloud-config", self.file("cloud-config.yml").to_str().unwrap()]);
        self
    }

    /// A file or folder beside the state directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.file("state")
    }

    /// Writes a manifest with so many instances.
    pub(crate) fn write_documents(&self, instances: usize) {
        let prefix = &self.network.prefix;
        let cloud_config = format!(
            "azs: [{{name: z1}}]\nvm_types: [{{name: small}}]\ndisk_types: [{{name: disk, disk_size: 64}}]\nnetworks:\n\
             - name: default\n  subnets: [{{range: {prefix}.0/24, gateway: {prefix}.1, azs: [z1]}}]\n"
        );
        let manifest = format!(
            "name: example\nstemcells: [{{alias: default, os: windlass-minimal, version: latest}}]\n\
             update: {{canaries: 1, max_in_flight: 2, canary_watch_time: 1-30000, update_watch_time: 1-30000}}\n\
             instance_groups:\n- name: db\n  instances: {instances}\n  azs: [z1]\n  vm_type: small\n  stemcell: default\n  \
             persistent_disk_type: disk\n  networks: [{{name: default}}]\n"
        );
        fs::write(self.file("cloud-config.yml"), cloud_config).unwrap();
        fs::write(self.file("manifest.yml"), manifest).unwrap();
    }

    /// Starts the director, to be killed at the given point of its work, and waits until it answers.
    pub(crate) fn start_director(&mut self, kill_at: Option<u64>) {
        let _ = fs::remove_file(self.state_dir().join("env.sh"));
        let mut command = Command::new(WINDLASS);
        if let Some(point) = kill_at {
            command.env("WINDLASS_KILL_AT", point.to_string());
        }
        self.spawn_director(command);
        let deadline = Instant::now() + PATIENCE;
        while !self.leads() && self.director_runs() {
            assert!(Instant::now() < deadline, "the director does not start:\n{}", self.director_log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn spawn_director(&mut self, mut command: Command) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.file("director.log")).unwrap();
        command.arg("director").arg("--state-dir").arg(self.state_dir()).args(["--listen", "127.0.0.1:0"]);
        // The networks of these tests are of the loopback interface, which only processes share with the machine.
        // Flags win over settings, which some tests have.
        if !self.state_dir().join("director.yml").exists() {
            command.args(["--isolation", "process"]);
        }
        command.env("RUST_LOG", "info,windlass_cpi_client=debug,windlass_agent_client=debug");
        command.args(self.db.iter().flat_map(|url| ["--db", url]));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.director = Some(command.spawn().unwrap());
    }

    /// Whether the director has not ended.
    pub(crate) fn director_runs(&mut self) -> bool {
        self.director.as_mut().is_some_and(|director| director.try_wait().unwrap().is_none())
    }

    pub(crate) fn director_pid(&self) -> u32 {
        self.director.as_ref().expect("no director runs").id()
    }

    /// Asks the director to stop.
    pub(crate) fn terminate_director(&self) {
        if let Some(director) = &self.director {
            let _ = Command::new("kill").args(["-TERM", &director.id().to_string()]).status();
        }
    }

    /// Ends the director as a power cut would.
    pub(crate) fn kill_director(&mut self) {
        if let Some(mut director) = self.director.take() {
            let _ = director.kill();
            let _ = director.wait();
        }
    }

    /// Has the director crash.
    pub(crate) fn abort_director(&mut self) -> std::process::ExitStatus {
        let mut director = self.director.take().expect("no director runs");
        let _ = Command::new("kill").args(["-ABRT", &director.id().to_string()]).status();
        director.wait().unwrap()
    }

    /// After a start: waits until the task that the director was killed in is done. False if it was killed in none.
    pub(crate) fn sees_killed_task_go_on(&mut self) -> bool {
        self.wait_until("the end of the tasks that go on", |site| site.rows(&["tasks"]).is_empty());
        let tasks = self.rows(&["tasks", "--recent=1", "--all"]);
        let Some(task) = tasks.first() else { return false };
        let events = self.ok(&["task", task["id"].as_str().unwrap(), "--event"]);
        let went_on = events.contains("it goes on");
        assert!(!went_on || task["state"] == "done", "{task}\n{events}\n{}", self.director_log());
        went_on
    }

    /// Waits until something is true.
    pub(crate) fn wait_until(&mut self, what: &str, mut is_true: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_true(self) {
            assert!(Instant::now() < deadline, "{what} does not happen:\n{}", self.director_log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn director_log(&self) -> String {
        fs::read_to_string(self.file("director.log")).unwrap_or_default()
    }

    /// Runs a verb against this director until it ends or the director does. True if the verb succeeded.
    pub(crate) fn try_while_director_runs(&mut self, arguments: &[&str]) -> bool {
        let mut verb = self.verb(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = verb.try_wait().unwrap() {
                return status.success();
            }
            if !self.director_runs() {
                let _ = verb.kill();
                let _ = verb.wait();
                return false;
            }
            assert!(Instant::now() < deadline, "{arguments:?} does not end:\n{}", self.director_log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs a verb against this director.
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
        assert!(output.status.success(), "{arguments:?}: {output:?}\n{}", self.director_log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a verb that must fail, and gives what it said.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let output = self.windlass(arguments);
        assert!(!output.status.success(), "{arguments:?} should fail: {output:?}");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    pub(crate) fn manifest(&self) -> String {
        self.file("manifest.yml").to_str().unwrap().to_owned()
    }

    pub(crate) fn deploy(&self) -> String {
        self.ok(&["-n", "-d", "example", "deploy", &self.manifest()])
    }

    /// The rows of a verb that lists things.
    pub(crate) fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        let printed: Value = serde_json::from_str(&self.ok(&arguments)).unwrap();
        printed["Tables"][0]["Rows"].as_array().unwrap().clone()
    }

    /// Names in a folder of the cloud's state: what really is there, whatever the director believes.
    pub(crate) fn in_cloud(&self, kind: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.state_dir().join("cloud").join(kind))
            .map(|entries| entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
            .unwrap_or_default();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }

    /// The document that the VM's agent booted from.
    pub(crate) fn settings(&self, vm: &str) -> Value {
        let path = self.state_dir().join("cloud/vms").join(vm).join("settings.json");
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    /// Where the VM has its persistent disk.
    pub(crate) fn store(&self, vm: &str) -> PathBuf {
        let folder = self.state_dir().join("cloud/vms").join(vm);
        let supervisor = fs::read(folder.join("supervisor.json")).ok();
        let supervisor = supervisor.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        match supervisor.and_then(|supervisor| supervisor["init"]["pid"].as_i64()) {
            Some(pid) => PathBuf::from(format!("/proc/{pid}/root/var/vcap/store")),
            None => folder.join("base/store"),
        }
    }

    /// Writes a file on a VM's persistent disk.
    pub(crate) fn write_to_store(&self, vm: &str, name: &str, content: impl AsRef<[u8]>) {
        vm_root::write(&self.store(vm).join(name), content);
    }

    /// The first three numbers of the addresses that it may use.
    pub(crate) fn prefix(&self) -> &str {
        &self.network.prefix
    }

    /// Pids of all processes that belong to a VM of this site.
    pub(crate) fn vm_processes(&self) -> Vec<i32> {
        let mark = format!("WINDLASS_VM={}", self.state_dir().canonicalize().unwrap().join("cloud").display());
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let belongs = |text: &[u8]| String::from_utf8_lossy(text).contains(&mark);
            let supervises = String::from_utf8_lossy(&arguments).contains("vm-run")
                && String::from_utf8_lossy(&arguments).contains(&*self.state_dir().to_string_lossy());
            belongs(&environment) || supervises
        })
        .collect()
    }

    /// Ends all VMs as a power cut would.
    pub(crate) fn kill_vms(&self) {
        for pid in self.vm_processes() {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill_director();
        self.kill_vms();
    }
}
