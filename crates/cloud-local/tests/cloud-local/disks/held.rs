//! One disk is never mounted twice, and what is in use is neither taken nor removed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::site::{Form, Site, loops, run};
use crate::rig::own_machine::is_own_machine;
use crate::rig::{kill_hard, wait_for};

/// Something of a VM in a mount namespace of its own, where it has the disk at another place, too.
struct Inner(Child);

impl Inner {
    /// `then` runs when the mount is there; it stays until it is dropped.
    fn new(site: &Site, disk: &Path, then: &str) -> Self {
        let other = site.path("inner");
        fs::create_dir_all(&other).unwrap();
        let script = format!("mount --bind \"$0\" \"$1\" && {then} && echo ready && exec sleep 1000");
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "slave", "sh", "-c", &script])
            .args([disk, &other])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has anything of a loop device mounted in the site's folder; others on this machine may have some, too.
    fn has_mounts(&self, site: &Site) -> bool {
        let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", self.pid())).unwrap();
        let folder = site.path("").display().to_string();
        mounts.lines().any(|line| line.contains("/dev/loop") && line.contains(&folder))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A rootless container, a VM with a root of its own: users with fewer rights have copies of all mounts, which nobody can unmount there.
#[test]
fn copies_of_a_mount_in_user_namespaces_go_with_it_and_one_that_stays_is_named() {
    if !is_own_machine("disks::held::copies_of_a_mount_in_user_namespaces_go_with_it_and_one_that_stays_is_named") {
        return;
    }
    let site = Site::new(Form::Image);
    let (vm, disk) = (site.new_vm(), site.new_disk(32));
    let copying = |propagation: &str| {
        let mut child = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "--propagation", propagation])
            .args(["sh", "-c", "echo ready; exec sleep 1000"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Inner(child)
    };
    site.attach(&vm, &disk);
    let follower = copying("slave");
    assert!(follower.has_mounts(&site));
    site.ok("detach_disk", json!([vm, disk]));
    assert!(!follower.has_mounts(&site) && loops(&site.image(&disk)).is_empty());
    drop(follower);

    site.attach(&vm, &disk);
    let keeper = copying("private");
    let error = site.refused("detach_disk", json!([vm, disk]));
    assert!(error.contains(&format!("pid {} (sleep)", keeper.pid())), "{error}");
    drop(keeper);
    site.ok("detach_disk", json!([vm, disk]));
    assert!(loops(&site.image(&disk)).is_empty());
    site.ok("delete_vm", json!([vm]));
}

/// Two mounts of one file system write over each other: everything on it would be lost.
#[test]
fn a_disk_with_an_open_file_and_a_dead_agent_is_not_attached_elsewhere() {
    if !is_own_machine("disks::held::a_disk_with_an_open_file_and_a_dead_agent_is_not_attached_elsewhere") {
        return;
    }
    let site = Site::new(Form::Image);
    let (first, second, disk) = (site.new_vm(), site.new_vm(), site.new_disk(32));
    let folder = site.attach(&first, &disk);
    let holder = Inner::new(&site, &folder, r#"exec 3> "$1/file" && echo held >&3"#);
    kill_hard(site.pid(&first, "pid"));

    let named = format!("pid {} (sleep)", holder.pid());
    let error = site.refused("detach_disk", json!([first, disk]));
    assert!(error.contains(&named), "{error}");
    let error = site.refused("attach_disk", json!([second, disk]));
    assert!(error.contains(&first), "{error}");
    let error = site.refused("delete_disk", json!([disk]));
    assert!(error.contains(&first), "{error}");
    let error = site.refused("delete_vm", json!([first]));
    assert!(error.contains(&named), "{error}");
    assert_eq!(site.ok("has_vm", json!([first])), json!(true));
    assert_eq!(site.ok("get_disks", json!([first])), json!([disk]));
    assert_eq!(loops(&site.image(&disk)).len(), 1);
    assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "held\n", "nothing was taken away");

    drop(holder);
    site.detach(&first, &disk);
    let folder = site.attach(&second, &disk);
    assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "held\n");
    site.ok("delete_vm", json!([first]));
    assert_eq!(site.unexplained(), Vec::<String>::new());
}

#[test]
fn detaching_unmounts_what_the_vm_mounted_and_the_kernel_lets_go_of_the_file() {
    if !is_own_machine("disks::held::detaching_unmounts_what_the_vm_mounted_and_the_kernel_lets_go_of_the_file") {
        return;
    }
    let site = Site::new(Form::Image);
    let (vm, disk, other) = (site.new_vm(), site.new_disk(32), site.new_disk(32));
    let folder = site.attach(&vm, &disk);
    let inner = Inner::new(&site, &folder, "true");
    let kept = site.attach(&vm, &other);
    fs::write(kept.join("file"), "stays").unwrap();
    assert!(inner.has_mounts(&site));
    site.detach(&vm, &disk);
    assert!(loops(&site.image(&disk)).is_empty());
    assert!(!folder.exists(), "nobody writes past the mount");
    assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "stays", "the other disk is left alone");
    site.detach(&vm, &disk);
    site.ok("delete_disk", json!([disk]));
    site.detach(&vm, &other);
    assert!(!inner.has_mounts(&site));
}

/// A disk that is shown after the VM was started, seen from the mount namespace of something that runs in it.
#[test]
fn a_disk_appears_in_what_runs_already_and_never_comes_back_from_there() {
    if !is_own_machine("disks::held::a_disk_appears_in_what_runs_already_and_never_comes_back_from_there") {
        return;
    }
    let site = Site::new(Form::Image);
    let (vm, first, second) = (site.new_vm(), site.new_disk(32), site.new_disk(32));
    let folder = site.attach(&vm, &first);
    let disks = folder.parent().unwrap();
    let inner = Inner::new(&site, &folder, "true");
    let inside = format!("/proc/{}/root{}", inner.pid(), disks.display());
    fs::write(site.attach(&vm, &second).join("file"), "seen").unwrap();
    assert_eq!(fs::read_to_string(format!("{inside}/{second}/file")).unwrap(), "seen");
    let pid = inner.pid().to_string();
    let mounted = format!("mkdir -p {0}/back && mount -t tmpfs none {0}/back", disks.display());
    run("nsenter", &["--mount", "--target", &pid, "sh", "-c", &mounted]);
    assert!(!super::site::mount_points().contains(&disks.join("back")), "what a VM mounts stays there");
    drop(inner);
    fs::remove_dir(disks.join("back")).unwrap();
    site.ok("delete_vm", json!([vm]));
    assert_eq!(site.unexplained(), Vec::<String>::new());
}

#[test]
fn an_image_that_any_loop_device_holds_is_refused() {
    if !is_own_machine("disks::held::an_image_that_any_loop_device_holds_is_refused") {
        return;
    }
    let site = Site::new(Form::Image);
    let (vm, disk) = (site.new_vm(), site.new_disk(32));
    // By another name: the device and inode count.
    let other_name = site.path("other name");
    fs::hard_link(site.image(&disk), &other_name).unwrap();
    let shown = run("losetup", &["--find", "--show", other_name.to_str().unwrap()]);
    let device = String::from_utf8(shown.stdout).unwrap().trim().to_owned();
    let before = fs::read(site.disk_folder(&disk).join("disk.json")).unwrap();
    for (method, arguments) in [("attach_disk", json!([vm, disk])), ("delete_disk", json!([disk]))] {
        let error = site.ask(method, arguments)["error"]["message"].to_string();
        if !error.contains(&device) {
            run("losetup", &["--detach", &device]);
            panic!("{method}: {error}");
        }
    }
    run("losetup", &["--detach", &device]);
    assert_eq!(fs::read(site.disk_folder(&disk).join("disk.json")).unwrap(), before);
    wait_for(|| loops(&site.image(&disk)).is_empty().then_some(()));
    site.attach(&vm, &disk);
}

#[test]
fn a_file_system_inside_the_disk_is_named() {
    if !is_own_machine("disks::held::a_file_system_inside_the_disk_is_named") {
        return;
    }
    let site = Site::new(Form::Image);
    let (vm, disk) = (site.new_vm(), site.new_disk(32));
    let folder = site.attach(&vm, &disk);
    let inside = folder.join("inside");
    fs::create_dir(&inside).unwrap();
    run("mount", &["-t", "tmpfs", "none", inside.to_str().unwrap()]);
    let error = site.refused("detach_disk", json!([vm, disk]));
    assert!(error.contains(inside.to_str().unwrap()), "{error}");
    run("umount", &[inside.to_str().unwrap()]);
    site.detach(&vm, &disk);
}

#[test]
fn after_a_restart_of_the_machine_reboot_vm_brings_the_disks_back() {
    if !is_own_machine("disks::held::after_a_restart_of_the_machine_reboot_vm_brings_the_disks_back") {
        return;
    }
    let site = Site::new(Form::Image);
    let (vm, disk) = (site.new_vm(), site.new_disk(32));
    let folder = site.attach(&vm, &disk);
    fs::write(folder.join("file"), "there").unwrap();
    // A restart takes the processes and the mounts.
    kill_hard(site.pid(&vm, "pid"));
    run("umount", &[folder.to_str().unwrap()]);
    run("umount", &[folder.parent().unwrap().to_str().unwrap()]);
    assert!(!folder.join("file").exists());
    site.ok("reboot_vm", json!([vm]));
    assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "there");
    assert_eq!(site.ok("get_disks", json!([vm])), json!([disk]));
}
