//! A real LXD daemon on the machine of a test's own ([`crate::own_machine`]): its network, its mounts and its processes end with
//! the test. What would remain are control groups without processes; they are removed at the end, also after a failure.

pub mod cluster;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The storage pool.
pub const POOL: &str = "fast";
/// The managed bridge.
pub const BRIDGE: &str = "br-a";
/// The first three numbers of the bridge's addresses.
pub const PREFIX: &str = "10.77.0";

const PATIENCE: Duration = Duration::from_secs(90);

/// A daemon with a pool and a bridge.
#[derive(Debug)]
pub struct Lxd {
    folder: tempfile::TempDir,
    daemon: Option<Child>,
    /// The network namespace that it is in, if that is another one than the test's.
    namespace: Option<String>,
}

/// What is needed, beside root.
const PROGRAMS: [&str; 4] = ["lxd", "mkfs.btrfs", "dnsmasq", "nft"];

/// Why there can be no daemon here; nothing if there can.
pub fn obstacle() -> Option<String> {
    let is_there =
        |name: &&str| ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].iter().any(|bin| Path::new(bin).join(name).exists());
    if let Some(missing) = PROGRAMS.iter().find(|name| !is_there(name)) {
        return Some(format!("{missing} is not installed"));
    }
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !filesystems.contains("btrfs") || !Path::new("/dev/loop-control").exists() {
        return Some("the kernel has no btrfs or no loop devices".to_owned());
    }
    None
}

impl Lxd {
    /// A daemon, on the machine of a test's own; none, with a line that says why, where the machine does not allow it.
    pub fn start(test: &str) -> Option<Self> {
        if let Some(obstacle) = obstacle() {
            eprintln!("{test} needs an LXD daemon and did not run: {obstacle}");
            return None;
        }
        let mut lxd = Self::new(None);
        own_sysfs(lxd.folder.path());
        lxd.start_daemon();
        lxd.ok("POST", "/1.0/storage-pools", &json!({"name": POOL, "driver": "btrfs", "config": {"size": "4GiB"}}));
        let config = json!({"ipv4.address": format!("{PREFIX}.1/24"), "ipv4.nat": "false", "ipv6.address": "none"});
        lxd.ok("POST", "/1.0/networks", &json!({"name": BRIDGE, "type": "bridge", "config": config}));
        Some(lxd)
    }

    fn new(namespace: Option<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Mapped users must get through.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        Self { folder, daemon: None, namespace }
    }

    /// The program, where it shall run.
    fn program(&self) -> Command {
        let Some(namespace) = &self.namespace else { return Command::new("lxd") };
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{namespace}")).args([
            "unshare",
            "--mount",
            "--propagation",
            "slave",
            "sh",
            "-c",
        ]);
        command.args([IN_NAMESPACE, "lxd"]).arg(self.folder.path());
        command
    }

    /// Starts the daemon, which may have been killed.
    pub fn start_daemon(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.folder.path().join("output")).unwrap();
        fs::create_dir_all(self.home()).unwrap();
        fs::set_permissions(self.home(), fs::Permissions::from_mode(0o711)).unwrap();
        let daemon = self
            .program()
            .args(["--group", "root"])
            .env("LXD_DIR", self.home())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.daemon = Some(daemon);
        let deadline = Instant::now() + PATIENCE;
        while self.ask("GET", "/1.0", &Value::Null).is_err() {
            assert!(Instant::now() < deadline, "{}", self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills the daemon; its containers go on.
    pub fn kill_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("lxd")
    }

    /// What the daemon printed.
    pub fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("output")).unwrap_or_default()
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.home().join("unix.socket")
    }

    /// Makes a project as a director needs it, with a name that no other test's has: control groups have it, too.
    pub fn make_project(&self, which: &str) -> String {
        let name = format!("{}{which}", self.mark());
        let features = ["images", "profiles", "storage.volumes"].map(|it| (format!("features.{it}"), json!("true")));
        let mut config: serde_json::Map<String, Value> = features.into_iter().collect();
        config.insert("features.networks".to_owned(), json!("false"));
        self.ok("POST", "/1.0/projects", &json!({"name": name, "config": config}));
        name
    }

    fn mark(&self) -> String {
        let folder = self.folder.path().file_name().unwrap_or_default().to_string_lossy();
        format!("wt{}-", folder.chars().filter(char::is_ascii_alphanumeric).collect::<String>())
    }

    /// Asks the daemon, past every CPI.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> std::io::Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: lxd\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let document = answer.split_once("\r\n\r\n").map_or("", |(_, document)| document);
        Ok(serde_json::from_str(document)?)
    }

    /// As above, and it must succeed at once.
    pub fn ok(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.ask(method, path, body).unwrap();
        assert_ne!(answer["type"], "error", "{method} {path} {body}: {answer}");
        answer["metadata"].clone()
    }

    /// The names of everything that a project has, from the daemon's own lists: instances, images, and volumes with their
    /// snapshots.
    pub fn held(&self, project: &str) -> Vec<String> {
        let lists = [
            "/1.0/instances".to_owned(),
            "/1.0/images".to_owned(),
            format!("/1.0/storage-pools/{POOL}/volumes/custom"),
        ];
        let name = |path: &Value| {
            let path = path.as_str().unwrap_or_default().split('?').next().unwrap_or_default();
            let custom = path.split_once("/custom/").map(|(_, name)| name);
            custom.unwrap_or_else(|| path.rsplit('/').next().unwrap_or_default()).replace("/snapshots/", "/")
        };
        let mut held: Vec<String> = Vec::new();
        for list in lists {
            let found = self.ok("GET", &format!("{list}?project={project}"), &Value::Null);
            held.extend(found.as_array().into_iter().flatten().map(name));
        }
        held
    }

    /// A volume of the project.
    pub fn volume(&self, project: &str, name: &str) -> Value {
        self.ok("GET", &format!("/1.0/storage-pools/{POOL}/volumes/custom/{name}?project={project}"), &Value::Null)
    }

    /// Where a volume's files are.
    pub fn files_of_volume(&self, project: &str, name: &str) -> PathBuf {
        self.home().join("storage-pools").join(POOL).join("custom").join(format!("{project}_{name}"))
    }

    /// Where an instance's files are.
    pub fn files_of_instance(&self, project: &str, name: &str) -> PathBuf {
        self.home().join("storage-pools").join(POOL).join("containers").join(format!("{project}_{name}")).join("rootfs")
    }
}

/// As [`own_sysfs`], in mounts of the daemon's own; then the program with its arguments, in the same process.
const IN_NAMESPACE: &str = "folder=$1; shift; mkdir -p \"$folder/cgroup\" && mount --rbind /sys/fs/cgroup \"$folder/cgroup\" && \
    mount -t sysfs sysfs /sys && mount --rbind \"$folder/cgroup\" /sys/fs/cgroup && exec \"$0\" \"$@\"";

/// Shows the networks of this machine in /sys, and the control groups as they were.
fn own_sysfs(folder: &Path) {
    let script = "mkdir \"$0/cgroup\" && mount --rbind /sys/fs/cgroup \"$0/cgroup\" && mount -t sysfs sysfs /sys && \
        mount --rbind \"$0/cgroup\" /sys/fs/cgroup && umount -l \"$0/cgroup\" && rmdir \"$0/cgroup\"";
    let output = Command::new("sh").args(["-c", script]).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

impl Drop for Lxd {
    fn drop(&mut self) {
        self.kill_daemon();
        // All that is left on this machine are containers, their monitors and the bridge's name server: the test is the
        // first process of its process namespace.
        if rustix::process::getpid().as_raw_nonzero().get() == 1 {
            let _ = Command::new("sh").args(["-c", "kill -KILL -1"]).status();
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while !empty_groups_removed(&self.mark()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        // From the inside out; what is mounted could not be removed with the folder.
        let script = "for place in $(awk -v folder=\"$0\" 'index($2, folder) == 1 {print $2}' /proc/mounts | sort -r); do umount -l \"$place\"; done";
        let _ = Command::new("sh").args(["-c", script]).arg(self.folder.path()).status();
    }
}

/// Removes the control groups of a test's containers; one with processes stays.
fn empty_groups_removed(mark: &str) -> bool {
    let mut gone = true;
    for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        let mut others = false;
        for group in fs::read_dir(hierarchy.path()).into_iter().flatten().flatten() {
            let name = group.file_name().to_string_lossy().into_owned();
            let of_container = name.strip_prefix("lxc.payload.").or_else(|| name.strip_prefix("lxc.monitor."));
            if of_container.is_some_and(|name| name.starts_with(mark)) {
                gone &= remove_group(&group.path());
            } else {
                others |= of_container.is_some();
            }
        }
        // Daemons share it, and make it again.
        if gone && !others {
            remove_group(&hierarchy.path().join("lxc.pivot"));
        }
    }
    gone
}

/// From the inside out: containers make groups of their own.
fn remove_group(group: &Path) -> bool {
    for inner in fs::read_dir(group).into_iter().flatten().flatten() {
        if inner.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_group(&inner.path());
        }
    }
    fs::remove_dir(group).is_ok()
}
