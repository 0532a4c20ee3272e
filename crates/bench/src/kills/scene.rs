//! What the methods work on: one VM, one disk with data, one snapshot of it. Each method finds them as it needs them, and
//! after each kill they are as they were.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};
use windlass_contract::cpi::MethodName;

use crate::scratch_cloud::{ScratchCloud, ScratchVm, text};

/// The methods that change something, but for one that no cloud offers any more.
pub(super) fn changes() -> Vec<&'static str> {
    let offered = MethodName::ALL.iter().filter(|method| **method != MethodName::ConfigureNetworks);
    offered.filter(|method| method.declaration().is_a_change()).map(|method| method.as_str()).collect()
}

/// In MiB.
const SMALL: u64 = 32;
const LARGE: u64 = 64;
/// What is in the disk.
const DATA: &str = "kept";

pub(super) struct Scene<'a> {
    cloud: &'a ScratchCloud,
    image: PathBuf,
    vm: ScratchVm,
    disk: String,
    snapshot: String,
    /// What the method of this turn may destroy.
    victim: String,
}

impl<'a> Scene<'a> {
    pub(super) async fn new(cloud: &'a ScratchCloud) -> io::Result<Self> {
        let image = cloud.image();
        let vm = cloud.vm().await?;
        let disk = text(&cloud.ok("create_disk", json!([SMALL, {}, vm.cid])).await?)?;
        let mut scene = Self { cloud, image, vm, disk, snapshot: String::new(), victim: String::new() };
        let disk = scene.disk.clone();
        scene.attach(&disk).await?;
        cloud.seen()?.as_root_of(&scene.vm.cid, || fs::write(scene.data(&disk), DATA))?;
        scene.snapshot = text(&cloud.ok("snapshot_disk", json!([disk, {}])).await?)?;
        scene.detach(&disk).await?;
        Ok(scene)
    }

    pub(super) fn cloud(&self) -> &'a ScratchCloud {
        self.cloud
    }

    /// Kinds and cids of all that there is.
    pub(super) fn listed(&self) -> io::Result<BTreeSet<(&'static str, String)>> {
        let status = self.cloud.seen()?.status().map_err(io::Error::other)?;
        Ok(status.resources.into_iter().map(|resource| (resource.kind, resource.cid)).collect())
    }

    /// Whether the cloud's own look at itself finds nothing wrong.
    pub(super) fn is_explained(&self) -> io::Result<()> {
        let problems = self.cloud.seen()?.status().map_err(io::Error::other)?.problems;
        match problems.first() {
            None => Ok(()),
            Some(first) => Err(io::Error::other(format!("{}: {}", first.what, first.why))),
        }
    }

    /// Brings the scene to where the method begins; gives its arguments.
    pub(super) async fn prepare(&mut self, method: &str) -> io::Result<Value> {
        let (cloud, vm, disk) = (self.cloud, self.vm.cid.clone(), self.disk.clone());
        Ok(match method {
            "create_stemcell" => json!([self.image, {"name": "swept"}]),
            "delete_stemcell" => {
                self.victim = text(&cloud.ok("create_stemcell", json!([self.image, {"name": "swept"}])).await?)?;
                json!([self.victim])
            }
            "create_vm" => cloud.vm_arguments()?.0,
            "reboot_vm" => json!([vm]),
            "set_vm_metadata" => json!([vm, {"name": "swept"}]),
            "delete_vm" => {
                self.victim = cloud.vm().await?.cid;
                // Deleted with a disk attached: the disk must survive.
                cloud.ok("attach_disk", json!([self.victim, disk])).await?;
                json!([self.victim])
            }
            "create_disk" => json!([LARGE, {"snapshot_cid": self.snapshot}, null]),
            "attach_disk" => json!([vm, disk]),
            "detach_disk" => {
                self.attach(&disk).await?;
                json!([vm, disk])
            }
            "resize_disk" | "update_disk" | "delete_disk" => {
                let of_snapshot = json!([SMALL, {"snapshot_cid": self.snapshot}, null]);
                self.victim = text(&cloud.ok("create_disk", of_snapshot).await?)?;
                match method {
                    "resize_disk" => json!([self.victim, LARGE]),
                    "update_disk" => json!([self.victim, LARGE, {}]),
                    _ => json!([self.victim]),
                }
            }
            "set_disk_metadata" => json!([disk, {"name": "swept"}]),
            "snapshot_disk" => {
                self.attach(&disk).await?;
                json!([disk, {"name": "swept"}])
            }
            "delete_snapshot" => {
                self.victim = text(&cloud.ok("snapshot_disk", json!([disk, {}])).await?)?;
                json!([self.victim])
            }
            "create_network" => json!([{"type": "manual", "netmask_bits": 24, "cloud_properties": {}}]),
            "delete_network" => {
                let subnet = json!([{"type": "manual", "netmask_bits": 24, "cloud_properties": {}}]);
                self.victim = text(&cloud.ok("create_network", subnet).await?[0])?;
                json!([self.victim])
            }
            other => return Err(io::Error::other(format!("{other} is not swept"))),
        })
    }

    /// Looks whether the method did what it promises, and takes it back.
    pub(super) async fn check(&mut self, method: &str, result: &Value) -> io::Result<()> {
        let (cloud, vm, disk) = (self.cloud, self.vm.cid.clone(), self.disk.clone());
        match method {
            "create_stemcell" => drop(cloud.ok("delete_stemcell", json!([result])).await?),
            "create_vm" => drop(cloud.ok("delete_vm", json!([result[0]])).await?),
            "reboot_vm" => {
                let deadline = std::time::Duration::from_secs(60);
                self.vm.agent.wait_until_ready(deadline).await.map_err(io::Error::other)?;
            }
            "create_disk" => self.data_is_there_and_disk_goes(&text(result)?).await?,
            "resize_disk" | "update_disk" => {
                let victim = self.victim.clone();
                let status = cloud.seen()?.status().map_err(io::Error::other)?;
                let size = status.resources.iter().find(|it| it.cid == victim).and_then(|it| it.size_mib);
                if size != Some(LARGE) {
                    return Err(io::Error::other(format!("the disk has {size:?} MiB instead of {LARGE}")));
                }
                self.data_is_there_and_disk_goes(&victim).await?;
            }
            "snapshot_disk" => {
                cloud.ok("delete_snapshot", json!([result])).await?;
                self.detach(&disk).await?;
            }
            "create_network" => drop(cloud.ok("delete_network", json!([result[0]])).await?),
            "attach_disk" | "detach_disk" => {
                let attached = cloud.ok("get_disks", json!([vm])).await?;
                let expected = if method == "attach_disk" { json!([disk]) } else { json!([]) };
                if attached != expected {
                    return Err(io::Error::other(format!("get_disks says {attached}")));
                }
                self.detach(&disk).await?;
            }
            _ => {}
        }
        // Whatever it was, no disk lost its data.
        self.attach(&disk).await?;
        let kept = self.read(&disk);
        self.detach(&disk).await?;
        kept
    }

    async fn data_is_there_and_disk_goes(&self, disk: &str) -> io::Result<()> {
        self.attach(disk).await?;
        self.read(disk)?;
        self.detach(disk).await?;
        self.cloud.ok("delete_disk", json!([disk])).await.map(drop)
    }

    fn read(&self, disk: &str) -> io::Result<()> {
        match fs::read_to_string(self.data(disk))?.as_str() {
            DATA => Ok(()),
            other => Err(io::Error::other(format!("the disk {disk} holds '{other}' instead of '{DATA}'"))),
        }
    }

    /// The file in a disk that is attached to the scene's VM, as this machine sees it.
    fn data(&self, disk: &str) -> PathBuf {
        self.cloud.data_folder(&self.vm.cid, disk).join("file")
    }

    async fn attach(&self, disk: &str) -> io::Result<()> {
        self.cloud.ok("attach_disk", json!([self.vm.cid, disk])).await.map(drop)
    }

    async fn detach(&self, disk: &str) -> io::Result<()> {
        self.cloud.ok("detach_disk", json!([self.vm.cid, disk])).await.map(drop)
    }
}
