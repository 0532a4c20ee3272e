//! `Platform.Linux` of agent.json: what the stemcell says about its machine.

use serde::Deserialize;

/// The options that stemcells use; others are tolerated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(crate) struct LinuxOptions {
    /// `/tmp` and `/var/tmp` stay what they are.
    pub(crate) use_default_tmp_dir: bool,
    /// A persistent disk has a file system already and no partitions.
    pub(crate) use_preformatted_persistent_disk: bool,
    /// A persistent disk is a folder.
    pub(crate) bind_mount_persistent_disk: bool,
    /// Without an ephemeral disk, the rest of the root disk is used.
    pub(crate) create_partition_if_no_ephemeral_disk: bool,
    /// Ephemeral and root disks are left alone.
    pub(crate) skip_disk_setup: bool,
    /// How a hint leads to a device.
    pub(crate) device_path_resolution_type: String,
    /// Where links by LUN are.
    pub(crate) lun_device_symlink_path: String,
    /// What in a disk's cid is replaced before it is looked for by id.
    #[serde(rename = "DiskIDTransformPattern")]
    pub(crate) disk_id_transform_pattern: String,
    #[serde(rename = "DiskIDTransformReplacement")]
    pub(crate) disk_id_transform_replacement: String,
    /// Which devices may be storage of the instance itself.
    pub(crate) instance_storage_device_pattern: String,
    /// Which of them are the cloud's volumes after all.
    pub(crate) instance_storage_managed_volume_pattern: String,
    /// `parted`, `sfdisk` or empty. Both mean the same here: one tool writes all partition tables.
    pub(crate) partitioner_type: String,
    /// `systemd`, or another one.
    pub(crate) service_manager: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_known_stemcells_are_understood() {
        let options: LinuxOptions = serde_json::from_str(
            r#"{"UseDefaultTmpDir": true, "UsePreformattedPersistentDisk": true, "BindMountPersistentDisk": true,
                "SkipDiskSetup": true, "ServiceManager": "systemd", "VirtioDevicePrefix": "x",
                "DiskIDTransformPattern": "^(disk-.+)$", "DiskIDTransformReplacement": "google-${1}"}"#,
        )
        .unwrap();
        assert!(options.bind_mount_persistent_disk && options.skip_disk_setup);
        assert_eq!(options.disk_id_transform_replacement, "google-${1}");
    }
}
