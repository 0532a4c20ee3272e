//! Snapshots: of one moment, cheap where the file system can, and never at the price of a disk that stands still.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::site::{Form, Site, run};
use crate::rig::own_machine::is_own_machine;
use crate::rig::wait_for;

#[test]
fn a_snapshot_of_a_busy_image_is_whole() {
    if !is_own_machine("disks::snapshots::a_snapshot_of_a_busy_image_is_whole") {
        return;
    }
    let site = Site::new(Form::Image);
    let (vm, disk) = (site.new_vm(), site.new_disk(128));
    let folder = site.attach(&vm, &disk);
    let done = AtomicBool::new(false);
    let snapshots: Vec<String> = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0_u64.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let path = folder.join(format!("file {}", number % 50));
                let _ = fs::remove_file(&path);
                fs::write(&path, vec![number as u8; 30_000]).unwrap();
            }
        });
        let taken = (0..5).map(|_| site.ok("snapshot_disk", json!([disk, {}])).as_str().unwrap().to_owned()).collect();
        done.store(true, Ordering::Relaxed);
        taken
    });
    for snapshot in snapshots {
        let image = site.state().join("snapshots").join(&snapshot).join("image");
        // Not even a journal to be replayed: it was frozen.
        run("e2fsck", &["-f", "-n", image.to_str().unwrap()]);
        let allocated = fs::metadata(&image).unwrap().blocks() * 512;
        assert!(allocated < 64 << 20, "{allocated} bytes for 1.5 MB of data");
    }
}

/// The keeper dies with the call, and only the mark is left.
#[test]
fn a_disk_that_was_left_frozen_is_thawed_by_the_next_call() {
    if !is_own_machine("disks::snapshots::a_disk_that_was_left_frozen_is_thawed_by_the_next_call") {
        return;
    }
    let site = Site::new(Form::Image);
    let (vm, disk) = (site.new_vm(), site.new_disk(32));
    let folder = site.attach(&vm, &disk);
    for method in ["snapshot_disk", "detach_disk"] {
        fs::write(site.disk_folder(&disk).join("frozen"), folder.to_str().unwrap()).unwrap();
        run("fsfreeze", &["--freeze", folder.to_str().unwrap()]);
        if method == "snapshot_disk" {
            site.ok(method, json!([disk, {}]));
            fs::write(folder.join("file"), "goes on").unwrap();
        } else {
            site.detach(&vm, &disk);
        }
        assert!(!site.disk_folder(&disk).join("frozen").exists());
    }
}

/// A file system of its own for the state.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(at: &'a Path, make: &[&str], size_mib: u64) -> Self {
        let image = at.with_extension("host");
        fs::File::create(&image).unwrap().set_len(size_mib << 20).unwrap();
        let arguments: Vec<&str> = make[1..].iter().copied().chain([image.to_str().unwrap()]).collect();
        run(make[0], &arguments);
        fs::create_dir_all(at).unwrap();
        run("mount", &["-o", "loop", image.to_str().unwrap(), at.to_str().unwrap()]);
        Self(at)
    }

    fn used(&self) -> u64 {
        run("sync", &["-f", self.0.to_str().unwrap()]);
        let space = rustix::fs::statvfs(self.0).unwrap();
        (space.f_blocks - space.f_bfree) * space.f_frsize
    }
}

fn random(path: &Path, mib: usize) {
    let mut source = fs::File::open("/dev/urandom").unwrap();
    let mut bytes = vec![0; mib << 20];
    std::io::Read::read_exact(&mut source, &mut bytes).unwrap();
    fs::write(path, bytes).unwrap();
}

fn takes_no_space_on_xfs(form: Form) {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("xfs");
    let host = Mounted::new(&at, &["mkfs.xfs", "-q", "-m", "reflink=1"], 700);
    {
        let site = Site::new_in(form, &at);
        let (vm, disk) = (site.new_vm(), site.new_disk(200));
        let data = site.attach(&vm, &disk);
        random(&data.join("data"), 80);
        run("sync", &["-f", data.to_str().unwrap()]);
        let before = host.used();
        let snapshot = site.ok("snapshot_disk", json!([disk, {}]));
        let restored = site.new_disk_with(200, json!({"snapshot_cid": snapshot}));
        let grown = host.used().saturating_sub(before);
        assert!(grown < 8 << 20, "a snapshot and a disk from it took {grown} bytes of 80 MiB");
        let restored = site.attach(&vm, &restored);
        assert!(fs::read(data.join("data")).unwrap() == fs::read(restored.join("data")).unwrap());
    }
    run("umount", &[at.to_str().unwrap()]);
}

#[test]
fn snapshots_of_images_take_no_space_where_blocks_can_be_shared() {
    if is_own_machine("disks::snapshots::snapshots_of_images_take_no_space_where_blocks_can_be_shared") {
        takes_no_space_on_xfs(Form::Image);
    }
}

#[test]
fn snapshots_of_directories_take_no_space_where_blocks_can_be_shared() {
    if is_own_machine("disks::snapshots::snapshots_of_directories_take_no_space_where_blocks_can_be_shared") {
        takes_no_space_on_xfs(Form::Directory);
    }
}

fn is_refused_without_space(form: Form) {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("small");
    let _host = Mounted::new(&at, &["mkfs.ext4", "-q", "-F"], 100);
    {
        let site = Site::new_in(form, &at);
        let (vm, disk) = (site.new_vm(), site.new_disk(64));
        let data = site.attach(&vm, &disk);
        random(&data.join("data"), 50);
        run("sync", &["-f", data.to_str().unwrap()]);
        let error = site.refused("snapshot_disk", json!([disk, {}]));
        assert!(error.starts_with("Bosh::Clouds::NoDiskSpace") && error.contains("free some space"), "{error}");
        assert!(site.list("snapshots").is_empty(), "{:?}", site.list("snapshots"));
        if form == Form::Image {
            for (method, arguments) in [("create_disk", json!([99, {}, null])), ("resize_disk", json!([disk, 9999]))] {
                let error = site.with_disks_of_the_form(|| site.refused(method, arguments));
                assert!(error.starts_with("Bosh::Clouds::NoDiskSpace"), "{error}");
            }
            assert_eq!(fs::metadata(site.image(&disk)).unwrap().len(), 64 << 20);
        }
        assert_eq!(site.list("disks"), [disk.as_str()]);
        fs::write(data.join("file"), "not frozen").unwrap();
    }
    run("umount", &[at.to_str().unwrap()]);
}

#[test]
fn an_image_without_space_for_its_copy_is_refused_before_anything_is_made() {
    if is_own_machine("disks::snapshots::an_image_without_space_for_its_copy_is_refused_before_anything_is_made") {
        is_refused_without_space(Form::Image);
    }
}

#[test]
fn a_directory_without_space_for_its_copy_is_refused_before_anything_is_made() {
    if is_own_machine("disks::snapshots::a_directory_without_space_for_its_copy_is_refused_before_anything_is_made") {
        is_refused_without_space(Form::Directory);
    }
}

/// Whatever point the call is killed at, the VM's writes go on at once, without waiting for a further call.
#[test]
fn a_killed_snapshot_never_leaves_a_disk_standing_still() {
    if !is_own_machine("disks::snapshots::a_killed_snapshot_never_leaves_a_disk_standing_still") {
        return;
    }
    let site = Site::new(Form::Image);
    let (vm, disk) = (site.new_vm(), site.new_disk(32));
    let folder = site.attach(&vm, &disk);
    for point in 1.. {
        let request = crate::rig::request("snapshot_disk", json!([disk, {}]), &crate::rig::unique());
        let unkilled = site.send(&request, Some(point));
        let file = folder.join(format!("written after {point}"));
        let writer = std::thread::spawn(move || fs::write(file, "goes on").unwrap());
        wait_for(|| writer.is_finished().then_some(()));
        writer.join().unwrap();
        if unkilled.is_some() {
            assert!(point > 8, "the sweep passed only {point} points");
            return;
        }
    }
}
