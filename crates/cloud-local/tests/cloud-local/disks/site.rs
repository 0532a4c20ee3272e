//! A cloud for disks of one form, and what the kernel says about them.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use windlass_cloud_local::LocalCloud;
use windlass_rigs::vm_root::as_root_at;

use crate::rig::Rig;

/// What disks are made of, and for which VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Folders, for processes.
    Directory,
    /// Images, for processes.
    Image,
    /// Images, for containers.
    Container,
}

pub(crate) struct Site {
    rig: Rig,
    pub(crate) form: Form,
    stemcell: Value,
}

impl Deref for Site {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.rig
    }
}

impl Site {
    pub(crate) fn new(form: Form) -> Self {
        Self::new_in(form, &std::env::temp_dir())
    }

    /// With its state on the file system of `folder`.
    pub(crate) fn new_in(form: Form, folder: &Path) -> Self {
        let rig = Rig::new_in(folder);
        let stemcell = if form == Form::Container { rig.system_stemcell() } else { rig.stemcell() };
        let site = Self { rig, form, stemcell };
        site.configure_vms();
        site
    }

    pub(crate) fn new_vm(&self) -> String {
        let networks = json!({"default": {"type": "dynamic"}});
        match self.form {
            Form::Container => self.rig.container(&self.stemcell, networks),
            _ => self.rig.vm(&self.stemcell),
        }
    }

    fn configure_vms(&self) {
        let isolation = if self.form == Form::Container { "container" } else { "process" };
        self.configure(json!({"state_dir": self.state(), "isolation": isolation}));
    }

    /// Disks without a VM in mind take the form that fits new VMs.
    pub(crate) fn new_disk(&self, size_mib: u64) -> String {
        self.new_disk_with(size_mib, json!({}))
    }

    pub(crate) fn new_disk_with(&self, size_mib: u64, properties: Value) -> String {
        self.with_disks_of_the_form(|| {
            self.ok("create_disk", json!([size_mib, properties, null])).as_str().unwrap().to_owned()
        })
    }

    /// Does `work` with a configuration under which new disks have the form.
    pub(crate) fn with_disks_of_the_form<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.form == Form::Image {
            self.configure(json!({"state_dir": self.state(), "isolation": "container"}));
        }
        let done = work();
        self.configure_vms();
        done
    }

    /// Where the VM finds the disk, as we see it.
    pub(crate) fn attach(&self, vm: &str, disk: &str) -> PathBuf {
        let hint = self.ok("attach_disk", json!([vm, disk]));
        match self.form {
            Form::Container => self.file(vm, hint.as_str().unwrap().trim_start_matches('/')),
            _ => hint["path"].as_str().unwrap().into(),
        }
    }

    /// Does `work` as root of the VM: nobody whose ids the VM does not have makes files where it sees them.
    pub(crate) fn as_root_of<T: Send>(&self, vm: &str, work: impl FnOnce() -> T + Send) -> T {
        match self.form {
            Form::Container => as_root_at(&self.file(vm, ""), work),
            Form::Directory | Form::Image => work(),
        }
    }

    pub(crate) fn has_images(&self) -> bool {
        self.form != Form::Directory
    }

    pub(crate) fn detach(&self, vm: &str, disk: &str) {
        self.ok("detach_disk", json!([vm, disk]));
    }

    pub(crate) fn disk_folder(&self, disk: &str) -> PathBuf {
        self.state().join("disks").join(disk)
    }

    pub(crate) fn image(&self, disk: &str) -> PathBuf {
        self.disk_folder(disk).join("image")
    }

    /// What is mounted of this site that is neither the folder of a VM's disks nor the disk attached there, the images
    /// that are in use without being attached, and what `windlass local status` finds.
    pub(crate) fn unexplained(&self) -> Vec<String> {
        let status = LocalCloud::configured(&self.config()).unwrap().status().unwrap();
        let mut unexplained: Vec<String> = status.problems.iter().map(|it| format!("{} {}", it.what, it.why)).collect();
        let state = self.state().canonicalize().unwrap();
        let attached = |disk: &str| self.attached_to(disk);
        for point in mount_points().into_iter().filter(|point| point.starts_with(&state)) {
            let words: Vec<&str> =
                point.strip_prefix(&state).unwrap().iter().map(|word| word.to_str().unwrap()).collect();
            let is_explained = match words.as_slice() {
                ["vms", vm, "disks"] => self.vm_folder(vm).join("vm.json").exists(),
                ["vms", vm, "disks", disk] => attached(disk).as_deref() == Some(vm),
                _ => false,
            };
            if !is_explained {
                unexplained.push(format!("{} is mounted", point.display()));
            }
        }
        for disk in self.list("disks") {
            let in_use = self.has_images() && !loops(&self.image(&disk)).is_empty();
            if in_use && attached(&disk).is_none() {
                unexplained.push(format!("{disk} is in use"));
            }
        }
        unexplained
    }

    pub(crate) fn attached_to(&self, disk: &str) -> Option<String> {
        let record = crate::rig::read_json(&self.disk_folder(disk).join("disk.json"));
        record["attached_to"]["vm"].as_str().map(str::to_owned)
    }
}

/// The loop devices that hold a file.
pub(crate) fn loops(image: &Path) -> Vec<String> {
    let listed = run("losetup", &["-n", "-O", "NAME", "-j", image.to_str().unwrap()]);
    String::from_utf8(listed.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}

pub(crate) fn mount_points() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().map(|line| line.split(' ').nth(4).unwrap().into()).collect()
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    output
}

/// Writes a tree with files of many sizes and a link.
pub(crate) fn write_tree(folder: &Path, seed: u8) {
    for (number, size) in [0_usize, 1, 4096, 100_000, 3_000_000].into_iter().enumerate() {
        let folder = folder.join(format!("tree/{number}"));
        fs::create_dir_all(&folder).unwrap();
        let content: Vec<u8> = (0..size).map(|byte| (byte as u8).wrapping_mul(31).wrapping_add(seed)).collect();
        fs::write(folder.join("file"), content).unwrap();
    }
    std::os::unix::fs::symlink("0/file", folder.join("tree/link")).unwrap();
}

/// All files of a tree with their content.
pub(crate) fn read_tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn walk(folder: &Path, below: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = below.join(entry.file_name());
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                walk(&entry.path(), &name, files);
            } else if kind.is_symlink() {
                files.insert(name, fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes());
            } else {
                files.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
    let mut files = BTreeMap::new();
    walk(&folder.join("tree"), Path::new("tree"), &mut files);
    files
}
