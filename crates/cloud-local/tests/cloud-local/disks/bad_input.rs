//! What cannot be meant is refused, and nothing changes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::site::{Form, Site};
use crate::rig::own_machine::is_own_machine;
use crate::rig::unique;

/// All there is, but for the SDK's memory and locks.
fn everything(site: &Site) -> BTreeSet<PathBuf> {
    fn walk(folder: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            found.insert(entry.path());
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), found);
            }
        }
    }
    let mut found = BTreeSet::new();
    for shelf in ["stemcells", "disks", "snapshots"] {
        walk(&site.state().join(shelf), &mut found);
    }
    found
}

fn is_refused(form: Form) {
    let site = Site::new(form);
    let (vm, disk) = (site.new_vm(), site.new_disk(32));
    let snapshot = site.ok("snapshot_disk", json!([disk, {}]));
    let before = everything(&site);
    let from = |snapshot: Value| json!([64, {"snapshot_cid": snapshot}, null]);
    let absent = format!("snap-{}", unique());
    let calls = [
        ("create_disk", json!([-1, {}, null])),
        ("create_disk", json!([0, {}, null])),
        ("create_disk", json!([u64::MAX, {}, null])),
        ("create_disk", json!([1_u64 << 40, {}, null])),
        ("create_disk", json!(["64", {}, null])),
        ("create_disk", from(json!(absent))),
        ("create_disk", from(json!(format!("../snapshots/{}", snapshot.as_str().unwrap())))),
        ("create_disk", from(json!("/etc"))),
        ("create_disk", from(json!(""))),
        ("create_disk", from(json!(7))),
        ("create_disk", json!([16, {"snapshot_cid": snapshot}, null])),
        ("resize_disk", json!([disk, -1])),
        ("resize_disk", json!([disk, 0])),
        ("resize_disk", json!([disk, u64::MAX])),
        ("resize_disk", json!([format!("../disks/{disk}"), 64])),
        ("update_disk", json!([disk, 1_u64 << 40, {}])),
        ("snapshot_disk", json!([format!("disk-{}", unique()), {}])),
        ("snapshot_disk", json!([format!("{disk}/../{disk}"), {}])),
        ("snapshot_disk", json!(["", {}])),
        ("attach_disk", json!([vm, format!("./{disk}")])),
        ("attach_disk", json!([format!("../vms/{vm}"), disk])),
        ("set_disk_metadata", json!([format!("disk-{}", unique()), {}])),
    ];
    site.with_disks_of_the_form(|| {
        for (method, arguments) in calls {
            let error = site.refused(method, arguments.clone());
            assert!(error.starts_with("Bosh::Clouds::"), "{method} {arguments}: {error}");
        }
    });
    for (method, arguments) in [
        ("delete_disk", json!([format!("../disks/{disk}")])),
        ("delete_snapshot", json!([format!("../snapshots/{}", snapshot.as_str().unwrap())])),
        ("detach_disk", json!([vm, "../../etc"])),
    ] {
        site.ok(method, arguments);
    }
    assert_eq!(site.ok("has_disk", json!(["../../etc"])), json!(false));
    assert_eq!(everything(&site), before);
    assert_eq!(site.unexplained(), Vec::<String>::new());
}

#[test]
fn nonsense_about_directories_is_refused_and_changes_nothing() {
    is_refused(Form::Directory);
}

#[test]
fn nonsense_about_images_is_refused_and_changes_nothing() {
    if is_own_machine("disks::bad_input::nonsense_about_images_is_refused_and_changes_nothing") {
        is_refused(Form::Image);
    }
}
