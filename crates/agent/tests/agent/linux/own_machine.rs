//! A VM with a root of its own.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, makedev};
use serde_json::{Value, json};
use windlass_contract::{DiskCid, DiskHint};

use super::private::{LoopDisk, run};
use crate::machine::Machine;

pub(super) const MIB: u64 = 1 << 20;

/// The whole root: the machine's programs, read-only, and nothing else of it.
const ROOT: &str = r#"
set -e
if [ -n "$DEVICE" ]; then mount "$DEVICE" "$ROOT"; else mount -t tmpfs -o mode=755 tmpfs "$ROOT"; fi
cd "$ROOT"
mkdir -p usr etc/ssh dev proc sys/devices sys/dev tmp var run home/vcap root opt stubs vm
ln -s usr/bin bin; ln -s usr/sbin sbin; ln -s usr/lib lib; ln -s usr/lib64 lib64
mount --bind /usr usr
mount -o remount,bind,ro usr
mount -t proc proc proc
mount --bind /sys/devices sys/devices
mount --bind /sys/dev sys/dev
mount -o remount,bind,ro sys/devices
mount -o remount,bind,ro sys/dev
mount -t tmpfs -o mode=755 tmpfs dev
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/urandom c 1 9
mkdir dev/shm
touch agent
mount --bind "$AGENT" agent
mount --bind "$FOLDER" vm
for stub in shutdown swapon update-ca-certificates sysctl; do
    printf '#!/bin/sh\necho %s "$@" >> /stubs/log\n' $stub > stubs/$stub
    chmod 755 stubs/$stub
done
printf 'root:x:0:0:root:/root:/bin/bash\nvcap:x:1000:1000::/home/vcap:/bin/bash\n' > etc/passwd
printf 'root:*:19000:0:99999:7:::\nvcap:*:19000:0:99999:7:::\n' > etc/shadow
printf 'root:x:0:\nvcap:x:1000:\nadmin:x:1001:\nbosh_sshers:x:1003:\n' > etc/group
printf 'root:*::\nvcap:!::\nadmin:!::\nbosh_sshers:!::\n' > etc/gshadow
printf 'ssh-rsa HOST\n' > etc/ssh/ssh_host_rsa_key.pub
chmod 600 etc/shadow etc/gshadow
"#;

/// A VM whose root is a folder, with an agent as a stemcell starts it.
pub(super) struct OwnMachine {
    pub(super) machine: Machine,
    /// Not removed with its content, should that be something of the machine: the content is in memory and goes with the mount.
    root: PathBuf,
    devices: Arc<Mutex<BTreeSet<String>>>,
    /// Detached when everything is unmounted.
    disks: Mutex<Vec<Arc<LoopDisk>>>,
    is_over: Arc<AtomicBool>,
    nodes: Option<JoinHandle<()>>,
    /// What is mounted without the agent.
    mounts: usize,
}

impl OwnMachine {
    /// One with these options in `Platform.Linux` of its agent.json.
    pub(super) fn new(options: Value) -> Self {
        Self::with_root_on(None, options)
    }

    /// One whose root is the first partition of a disk.
    pub(super) fn with_root_on(disk: Option<&LoopDisk>, options: Value) -> Self {
        let mut machine = Machine::new();
        let root = tempfile::tempdir().unwrap().keep();
        let status = std::process::Command::new("sh")
            .args(["-c", ROOT])
            .env("ROOT", &root)
            .env("FOLDER", machine.folder.path())
            .env("AGENT", &machine.program)
            .envs(disk.map(|disk| ("DEVICE", format!("{}p1", disk.path()))))
            .status()
            .unwrap();
        assert!(status.success());
        machine.program = machine.folder.path().join("agent.sh");
        let devices = Arc::new(Mutex::new(BTreeSet::<String>::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let nodes = std::thread::spawn({
            let (devices, is_over, folder) = (devices.clone(), is_over.clone(), root.join("dev"));
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    for device in devices.lock().unwrap().iter() {
                        show_partitions(device, &folder);
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        let disks = Mutex::default();
        let mut own = Self { machine, root, devices, disks, is_over, nodes: Some(nodes), mounts: 0 };
        own.mounts = own.all_mounts().len();
        own.write_program("/stubs:/usr/local/sbin:/usr/sbin:/usr/bin");
        own.configure(options);
        if let Some(disk) = disk {
            own.show(disk);
        }
        own
    }

    /// Sets `Platform.Linux` of agent.json for the next start.
    pub(super) fn configure(&mut self, mut options: Value) {
        if options.get("SkipDiskSetup").is_none() {
            options["SkipDiskSetup"] = json!(true);
        }
        self.machine.config = Some(json!({"Platform": {"Linux": options}, "Infrastructure": {"Settings": {"Sources": [
            {"Type": "File", "SettingsPath": "/vm/settings.json"}
        ]}}}));
    }

    pub(super) async fn started(options: Value) -> Self {
        let mut own = Self::new(options);
        own.machine.start().await;
        own
    }

    /// Where the test sees a path of the VM.
    pub(super) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path.as_ref().strip_prefix("/").unwrap())
    }

    /// Something under the base directory, with what is mounted there.
    pub(super) fn base(&self, path: &str) -> PathBuf {
        self.at("/vm/base").join(path)
    }

    /// A disk of the VM.
    pub(super) fn disk(&self, name: &str, size: u64) -> Arc<LoopDisk> {
        let disk = Arc::new(LoopDisk::attach(self.machine.folder.path().join(name), size));
        self.show(&disk);
        self.disks.lock().unwrap().push(disk.clone());
        disk
    }

    /// Takes a disk away that is not mounted.
    pub(super) fn detach(&self, disk: Arc<LoopDisk>) {
        self.disks.lock().unwrap().retain(|other| other.name != disk.name);
        self.devices.lock().unwrap().remove(&disk.name);
    }

    fn show(&self, disk: &LoopDisk) {
        let node = self.at(disk.path());
        // Of a disk that was there before.
        let _ = std::fs::remove_file(&node);
        rustix::fs::mknodat(CWD, &node, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, makedev(7, disk.minor()))
            .unwrap();
        self.devices.lock().unwrap().insert(disk.name.clone());
    }

    pub(super) async fn mount(&self, cid: &str, hint: Value) -> Result<(), String> {
        let (cid, hint) = (DiskCid::new(cid).unwrap(), DiskHint::try_from(hint).unwrap());
        self.machine.director().add_and_mount_disk(&cid, &hint).await.map(drop).map_err(|error| error.to_string())
    }

    pub(super) async fn unmount(&self, cid: &str) -> String {
        self.machine.director().unmount_disk(&DiskCid::new(cid).unwrap()).await.unwrap()
    }

    /// Everything that the agent mounted is gone, as after a boot of the machine.
    pub(super) fn reboot(&mut self) {
        self.machine.kill();
        while self.all_mounts().len() > self.mounts {
            run("umount", self.all_mounts().last());
        }
    }

    /// The places of all mounts in the root, in the order in which they were made.
    fn all_mounts(&self) -> Vec<String> {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let places = table.lines().filter_map(|line| line.split(' ').nth(4));
        places.filter(|place| Path::new(place).starts_with(&self.root)).map(str::to_owned).collect()
    }

    /// Puts a program before one of the stemcell.
    pub(super) fn stub(&self, name: &str, script: &str) {
        let path = self.at("/stubs").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// What starts the agent in its root, where the VM's folder has another name: the agent mounts something over `/tmp`.
    fn write_program(&self, path: &str) {
        let root = self.root.display();
        let agent = "/agent -P ubuntu -M monit -C /vm/agent.json -b /vm/base";
        let script = format!("#!/bin/sh\nPATH={path} exec /usr/sbin/chroot '{root}' {agent}\n");
        std::fs::write(&self.machine.program, script).unwrap();
        std::fs::set_permissions(&self.machine.program, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// The stemcell has no programs and no users, as a container may be.
    pub(super) fn without_programs(self) -> Self {
        self.write_program("/none");
        for file in ["/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"] {
            std::fs::remove_file(self.at(file)).unwrap();
        }
        self
    }

    /// The kind, the flags and the device of what is mounted on a path under the base directory.
    pub(super) fn mounted(&self, path: &str) -> Option<(String, String, String)> {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let place = self.base(path);
        let line = table.lines().rfind(|line| line.split(' ').nth(4) == place.to_str())?;
        let (mount, system) = line.split_once(" - ").unwrap();
        let field = |text: &str, position| text.split(' ').nth(position).unwrap().to_owned();
        Some((field(system, 0), field(mount, 5), field(system, 1)))
    }
}

/// What udev does in a VM: a node for each partition that the kernel knows.
fn show_partitions(device: &str, folder: &Path) {
    let prefix = format!("{device}p");
    let mut known = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/sys/block/{device}")).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let number = std::fs::read_to_string(entry.path().join("dev")).unwrap_or_default();
        let Some((major, minor)) = number.trim().split_once(':').filter(|_| name.starts_with(&prefix)) else {
            continue;
        };
        let device = makedev(major.parse().unwrap(), minor.parse().unwrap());
        let node = folder.join(&name);
        known.insert(name);
        let found = std::fs::symlink_metadata(&node).map(|found| std::os::unix::fs::MetadataExt::rdev(&found));
        if found.ok() != Some(device) {
            let _ = std::fs::remove_file(&node);
            let _ = rustix::fs::mknodat(CWD, &node, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, device);
        }
    }
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        if name.starts_with(&prefix) && !known.contains(&name) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

impl Drop for OwnMachine {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(nodes) = self.nodes.take() {
            let _ = nodes.join();
        }
        self.reboot();
        // Removing the folder must not reach what is bound into the root.
        while let Some(last) = self.all_mounts().pop() {
            if !std::process::Command::new("umount").arg(last).status().is_ok_and(|status| status.success()) {
                return;
            }
        }
        let _ = std::fs::remove_dir(&self.root);
    }
}
