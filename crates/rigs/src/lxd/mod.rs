//! A real LXD daemon on the machine of a test's own ([`crate::own_machine`]): its network, its mounts and its processes end with
//! the test. What would remain are control groups without processes; they are removed at the end, also after a failure.
//!
//! With [`INCUS_ROOT`] set, the same tests have Incus instead, from a system of its own.

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

/// Names a folder with a system that has Incus, such as a Debian 13 made with `debootstrap`: tests have its daemon then.
pub const INCUS_ROOT: &str = "WINDLASS_INCUS_ROOT";

/// Incus, within its system.
const INCUS: &str = "/usr/libexec/incus/incusd";

fn incus_root() -> Option<PathBuf> {
    std::env::var_os(INCUS_ROOT).filter(|root| !root.is_empty()).map(PathBuf::from)
}

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
    let root = incus_root().unwrap_or_else(|| "/".into());
    if root != Path::new("/") && !root.join(INCUS.trim_start_matches('/')).exists() {
        return Some(format!("{INCUS_ROOT} is {}, which has no {INCUS}", root.display()));
    }
    let is_there =
        |name: &&str| ["usr/bin", "usr/sbin", "bin", "sbin"].iter().any(|bin| root.join(bin).join(name).exists());
    let programs = PROGRAMS.iter().filter(|name| root == Path::new("/") || **name != "lxd");
    if let Some(missing) = programs.into_iter().find(|name| !is_there(name)) {
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

    /// The program, and where it runs.
    fn program(&self) -> Command {
        let root = incus_root();
        if self.namespace.is_none() && root.is_none() {
            return Command::new("lxd");
        }
        let mut words: Vec<String> = Vec::new();
        if let Some(namespace) = &self.namespace {
            words.extend(["nsenter".to_owned(), format!("--net=/run/netns/{namespace}")]);
        }
        words.extend(["unshare", "--mount", "--propagation", "slave", "sh", "-c"].map(str::to_owned));
        let folder = self.folder.path().display().to_string();
        match root {
            None => words.extend([IN_NAMESPACE.to_owned(), "lxd".to_owned(), folder]),
            Some(root) => {
                words.extend([IN_ROOT.to_owned(), INCUS.to_owned(), folder, root.display().to_string()]);
            }
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// The daemon's files as this process sees them: those that it mounted are in its own mounts.
    fn home_seen(&self) -> PathBuf {
        match &self.daemon {
            Some(daemon) if self.namespace.is_some() || incus_root().is_some() => {
                let home = self.home();
                Path::new("/proc").join(daemon.id().to_string()).join("root").join(home.strip_prefix("/").unwrap())
            }
            _ => self.home(),
        }
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
            .env("INCUS_DIR", self.home())
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
        let pools = self.ok("GET", "/1.0/storage-pools", &Value::Null);
        let pools = pools.as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut lists = vec!["/1.0/instances".to_owned(), "/1.0/images".to_owned()];
        lists.extend(pools.map(|pool| format!("{pool}/volumes/custom")));
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
        if self.has_extension("storage_volume_full") {
            held.extend(self.snapshots(project));
        }
        held
    }

    /// The snapshots of the pool that lists of newer servers leave out.
    fn snapshots(&self, project: &str) -> Vec<String> {
        let path = format!("/1.0/storage-pools/{POOL}/volumes/custom?project={project}&recursion=2");
        let listed = self.ok("GET", &path, &Value::Null);
        let of_volume = |volume: &Value| -> Vec<String> {
            let snapshots = volume["snapshots"].as_array().cloned().unwrap_or_default();
            let text = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
            snapshots.iter().map(|snapshot| format!("{}/{}", text(volume), text(snapshot))).collect()
        };
        listed.as_array().into_iter().flatten().flat_map(of_volume).collect()
    }

    /// A volume of the project.
    pub fn volume(&self, project: &str, name: &str) -> Value {
        self.ok("GET", &format!("/1.0/storage-pools/{POOL}/volumes/custom/{name}?project={project}"), &Value::Null)
    }

    /// Where a volume's files are.
    pub fn files_of_volume(&self, project: &str, name: &str) -> PathBuf {
        self.files_in_pool(POOL, project, name)
    }

    /// As above, in another pool.
    pub fn files_in_pool(&self, pool: &str, project: &str, name: &str) -> PathBuf {
        self.home_seen().join("storage-pools").join(pool).join("custom").join(format!("{project}_{name}"))
    }

    fn has_extension(&self, name: &str) -> bool {
        let root = self.ok("GET", "/1.0", &Value::Null);
        root["api_extensions"].as_array().into_iter().flatten().any(|extension| extension == name)
    }

    /// Where an instance's files are.
    pub fn files_of_instance(&self, project: &str, name: &str) -> PathBuf {
        let containers = self.home_seen().join("storage-pools").join(POOL).join("containers");
        containers.join(format!("{project}_{name}")).join("rootfs")
    }
}

/// As [`own_sysfs`], in mounts of the daemon's own; then the program with its arguments, in the same process.
const IN_NAMESPACE: &str = "folder=$1; shift; mkdir -p \"$folder/cgroup\" && mount --rbind /sys/fs/cgroup \"$folder/cgroup\" && \
    mount -t sysfs sysfs /sys && mount --rbind \"$folder/cgroup\" /sys/fs/cgroup && exec \"$0\" \"$@\"";

/// The program of another system, with the folder at the place that it has here. The system itself is not changed.
const IN_ROOT: &str = "folder=$1; root=$2; shift 2; mount --bind \"$root\" \"$root\" && cd \"$root\" && \
    mount --rbind /dev dev && mount -t proc proc proc && mount -t sysfs sysfs sys && \
    mount --rbind /sys/fs/cgroup sys/fs/cgroup && \
    for place in run tmp var/log var/cache var/lib/incus mnt; do mount -t tmpfs -o mode=0755 tmpfs \"$place\" || exit 1; done && \
    mkdir -p \".$folder\" var/log/incus var/cache/incus mnt/old && mount --rbind \"$folder\" \".$folder\" && \
    pivot_root . mnt/old && cd / && umount -l /mnt/old && exec \"$0\" \"$@\"";

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
