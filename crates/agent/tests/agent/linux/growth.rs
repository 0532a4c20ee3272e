//! First format, the next mount, and growth.

use serde_json::json;

use super::own_machine::{MIB, OwnMachine};
use super::private::in_namespaces;

/// How large the file system on the store is.
fn size(own: &OwnMachine) -> u64 {
    let found = rustix::fs::statvfs(own.base("store")).unwrap();
    found.f_blocks * found.f_frsize
}

#[test]
fn a_blank_disk_is_formatted_once_and_grows_with_its_data() {
    in_namespaces("linux::growth::a_blank_disk_is_formatted_once_and_grows_with_its_data", async || {
        for kind in ["ext4", "xfs"] {
            let mut own = OwnMachine::new(json!({}));
            own.machine.settings["env"]["persistent_disk_fs"] = json!(kind);
            own.machine.settings["env"]["persistent_disk_mount_options"] = json!(["noatime", "nodev"]);
            own.machine.start().await;
            let disk = own.disk("disk", 400 * MIB);
            own.mount("d", json!(disk.path())).await.unwrap();
            let (found, flags, device) = own.mounted("store").unwrap();
            assert_eq!(
                (found.as_str(), flags.as_str(), device),
                (kind, "rw,nodev,noatime", format!("{}p1", disk.path()))
            );
            std::fs::write(own.base("store/data"), "precious").unwrap();
            assert_eq!(own.machine.state("managed_disk_settings.json"), "d");

            // Mounting again changes nothing, and neither does the wish for another file system.
            own.mount("d", json!(disk.path())).await.unwrap();
            own.reboot();
            own.machine.settings["env"]["persistent_disk_fs"] = json!(if kind == "xfs" { "ext4" } else { "xfs" });
            own.machine.start().await;
            assert_eq!(own.mounted("store").unwrap().0, kind, "it is mounted at the boot");
            assert_eq!(std::fs::read_to_string(own.base("store/data")).unwrap(), "precious");
            own.unmount("d").await;
            own.mount("d", json!(disk.path())).await.unwrap();
            assert_eq!(std::fs::read_to_string(own.base("store/data")).unwrap(), "precious");

            // A little more is not worth the trouble, a lot is; while it is mounted and while it is not.
            let before = size(&own);
            own.unmount("d").await;
            disk.grow(450 * MIB);
            own.mount("d", json!(disk.path())).await.unwrap();
            assert_eq!(size(&own), before);
            own.unmount("d").await;
            disk.grow(800 * MIB);
            own.mount("d", json!(disk.path())).await.unwrap();
            assert!(size(&own) > 700 * MIB, "{kind} has {} MiB", size(&own) / MIB);
            disk.grow(1200 * MIB);
            own.mount("d", json!(disk.path())).await.unwrap();
            assert!(size(&own) > 1100 * MIB, "{kind} has {} MiB", size(&own) / MIB);
            assert_eq!(std::fs::read_to_string(own.base("store/data")).unwrap(), "precious");
        }
    });
}

#[test]
fn a_disk_that_comes_formatted_is_mounted_as_it_is() {
    in_namespaces("linux::growth::a_disk_that_comes_formatted_is_mounted_as_it_is", async || {
        let own = OwnMachine::started(json!({"UsePreformattedPersistentDisk": true})).await;
        let disk = own.disk("disk", 64 * MIB);
        let error = own.mount("d", json!(disk.path())).await.unwrap_err();
        assert!(error.contains("holds nothing, and on this stemcell disks come formatted"), "{error}");
        super::private::run("mke2fs", ["-q", "-t", "ext4", &disk.path()]);
        for _ in 0..2 {
            own.mount("d", json!(disk.path())).await.unwrap();
            assert_eq!(own.mounted("store").unwrap().2, disk.path());
        }
        assert!(own.mounted("store_migration_target").is_none());
        assert!(own.unmount("d").await.starts_with("Unmounted"));
        assert!(own.unmount("d").await.ends_with("is not mounted"));
    });
}
