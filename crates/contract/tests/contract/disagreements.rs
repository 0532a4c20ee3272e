//! Where the documents of the contract disagree with each other or with what ships: what we take, and what we send.
//!
//! SPECIFICATION.md lists every such disagreement with its test; those that a type's own tests show are not repeated here.

use serde_json::{Value, json};
use windlass_contract::cpi::methods::{
    AttachDisk, CreateVm, DeleteVm, DetachDisk, Info, NAMES, SetDiskMetadata, SetVmMetadata,
};
use windlass_contract::cpi::{Answer, AttachedDisk, CreatedVm, ErrorType, Method, Request, Response};
use windlass_contract::registry::{RegistryLocation, RegistryUserData};
use windlass_contract::settings::AgentSettings;
use windlass_contract::stemcell::StemcellManifest;
use windlass_contract::version::SettingsFrom;
use windlass_contract::{ApiVersion, DiskHint};

const V3: ApiVersion = ApiVersion(3);

#[test]
fn the_sample_calls_of_the_drafts_are_understood() {
    // The first draft, without an agent id and with a triple for an answer.
    let call = CreateVm::from_arguments(vec![
        json!("ami-478585"),
        json!({"instance_type": "m1.small"}),
        json!({"agent_id": "agent-1"}),
        json!({
            "private": {"type": "manual", "netmask": "255.255.255.0", "gateway": "10.230.13.1", "ip": "10.230.13.6",
                "default": ["dns", "gateway"], "cloud_properties": {"net_id": "subnet-48rt54"}},
            "private2": {"type": "dynamic", "cloud_properties": {"net_id": "subnet-e12364"}},
            "public": {"type": "vip", "ip": "173.101.112.104", "cloud_properties": {}}
        }),
        json!(["vol-3475945"]),
        json!({}),
    ])
    .unwrap();
    assert_eq!((call.stemcell_cid.as_str(), call.networks.len()), ("ami-478585", 3));
    let triple = json!(["i-0478554", call.networks,
        {"system": "/dev/sda", "ephemeral": "/dev/sdb", "persistent": {}}]);
    let vm = CreatedVm::from_wire(triple, ApiVersion::V2).unwrap();
    assert_eq!((vm.cid.as_str(), vm.networks), ("i-0478554", call.networks));

    // The second one, with disks for an answer and a string for a hint.
    let disks = json!({"system": "/dev/sda", "ephemeral": "/dev/sdb"});
    let vm = CreatedVm::from_wire(json!(["vm-32r7834yt834", disks]), ApiVersion::V2).unwrap();
    assert_eq!((vm.cid.as_str(), vm.networks.len()), ("vm-32r7834yt834", 0));
    let arguments = [json!("vm-32r7834yt834"), json!("disk-39748564"), disks];
    let call = AttachDisk::from_arguments(arguments.to_vec()).unwrap();
    assert_eq!(call.to_arguments(), arguments[..2], "two are sent");
    let attached = AttachDisk::read_answer(&arguments, json!("/dev/sdc"), ApiVersion::V2).unwrap();
    assert_eq!(attached.hint, Some(DiskHint::text("/dev/sdc").unwrap()));
}

#[test]
fn whatever_a_cpi_answers_to_attach_disk_in_version_1_means_nothing() {
    let arguments = [json!("vm-1"), json!("disk-1")];
    for answer in [json!(null), json!(""), json!("/dev/sdc"), json!(true), json!(3), json!({"persistent": {}})] {
        let attached = AttachDisk::read_answer(&arguments, answer, ApiVersion::V1).unwrap();
        assert_eq!(attached, AttachedDisk { hint: None });
    }
}

#[test]
fn detach_disk_takes_a_third_argument_sends_two_and_its_answer_means_nothing() {
    let disks = json!({"system": "/dev/sda", "persistent": {"vol-1": {"volume_id": "3"}}});
    let call = DetachDisk::from_arguments(vec![json!("vm-1"), json!("vol-1"), disks.clone()]).unwrap();
    assert_eq!(call.to_arguments(), [json!("vm-1"), json!("vol-1")]);
    for answer in [json!(null), json!(true), json!(""), disks] {
        assert_eq!(DetachDisk::read_answer(&call.to_arguments(), answer, ApiVersion::V2), Ok(()));
        assert_eq!(DeleteVm::read_answer(&[json!("vm-1")], json!("done"), ApiVersion::V1), Ok(()));
    }
    assert_eq!(().to_wire(ApiVersion::V2), Value::Null);
}

#[test]
fn settings_name_the_vm_although_one_draft_drops_it() {
    let settings: AgentSettings = serde_json::from_value(json!({"agent_id": "a", "vm": {"name": "i-347844"}})).unwrap();
    assert_eq!(serde_json::to_value(&settings).unwrap()["vm"]["name"], "i-347844");
    let without: AgentSettings = serde_json::from_value(json!({"agent_id": "a"})).unwrap();
    assert_eq!(without.vm.name, "");
}

#[test]
fn version_3_has_the_shapes_and_needs_of_version_2() {
    let vm = CreatedVm::from_wire(json!(["vm-1", {}]), V3).unwrap();
    assert_eq!(vm.to_wire(V3), vm.to_wire(ApiVersion::V2));
    assert!(CreatedVm::from_wire(json!("vm-1"), V3).is_err());
    let disk = AttachedDisk { hint: Some(DiskHint::path("/dev/sdc")) };
    assert_eq!(disk.to_wire(V3), disk.to_wire(ApiVersion::V2));
    for stemcell in [V3, ApiVersion(25)] {
        assert_eq!(SettingsFrom::decide(V3, stemcell), SettingsFrom::UserData);
    }
    assert_eq!(SettingsFrom::decide(V3, ApiVersion::V1), SettingsFrom::Registry);
}

#[test]
fn the_ephemeral_disk_is_text_or_an_object_or_absent() {
    let ephemeral = |disk: Value| {
        let settings = json!({"agent_id": "a", "disks": {"system": "/dev/sda", "ephemeral": disk}});
        serde_json::from_value::<AgentSettings>(settings).unwrap().disks.ephemeral
    };
    assert_eq!(ephemeral(json!("/dev/sdb")).unwrap().get("path"), Some("/dev/sdb"));
    assert_eq!(ephemeral(json!({"path": "/dev/sdb1"})), Some(DiskHint::path("/dev/sdb1")));
    assert_eq!(ephemeral(json!(null)), None);
}

#[test]
fn persistent_disks_may_be_told_by_text_and_by_objects_side_by_side() {
    let settings: AgentSettings = serde_json::from_value(json!({"agent_id": "a", "disks": {"persistent": {
        "vol-3475945": {"volume_id": "3"}, "vol-7447851": {"path": "/dev/sdd"}, "disk-39748564": "/dev/sdc"}}}))
    .unwrap();
    let hints: Vec<_> = settings.disks.persistent.values().map(|hint| hint.get("path")).collect();
    assert_eq!(hints, [Some("/dev/sdc"), None, Some("/dev/sdd")]);
}

#[test]
fn the_registry_is_told_with_credentials_in_its_endpoint_and_beside_it() {
    let documented = json!({"registry": {"endpoint": "http://r", "user": "u", "password": "p"}});
    let read: RegistryUserData = serde_json::from_value(documented.clone()).unwrap();
    assert_eq!(read.registry.user.as_deref(), Some("u"));
    assert_eq!(serde_json::to_value(read).unwrap()["registry"], documented["registry"]);
    let alone = json!({"endpoint": "http://u:p@10.0.0.2:25777"});
    let read: RegistryLocation = serde_json::from_value(alone.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), alone, "one without them stays without");
}

#[test]
fn a_result_may_be_any_json() {
    for result in [json!(null), json!("text"), json!(1.5), json!(true), json!(["a", {"b": []}]), json!({"a": {}})] {
        let text = serde_json::to_string(&Response::success(result.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Response>(&text).unwrap().result, result);
    }
}

#[test]
fn the_types_that_the_original_director_does_not_know_keep_their_names() {
    for name in ["Bosh::Clouds::StemcellNotFound", "Bosh::Clouds::CPIAPIVersionNotSupported", "InvalidCall", "Unknown"]
    {
        let error = json!({"type": name, "message": "m", "ok_to_retry": true});
        let response: Response = serde_json::from_value(json!({"result": null, "error": error, "log": ""})).unwrap();
        assert_eq!(response.error.unwrap().kind, ErrorType::Other(name.to_owned()));
    }
}

#[test]
fn the_methods_are_those_of_all_documents_together() {
    let mut known = NAMES.to_vec();
    known.sort_unstable();
    let documented = [
        "attach_disk",
        "calculate_vm_cloud_properties",
        "configure_networks",
        "create_disk",
        "create_network",
        "create_stemcell",
        "create_vm",
        "current_vm_id",
        "delete_disk",
        "delete_network",
        "delete_snapshot",
        "delete_stemcell",
        "delete_vm",
        "detach_disk",
        "get_disks",
        "has_disk",
        "has_vm",
        "info",
        "reboot_vm",
        "resize_disk",
        "set_disk_metadata",
        "set_vm_metadata",
        "snapshot_disk",
        "update_disk",
    ];
    assert_eq!(known, documented, "'ping', which nobody calls, is not among them");
}

#[test]
fn metadata_is_passed_on_whatever_its_keys() {
    // The keys of the document's sample, and those that ship.
    for metadata in [
        json!({"director": "d", "deployment": "dep", "job": "j", "index": "0", "name": "j/0", "instance_name": "j/0"}),
        json!({"instance_group": "g", "created_at": "2026-01-01T00:00:00Z", "id": "i", "compiling": "package"}),
        json!({}),
    ] {
        let of_vm = [json!("vm-1"), metadata.clone()];
        assert_eq!(SetVmMetadata::from_arguments(of_vm.to_vec()).unwrap().to_arguments(), of_vm);
        let of_disk = [json!("disk-1"), metadata];
        assert_eq!(SetDiskMetadata::from_arguments(of_disk.to_vec()).unwrap().to_arguments(), of_disk);
    }
}

#[test]
fn disks_to_be_near_and_env_may_be_absent_empty_or_full() {
    let create = |disks: Value, env: Value| {
        let arguments = vec![json!("a"), json!("sc"), json!({}), json!({}), disks, env];
        let call = CreateVm::from_arguments(arguments.clone()).unwrap();
        assert_eq!(call.to_arguments(), arguments);
        (call.disk_cids.map(|disks| disks.len()), call.env)
    };
    assert_eq!(create(json!(null), json!(null)), (None, None));
    let five = vec![json!("a"), json!("sc"), json!({}), json!({}), json!([])];
    assert!(CreateVm::from_arguments(five).is_err(), "left out, they are an error");
    assert_eq!(create(json!([]), json!({})).0, Some(0));
    let env =
        json!({"bosh": {"group": "g", "groups": ["g"], "tags": {"a": "b"}, "password": "x", "mbus": {"cert": {}}}});
    let (disks, kept) = create(json!(["disk-1"]), env.clone());
    assert_eq!((disks, kept.map(Value::Object)), (Some(1), Some(env)));
}

#[test]
fn a_request_may_lack_every_version_and_names_it_at_the_top_if_it_has_one() {
    let oldest = json!({"method": "info", "arguments": [], "context": {"director_uuid": "d"}});
    let request: Request = serde_json::from_value(oldest).unwrap();
    assert_eq!((request.api_version, request.context.stemcell_version()), (None, ApiVersion::V1));
    let inside = json!({"method": "info", "arguments": [], "context": {"director_uuid": "d", "api_version": 2}});
    let request: Request = serde_json::from_value(inside).unwrap();
    assert_eq!(request.api_version, None, "inside the context it is a property of the CPI");
    assert_eq!(Info::from_arguments(request.arguments).unwrap(), Info {});
}

#[test]
fn a_stemcell_says_its_version_by_either_name() {
    for (key, expected) in
        [("api_version", Some(ApiVersion::V2)), ("sc_api_version", Some(ApiVersion::V2)), ("x", None)]
    {
        let manifest: StemcellManifest =
            serde_json::from_value(json!({"name": "n", "version": "1", key: 2, "bosh_protocol": "1"})).unwrap();
        assert_eq!(manifest.api_version, expected);
        let sent = serde_json::to_value(&manifest).unwrap();
        assert_eq!(
            sent.get("api_version"),
            expected.map(|version| json!(version)).as_ref(),
            "sent by the shipped name"
        );
    }
}
