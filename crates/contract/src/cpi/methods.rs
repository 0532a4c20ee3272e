//! Every method with its arguments and answer, declared once for callers and CPIs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::declaration::{Declaration, Hides, Repeated, Resource, position};
use super::{Answer, AttachedDisk, CpiInfo, CreatedNetwork, CreatedVm, UpdatedDisk};
use crate::{AgentId, ApiVersion, DiskCid, MiB, NetworkCid, Networks, Object, SnapshotCid, StemcellCid, VmCid};

/// A method of a CPI: positional arguments on the wire, a struct in our hands.
pub trait Method: Sized {
    /// The name on the wire.
    const NAME: &'static str;
    /// What it locks, what of it is hidden, what a repeated request does, and how long an answer may be.
    const DECLARATION: Declaration;
    type Answer: Answer;
    /// Arguments in their order.
    fn to_arguments(&self) -> Vec<Value>;
    /// Decodes all arguments before anything happens. Surplus ones are tolerated, missing ones are not.
    fn from_arguments(arguments: Vec<Value>) -> Result<Self, ArgumentError>;
    /// Reads the answer to a call with these arguments; the error says what is wrong with the value.
    fn read_answer(arguments: &[Value], value: Value, version: ApiVersion) -> Result<Self::Answer, String> {
        let _ = arguments;
        Self::Answer::from_wire(value, version)
    }
}

/// an argument that cannot be used
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// an argument is missing
    #[error("'{method}' needs argument {position} ({name}), got {got} arguments")]
    Missing {
        method: &'static str,
        /// Counted from 1.
        position: usize,
        name: &'static str,
        /// How many there were.
        got: usize,
    },
    /// an argument has the wrong type
    #[error("argument {position} ({name}) of '{method}' is wrong: {reason}")]
    Wrong {
        method: &'static str,
        /// Counted from 1.
        position: usize,
        name: &'static str,
        /// What is wrong.
        reason: String,
    },
}

/// An order of arguments that is not today's, brought into today's.
struct Arranged {
    arguments: Vec<Value>,
    /// Where the caller had put the argument of a position, counted from 1.
    sent_at: fn(usize) -> usize,
}

/// Declares methods. Arguments after `;` are left out when they are null, the others are always sent. `from FUNCTION`
/// brings arguments of another form into order first; a block at the end overrides how the answer is read.
///
/// What a method locks, hides, does when it is repeated and may answer is part of the grammar: a declaration without one of
/// them does not compile, and neither does one that names an argument which the method does not have.
macro_rules! methods {
    ($(
        $(#[$doc:meta])*
        $name:ident = $wire:literal (
            $($(#[$argument_doc:meta])* $argument:ident : $type:ty),* $(,)?
            $(; $($(#[$optional_doc:meta])* $optional:ident : $optional_type:ty),+ $(,)?)?
        ) $(from $arrange:ident)? -> $answer:ty where
            locks [$($locked:ident : $resource:ident),*],
            hides [$($hidden:ident : $hides:ident),*],
            repeated: $repeated:ident,
            answers: $limit:ident
            $({ $($body:item)* })?;
    )*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$argument_doc])* pub $argument: $type,)*
            $($($(#[$optional_doc])* pub $optional: $optional_type,)+)?
        }

        impl Method for $name {
            const NAME: &'static str = $wire;
            const DECLARATION: Declaration = {
                #[allow(dead_code)]
                const ARGUMENTS: &[&str] = &[$(stringify!($argument),)* $($(stringify!($optional),)+)?];
                Declaration {
                    locks: &[$((position(ARGUMENTS, stringify!($locked)), Resource::$resource)),*],
                    hides: &[$((position(ARGUMENTS, stringify!($hidden)), Hides::$hides)),*],
                    repeated: Repeated::$repeated,
                    longest_answer: Declaration::$limit,
                }
            };
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
                let arranged = Arranged { arguments, sent_at: |position| position };
                $(let arranged = $arrange(arranged.arguments)?;)?
                let sent_at = arranged.sent_at;
                let mut arguments = arranged.arguments.into_iter();
                let mut position = 0;
                Ok(Self {
                    $($argument: {
                        position += 1;
                        let value = arguments.next().ok_or(ArgumentError::Missing {
                            method: $wire, position: sent_at(position), name: stringify!($argument), got,
                        })?;
                        serde_json::from_value(value).map_err(|error| ArgumentError::Wrong {
                            method: $wire, position: sent_at(position), name: stringify!($argument),
                            reason: error.to_string(),
                        })?
                    },)*
                    $($($optional: {
                        position += 1;
                        serde_json::from_value(arguments.next().unwrap_or(Value::Null)).map_err(|error| {
                            ArgumentError::Wrong {
                                method: $wire, position: sent_at(position), name: stringify!($optional),
                                reason: error.to_string(),
                            }
                        })?
                    },)+)?
                })
            }

            $($($body)*)?
        }
    )*
        /// A method by its name, for code that must not forget one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum MethodName {
            $(#[doc = concat!("`", $wire, "`")] $name),*
        }

        impl MethodName {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $wire),*
                }
            }

            /// What the method declares.
            pub const fn declaration(self) -> Declaration {
                match self {
                    $(Self::$name => <$name as Method>::DECLARATION),*
                }
            }
        }

        /// The wire names of all methods.
        pub const NAMES: &[&str] = &[$($wire),*];
    };
}

impl MethodName {
    /// The method of that name on the wire.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.as_str() == name)
    }
}

methods! {
    /// What the CPI can do. Cheap, without side effects, and answered for any version.
    Info = "info" () -> CpiInfo where
        locks [], hides [], repeated: RunsAgain, answers: SHORT;

    /// Makes an image in the cloud from a stemcell's image.
    CreateStemcell = "create_stemcell" (
        /// The file `image` of the unpacked stemcell; its siblings are there, too.
        image_path: PathBuf,
        /// From the stemcell's manifest; null when it has none.
        cloud_properties: Option<Object>;
        /// From version 3 on: `{"tags": {…}}`.
        env: Option<Object>
    ) -> StemcellCid where
        locks [], hides [cloud_properties: Values], repeated: AnsweredAgain, answers: WITH_LOG;

    /// Removes an image. One that is already gone is a success.
    DeleteStemcell = "delete_stemcell" (stemcell_cid: StemcellCid) -> () where
        locks [stemcell_cid: Stemcell], hides [], repeated: RunsAgain, answers: WITH_LOG;

    /// Makes a VM and powers it on, without waiting for its boot.
    CreateVm = "create_vm" (
        /// Chosen by the caller, and the same again when it retries.
        agent_id: AgentId,
        stemcell_cid: StemcellCid,
        /// What only the cloud understands.
        cloud_properties: Object,
        /// Networks by name.
        networks: Networks,
        /// Disks that will likely be attached: a placement hint, not a request.
        disk_cids: Option<Vec<DiskCid>>,
        /// Goes into the agent's settings verbatim.
        env: Option<Object>;
        /// Initial settings of the agent beside its id, from callers that send the form of the first draft.
        bootstrap_settings: Option<Object>
    ) from first_draft_of_create_vm -> CreatedVm where
        locks [], hides [cloud_properties: Values, networks: ValuesOfNetworks, env: Environment],
        repeated: AnsweredAgain, answers: WITH_LOG;

    /// Removes a VM; its persistent disks survive.
    DeleteVm = "delete_vm" (vm_cid: VmCid) -> () where
        locks [vm_cid: Vm], hides [], repeated: RunsAgain, answers: WITH_LOG;

    /// Whether a VM exists, also when it is stopped.
    HasVm = "has_vm" (vm_cid: VmCid) -> bool where
        locks [], hides [], repeated: RunsAgain, answers: SHORT;

    /// Restarts a VM, or starts it when it was off.
    RebootVm = "reboot_vm" (vm_cid: VmCid) -> () where
        locks [vm_cid: Vm], hides [], repeated: RunsAgain, answers: WITH_LOG;

    /// Names a VM for people.
    SetVmMetadata = "set_vm_metadata" (vm_cid: VmCid, metadata: Object) -> () where
        locks [vm_cid: Vm], hides [metadata: Nothing], repeated: RunsAgain, answers: WITH_LOG;

    /// Gives a VM other networks. Nobody calls it any more; the recommended answer is NotSupported.
    ConfigureNetworks = "configure_networks" (vm_cid: VmCid, networks: Networks) -> () where
        locks [vm_cid: Vm], hides [networks: ValuesOfNetworks], repeated: RunsAgain, answers: WITH_LOG;

    /// The properties of the smallest VM that has at least these resources.
    CalculateVmCloudProperties = "calculate_vm_cloud_properties" (desired: VmResources) -> Object where
        locks [], hides [desired: Nothing], repeated: RunsAgain, answers: SHORT;

    /// Makes a disk that is attached to nothing.
    CreateDisk = "create_disk" (
        size: MiB,
        /// What only the cloud understands.
        cloud_properties: Object,
        /// The VM it will likely be attached to: a placement hint.
        vm_cid: Option<VmCid>
    ) -> DiskCid where
        locks [], hides [cloud_properties: Values], repeated: AnsweredAgain, answers: WITH_LOG;

    /// Removes a disk with its data.
    DeleteDisk = "delete_disk" (disk_cid: DiskCid) -> () where
        locks [disk_cid: Disk], hides [], repeated: RunsAgain, answers: WITH_LOG;

    /// Whether a disk exists.
    HasDisk = "has_disk" (disk_cid: DiskCid) -> bool where
        locks [], hides [], repeated: RunsAgain, answers: SHORT;

    /// Attaches a disk and says where it is found in the VM. Attached already: the same hint again.
    AttachDisk = "attach_disk" (vm_cid: VmCid, disk_cid: DiskCid) -> AttachedDisk where
        locks [vm_cid: Vm, disk_cid: Disk], hides [], repeated: AnsweredAgain, answers: WITH_LOG {
        /// The first draft answered all disks of the VM; the hint is at this disk's cid.
        fn read_answer(arguments: &[Value], value: Value, version: ApiVersion) -> Result<AttachedDisk, String> {
            let hint = match (value.get("persistent"), arguments.get(1).and_then(Value::as_str)) {
                (Some(Value::Object(persistent)), Some(disk)) if version.has_v2_results() => persistent
                    .get(disk)
                    .cloned()
                    .ok_or_else(|| format!("the disks it answered do not include '{disk}'"))?,
                _ => value,
            };
            AttachedDisk::from_wire(hint, version)
        }
    };

    /// Detaches a disk. Not attached: success.
    DetachDisk = "detach_disk" (vm_cid: VmCid, disk_cid: DiskCid) -> () where
        locks [vm_cid: Vm, disk_cid: Disk], hides [], repeated: AnsweredAgain, answers: WITH_LOG;

    /// Names a disk for people.
    SetDiskMetadata = "set_disk_metadata" (disk_cid: DiskCid, metadata: Object) -> () where
        locks [disk_cid: Disk], hides [metadata: Nothing], repeated: RunsAgain, answers: WITH_LOG;

    /// The persistent disks that are attached to a VM now.
    GetDisks = "get_disks" (vm_cid: VmCid) -> Vec<DiskCid> where
        locks [], hides [], repeated: RunsAgain, answers: SHORT;

    /// Makes a detached disk larger. NotSupported: the caller copies to a new disk.
    ResizeDisk = "resize_disk" (disk_cid: DiskCid, new_size: MiB) -> () where
        locks [disk_cid: Disk], hides [], repeated: RunsAgain, answers: WITH_LOG;

    /// Changes a detached disk in place, or replaces it by another one with its data.
    UpdateDisk = "update_disk" (disk_cid: DiskCid, new_size: MiB, cloud_properties: Object) -> UpdatedDisk where
        locks [disk_cid: Disk], hides [cloud_properties: Values], repeated: AnsweredAgain, answers: WITH_LOG;

    /// Takes a snapshot of a disk, also while it is in use.
    SnapshotDisk = "snapshot_disk" (disk_cid: DiskCid, metadata: Object) -> SnapshotCid where
        locks [disk_cid: Disk], hides [metadata: Nothing], repeated: AnsweredAgain, answers: WITH_LOG;

    /// Removes a snapshot. One that is already gone is a success.
    DeleteSnapshot = "delete_snapshot" (snapshot_cid: SnapshotCid) -> () where
        locks [snapshot_cid: Snapshot], hides [], repeated: RunsAgain, answers: WITH_LOG;

    /// Makes a network.
    CreateNetwork = "create_network" (definition: NetworkDefinition) -> CreatedNetwork where
        locks [], hides [definition: ValuesOfCloudProperties], repeated: AnsweredAgain, answers: WITH_LOG;

    /// Removes a network.
    DeleteNetwork = "delete_network" (network_cid: NetworkCid) -> () where
        locks [network_cid: Network], hides [], repeated: RunsAgain, answers: WITH_LOG;

    /// The VM that the CPI runs on. Deprecated.
    CurrentVmId = "current_vm_id" () -> VmCid where
        locks [], hides [], repeated: RunsAgain, answers: SHORT;
}

/// What a VM should have at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmResources {
    /// Cores.
    pub cpu: u64,
    pub ram: MiB,
    /// Size of the ephemeral disk.
    pub ephemeral_disk_size: MiB,
}

/// A network to be made. The cloud fills in what is missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkDefinition {
    /// Always `manual`.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// Such as `10.0.0.0/24`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// In the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// How large, where no range is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netmask_bits: Option<u8>,
    /// What only the cloud understands.
    #[serde(default, deserialize_with = "crate::network::object_or_null")]
    pub cloud_properties: Object,
}

/// The first draft of version 2 had no agent id: `[stemcell, properties, agent settings, networks, disks, env]`, told
/// apart by the second argument being an object. The agent's id is in its settings.
fn first_draft_of_create_vm(mut arguments: Vec<Value>) -> Result<Arranged, ArgumentError> {
    if !arguments.get(1).is_some_and(Value::is_object) {
        return Ok(Arranged { arguments, sent_at: |position| position });
    }
    let (method, position, name) = (CreateVm::NAME, 3, "agent_bootstrap_settings");
    let wrong = |reason: &str| ArgumentError::Wrong { method, position, name, reason: reason.to_owned() };
    let got = arguments.len();
    let mut settings = match arguments.get_mut(2).map(Value::take) {
        Some(Value::Object(settings)) => settings,
        Some(_) => return Err(wrong("it is not an object")),
        None => return Err(ArgumentError::Missing { method, position, name, got }),
    };
    let Some(agent_id) = settings.remove("agent_id") else {
        return Err(wrong("it has no agent_id, and arguments in this order have no other place for it"));
    };
    arguments.remove(2);
    arguments.insert(0, agent_id);
    arguments.truncate(6);
    if arguments.len() == 6 {
        arguments.push(Value::Object(settings));
    }
    let sent_at = |position| match position {
        1 | 7 => 3,
        2 => 1,
        3 => 2,
        same => same,
    };
    Ok(Arranged { arguments, sent_at })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::DiskHint;

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
        let call = CreateDisk { size: MiB(1024), cloud_properties: Object::new(), vm_cid: None };
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
    fn create_vm_in_the_form_of_the_first_draft() {
        let call = CreateVm::from_arguments(vec![
            json!("ami-478585"),
            json!({"instance_type": "m1.small"}),
            json!({"agent_id": "a-1", "ntp": ["0.pool"]}),
            json!({"private": {"type": "dynamic"}}),
            json!(["vol-3475945"]),
            json!({}),
        ])
        .unwrap();
        assert_eq!((call.agent_id.as_str(), call.stemcell_cid.as_str()), ("a-1", "ami-478585"));
        assert_eq!(call.bootstrap_settings.unwrap()["ntp"], json!(["0.pool"]));
        assert_eq!(call.disk_cids.unwrap().len(), 1);
    }

    #[test]
    fn arguments_in_the_order_of_the_first_draft_are_blamed_where_they_were_sent() {
        let refused = |arguments: Value| {
            let arguments = arguments.as_array().unwrap().clone();
            CreateVm::from_arguments(arguments).unwrap_err().to_string()
        };
        let error = refused(json!(["ami-478585", {}, {}, {}, [], {}]));
        assert!(
            error.starts_with("argument 3 (agent_bootstrap_settings) of 'create_vm' is wrong: it has no agent_id"),
            "{error}"
        );
        let error = refused(json!(["", {}, {"agent_id": "a-1"}, {}, [], {}]));
        assert!(error.starts_with("argument 1 (stemcell_cid)"), "{error}");
        let error = refused(json!(["ami-478585", {}, {"agent_id": ""}, {}, [], {}]));
        assert!(error.starts_with("argument 3 (agent_id)"), "{error}");
        let error = refused(json!(["ami-478585", {}, {"agent_id": "a-1"}, {}]));
        assert_eq!(error, "'create_vm' needs argument 5 (disk_cids), got 4 arguments");
        assert_eq!(
            refused(json!(["a", {}])),
            "'create_vm' needs argument 3 (agent_bootstrap_settings), got 2 arguments"
        );
    }

    #[test]
    fn create_vm_is_sent_with_six_arguments_starting_with_the_agents_id() {
        let arguments = vec![json!("a-1"), json!("sc-1"), json!({}), json!({}), Value::Null, Value::Null];
        let call = CreateVm::from_arguments(arguments.clone()).unwrap();
        assert_eq!(call.to_arguments(), arguments);
    }

    #[test]
    fn attach_disk_answers_of_every_draft_give_the_hint_of_that_disk() {
        let arguments = [json!("vm-1"), json!("disk-1"), json!({"system": "/dev/sda"})];
        assert!(AttachDisk::from_arguments(arguments.to_vec()).is_ok(), "a third argument is tolerated");
        let read = |value| AttachDisk::read_answer(&arguments, value, ApiVersion::V2);
        let all = json!({"system": "/dev/sda", "persistent": {"disk-1": {"path": "/dev/sdd"}, "disk-2": "/dev/sde"}});
        assert_eq!(read(all).unwrap().hint, Some(DiskHint::path("/dev/sdd")));
        assert_eq!(read(json!({"path": "/dev/sdd"})).unwrap().hint, Some(DiskHint::path("/dev/sdd")));
        assert_eq!(read(json!("/dev/sdd")).unwrap().hint, Some(DiskHint::text("/dev/sdd").unwrap()));
        assert!(read(json!({"persistent": {}})).unwrap_err().contains("do not include 'disk-1'"));
    }

    #[test]
    fn sizes_are_whole_numbers_and_never_strings() {
        let size = |value| CreateDisk::from_arguments(vec![value, json!({}), Value::Null]).map(|call| call.size);
        assert_eq!(size(json!(1024)).unwrap(), MiB(1024));
        assert_eq!(size(json!(1024.0)).unwrap(), MiB(1024));
        for wrong in [json!("1024"), json!(1024.5), json!(-1), json!(null), json!(1e300)] {
            assert!(size(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn surplus_arguments_are_tolerated() {
        assert!(HasVm::from_arguments(vec![json!("vm-7"), json!("later")]).is_ok());
    }
}
