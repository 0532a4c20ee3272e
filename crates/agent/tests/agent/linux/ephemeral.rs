//! Disks that live as long as the VM.

use serde_json::{Value, json};

use super::own_machine::{MIB, OwnMachine};
use super::private::{LoopDisk, in_namespaces, run};

fn table(device: &str) -> Value {
    serde_json::from_str::<Value>(&run("sfdisk", ["--json", device])).unwrap()["partitiontable"].clone()
}

fn options() -> Value {
    json!({"SkipDiskSetup": false})
}

#[test]
fn the_ephemeral_disk_holds_swap_and_data_and_belongs_to_one_vm() {
    in_namespaces("linux::ephemeral::the_ephemeral_disk_holds_swap_and_data_and_belongs_to_one_vm", async || {
        let mut own = OwnMachine::new(options());
        let disk = own.disk("ephemeral", 128 * MIB);
        // What an earlier VM left there may be wiped.
        run("mke2fs", ["-q", "-t", "ext4", &disk.path()]);
        own.machine.settings["disks"]["ephemeral"] = json!(disk.path());
        own.machine.settings["env"]["bosh"]["swap_size"] = json!(16);
        own.machine.start().await;
        let label: String = format!("bosh-partition-{}", own.machine.agent_id).chars().take(32).collect();
        let found = table(&disk.path());
        let names: Vec<&str> =
            found["partitions"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(
            (&found["label"], names),
            (&json!("gpt"), vec![format!("{label}-0").as_str(), &format!("{label}-1")])
        );
        assert_eq!(found["partitions"][0]["size"], json!(16 * MIB / 512));
        assert_eq!(
            own.mounted("data").map(|mount| (mount.0, mount.2)),
            Some(("ext4".into(), format!("{}p2", disk.path())))
        );
        let log = std::fs::read_to_string(own.at("/stubs/log")).unwrap();
        assert_eq!(log.trim(), format!("swapon {}p1", disk.path()));
        assert!(own.base("data/sys/log").is_dir() && own.base("data/blobs").is_dir());

        // A boot finds it as it was.
        std::fs::write(own.base("data/kept"), "").unwrap();
        own.reboot();
        own.machine.start().await;
        assert!(own.base("data/kept").exists());
        assert_eq!(table(&disk.path()), found);

        // Another VM begins with nothing.
        own.reboot();
        own.machine.settings["agent_id"] = json!("00000000-1111-2222-3333-444444444444");
        std::fs::remove_file(own.machine.base().join("bosh/agent_state.json")).unwrap();
        own.machine.spawn();
        let deadline = std::time::Instant::now() + crate::machine::PATIENCE;
        while own.mounted("data").is_none() {
            assert!(std::time::Instant::now() < deadline, "{}", own.machine.console());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert!(!own.base("data/kept").exists());
        assert_eq!(table(&disk.path())["partitions"][1]["name"], "bosh-partition-00000000-1111-222-1");
    });
}

#[test]
fn a_disk_of_worth_is_not_taken_for_an_ephemeral_one() {
    in_namespaces("linux::ephemeral::a_disk_of_worth_is_not_taken_for_an_ephemeral_one", async || {
        let mut own = OwnMachine::started(json!({})).await;
        let disk = own.disk("disk", 64 * MIB);
        own.mount("d", json!(disk.path())).await.unwrap();
        std::fs::write(own.base("store/data"), "precious").unwrap();
        let refused = async |own: &mut OwnMachine| {
            own.configure(options());
            own.machine.settings["disks"]["ephemeral"] = json!(disk.path());
            own.machine.spawn();
            assert_eq!(own.machine.ended().await.code(), Some(1));
            own.machine.console()
        };
        own.machine.kill();
        let console = refused(&mut own).await;
        assert!(
            console.contains(&format!("the ephemeral disk {} is also the persistent disk 'd'", disk.path())),
            "{console}"
        );
        std::fs::remove_file(own.machine.base().join("bosh/persistent_disk_hints.json")).unwrap();
        let console = refused(&mut own).await;
        assert!(console.contains("is also mounted on"), "{console}");
        assert_eq!(std::fs::read_to_string(own.base("store/data")).unwrap(), "precious");
    });
}

#[test]
fn a_vm_without_an_ephemeral_disk_says_so_and_raw_disks_are_partitioned() {
    in_namespaces(
        "linux::ephemeral::a_vm_without_an_ephemeral_disk_says_so_and_raw_disks_are_partitioned",
        async || {
            let mut own = OwnMachine::new(options());
            let (raw, ephemeral) = (own.disk("raw", 64 * MIB), own.disk("ephemeral", 64 * MIB));
            own.machine.settings["disks"]["raw_ephemeral"] = json!([{"path": raw.path()}]);
            own.machine.spawn();
            assert_eq!(own.machine.ended().await.code(), Some(1));
            assert!(own.machine.console().contains("No ephemeral disk found, cannot use root partition"));
            own.machine.settings["disks"]["ephemeral"] = json!({"path": ephemeral.path()});
            own.machine.settings["env"]["bosh"]["swap_size"] = json!(0);
            own.machine.start().await;
            let found = table(&raw.path());
            assert_eq!(
                (found["partitions"].as_array().unwrap().len(), &found["partitions"][0]["name"]),
                (1, &json!("raw-ephemeral-0"))
            );
            assert_eq!(
                own.mounted("data").unwrap().2,
                format!("{}p1", ephemeral.path()),
                "without swap, data is all there is"
            );
            own.reboot();
            own.machine.start().await;
            assert_eq!(table(&raw.path()), found);
        },
    );
}

/// A disk of `size` with a root file system of `root` on it.
fn root_disk(folder: &tempfile::TempDir, size: u64, root: u64, make: &[&str]) -> LoopDisk {
    let disk = LoopDisk::attach(folder.path().join("root"), size);
    let script = format!("printf 'label: gpt\\nsize={}MiB\\n' | sfdisk --quiet {}", root / MIB, disk.path());
    run("sh", ["-c", &script]);
    run("partx", ["--update", &disk.path()]);
    run(make[0], make[1..].iter().copied().chain([format!("{}p1", disk.path()).as_str()]));
    disk
}

#[test]
fn what_is_left_of_the_root_disk_holds_the_data_where_the_stemcell_says_so() {
    let name = "linux::ephemeral::what_is_left_of_the_root_disk_holds_the_data_where_the_stemcell_says_so";
    in_namespaces(name, async || {
        let folder = tempfile::tempdir().unwrap();
        let options = json!({"SkipDiskSetup": false, "CreatePartitionIfNoEphemeralDisk": true});
        let disk = root_disk(&folder, 2048 * MIB, 200 * MIB, &["mke2fs", "-q", "-t", "ext4"]);
        let mut own = OwnMachine::with_root_on(Some(&disk), options.clone());
        own.machine.settings["env"]["bosh"]["swap_size"] = json!(16);
        own.machine.start().await;
        let found = table(&disk.path());
        let sizes: Vec<u64> =
            found["partitions"].as_array().unwrap().iter().map(|it| it["size"].as_u64().unwrap() * 512 / MIB).collect();
        assert!(sizes.len() == 3 && sizes[..2] == [200, 16] && sizes[2] > 1800, "{found}");
        assert_eq!(own.mounted("data").map(|mount| mount.2), Some(format!("{}p3", disk.path())));
        std::fs::write(own.base("data/kept"), "").unwrap();
        own.reboot();
        own.machine.start().await;
        assert!(own.base("data/kept").exists());
        assert_eq!(table(&disk.path()), found, "a boot finds it as it was");
        drop(own);

        let small = tempfile::tempdir().unwrap();
        let disk = root_disk(&small, 1000 * MIB, 200 * MIB, &["mke2fs", "-q", "-t", "ext4"]);
        let mut own = OwnMachine::with_root_on(Some(&disk), options);
        own.machine.spawn();
        assert_eq!(own.machine.ended().await.code(), Some(1));
        assert!(own.machine.console().contains("Insufficient remaining disk space"), "{}", own.machine.console());
    });
}

#[test]
fn the_root_file_system_grows_with_its_disk() {
    in_namespaces("linux::ephemeral::the_root_file_system_grows_with_its_disk", async || {
        let folder = tempfile::tempdir().unwrap();
        let disk = root_disk(&folder, 800 * MIB, 400 * MIB, &["mkfs.xfs", "-q"]);
        let mut own = OwnMachine::with_root_on(Some(&disk), options());
        let ephemeral = own.disk("ephemeral", 64 * MIB);
        own.machine.settings["disks"]["ephemeral"] = json!(ephemeral.path());
        own.machine.settings["env"]["bosh"]["swap_size"] = json!(0);
        own.machine.start().await;
        let found = rustix::fs::statvfs(own.at("/")).unwrap();
        let size = found.f_blocks * found.f_frsize / MIB;
        assert!(size > 700, "it has {size} MiB");
    });
}
