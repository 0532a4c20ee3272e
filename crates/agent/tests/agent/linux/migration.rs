//! Data moves from one file system to another as it is.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::XattrFlags;
use serde_json::json;
use windlass_contract::DiskCid;

use super::own_machine::{MIB, OwnMachine};
use super::private::{in_namespaces, run};

/// Rights of user 1000 beside the usual ones: version, then tag, permissions and id of each entry.
const ACL: &[u8] = &[
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 4, 0, 232, 3, 0, 0, 4, 0, 0, 0, 255, 255, 255, 255, 16, 0, 4, 0,
    255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];
/// May open low ports.
const CAPABILITY: &[u8] = &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn fill(folder: &Path) {
    std::fs::create_dir(folder.join("db")).unwrap();
    let data = folder.join("db/data");
    std::fs::write(&data, "precious").unwrap();
    chown(&data, Some(1000), Some(1001)).unwrap();
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o750)).unwrap();
    for (name, value) in
        [("user.tag", &b"v"[..]), ("system.posix_acl_access", ACL), ("security.capability", CAPABILITY)]
    {
        rustix::fs::lsetxattr(&data, name, value, XattrFlags::empty()).unwrap();
    }
    std::fs::hard_link(&data, folder.join("same")).unwrap();
    std::os::unix::fs::symlink("db/data", folder.join("link")).unwrap();
    let sparse = std::fs::File::create(folder.join("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"island", 512 << 20).unwrap();
}

fn check(folder: &Path) {
    let data = folder.join("db/data");
    let found = data.metadata().unwrap();
    assert_eq!(std::fs::read_to_string(&data).unwrap(), "precious");
    assert_eq!((found.uid(), found.gid(), found.nlink()), (1000, 1001, 2));
    assert_eq!(found.ino(), folder.join("same").metadata().unwrap().ino());
    for (name, value) in
        [("user.tag", &b"v"[..]), ("system.posix_acl_access", ACL), ("security.capability", CAPABILITY)]
    {
        let mut found = [0; 100];
        let length = rustix::fs::lgetxattr(&data, name, &mut found).unwrap();
        assert_eq!(&found[..length], value, "{name}");
    }
    assert_eq!(std::fs::read_link(folder.join("link")).unwrap(), Path::new("db/data"));
    let sparse = folder.join("sparse").metadata().unwrap();
    assert!(sparse.len() == 1 << 30 && sparse.blocks() < 2048, "{sparse:?}");
}

#[test]
fn data_moves_between_file_systems_as_it_is_and_the_old_disk_keeps_it() {
    in_namespaces("linux::migration::data_moves_between_file_systems_as_it_is_and_the_old_disk_keeps_it", async || {
        for (from, to) in [("ext4", "xfs"), ("xfs", "ext4")] {
            let mut own = OwnMachine::new(json!({}));
            own.machine.settings["env"]["persistent_disk_fs"] = json!(from);
            own.machine.start().await;
            let (old, new) = (own.disk("old", 400 * MIB), own.disk("new", 500 * MIB));
            own.mount("old", json!(old.path())).await.unwrap();
            fill(&own.base("store"));
            own.machine.kill();
            own.machine.settings["env"]["persistent_disk_fs"] = json!(to);
            own.machine.start().await;
            own.mount("new", json!(new.path())).await.unwrap();
            assert_eq!(own.mounted("store_migration_target").unwrap().0, to);
            let third = own.disk("third", 64 * MIB);
            let error = own.mount("third", json!(third.path())).await.unwrap_err();
            assert!(error.contains("both hold other disks"), "{error}");

            let director = own.machine.director();
            let (old_cid, new_cid) = (DiskCid::new("old").unwrap(), DiskCid::new("new").unwrap());
            for _ in 0..2 {
                director.migrate_disk(&old_cid, &new_cid).await.unwrap();
                assert_eq!(own.mounted("store").unwrap().2, format!("{}p1", new.path()));
                assert!(own.mounted("store_migration_target").is_none());
                check(&own.base("store"));
            }
            assert_eq!(director.list_disk().await.unwrap(), [new_cid]);
            assert!(own.unmount("old").await.ends_with("is not mounted"));
            own.reboot();
            own.machine.start().await;
            check(&own.base("store"));

            let elsewhere = tempfile::tempdir().unwrap();
            run(
                "mount",
                [
                    "-o".as_ref(),
                    "ro".as_ref(),
                    own.at(format!("{}p1", old.path())).as_os_str(),
                    elsewhere.path().as_os_str(),
                ],
            );
            check(elsewhere.path());
            run("umount", [elsewhere.path()]);
        }
    });
}

#[test]
fn a_migration_that_fails_leaves_the_old_disk_writable() {
    in_namespaces("linux::migration::a_migration_that_fails_leaves_the_old_disk_writable", async || {
        let own = OwnMachine::started(json!({})).await;
        let (old, new) = (own.disk("old", 64 * MIB), own.disk("new", 32 * MIB));
        own.mount("old", json!(old.path())).await.unwrap();
        std::fs::write(own.base("store/large"), vec![1; 40 * MIB as usize]).unwrap();
        own.mount("new", json!(new.path())).await.unwrap();
        let (old_cid, new_cid) = (DiskCid::new("old").unwrap(), DiskCid::new("new").unwrap());
        let error = own.machine.director().migrate_disk(&old_cid, &new_cid).await.unwrap_err().to_string();
        assert!(error.contains("the source is untouched") && error.contains("No space left"), "{error}");
        assert_eq!(own.mounted("store").unwrap().2, format!("{}p1", old.path()));
        std::fs::write(own.base("store/more"), "jobs go on").unwrap();
    });
}
