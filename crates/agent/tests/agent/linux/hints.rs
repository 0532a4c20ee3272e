//! Every shape of a hint leads to its disk, and to no other one.

use serde_json::{Value, json};
use windlass_agent_client::Outcome;
use windlass_contract::DiskCid;

use super::own_machine::{MIB, OwnMachine};
use super::private::{in_namespaces, run};

const CID: &str = "disk-21e26ec4-5d0a-4b2f-a5a6-d2e4a2b3f4d9";

#[test]
fn every_shape_of_a_hint_leads_to_the_same_data() {
    in_namespaces("linux::hints::every_shape_of_a_hint_leads_to_the_same_data", async || {
        let mut own = OwnMachine::new(json!({}));
        let disk = own.disk("disk", 64 * MIB);
        let bystander = own.disk("bystander", 64 * MIB);
        let link = |path: &str| {
            let path = own.at(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(disk.path(), path).unwrap();
        };
        link(&format!("/dev/disk/by-id/virtio-{CID}"));
        link("/dev/disk/by-id/wwn-0x6000c29abc");
        link("/dev/disk/azure/data/by-lun/4");
        // As a SCSI bus shows them, the root disk beside it.
        for path in [
            "/sys/bus/scsi/devices/2:0:0:0/block/sda",
            "/sys/class/scsi_host/host2",
            "/sys/bus/vmbus/devices/vmbus_0_12",
        ] {
            std::fs::create_dir_all(own.at(path)).unwrap();
        }
        for address in ["2:0:3:0", "5:0:0:1"] {
            std::fs::create_dir_all(own.at(format!("/sys/bus/scsi/devices/{address}/block/{}", disk.name))).unwrap();
        }
        std::fs::write(own.at("/sys/class/scsi_host/host2/scan"), "").unwrap();
        std::fs::write(own.at("/sys/bus/vmbus/devices/vmbus_0_12/device_id"), "{f8b3781b}\n").unwrap();
        let behind = own.at(format!("/sys/fake/vmbus_0_12/block/{}", disk.name));
        std::fs::create_dir_all(behind).unwrap();
        std::fs::create_dir_all(own.at("/sys/class/block")).unwrap();
        let (target, path) =
            (format!("/sys/fake/vmbus_0_12/block/{}", disk.name), format!("/sys/class/block/{}", disk.name));
        std::os::unix::fs::symlink(target, own.at(path)).unwrap();

        let (virtio, scsi) =
            (json!({"DevicePathResolutionType": "virtio"}), json!({"DevicePathResolutionType": "scsi"}));
        let shapes: Vec<(Value, Value)> = vec![
            (json!({}), json!(disk.path())),
            (json!({}), json!({"path": disk.path()})),
            (json!({}), json!({"path": "/dev/disk/by-id/wwn-0x6000c29abc"})),
            (virtio.clone(), json!("/dev/sdx")),
            (virtio, json!({"path": disk.path(), "volume_id": "7"})),
            (scsi.clone(), json!({"id": "6000c29-abc"})),
            (scsi.clone(), json!("3")),
            (scsi.clone(), json!({"volume_id": "3"})),
            (scsi.clone(), json!({"lun": "1", "host_device_id": "{f8b3781b}"})),
            (
                json!({"LunDeviceSymlinkPath": "/dev/disk/azure/data/by-lun"}),
                json!({"lun": "4", "host_device_id": "x"}),
            ),
        ];
        for (position, (options, hint)) in shapes.into_iter().enumerate() {
            own.machine.kill();
            own.configure(options.clone());
            own.machine.start().await;
            if let Err(error) = own.mount(CID, hint.clone()).await {
                panic!("{hint} with {options}: {error}");
            }
            let data = own.base("store/data");
            match position {
                0 => std::fs::write(&data, "precious").unwrap(),
                _ => {
                    assert_eq!(std::fs::read_to_string(&data).unwrap_or_default(), "precious", "{hint} with {options}")
                }
            }
            assert!(own.unmount(CID).await.starts_with("Unmounted partition of {ID:disk-21e26ec4"));
            assert!(own.mounted("store").is_none());
            // The next agent must not wait for a disk that it would look for in another way.
            let forgotten = own.machine.director().remove_persistent_disk(&DiskCid::new(CID).unwrap()).await;
            assert_eq!(forgotten.unwrap(), Outcome::Done);
        }
        assert_eq!(std::fs::read_to_string(own.at("/sys/class/scsi_host/host2/scan")).unwrap(), "- - -");
        assert_eq!(
            std::fs::metadata(&bystander.image).map(|image| std::os::unix::fs::MetadataExt::blocks(&image)).unwrap(),
            0
        );
        let table: Value = serde_json::from_str(&run("sfdisk", ["--json", &disk.path()])).unwrap();
        let table = &table["partitiontable"];
        assert_eq!((&table["label"], &table["partitions"][0]["start"]), (&json!("gpt"), &json!(2048)), "{table}");
        assert_eq!(table["partitions"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn a_directory_is_no_device_and_a_hint_that_leads_nowhere_is_told() {
    in_namespaces("linux::hints::a_directory_is_no_device_and_a_hint_that_leads_nowhere_is_told", async || {
        let own = OwnMachine::started(json!({"DevicePathResolutionType": "iscsi"})).await;
        let error = own.mount("d", json!("/tmp")).await.unwrap_err();
        assert!(error.contains("the hint of disk 'd' leads to /tmp, which is no block device"), "{error}");
        let iscsi = json!({"iscsi_settings": {"target": "t", "password": "hunter2"}});
        let error = own.mount("i", iscsi).await.unwrap_err();
        assert!(error.contains("disk 'i' is to be reached over iSCSI, which this agent does not do"), "{error}");
        assert!(!own.machine.console().contains("hunter2"));
        assert!(own.machine.director().list_disk().await.is_err_and(|error| error.to_string().contains("iSCSI")));
    });
}
