//! The CPI killed at each of its steps with a disk in its hands: the repeated call finishes the job, and nothing is lost or left.

use std::fs;

use serde_json::{Value, json};
use windlass_durable::sweep::Points;

use super::site::{Form, Site};
use crate::rig::own_machine::is_own_machine;
use crate::rig::{request, unique};

/// What a call has to work on.
struct Scene {
    vm: String,
    /// Has the file `kept`; attached or not, as the call needs it.
    disk: String,
    snapshot: Value,
}

impl Scene {
    fn new(site: &Site, vm: &str, is_attached: bool) -> Self {
        let disk = site.new_disk(32);
        let folder = site.attach(vm, &disk);
        site.as_root_of(vm, || fs::write(folder.join("kept"), "kept").unwrap());
        let snapshot = site.ok("snapshot_disk", json!([disk, {}]));
        if !is_attached {
            site.detach(vm, &disk);
        }
        Self { vm: vm.to_owned(), disk, snapshot }
    }
}

/// Kills the call at its points, repeats it, looks, and tidies up; then no file, mount or loop device is left that nothing explains.
fn sweep(form: Form, method: &str, is_attached: bool, arguments: impl Fn(&Scene) -> Value) {
    let site = Site::new(form);
    let mut vm = site.new_vm();
    let mut killed = 0;
    for point in Points::sampled(9) {
        let scene = Scene::new(&site, &vm, is_attached);
        let asked = request(method, arguments(&scene), &unique());
        let answer = site.with_disks_of_the_form(|| {
            let unkilled = site.send(&asked, Some(point));
            let was_killed = unkilled.is_none();
            (was_killed, unkilled.unwrap_or_else(|| site.send(&asked, None).unwrap()))
        });
        let (was_killed, answer) = answer;
        assert_eq!(answer["error"], Value::Null, "{method} killed at point {point}");
        assert_eq!(site.unexplained(), Vec::<String>::new(), "{method} killed at point {point}");
        check(&site, method, &scene, &answer["result"]);
        if method == "delete_vm" {
            vm = site.new_vm();
        }
        tidy_up(&site, &vm, &scene);
        killed += u32::from(was_killed);
        if !was_killed {
            eprintln!("{method} with {form:?}: killed {killed} times");
            assert!(killed > 0, "the sweep of {method} killed nothing");
            return;
        }
    }
}

/// What the call promises, and that the data is there.
fn check(site: &Site, method: &str, scene: &Scene, result: &Value) {
    let Scene { vm, disk, snapshot } = scene;
    let kept = |vm: &str, disk: &str| fs::read_to_string(site.attach(vm, disk).join("kept")).unwrap();
    match method {
        "create_disk" | "snapshot_disk" => {
            let made = result.as_str().unwrap();
            let shelf = if method == "create_disk" { "disks" } else { "snapshots" };
            let mut known = vec![disk.as_str(), snapshot.as_str().unwrap(), made];
            known.retain(|cid| cid.starts_with(&made[..4]));
            known.sort_unstable();
            assert_eq!(site.list(shelf), known, "exactly one was made");
            if method == "create_disk" {
                assert_eq!(kept(vm, made), "kept");
                site.detach(vm, made);
                site.ok("delete_disk", json!([made]));
            } else {
                site.ok("delete_snapshot", json!([made]));
            }
        }
        "attach_disk" => assert_eq!(site.ok("get_disks", json!([vm])), json!([disk])),
        "detach_disk" => assert_eq!(site.ok("get_disks", json!([vm])), json!([])),
        "resize_disk" | "update_disk" => {
            let record = crate::rig::read_json(&site.disk_folder(disk).join("disk.json"));
            assert_eq!(record["size_mib"], 64);
            if site.has_images() {
                assert_eq!(fs::metadata(site.image(disk)).unwrap().len(), 64 << 20);
                let space = rustix::fs::statvfs(site.attach(vm, disk)).unwrap();
                assert!(space.f_blocks * space.f_frsize > 48 << 20, "the file system fills it");
            }
        }
        "delete_disk" => assert!(site.list("disks").is_empty()),
        "delete_snapshot" => assert!(site.list("snapshots").is_empty()),
        "delete_vm" => assert!(site.list("vms").is_empty()),
        other => panic!("{other} is not looked at"),
    }
    if !["delete_disk", "delete_vm"].contains(&method) {
        assert_eq!(kept(vm, disk), "kept", "no disk is lost");
    }
}

fn tidy_up(site: &Site, vm: &str, scene: &Scene) {
    let kept = site.ok("has_disk", json!([scene.disk])) == json!(true);
    if kept {
        let folder = site.attach(vm, &scene.disk);
        assert_eq!(fs::read_to_string(folder.join("kept")).unwrap(), "kept");
        site.detach(vm, &scene.disk);
    }
    site.ok("delete_disk", json!([scene.disk]));
    site.ok("delete_snapshot", json!([scene.snapshot]));
    assert!(site.list("disks").is_empty() && site.list("snapshots").is_empty());
    let locks = site.list("locks");
    assert!(locks.iter().all(|lock| lock.starts_with("sc-") || lock == vm || lock == "networks"), "{locks:?}");
    assert_eq!(site.unexplained(), Vec::<String>::new());
}

fn sweep_all(form: Form) {
    sweep(form, "create_disk", false, |scene| json!([48, {"snapshot_cid": scene.snapshot}, null]));
    sweep(form, "attach_disk", false, |scene| json!([scene.vm, scene.disk]));
    sweep(form, "detach_disk", true, |scene| json!([scene.vm, scene.disk]));
    sweep(form, "resize_disk", false, |scene| json!([scene.disk, 64]));
    sweep(form, "update_disk", false, |scene| json!([scene.disk, 64, {"a": "b"}]));
    sweep(form, "snapshot_disk", true, |scene| json!([scene.disk, {}]));
    sweep(form, "snapshot_disk", false, |scene| json!([scene.disk, {}]));
    sweep(form, "delete_disk", false, |scene| json!([scene.disk]));
    sweep(form, "delete_snapshot", false, |scene| json!([scene.snapshot]));
    sweep(form, "delete_vm", true, |scene| json!([scene.vm]));
}

/// An agent took the bare folder for the disk that an unfinished detachment had unmounted in the VM alone.
#[test]
fn a_disk_whose_detachment_was_killed_anywhere_is_whole_when_it_is_attached_again() {
    if !is_own_machine("disks::kills::a_disk_whose_detachment_was_killed_anywhere_is_whole_when_it_is_attached_again") {
        return;
    }
    let site = Site::new(Form::Container);
    let vm = site.new_vm();
    let mut killed = 0;
    for point in Points::sampled(3) {
        let scene = Scene::new(&site, &vm, true);
        site.inside(&vm, &format!("mount -o bind /warden-cpi-dev/{} /mnt", scene.disk));
        let asked = request("detach_disk", json!([vm, scene.disk]), &unique());
        let was_killed = site.send(&asked, Some(point)).is_none();
        let folder = site.attach(&vm, &scene.disk);
        assert_eq!(fs::read_to_string(folder.join("kept")).unwrap(), "kept", "killed at point {point}");
        tidy_up(&site, &vm, &scene);
        killed += u32::from(was_killed);
        if !was_killed {
            assert!(killed > 0, "the sweep killed nothing");
            return;
        }
    }
}

#[test]
fn every_method_killed_anywhere_with_a_directory_loses_and_leaves_nothing() {
    sweep_all(Form::Directory);
}

#[test]
fn every_method_killed_anywhere_with_an_image_loses_and_leaves_nothing() {
    if is_own_machine("disks::kills::every_method_killed_anywhere_with_an_image_loses_and_leaves_nothing") {
        sweep_all(Form::Image);
    }
}

#[test]
fn every_method_killed_anywhere_with_a_containers_disk_loses_and_leaves_nothing() {
    if is_own_machine("disks::kills::every_method_killed_anywhere_with_a_containers_disk_loses_and_leaves_nothing") {
        sweep_all(Form::Container);
    }
}
