//! Every combination of versions at the level of calls: what a caller gets, what the VM is given, and every access to a
//! registry, counted at a server that speaks real HTTP.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use windlass_contract::cpi::methods::{
    AttachDisk, CalculateVmCloudProperties, ConfigureNetworks, CreateDisk, CreateStemcell, CreateVm, DeleteVm,
    DetachDisk, HasVm, SetDiskMetadata, SetVmMetadata,
};
use windlass_contract::cpi::{CpiError, CreatedVm, ErrorType, Method, Response};
use windlass_contract::{DiskCid, DiskHint, Object, Secret, StemcellCid, VmCid};
use windlass_cpi::{Call, Cloud, Config, UserData};
use windlass_registry::credentials::reading_password;
use windlass_rigs::documented::{example, examples};
use windlass_rigs::recording_registry::RecordingRegistry;

/// A cloud that keeps what its VMs were given, and what it was asked.
struct Sky {
    memory: tempfile::TempDir,
    registry: RecordingRegistry,
    vms: RefCell<BTreeMap<String, Value>>,
    forgets_vms: Cell<bool>,
    /// Methods with their arguments, since the last look.
    arrived: RefCell<Vec<(&'static str, Value)>>,
}

impl Cloud for &Sky {
    fn stemcell_formats(&self) -> Vec<String> {
        vec!["sky-raw".into()]
    }

    fn memory(&self) -> Option<&Path> {
        Some(self.memory.path())
    }

    async fn create_stemcell(&self, call: &Call, stemcell: CreateStemcell) -> Result<StemcellCid, CpiError> {
        self.note(&stemcell);
        Ok(StemcellCid::new(format!("sc-{}", call.id)).unwrap())
    }

    async fn set_vm_metadata(&self, _: &Call, vm: SetVmMetadata) -> Result<(), CpiError> {
        self.note(&vm);
        Ok(())
    }

    async fn configure_networks(&self, _: &Call, vm: ConfigureNetworks) -> Result<(), CpiError> {
        self.note(&vm);
        Ok(())
    }

    async fn calculate_vm_cloud_properties(
        &self,
        _: &Call,
        vm: CalculateVmCloudProperties,
    ) -> Result<Object, CpiError> {
        self.note(&vm);
        Ok(Object::default())
    }

    async fn create_disk(&self, call: &Call, disk: CreateDisk) -> Result<DiskCid, CpiError> {
        self.note(&disk);
        Ok(DiskCid::new(format!("vol-{}", call.id)).unwrap())
    }

    async fn set_disk_metadata(&self, _: &Call, disk: SetDiskMetadata) -> Result<(), CpiError> {
        self.note(&disk);
        Ok(())
    }

    async fn create_vm(&self, call: &Call, vm: CreateVm, user_data: &mut UserData) -> Result<CreatedVm, CpiError> {
        self.note(&vm);
        let cid = format!("i-{}", call.id);
        user_data.set_vm_name(cid.as_str());
        for network in user_data.settings.networks.values_mut() {
            network.ip = Some("10.0.0.99".into());
        }
        self.vms.borrow_mut().insert(cid.clone(), serde_json::to_value(&user_data).unwrap());
        Ok(CreatedVm { cid: VmCid::new(cid).unwrap(), networks: vm.networks, disks: None })
    }

    async fn delete_vm(&self, _: &Call, vm: DeleteVm) -> Result<(), CpiError> {
        let gone = self.vms.borrow_mut().remove(vm.vm_cid.as_str());
        if gone.is_none() && self.forgets_vms.get() { Err(CpiError::vm_not_found(&vm.vm_cid)) } else { Ok(()) }
    }

    async fn has_vm(&self, _: &Call, vm: HasVm) -> Result<bool, CpiError> {
        Ok(self.vms.borrow().contains_key(vm.vm_cid.as_str()))
    }

    async fn attach_disk(&self, _: &Call, disk: AttachDisk) -> Result<DiskHint, CpiError> {
        self.note(&disk);
        Ok(DiskHint::path(format!("/dev/{}", disk.disk_cid)))
    }

    async fn detach_disk(&self, _: &Call, _: DetachDisk) -> Result<(), CpiError> {
        Ok(())
    }
}

/// One side's versions in a call; absent is absent on the wire, too.
#[derive(Debug, Clone, Copy)]
struct Versions {
    request: Option<u32>,
    cpi: u32,
    stemcell: Option<u32>,
}

impl Sky {
    fn new() -> Self {
        Self {
            memory: tempfile::tempdir().unwrap(),
            registry: RecordingRegistry::start(),
            vms: RefCell::default(),
            forgets_vms: Cell::new(false),
            arrived: RefCell::default(),
        }
    }

    fn note<M: Method>(&self, call: &M) {
        self.arrived.borrow_mut().push((M::NAME, Value::Array(call.to_arguments())));
    }

    fn config(&self, cpi: u32, with_registry: bool) -> Config {
        let mut properties = json!({
            "agent": {"mbus": "https://mbus:hunter2@0.0.0.0:6868", "ntp": ["time"], "blobstore": {"provider": "local"}},
            "debug": {"cpi": {"api_version": cpi}},
        });
        if with_registry {
            let endpoint = format!("http://{}", self.registry.address());
            properties["registry"] = json!({"endpoint": endpoint, "user": "admin", "password": "hunter3"});
        }
        let file = json!({"cloud": {"plugin": "sky", "properties": properties}});
        Config::from_json(file.to_string().as_bytes()).unwrap()
    }

    fn ask_with(&self, config: &Config, method: &str, arguments: Value, versions: Versions) -> Response {
        let mut request = json!({"method": method, "arguments": arguments, "context": {"director_uuid": "d-1"}});
        if let Some(version) = versions.request {
            request["api_version"] = json!(version);
        }
        if let Some(version) = versions.stemcell {
            request["context"]["vm"] = json!({"stemcell": {"api_version": version}});
        }
        windlass_cpi::answer(config, request.to_string().as_bytes(), |_| Ok(self))
    }

    fn ask(&self, method: &str, arguments: Value, versions: Versions) -> Response {
        self.ask_with(&self.config(versions.cpi, true), method, arguments, versions)
    }

    fn ok(&self, method: &str, arguments: Value, versions: Versions) -> Value {
        let response = self.ask(method, arguments, versions);
        assert_eq!(response.error, None, "{method} {versions:?}");
        response.result
    }

    /// The methods and ids that the registry was asked since the last time.
    fn asked(&self) -> Vec<(String, String)> {
        let asked = self.registry.take();
        for it in &asked {
            assert_eq!((it.user.as_str(), it.password.as_str()), ("admin", "hunter3"));
        }
        asked.into_iter().map(|it| (it.method, it.id)).collect()
    }

    fn given(&self, cid: &str) -> Value {
        self.vms.borrow()[cid].clone()
    }
}

fn vm_arguments(agent: &str) -> Value {
    json!([agent, "sc-1", {}, {"default": {"type": "dynamic"}}, [], {"bosh": {"password": "x"}}])
}

fn accesses(methods: &[&str], cid: &str) -> Vec<(String, String)> {
    methods.iter().map(|method| ((*method).to_owned(), cid.to_owned())).collect()
}

fn table() -> impl Iterator<Item = Versions> {
    let requests = [None, Some(1), Some(2), Some(3)];
    let stemcells = [None, Some(1), Some(2), Some(3), Some(25)];
    requests.into_iter().flat_map(move |request| {
        [1, 2].into_iter().flat_map(move |cpi| stemcells.map(move |stemcell| Versions { request, cpi, stemcell }))
    })
}

/// What the configuration says about agents is in their settings, because the original's command line does not send it.
fn assert_configured(settings: &Value, row: &str) {
    assert_eq!(settings["mbus"], "https://mbus:hunter2@0.0.0.0:6868", "{row}: merged in");
    assert_eq!((&settings["ntp"][0], &settings["blobstore"]["provider"]), (&json!("time"), &json!("local")), "{row}");
}

/// The whole life of a VM with a disk. `later` are the versions of the calls after `create_vm`.
fn live(sky: &Sky, versions: Versions, later: Versions) {
    let in_registry = versions.request.unwrap_or(1) < 2 || versions.stemcell.unwrap_or(1) < 2;
    let v2_results = |versions: Versions| versions.request.unwrap_or(1) >= 2;
    let row = format!("{versions:?} then {later:?}");

    let created = sky.ok("create_vm", vm_arguments(&row), versions);
    let cid = if v2_results(versions) { &created[0] } else { &created };
    let cid = cid.as_str().unwrap_or_else(|| panic!("{row}: {created}")).to_owned();
    assert_eq!(created.is_array(), v2_results(versions), "{row}");
    let given = sky.given(&cid);
    let expected: &[&str] = if in_registry { &["PUT"] } else { &[] };
    assert_eq!(sky.asked(), accesses(expected, &cid), "{row}");
    if in_registry {
        let password = reading_password(&Secret::new("hunter3"), &cid);
        let endpoint = format!("http://{cid}:{}@{}", password.reveal(), sky.registry.address());
        let location = json!({"endpoint": endpoint, "user": cid, "password": password.reveal()});
        assert_eq!(given["registry"], location, "{row}");
        assert_eq!((&given["server"]["name"], &given["agent_id"]), (&json!(cid), &Value::Null), "{row}");
        let settings = sky.registry.settings(&cid).unwrap();
        assert_eq!((&settings["agent_id"], &settings["vm"]["name"]), (&json!(row), &json!(cid)));
        assert_eq!(settings["networks"]["default"]["ip"], "10.0.0.99", "{row}: what the cloud chose");
        assert_eq!(settings["env"]["bosh"]["password"], "x");
        assert_configured(&settings, &row);
    } else {
        assert_eq!((&given["agent_id"], &given["vm"]["name"]), (&json!(row), &json!(cid)));
        assert_eq!(given["disks"], json!({"system": "", "persistent": {}}));
        assert_eq!(given.get("registry"), None, "{row}");
        assert_configured(&given, &row);
    }

    let expected: &[&str] = if in_registry { &["GET", "PUT"] } else { &[] };
    for disk in ["disk-1", "disk-2"] {
        let hint = sky.ok("attach_disk", json!([cid, disk]), later);
        let path = json!({"path": format!("/dev/{disk}")});
        assert_eq!(hint, if v2_results(later) { path } else { Value::Null }, "{row}");
        assert_eq!(sky.asked(), accesses(expected, &cid), "{row}");
    }
    assert_eq!(sky.ok("detach_disk", json!([cid, "disk-1"]), later), Value::Null);
    assert_eq!(sky.asked(), accesses(expected, &cid), "{row}");
    if in_registry {
        let settings = sky.registry.settings(&cid).unwrap();
        assert_eq!(settings["disks"]["persistent"], json!({"disk-2": {"path": "/dev/disk-2"}}), "{row}");
    }

    assert_eq!(sky.ok("delete_vm", json!([cid]), later), Value::Null);
    let expected: &[&str] = if in_registry { &["DELETE"] } else { &[] };
    assert_eq!(sky.asked(), accesses(expected, &cid), "{row}");
    assert_eq!(sky.registry.settings(&cid), None);
    sky.ok("delete_vm", json!([cid]), later);
    assert_eq!(sky.asked(), [], "{row}: the registry is not asked about a VM that is forgotten");
}

#[test]
fn every_combination_has_its_shapes_and_touches_the_registry_exactly_when_its_row_says_so() {
    let sky = Sky::new();
    for versions in table() {
        let advertised = sky.ok("info", json!([]), versions)["api_version"].clone();
        assert_eq!(advertised, json!(versions.cpi), "{versions:?}");
        if versions.request == Some(3) {
            let error = sky.ask("create_vm", vm_arguments("a"), versions).error.unwrap();
            assert!(error.message.contains("version 3") && error.message.contains("up to 2"), "{error}");
        } else {
            live(&sky, versions, versions);
        }
        assert_eq!(sky.asked(), []);
    }
    assert!(sky.vms.borrow().is_empty());
}

#[test]
fn later_calls_follow_what_was_decided_for_the_vm_whatever_versions_they_carry() {
    let sky = Sky::new();
    for (request, stemcell) in [(None, None), (Some(1), Some(2)), (Some(2), Some(1)), (Some(2), Some(2))] {
        let versions = Versions { request, cpi: 2, stemcell };
        for (request, stemcell) in
            [(None, None), (Some(1), Some(25)), (Some(2), None), (Some(2), Some(1)), (Some(2), Some(2))]
        {
            live(&sky, versions, Versions { request, cpi: 2, stemcell });
        }
    }
}

#[test]
fn the_eight_rows_of_the_seeds_table() {
    let sky = Sky::new();
    for director in [1, 2] {
        for cpi in [1, 2] {
            for stemcell in [1, 2] {
                // A director of version 1 may know no versions at all, and then sends none.
                let negotiated = Versions { request: Some(director.min(cpi)), cpi, stemcell: Some(stemcell) };
                live(&sky, negotiated, Versions { stemcell: None, ..negotiated });
                if director == 1 {
                    let unversioned = Versions { request: None, cpi, stemcell: None };
                    live(&sky, unversioned, unversioned);
                }
            }
        }
    }
}

const V1: Versions = Versions { request: Some(1), cpi: 2, stemcell: Some(2) };

#[test]
fn without_a_registry_version_1_is_refused_with_both_versions_and_the_remedy_before_anything_is_made() {
    let sky = Sky::new();
    let config = sky.config(2, false);
    for versions in table().filter(|versions| versions.request != Some(3)) {
        let answer = sky.ask_with(&config, "create_vm", vm_arguments("a"), versions);
        let (request, stemcell) = (versions.request.unwrap_or(1), versions.stemcell.unwrap_or(1));
        if request >= 2 && stemcell >= 2 {
            assert_eq!(answer.error, None);
            continue;
        }
        let error = answer.error.unwrap();
        assert_eq!(error.kind, ErrorType::CloudError);
        let both = format!("contract version {request} and stemcell version {stemcell}");
        assert!(error.message.contains(&both) && error.message.contains("cloud.properties.registry"), "{error}");
    }
    assert_eq!(sky.vms.borrow().len(), 1, "the one that needs no registry, however often it was asked for");
}

#[test]
fn a_vm_whose_settings_cannot_be_stored_does_not_remain() {
    let sky = Sky::new();
    sky.registry.fail_with(&[500; 5]);
    let error = sky.ask("create_vm", vm_arguments("a"), V1).error.unwrap();
    assert_eq!((error.kind.as_str(), error.ok_to_retry), ("Bosh::Clouds::VMCreationFailed", true));
    assert!(error.message.contains(&sky.registry.address().to_string()), "{error}");
    assert!(sky.vms.borrow().is_empty());
    sky.registry.take();
    let cid = sky.ok("create_vm", vm_arguments("a"), V1);
    assert_eq!(sky.asked(), accesses(&["PUT"], cid.as_str().unwrap()), "the retry is a clean one");
}

#[test]
fn a_repeated_create_vm_is_answered_without_another_access() {
    let sky = Sky::new();
    let cid = sky.ok("create_vm", vm_arguments("a"), V1);
    sky.asked();
    assert_eq!(sky.ok("create_vm", vm_arguments("a"), V1), cid);
    assert_eq!(sky.asked(), []);
}

#[test]
fn an_error_in_between_is_repaired_by_repeating_the_call() {
    let sky = Sky::new();
    let cid = sky.ok("create_vm", vm_arguments("a"), V1);
    for (method, remains) in [("attach_disk", json!({"disk-1": {"path": "/dev/disk-1"}})), ("detach_disk", json!({}))] {
        sky.registry.fail_with(&[500; 5]);
        let error = sky.ask(method, json!([cid, "disk-1"]), V1).error.unwrap();
        assert_eq!(error.kind, ErrorType::CloudError);
        sky.ok(method, json!([cid, "disk-1"]), V1);
        let settings = sky.registry.settings(cid.as_str().unwrap()).unwrap();
        assert_eq!(settings["disks"]["persistent"], remains);
    }
    sky.forgets_vms.set(true);
    sky.registry.fail_with(&[500; 5]);
    sky.ask("delete_vm", json!([cid]), V1).error.unwrap();
    let second = sky.ask("delete_vm", json!([cid]), V1).error.unwrap();
    assert_eq!(second.kind, ErrorType::VmNotFound, "the cloud's own answer");
    assert_eq!(sky.registry.settings(cid.as_str().unwrap()), None, "the record went all the same");
}

#[test]
fn a_vm_survives_that_its_registry_is_not_configured_any_more() {
    let sky = Sky::new();
    let cid = sky.ok("create_vm", vm_arguments("a"), V1);
    sky.asked();
    let without = sky.config(2, false);
    let error = sky.ask_with(&without, "attach_disk", json!([cid, "disk-1"]), V1).error.unwrap();
    assert!(error.message.contains("gets its settings from a registry, and none is configured"), "{error}");
    assert_eq!(sky.ask_with(&without, "delete_vm", json!([cid]), V1).error, None, "it can still be deleted");
    assert_eq!(sky.asked(), []);
}

#[test]
fn a_cpi_config_entry_names_another_registry() {
    let sky = Sky::new();
    let other = RecordingRegistry::start();
    let registry = json!({"endpoint": format!("http://{}", other.address())});
    let request = json!({"method": "create_vm", "arguments": vm_arguments("a"), "api_version": 1,
        "context": {"director_uuid": "d-1", "registry": registry}});
    let answer = windlass_cpi::answer(&sky.config(2, true), request.to_string().as_bytes(), |_| Ok(&sky));
    assert_eq!(answer.error, None);
    assert_eq!((sky.registry.take().len(), other.take().len()), (0, 1));
}

/// The keys that a document shows are all there; what their values are, others look at.
fn assert_keys_of(document: &Value, given: &Value) {
    for (key, value) in document.as_object().into_iter().flatten() {
        assert!(given.get(key).is_some(), "'{key}' is missing in {given}");
        // Which disks there are is the cloud's business.
        if key != "disks" {
            assert_keys_of(value, &given[key]);
        }
    }
}

#[test]
fn a_vm_is_given_what_the_documents_show() {
    let arguments = example("version 1, create_vm, arguments");
    for (stemcell, document) in [(2, "version 2, user data in full"), (1, "version 2, user data with a registry")] {
        let sky = Sky::new();
        let versions = Versions { request: Some(2), cpi: 2, stemcell: Some(stemcell) };
        let created = sky.ok("create_vm", arguments.clone(), versions);
        let given = sky.given(created[0].as_str().unwrap());
        assert_keys_of(&example(document), &given);
        if stemcell == 2 {
            assert_eq!(given["env"], arguments[5], "verbatim");
        }
    }
}

#[test]
fn every_request_of_the_documents_reaches_the_cloud() {
    let sky = Sky::new();
    let versions = Versions { request: Some(2), cpi: 2, stemcell: Some(2) };
    let mut reached = BTreeSet::new();
    for (name, arguments) in examples().filter(|(name, _)| name.contains("argument")) {
        let method = name.split(", ").nth(1).unwrap().split(' ').next().unwrap();
        let arguments = if name.ends_with("argument") { json!([arguments]) } else { arguments };
        let error = sky.ask(method, arguments.clone(), versions).error;
        let arrived = sky.arrived.take();
        match (method, error) {
            // Its agent settings are left out, and with them the agent's id.
            ("create_vm", Some(error)) if name.starts_with("first draft") => {
                assert!(error.message.contains("argument 3 (agent_bootstrap_settings)"), "{error}");
                assert_eq!(arrived, []);
                let mut whole = arguments.clone();
                whole[2] = json!({"agent_id": "agent-1"});
                sky.ok(method, whole, versions);
                let (_, today) = sky.arrived.take().remove(0);
                assert_eq!([&today[0], &today[1]], ["agent-1", "ami-478585"]);
                let (then, now) = (arguments.as_array().unwrap(), today.as_array().unwrap());
                assert_eq!((&now[2], &now[3..6]), (&then[1], &then[3..6]), "what is not of the agent");
            }
            // It is the agent's.
            ("mount_disk", Some(error)) => {
                assert_eq!(error.kind, ErrorType::NotImplemented);
                assert_eq!(arrived, []);
            }
            // What a CPI needs of the disks it knows itself.
            ("attach_disk", None) => assert_eq!(arrived, [("attach_disk", json!([arguments[0], arguments[1]]))]),
            (_, None) => assert_eq!(arrived, [(method, arguments)], "{name}"),
            (_, Some(error)) => panic!("{name}: {error}"),
        }
        reached.insert(method);
    }
    assert_eq!(reached.len(), 9, "{reached:?}");
}

/// Scripts and directors go another way where a method is not supported, and give up where it is not implemented.
#[test]
fn what_a_cloud_leaves_out_is_not_implemented_or_not_supported_as_documented() {
    struct Empty;
    impl Cloud for Empty {
        fn stemcell_formats(&self) -> Vec<String> {
            Vec::new()
        }
    }
    let sky = Sky::new();
    let networks = example("version 1, configure_networks, arguments");
    for (method, arguments, kind) in [
        ("resize_disk", json!(["vol-3475945", 50000]), ErrorType::NotSupported),
        ("configure_networks", networks, ErrorType::NotSupported),
        ("create_disk", json!([25000, {}, null]), ErrorType::NotImplemented),
        ("has_vm", json!(["i-1"]), ErrorType::NotImplemented),
    ] {
        let request = json!({"method": method, "arguments": arguments, "context": {"director_uuid": "d-1"}});
        let answer = windlass_cpi::answer(&sky.config(2, false), request.to_string().as_bytes(), |_| Ok(Empty));
        assert_eq!(answer.error.unwrap().kind, kind, "{method}");
    }
}
