//! Every example of the contract's documents is understood as its document means it.

use serde_json::{Value, json};
use windlass_contract::cpi::methods::{
    AttachDisk, CalculateVmCloudProperties, ConfigureNetworks, CreateDisk, CreateStemcell, CreateVm, DetachDisk,
    SetDiskMetadata, SetVmMetadata,
};
use windlass_contract::cpi::{Answer, Method};
use windlass_contract::registry::RegistryUserData;
use windlass_contract::settings::AgentSettings;
use windlass_contract::{ApiVersion, DiskCid, DiskHint, MiB};
use windlass_rigs::documented::examples;

/// Understood, and sent as it came.
fn the_same<M: Method>(example: Value) {
    assert_eq!(Value::Array(call::<M>(example.clone()).to_arguments()), example);
}

fn call<M: Method>(arguments: Value) -> M {
    M::from_arguments(list(arguments)).unwrap()
}

fn list(value: Value) -> Vec<Value> {
    serde_json::from_value(value).unwrap()
}

fn hint(answer: Value, disk: &str) -> Option<DiskHint> {
    AttachDisk::read_answer(&[json!("vm"), json!(disk)], answer, ApiVersion::V2).unwrap().hint
}

/// A hint is passed on as it came.
fn passed_on(example: Value) {
    assert_eq!(hint(example.clone(), "disk-1").map(Value::from), Some(example));
}

#[test]
fn every_example_of_the_documents_is_understood() {
    for (name, example) in examples() {
        match name {
            // Its agent settings are left out, and with them the agent's id.
            "first draft, create_vm, arguments" => {
                let error = CreateVm::from_arguments(list(example.clone())).unwrap_err().to_string();
                assert!(error.contains("argument 3 (agent_bootstrap_settings)"), "{error}");
                let mut arguments = example;
                arguments[2]["agent_id"] = json!("agent-1");
                let call: CreateVm = call(arguments.clone());
                assert_eq!((call.agent_id.as_str(), call.stemcell_cid.as_str()), ("agent-1", "ami-478585"));
                assert_eq!(json!(call.cloud_properties), arguments[1]);
                assert_eq!(call.networks.keys().collect::<Vec<_>>(), ["private", "private2", "public"]);
                assert_eq!(call.disk_cids.unwrap(), [DiskCid::new("vol-3475945").unwrap()]);
            }
            "first draft, create_vm, answer" => {
                let vm = CreateVm::read_answer(&[], example.clone(), ApiVersion::V2).unwrap();
                assert_eq!((vm.cid.as_str(), vm.networks["private"].ip.as_deref()), ("i-0478554", Some("10.230.13.6")));
                assert_eq!(vm.disks.map(Value::Object).as_ref(), example.get(2));
            }
            "first draft, attach_disk, answer" => {
                assert_eq!(Value::from(hint(example.clone(), "vol-3475945").unwrap()), json!({"volume_id": "3"}));
                assert_eq!(hint(example, "vol-7447851"), Some(DiskHint::path("/dev/sdd")));
            }
            "first draft, detach_disk, answer" => DetachDisk::read_answer(&[], example, ApiVersion::V2).unwrap(),
            "second draft, create_vm, answer" => {
                let vm = CreateVm::read_answer(&[], example.clone(), ApiVersion::V2).unwrap();
                assert_eq!((vm.cid.as_str(), vm.networks.len()), ("vm-32r7834yt834", 0));
                assert_eq!(vm.disks.map(Value::Object).as_ref(), example.get(1));
            }
            "second draft, create_disk, answer" => {
                assert_eq!(DiskCid::from_wire(example, ApiVersion::V2).unwrap().as_str(), "disk-39748564");
            }
            "second draft, attach_disk, arguments" | "second draft, attach_disk of another, arguments" => {
                let call: AttachDisk = call(example.clone());
                assert_eq!(call.to_arguments(), list(example)[..2], "what the CPI needs of the disks it knows itself");
            }
            "second draft, attach_disk, answer" | "second draft, attach_disk of another, answer" => passed_on(example),
            // Of the agent: the hint as the CPI gave it.
            "second draft, mount_disk, arguments" => passed_on(example[1].clone()),
            "version 2, user data with a registry" => {
                let user_data: RegistryUserData = serde_json::from_value(example.clone()).unwrap();
                assert_eq!(serde_json::to_value(user_data).unwrap(), example);
                assert!(serde_json::from_value::<AgentSettings>(example).is_err(), "it has no agent's id");
            }
            "version 2, user data in full" => {
                let settings: AgentSettings = serde_json::from_value(example.clone()).unwrap();
                let mut expected = example;
                // BOSH's agent takes nothing but text there.
                expected["disks"]["system"] = json!("/dev/sda1");
                expected["env"] = json!({});
                assert_eq!(serde_json::to_value(settings).unwrap(), expected);
            }
            "version 1, settings" | "version 1, settings with persistent disks" => {
                let settings: AgentSettings = serde_json::from_value(example.clone()).unwrap();
                assert_eq!(serde_json::to_value(settings).unwrap(), example);
            }
            "migration guide, hint 1"
            | "migration guide, hint 2"
            | "migration guide, hint 3"
            | "migration guide, hint 4"
            | "migration guide, hint 5" => passed_on(example),
            "version 1, create_stemcell, arguments" => the_same::<CreateStemcell>(example),
            "version 1, create_vm, arguments" => the_same::<CreateVm>(example),
            "version 1, set_vm_metadata, arguments" => the_same::<SetVmMetadata>(example),
            "version 1, configure_networks, arguments" => the_same::<ConfigureNetworks>(example),
            "version 1, create_disk, arguments" => {
                assert_eq!(call::<CreateDisk>(example.clone()).size, MiB(25000));
                the_same::<CreateDisk>(example);
            }
            "version 1, set_disk_metadata, arguments" => the_same::<SetDiskMetadata>(example),
            "version 1, calculate_vm_cloud_properties, argument"
            | "version 1, calculate_vm_cloud_properties of a small VM, argument"
            | "version 1, calculate_vm_cloud_properties of a larger VM, argument" => {
                let call: CalculateVmCloudProperties = call(json!([example]));
                assert_eq!(json!(call.desired), example);
            }
            "version 1, calculate_vm_cloud_properties of a small VM, answer" => {
                let properties = CalculateVmCloudProperties::read_answer(&[], example.clone(), ApiVersion::V1).unwrap();
                assert_eq!(Value::Object(properties), example);
            }
            other => panic!("nobody looks at '{other}'"),
        }
    }
}
