//! Every method with its arguments and answer, declared once for callers and CPIs.

use std::path::PathBuf;

use serde_json::Value;

use super::{Answer, AttachedDisk, CpiInfo, CreatedVm};
use crate::{AgentId, DiskCid, Networks, Object, StemcellCid, VmCid};

/// A method of a CPI: positional arguments on the wire, a struct in our hands.
pub trait Method: Sized {
    /// The name on the wire.
    const NAME: &'static str;
    /// What it answers.
    type Answer: Answer;
    /// Arguments in their order.
    fn to_arguments(&self) -> Vec<Value>;
    /// Decodes all arguments before anything happens. Surplus ones are tolerated, missing ones are not.
    fn from_arguments(arguments: Vec<Value>) -> Result<Self, ArgumentError>;
}

/// an argument that cannot be used
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// an argument is missing
    #[error("'{method}' needs argument {position} ({name}), got {got} arguments")]
    Missing {
        /// The method.
        method: &'static str,
        /// Counted from 1.
        position: usize,
        /// Its name.
        name: &'static str,
        /// How many there were.
        got: usize,
    },
    /// an argument has the wrong type
    #[error("argument {position} ({name}) of '{method}' is wrong: {reason}")]
    Wrong {
        /// The method.
        method: &'static str,
        /// Counted from 1.
        position: usize,
        /// Its name.
        name: &'static str,
        /// What is wrong.
        reason: String,
    },
}

/// Declares methods. Arguments after `;` are left out when they are null, the others are always sent.
macro_rules! methods {
    ($(
        $(#[$doc:meta])*
        $name:ident = $wire:literal (
            $($(#[$argument_doc:meta])* $argument:ident : $type:ty),* $(,)?
            $(; $($(#[$optional_doc:meta])* $optional:ident : $optional_type:ty),+ $(,)?)?
        ) -> $answer:ty;
    )*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$argument_doc])* pub $argument: $type,)*
            $($($(#[$optional_doc])* pub $optional: $optional_type,)+)?
        }

        impl Method for $name {
            const NAME: &'static str = $wire;
            type Answer = $answer;

            #[allow(unused_mut)]
            fn to_arguments(&self) -> Vec<Value> {
                let mut arguments = vec![$(serde_json::json!(self.$argument)),*];
                $($(if let Some(value) = &self.$optional { arguments.push(serde_json::json!(value)); })+)?
                arguments
            }

            #[allow(unused_variables, unused_mut)]
            fn from_arguments(arguments: Vec<Value>) -> Result<Self, ArgumentError> {
                let got = arguments.len();
                let mut arguments = arguments.into_iter();
                let mut position = 0;
                Ok(Self {
                    $($argument: {
                        position += 1;
                        let value = arguments.next().ok_or(ArgumentError::Missing {
                            method: $wire, position, name: stringify!($argument), got,
                        })?;
                        serde_json::from_value(value).map_err(|error| ArgumentError::Wrong {
                            method: $wire, position, name: stringify!($argument), reason: error.to_string(),
                        })?
                    },)*
                    $($($optional: {
                        position += 1;
                        serde_json::from_value(arguments.next().unwrap_or(Value::Null)).map_err(|error| {
                            ArgumentError::Wrong {
                                method: $wire, position, name: stringify!($optional), reason: error.to_string(),
                            }
                        })?
                    },)+)?
                })
            }
        }
    )*};
}

methods! {
    /// What the CPI can do. Cheap, without side effects, and answered for any version.
    Info = "info" () -> CpiInfo;

    /// Makes an image in the cloud from a stemcell's image.
    CreateStemcell = "create_stemcell" (
        /// The file `image` of the unpacked stemcell; its siblings are there, too.
        image_path: PathBuf,
        /// From the stemcell's manifest; null when it has none.
        cloud_properties: Option<Object>;
        /// From version 3 on: `{"tags": {…}}`.
        env: Option<Object>
    ) -> StemcellCid;

    /// Removes an image. One that is already gone is a success.
    DeleteStemcell = "delete_stemcell" (stemcell_cid: StemcellCid) -> ();

    /// Makes a VM and powers it on, without waiting for its boot.
    CreateVm = "create_vm" (
        /// Chosen by the caller, and the same again when it retries.
        agent_id: AgentId,
        /// The image.
        stemcell_cid: StemcellCid,
        /// What only the cloud understands.
        cloud_properties: Object,
        /// Networks by name.
        networks: Networks,
        /// Disks that will likely be attached: a placement hint, not a request.
        disk_cids: Option<Vec<DiskCid>>,
        /// Goes into the agent's settings verbatim.
        env: Option<Object>
    ) -> CreatedVm;

    /// Removes a VM; its persistent disks survive.
    DeleteVm = "delete_vm" (vm_cid: VmCid) -> ();

    /// Whether a VM exists, also when it is stopped.
    HasVm = "has_vm" (vm_cid: VmCid) -> bool;

    /// Restarts a VM, or starts it when it was off.
    RebootVm = "reboot_vm" (vm_cid: VmCid) -> ();

    /// Names a VM for people.
    SetVmMetadata = "set_vm_metadata" (vm_cid: VmCid, metadata: Object) -> ();

    /// Makes a disk that is attached to nothing.
    CreateDisk = "create_disk" (
        /// In MiB.
        size: u64,
        /// What only the cloud understands.
        cloud_properties: Object,
        /// The VM it will likely be attached to: a placement hint.
        vm_cid: Option<VmCid>
    ) -> DiskCid;

    /// Removes a disk with its data.
    DeleteDisk = "delete_disk" (disk_cid: DiskCid) -> ();

    /// Whether a disk exists.
    HasDisk = "has_disk" (disk_cid: DiskCid) -> bool;

    /// Attaches a disk and says where it is found in the VM. Attached already: the same hint again.
    AttachDisk = "attach_disk" (vm_cid: VmCid, disk_cid: DiskCid) -> AttachedDisk;

    /// Detaches a disk. Not attached: success.
    DetachDisk = "detach_disk" (vm_cid: VmCid, disk_cid: DiskCid) -> ();

    /// Names a disk for people.
    SetDiskMetadata = "set_disk_metadata" (disk_cid: DiskCid, metadata: Object) -> ();

    /// The persistent disks that are attached to a VM now.
    GetDisks = "get_disks" (vm_cid: VmCid) -> Vec<DiskCid>;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn create_stemcell_has_two_arguments_unless_version_3_adds_one() {
        let mut call = CreateStemcell { image_path: "/tmp/image".into(), cloud_properties: None, env: None };
        assert_eq!(call.to_arguments(), [json!("/tmp/image"), Value::Null]);
        call.env = Some(Object::new());
        assert_eq!(call.to_arguments().len(), 3);
        assert_eq!(CreateStemcell::from_arguments(call.to_arguments()).unwrap(), call);
    }

    #[test]
    fn create_disk_sends_a_null_hint() {
        let call = CreateDisk { size: 1024, cloud_properties: Object::new(), vm_cid: None };
        assert_eq!(call.to_arguments(), [json!(1024), json!({}), Value::Null]);
    }

    #[test]
    fn wrong_and_missing_arguments_are_named() {
        let error = AttachDisk::from_arguments(vec![json!("vm-7")]).unwrap_err();
        assert_eq!(error.to_string(), "'attach_disk' needs argument 2 (disk_cid), got 1 arguments");
        let error = CreateDisk::from_arguments(vec![json!("1024"), json!({}), Value::Null]).unwrap_err();
        assert!(error.to_string().starts_with("argument 1 (size) of 'create_disk' is wrong"), "{error}");
        assert!(CreateDisk::from_arguments(vec![json!(-1), json!({}), Value::Null]).is_err());
        assert!(HasVm::from_arguments(vec![json!("")]).is_err());
    }

    #[test]
    fn surplus_arguments_are_tolerated() {
        assert!(HasVm::from_arguments(vec![json!("vm-7"), json!("later")]).is_ok());
    }
}
