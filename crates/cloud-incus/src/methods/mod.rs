//! One file per CPI method.

pub(crate) mod attach_disk;
pub(crate) mod calculate_vm_cloud_properties;
pub(crate) mod create_disk;
pub(crate) mod create_network;
pub(crate) mod create_stemcell;
pub(crate) mod create_vm;
pub(crate) mod delete_disk;
pub(crate) mod delete_network;
pub(crate) mod delete_snapshot;
pub(crate) mod delete_stemcell;
pub(crate) mod delete_vm;
pub(crate) mod detach_disk;
pub(crate) mod get_disks;
pub(crate) mod has_disk;
pub(crate) mod has_vm;
pub(crate) mod reboot_vm;
pub(crate) mod resize_disk;
pub(crate) mod set_disk_metadata;
pub(crate) mod set_vm_metadata;
pub(crate) mod snapshot_disk;
pub(crate) mod update_disk;
