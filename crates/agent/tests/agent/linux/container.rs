//! A container with nothing but the agent in it: folders are disks, and the kernel is all that is needed.

use serde_json::json;
use windlass_contract::DiskCid;

use super::own_machine::OwnMachine;
use super::private::in_namespaces;

#[test]
fn a_container_without_programs_has_its_disks() {
    in_namespaces("linux::container::a_container_without_programs_has_its_disks", async || {
        let options =
            json!({"UsePreformattedPersistentDisk": true, "BindMountPersistentDisk": true, "UseDefaultTmpDir": true});
        let mut own = OwnMachine::new(options).without_programs();
        own.machine.settings["env"]["persistent_disk_mount_options"] = json!(["noatime"]);
        own.machine.settings["env"]["bosh"]["password"] = json!("$6$x");
        own.machine.settings["env"]["bosh"]["authorized_keys"] = json!(["ssh-rsa A"]);
        let [old, new] = ["old", "new"].map(|cid| format!("/disks/{cid}"));
        for path in [&old, &new] {
            std::fs::create_dir_all(own.at(path)).unwrap();
        }
        // One is a mount of its own, as a CPI hands it over.
        super::private::run("mount", ["-t".as_ref(), "tmpfs".as_ref(), "tmpfs".as_ref(), own.at(&old).as_os_str()]);
        own.machine.start().await;
        let director = own.machine.director();
        let (old_cid, new_cid) = (DiskCid::new("old").unwrap(), DiskCid::new("new").unwrap());
        assert!(director.list_disk().await.unwrap().is_empty());
        for _ in 0..2 {
            own.mount("old", json!(old)).await.unwrap();
            assert!(own.mounted("store_migration_target").is_none(), "mounting again changes nothing");
        }
        assert!(own.mounted("store").unwrap().1.contains("noatime"));
        std::fs::write(own.base("store/data"), "precious").unwrap();
        assert_eq!(std::fs::read_to_string(own.at(&old).join("data")).unwrap(), "precious");
        own.mount("new", json!({"path": new})).await.unwrap();
        assert_eq!(director.list_disk().await.unwrap(), [new_cid.clone(), old_cid.clone()]);
        for _ in 0..2 {
            director.migrate_disk(&old_cid, &new_cid).await.unwrap();
        }
        assert_eq!(director.list_disk().await.unwrap(), std::slice::from_ref(&new_cid));
        for path in [own.at(&old), own.at(&new), own.base("store")] {
            assert_eq!(std::fs::read_to_string(path.join("data")).unwrap(), "precious");
        }
        std::fs::write(own.base("store/more"), "writable").unwrap();
        assert!(own.unmount("old").await.ends_with("is not mounted"));
        let error = own.mount("gone", json!("/etc/ssh/ssh_host_rsa_key.pub")).await.unwrap_err();
        assert!(error.contains("which is no directory"), "{error}");
        own.mount("new", json!(new)).await.unwrap();

        own.reboot();
        own.machine.start().await;
        assert_eq!(std::fs::read_to_string(own.base("store/data")).unwrap(), "precious", "a boot mounts it again");
        let director = own.machine.director();
        assert!(own.unmount("new").await.starts_with("Unmounted partition of"));
        assert!(director.list_disk().await.unwrap().is_empty());
        assert!(own.base("store").read_dir().unwrap().next().is_none());
    });
}
