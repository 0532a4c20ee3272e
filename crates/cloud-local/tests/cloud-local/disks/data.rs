//! What was written to a disk is there again, whatever happened to the disk in between.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};

use super::site::{Form, Site, loops, read_tree, run, write_tree};
use crate::rig::own_machine::is_own_machine;
use crate::rig::read_json;

/// Snapshot, growth, a move to another VM, the end of the first VM, and a new disk from the snapshot.
fn survives(form: Form) {
    let site = Site::new(form);
    let (first, second) = (site.new_vm(), site.new_vm());
    let disk = site.new_disk(64);
    let folder = site.attach(&first, &disk);
    site.as_root_of(&first, || write_tree(&folder, 1));
    let written = read_tree(&folder);
    let snapshot = site.ok("snapshot_disk", json!([disk, {"index": 0, "tag": "t"}]));
    site.as_root_of(&first, || fs::write(folder.join("tree/later"), "later").unwrap());
    let later = read_tree(&folder);

    site.detach(&first, &disk);
    site.ok("resize_disk", json!([disk, 128]));
    let folder = site.attach(&second, &disk);
    site.ok("delete_vm", json!([first]));
    assert_eq!(read_tree(&folder), later);

    let restored = site.new_disk_with(96, json!({"snapshot_cid": snapshot}));
    let copy = site.attach(&second, &restored);
    assert_ne!(copy, folder);
    assert_eq!(read_tree(&copy), written);
    site.as_root_of(&second, || fs::write(copy.join("tree/only here"), "").unwrap());
    assert_eq!(read_tree(&folder), later, "a copy is not the original");
    assert_eq!(site.ok("get_disks", json!([second])).as_array().unwrap().len(), 2);
    if site.has_images() {
        let size = |folder: &std::path::Path| {
            let space = rustix::fs::statvfs(folder).unwrap();
            (space.f_blocks * space.f_frsize) >> 20
        };
        assert!((100..=128).contains(&size(&folder)) && (70..=96).contains(&size(&copy)), "the file system grew");
        assert_eq!(fs::metadata(site.image(&disk)).unwrap().len(), 128 << 20);
    }

    site.detach(&second, &disk);
    site.ok("delete_disk", json!([disk]));
    site.ok("delete_snapshot", json!([snapshot]));
    site.ok("delete_snapshot", json!([snapshot]));
    assert_eq!(site.ok("get_disks", json!([second])), json!([restored]));
    site.ok("delete_vm", json!([second]));
    assert_eq!(site.ok("has_disk", json!([restored])), json!(true), "a disk survives its VM");
    assert_eq!(site.unexplained(), Vec::<String>::new());
    site.ok("delete_disk", json!([restored]));
    assert!(site.list("disks").is_empty() && site.list("snapshots").is_empty());
}

#[test]
fn data_of_a_directory_survives_snapshot_growth_and_moves() {
    survives(Form::Directory);
}

#[test]
fn data_of_an_image_survives_snapshot_growth_and_moves() {
    if is_own_machine("disks::data::data_of_an_image_survives_snapshot_growth_and_moves") {
        survives(Form::Image);
    }
}

#[test]
fn data_of_a_containers_disk_survives_snapshot_growth_and_moves() {
    if is_own_machine("disks::data::data_of_a_containers_disk_survives_snapshot_growth_and_moves") {
        survives(Form::Container);
    }
}

#[test]
fn an_image_is_sparse_and_exactly_as_large_as_asked() {
    if !is_own_machine("disks::data::an_image_is_sparse_and_exactly_as_large_as_asked") {
        return;
    }
    let site = Site::new(Form::Image);
    for size in [1, 9, 1024] {
        let disk = site.new_disk(size);
        let image = fs::metadata(site.image(&disk)).unwrap();
        assert_eq!(image.len(), size << 20);
        assert!(image.blocks() * 512 < 8 << 20, "{} bytes of {size} MiB are allocated", image.blocks() * 512);
        assert_eq!(image.mode() & 0o777, 0o600);
        let vm = site.new_vm();
        fs::write(site.attach(&vm, &disk).join("file"), "x").unwrap();
        site.ok("delete_vm", json!([vm]));
        run("e2fsck", &["-f", "-n", site.image(&disk).to_str().unwrap()]);
    }
}

/// The director records the size that it asked for, so it must be true.
fn grows_and_never_shrinks(form: Form) {
    let site = Site::new(form);
    let disk = site.new_disk(16);
    let size = |disk: &str| read_json(&site.disk_folder(disk).join("disk.json"))["size_mib"].clone();
    site.ok("resize_disk", json!([disk, 16]));
    let error = site.refused("resize_disk", json!([disk, 8]));
    assert!(error.starts_with("Bosh::Clouds::NotSupported"), "{error}");
    let error = site.refused("update_disk", json!([disk, 8, {}]));
    assert!(error.starts_with("Bosh::Clouds::NotSupported"), "{error}");
    assert_eq!(size(&disk), 16);
    site.ok("resize_disk", json!([disk, 40]));
    assert_eq!(size(&disk), 40);
    assert_eq!(site.ok("update_disk", json!([disk, 48, {"type": "fast"}])), Value::Null);
    assert_eq!(size(&disk), 48);
    assert_eq!(read_json(&site.disk_folder(&disk).join("disk.json"))["cloud_properties"], json!({"type": "fast"}));
    let absent = format!("disk-{}", crate::rig::unique());
    for (method, arguments) in [("resize_disk", json!([absent, 99])), ("update_disk", json!([absent, 99, {}]))] {
        let error = site.refused(method, arguments);
        assert!(error.starts_with("Bosh::Clouds::DiskNotFound"), "{error}");
    }
}

#[test]
fn a_directory_grows_and_never_shrinks() {
    grows_and_never_shrinks(Form::Directory);
}

#[test]
fn an_image_grows_and_never_shrinks() {
    if is_own_machine("disks::data::an_image_grows_and_never_shrinks") {
        grows_and_never_shrinks(Form::Image);
    }
}

/// Where the kernel does not let us, the disk stays as it is and the remedy is named.
#[test]
fn an_image_in_use_grows_or_says_that_it_must_be_detached() {
    if !is_own_machine("disks::data::an_image_in_use_grows_or_says_that_it_must_be_detached") {
        return;
    }
    let site = Site::new(Form::Image);
    let (vm, disk) = (site.new_vm(), site.new_disk(64));
    let folder = site.attach(&vm, &disk);
    write_tree(&folder, 2);
    let written = read_tree(&folder);
    let rights = rustix::thread::capabilities(None).unwrap();
    let may = rights.effective.contains(rustix::thread::CapabilitySet::SYS_RESOURCE);
    if may {
        site.ok("resize_disk", json!([disk, 200]));
    } else {
        let error = site.refused("resize_disk", json!([disk, 200]));
        assert!(error.contains("CAP_SYS_RESOURCE") && error.contains("detach the disk first"), "{error}");
    }
    let space = rustix::fs::statvfs(&folder).unwrap();
    assert_eq!(space.f_blocks * space.f_frsize > 100 << 20, may);
    assert_eq!(fs::metadata(site.image(&disk)).unwrap().len() >> 20, if may { 200 } else { 64 });
    assert_eq!(read_tree(&folder), written);
    site.detach(&vm, &disk);
    site.ok("resize_disk", json!([disk, 200]));
    assert_eq!(read_tree(&site.attach(&vm, &disk)), written);
    assert_eq!(loops(&site.image(&disk)).len(), 1);
}
