//! From a hint to a device: what the hint says, where the kernel shows it, and how long it may take to appear.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regex_lite::Regex;
use windlass_durable::file;

use super::command::{exists, tool};
use super::options::LinuxOptions;
use super::root::Root;
use crate::disks::DiskSettings;

/// How long a disk that was attached may take to appear.
const PATIENCE: Duration = Duration::from_secs(50);
/// How long a disk is looked for by its id alone, before the path of the hint is believed.
const ID_FIRST: Duration = Duration::from_millis(500);
/// How often is looked.
const RETRY: Duration = Duration::from_millis(100);
/// Shorter cids are no serial numbers.
const SHORTEST_ID: usize = 20;

/// why there is no device
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    /// it did not appear
    #[error(
        "disk '{cid}' did not appear within {patience:?}: looked for {looked_for}, saw {seen}; check that the disk is \
         attached to this VM"
    )]
    Missing { cid: String, patience: Duration, looked_for: String, seen: String },
    /// the hint says nothing useful
    #[error("the hint of disk '{cid}' has no {needed}; the CPI must say so for this stemcell")]
    Hint { cid: String, needed: &'static str },
    /// it could be several
    #[error("disk '{cid}' could be any of {found}; remove what is left of other disks")]
    Ambiguous { cid: String, found: String },
    /// a way to reach disks that this agent does not have
    #[error("disk '{cid}' is to be reached over iSCSI, which this agent does not do; use a stemcell of another cloud")]
    Iscsi { cid: String },
    /// agent.json has a broken pattern
    #[error("DiskIDTransformPattern in agent.json is not a regular expression")]
    Pattern(#[source] regex_lite::Error),
    /// the kernel was not asked to look for new disks
    #[error("cannot ask {path} to look for new disks")]
    Scan {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// How hints lead to devices on this machine.
#[derive(Debug)]
enum HintResolution {
    /// The path is the device.
    Path,
    /// By serial number, else by path, with the names that drivers give.
    Virtio { transform: Option<(Regex, String)> },
    /// By what the SCSI bus knows.
    Scsi,
    /// Over the network.
    Iscsi,
}

#[derive(Debug)]
pub(super) struct Devices {
    root: Root,
    resolution: HintResolution,
    /// Links by LUN, on clouds whose rules make them.
    lun_links: Option<PathBuf>,
    patience: Duration,
}

/// One look at the machine.
enum Look {
    Found(PathBuf),
    /// Not there, or not yet.
    Missing {
        looked_for: String,
        seen: String,
    },
}

impl Devices {
    pub(super) fn new(root: Root, options: &LinuxOptions) -> Result<Self, DeviceError> {
        let resolution = match options.device_path_resolution_type.as_str() {
            "virtio" => HintResolution::Virtio {
                transform: match options.disk_id_transform_pattern.as_str() {
                    "" => None,
                    pattern => Some((
                        Regex::new(pattern).map_err(DeviceError::Pattern)?,
                        options.disk_id_transform_replacement.clone(),
                    )),
                },
            },
            "scsi" => HintResolution::Scsi,
            "iscsi" => HintResolution::Iscsi,
            _ => HintResolution::Path,
        };
        let links = Some(&options.lun_device_symlink_path).filter(|path| !path.is_empty());
        let lun_links = links.map(|path| root.at(path));
        Ok(Self { root, resolution, lun_links, patience: PATIENCE })
    }

    /// The device of a disk, waiting until it is there.
    pub(super) fn wait_for(&self, disk: &DiskSettings) -> Result<PathBuf, DeviceError> {
        self.announce(disk)?;
        let begun = Instant::now();
        loop {
            match self.look(disk, begun.elapsed())? {
                Look::Found(path) => return Ok(path),
                Look::Missing { looked_for, seen } if begun.elapsed() >= self.patience => {
                    return Err(DeviceError::Missing {
                        cid: disk.id.clone(),
                        patience: self.patience,
                        looked_for,
                        seen,
                    });
                }
                Look::Missing { .. } => std::thread::sleep(RETRY),
            }
        }
    }

    /// The device of a disk if it is there now.
    pub(super) fn present(&self, disk: &DiskSettings) -> Result<Option<PathBuf>, DeviceError> {
        match self.look(disk, Duration::MAX) {
            Ok(Look::Found(path)) => Ok(Some(path)),
            // A disk whose hint says nothing is nowhere.
            Ok(Look::Missing { .. }) | Err(DeviceError::Hint { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lets the machine notice what was attached.
    fn announce(&self, disk: &DiskSettings) -> Result<(), DeviceError> {
        match &self.resolution {
            HintResolution::Virtio { .. } if disk.id.len() >= SHORTEST_ID && exists("udevadm") => {
                for arguments in [&["trigger"][..], &["settle", "--timeout=10"]] {
                    if let Err(error) = tool("udevadm", arguments).run() {
                        tracing::debug!("{error}");
                    }
                }
                Ok(())
            }
            HintResolution::Scsi => {
                for host in entries(&self.root.at("/sys/class/scsi_host")) {
                    let path = host.join("scan");
                    if path.exists() {
                        file::write_in_place(&path, "- - -").map_err(|source| DeviceError::Scan { path, source })?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn look(&self, disk: &DiskSettings, waited: Duration) -> Result<Look, DeviceError> {
        let Some(links) = self.lun_links.as_ref().filter(|_| !disk.lun.is_empty()) else {
            return self.look_on_the_way(disk, waited);
        };
        let link = links.join(&disk.lun);
        if let Some(device) = real(&link) {
            return Ok(Look::Found(device));
        }
        // Rules that make links may be missing; what else the hint says may do, too.
        match self.look_on_the_way(disk, waited) {
            Ok(Look::Found(device)) => Ok(Look::Found(device)),
            _ => Ok(missing(link.display().to_string(), links)),
        }
    }

    fn look_on_the_way(&self, disk: &DiskSettings, waited: Duration) -> Result<Look, DeviceError> {
        let hint = |needed| DeviceError::Hint { cid: disk.id.clone(), needed };
        match &self.resolution {
            HintResolution::Iscsi if disk.path.is_empty() => Err(DeviceError::Iscsi { cid: disk.id.clone() }),
            HintResolution::Path | HintResolution::Iscsi if disk.path.is_empty() => Err(hint("path")),
            HintResolution::Path | HintResolution::Iscsi => Ok(self.look_for_path(&disk.path, &[])),
            HintResolution::Virtio { transform } => {
                if disk.id.len() >= SHORTEST_ID {
                    let look = self.look_for_id(disk, transform.as_ref())?;
                    if matches!(look, Look::Found(_)) || waited < ID_FIRST || disk.path.is_empty() {
                        return Ok(look);
                    }
                }
                match disk.path.strip_prefix("/dev/sd") {
                    _ if disk.path.is_empty() => Err(hint("path, and its cid is too short to be a serial number")),
                    // The name that Xen or KVM gives a disk that the CPI calls otherwise.
                    Some(rest) => {
                        Ok(self.look_for_path(&disk.path, &[format!("/dev/xvd{rest}"), format!("/dev/vd{rest}")]))
                    }
                    None => Ok(self.look_for_path(&disk.path, &[])),
                }
            }
            HintResolution::Scsi if !disk.device_id.is_empty() => Ok(self.look_for_scsi_id(&disk.device_id)),
            HintResolution::Scsi if !disk.volume_id.is_empty() => Ok(self.look_for_volume(&disk.volume_id)),
            HintResolution::Scsi if !disk.lun.is_empty() && !disk.host_device_id.is_empty() => {
                Ok(self.look_for_lun(&disk.lun, &disk.host_device_id))
            }
            HintResolution::Scsi => Err(hint("id, volume_id, or lun with host_device_id")),
        }
    }

    /// `path`, or first one of its other names.
    fn look_for_path(&self, path: &str, others: &[String]) -> Look {
        let path = path.to_owned();
        let names: Vec<&String> = others.iter().chain([&path]).collect();
        if let Some(device) = names.iter().find_map(|name| real(&self.root.at(name))) {
            return Look::Found(device);
        }
        let looked_for: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let path = self.root.at(&path);
        missing(looked_for.join(" or "), path.parent().unwrap_or(&path))
    }

    /// By the serial number that the cloud gave the disk, which is its cid or made from it.
    fn look_for_id(&self, disk: &DiskSettings, transform: Option<&(Regex, String)>) -> Result<Look, DeviceError> {
        let folder = self.root.at("/dev/disk/by-id");
        let (id, is_whole_name) = match transform {
            Some((pattern, replacement)) => (pattern.replace_all(&disk.id, replacement.as_str()).into_owned(), true),
            None => (disk.id.clone(), false),
        };
        let matches = |name: &str| if is_whole_name { name == id } else { name.ends_with(&id) };
        let found: Vec<PathBuf> =
            entries(&folder).into_iter().filter(|path| named(path).is_some_and(matches)).collect();
        match found.as_slice() {
            [link] => Ok(match real(link) {
                Some(device) => Look::Found(device),
                None => missing(link.display().to_string(), &folder),
            }),
            [] => Ok(missing(format!("{}/{}{id}", folder.display(), if is_whole_name { "" } else { "*" }), &folder)),
            several => Err(DeviceError::Ambiguous { cid: disk.id.clone(), found: list(several) }),
        }
    }

    fn look_for_scsi_id(&self, id: &str) -> Look {
        let folder = self.root.at("/dev/disk/by-id");
        let id = id.replace('-', "");
        let matches = |path: &PathBuf| named(path).is_some_and(|name| name.ends_with(&id));
        let found = entries(&folder).into_iter().filter(matches).find_map(|link| real(&link));
        found.map_or_else(|| missing(format!("{}/*{id}", folder.display()), &folder), Look::Found)
    }

    /// The disk with this number beside the root disk.
    fn look_for_volume(&self, volume: &str) -> Look {
        let bus = self.root.at("/sys/bus/scsi/devices");
        let is_root = |path: &&PathBuf| {
            let of_disk = |block: &PathBuf| named(block).is_some_and(|name| name.starts_with("sd"));
            named(path).is_some_and(|name| name.ends_with(":0:0:0")) && entries(&path.join("block")).iter().any(of_disk)
        };
        let devices = entries(&bus);
        let host = devices.iter().rfind(is_root).and_then(|path| named(path)?.split(':').next());
        let Some(host) = host else { return missing("the SCSI host of the root disk, *:0:0:0".to_owned(), &bus) };
        let address = format!("{host}:0:{volume}:0");
        self.block_devices_of(&bus.join(&address)).next().map_or_else(|| missing(address, &bus), Look::Found)
    }

    /// The disk with this number behind the controller that the hypervisor knows by an id.
    fn look_for_lun(&self, lun: &str, controller: &str) -> Look {
        let vmbus = self.root.at("/sys/bus/vmbus/devices");
        let has_id =
            |path: &&PathBuf| fs::read_to_string(path.join("device_id")).is_ok_and(|id| id.trim() == controller);
        let controllers = entries(&vmbus);
        let Some(name) = controllers.iter().find(has_id).and_then(|path| named(path)) else {
            return missing(format!("a device with the id {controller}"), &vmbus);
        };
        let bus = self.root.at("/sys/bus/scsi/devices");
        let suffix = format!(":{lun}");
        let behind = |device: &PathBuf| {
            let node = device.file_name().unwrap_or_default();
            let place = self.root.at("/sys/class/block").join(node).canonicalize();
            place.is_ok_and(|place| place.components().any(|part| part.as_os_str() == name))
        };
        let found = entries(&bus)
            .into_iter()
            .filter(|path| named(path).is_some_and(|address| address.ends_with(&suffix)))
            .flat_map(|path| self.block_devices_of(&path).collect::<Vec<_>>())
            .find(behind);
        found.map_or_else(|| missing(format!("*:*:*:{lun} behind {name}"), &bus), Look::Found)
    }

    fn block_devices_of(&self, scsi_device: &Path) -> impl Iterator<Item = PathBuf> {
        let blocks = entries(&scsi_device.join("block"));
        let devices = self.root.at("/dev");
        blocks.into_iter().filter_map(move |block| real(&devices.join(block.file_name()?)))
    }
}

/// What a link leads to, if that is there. A name that the device mapper gave stays, because its partitions are named
/// after it.
fn real(path: &Path) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    let is_mapped = path.parent().is_some_and(|folder| folder.ends_with("dev/mapper"));
    Some(if is_mapped { path.to_owned() } else { real })
}

fn missing(looked_for: String, folder: &Path) -> Look {
    let seen = match entries(folder) {
        found if found.is_empty() => format!("nothing in {}", folder.display()),
        found => format!("in {} only {}", folder.display(), list(&found)),
    };
    Look::Missing { looked_for, seen }
}

fn list(paths: &[PathBuf]) -> String {
    const MOST: usize = 20;
    let mut names: Vec<&str> = paths.iter().take(MOST).filter_map(|path| named(path)).collect();
    if paths.len() > MOST {
        names.push("…");
    }
    names.join(", ")
}

fn named(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// What is in a folder, in order; nothing if there is none.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// The path of a device's partition.
pub(super) fn partition(device: &Path, number: u32) -> PathBuf {
    let mut name = device.as_os_str().to_owned();
    let is_mapped = device.parent().is_some_and(|folder| folder.ends_with("dev/mapper"));
    let ends_with_digit = name.to_str().is_some_and(|name| name.ends_with(|last: char| last.is_ascii_digit()));
    name.push(match (is_mapped, ends_with_digit) {
        (true, _) => "-part",
        (false, true) => "p",
        (false, false) => "",
    });
    name.push(number.to_string());
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::{Value, json};
    use windlass_contract::settings::AgentSettings;

    use super::*;

    /// A machine whose devices are files.
    struct Machine {
        folder: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Self {
            let machine = Self { folder: tempfile::tempdir().unwrap() };
            for path in ["dev/disk/by-id", "sys"] {
                fs::create_dir_all(machine.folder.path().join(path)).unwrap();
            }
            machine
        }

        fn file(&self, path: &str, content: &str) {
            let path = self.folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        fn link(&self, target: &str, path: &str) {
            let path = self.folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }

        fn find(&self, options: &str, cid: &str, hint: Value) -> Result<String, String> {
            let options: LinuxOptions = serde_json::from_str(options).unwrap();
            let mut devices = Devices::new(Root::new(self.folder.path()), &options).unwrap();
            devices.patience = Duration::from_millis(600);
            let agent: AgentSettings = serde_json::from_value(json!({"agent_id": "a"})).unwrap();
            let disk = DiskSettings::new(cid, hint, &agent).unwrap();
            let root = self.folder.path().canonicalize().unwrap();
            let shown = |path: PathBuf| format!("/{}", path.strip_prefix(&root).unwrap().display());
            let found = devices.wait_for(&disk).map(shown);
            assert_eq!(found.is_ok(), devices.present(&disk).is_ok_and(|device| device.is_some()));
            found.map_err(|error| error.to_string().replace(self.folder.path().to_str().unwrap(), ""))
        }
    }

    const IDENTITY: &str = "{}";
    const VIRTIO: &str = r#"{"DevicePathResolutionType": "virtio"}"#;
    const SCSI: &str = r#"{"DevicePathResolutionType": "scsi"}"#;
    const CID: &str = "21e26ec4-5d0a-4b2f-a5a6-d2e4a2b3f4d9";

    #[test]
    fn a_path_is_believed_and_followed() {
        let machine = Machine::new();
        machine.file("dev/sdb", "");
        machine.link("../../sdb", "dev/disk/by-id/x");
        machine.link("../dm-0", "dev/mapper/y");
        machine.file("dev/dm-0", "");
        for hint in [json!("/dev/sdb"), json!({"path": "/dev/sdb"}), json!({"path": "/dev/disk/by-id/x"})] {
            assert_eq!(machine.find(IDENTITY, "d", hint).unwrap(), "/dev/sdb");
        }
        assert_eq!(machine.find(IDENTITY, "d", json!("/dev/mapper/y")).unwrap(), "/dev/mapper/y");
        let error = machine.find(IDENTITY, "d", json!("/dev/sdc")).unwrap_err();
        assert_eq!(
            error,
            "disk 'd' did not appear within 600ms: looked for /dev/sdc, saw in /dev only disk, dm-0, mapper, sdb; check that the \
             disk is attached to this VM"
        );
        assert!(machine.find(IDENTITY, "d", json!({"lun": "1"})).unwrap_err().contains("has no path"));
    }

    #[test]
    fn virtio_disks_are_found_by_serial_number_or_by_the_drivers_name() {
        let machine = Machine::new();
        machine.file("dev/vdb", "");
        machine.file("dev/vdc", "");
        machine.link("../../vdc", &format!("dev/disk/by-id/virtio-{CID}"));
        assert_eq!(machine.find(VIRTIO, CID, json!("/dev/sdb")).unwrap(), "/dev/vdc");
        assert_eq!(machine.find(VIRTIO, "short", json!("/dev/sdb")).unwrap(), "/dev/vdb");
        assert_eq!(machine.find(VIRTIO, "short", json!("/dev/vdb")).unwrap(), "/dev/vdb");
        let other = CID.replace('2', "3");
        assert_eq!(machine.find(VIRTIO, &other, json!("/dev/sdb")).unwrap(), "/dev/vdb");
        machine.link("../../vdb", &format!("dev/disk/by-id/other-{CID}"));
        assert!(machine.find(VIRTIO, CID, json!("/dev/sdb")).unwrap_err().contains("could be any of other-21e26ec4"));

        let google = r#"{"DevicePathResolutionType": "virtio", "DiskIDTransformPattern": "^(disk-.+)$",
            "DiskIDTransformReplacement": "google-${1}"}"#;
        machine.link("../../vdb", "dev/disk/by-id/google-disk-0123456789abcdef");
        assert_eq!(machine.find(google, "disk-0123456789abcdef", json!("/dev/x")).unwrap(), "/dev/vdb");
    }

    #[test]
    fn scsi_disks_are_found_by_id_by_volume_and_by_lun() {
        let machine = Machine::new();
        machine.file("sys/class/scsi_host/host2/scan", "");
        for node in ["sda", "sdb", "sdc"] {
            machine.file(&format!("dev/{node}"), "");
        }
        machine.link("../../sdb", "dev/disk/by-id/scsi-36000c29abc");
        assert_eq!(machine.find(SCSI, "d", json!({"id": "36000c29-abc"})).unwrap(), "/dev/sdb");
        let scanned = fs::read_to_string(machine.folder.path().join("sys/class/scsi_host/host2/scan")).unwrap();
        assert_eq!(scanned, "- - -", "the kernel was asked for new disks");

        fs::create_dir_all(machine.folder.path().join("sys/bus/scsi/devices/2:0:0:0/block/sda")).unwrap();
        fs::create_dir_all(machine.folder.path().join("sys/bus/scsi/devices/2:0:3:0/block/sdc")).unwrap();
        assert_eq!(machine.find(SCSI, "d", json!("3")).unwrap(), "/dev/sdc");
        assert!(machine.find(SCSI, "d", json!("4")).unwrap_err().contains("looked for 2:0:4:0, saw in"));

        let lun = json!({"lun": "1", "host_device_id": "{f8b3781b}"});
        assert!(
            machine.find(SCSI, "d", lun.clone()).unwrap_err().contains("looked for a device with the id {f8b3781b}")
        );
        machine.file("sys/bus/vmbus/devices/vmbus_0_12/device_id", "{f8b3781b}\n");
        fs::create_dir_all(machine.folder.path().join("sys/bus/scsi/devices/5:0:0:1/block/sdb")).unwrap();
        fs::create_dir_all(machine.folder.path().join("sys/devices/vmbus_0_12/block/sdb")).unwrap();
        machine.link("../../devices/vmbus_0_12/block/sdb", "sys/class/block/sdb");
        assert_eq!(machine.find(SCSI, "d", lun).unwrap(), "/dev/sdb");
        assert!(
            machine.find(SCSI, "d", json!({"path": "/dev/sdb"})).unwrap_err().contains("has no id, volume_id, or lun")
        );
    }

    #[test]
    fn a_link_by_lun_is_preferred_where_the_stemcell_has_them() {
        let machine = Machine::new();
        machine.file("dev/sdb", "");
        machine.file("dev/sdc", "");
        machine.link("../../../../sdc", "dev/disk/azure/data/by-lun/0");
        let azure = r#"{"LunDeviceSymlinkPath": "/dev/disk/azure/data/by-lun"}"#;
        assert_eq!(machine.find(azure, "d", json!({"lun": "0", "path": "/dev/sdb"})).unwrap(), "/dev/sdc");
        assert_eq!(machine.find(azure, "d", json!({"lun": "1", "path": "/dev/sdb"})).unwrap(), "/dev/sdb");
        assert!(machine.find(azure, "d", json!({"lun": "1"})).unwrap_err().contains("by-lun/1, saw in"));
    }

    #[test]
    fn iscsi_is_refused_by_name() {
        let error = Machine::new().find(
            r#"{"DevicePathResolutionType": "iscsi"}"#,
            "d",
            json!({"iscsi_settings": {"target": "t", "password": "hunter2"}}),
        );
        assert!(error.as_ref().is_err_and(|error| error.contains("iSCSI") && !error.contains("hunter2")), "{error:?}");
    }

    #[test]
    fn partitions_have_the_kernels_names() {
        for (device, expected) in [
            ("/dev/sdb", "/dev/sdb1"),
            ("/dev/nvme1n1", "/dev/nvme1n1p1"),
            ("/dev/loop0", "/dev/loop0p1"),
            ("/dev/mapper/3600", "/dev/mapper/3600-part1"),
        ] {
            assert_eq!(partition(Path::new(device), 1), Path::new(expected));
        }
    }
}
