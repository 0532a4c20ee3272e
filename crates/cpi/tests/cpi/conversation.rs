//! A toy cloud behind the real answering path: what callers may send, and what they must always get back.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_contract::cpi::methods::{AttachDisk, CreateDisk, CreateVm, DeleteVm, HasVm};
use windlass_contract::cpi::{CpiError, CreatedVm, Response};
use windlass_contract::{DiskCid, DiskHint, VmCid};
use windlass_cpi::{Call, Cloud, Config, UserData};

/// Remembers what it made, and can be told to fail after the effect, as a killed process would.
#[derive(Default)]
struct Sky {
    memory: Option<PathBuf>,
    vms: RefCell<BTreeSet<String>>,
    disks: RefCell<BTreeSet<String>>,
    calls: RefCell<Vec<&'static str>>,
    fail_after_effect: bool,
}

impl Sky {
    fn remembering(folder: &Path) -> Self {
        Self { memory: Some(folder.to_owned()), ..Self::default() }
    }

    fn done<T>(&self, method: &'static str, answer: T) -> Result<T, CpiError> {
        self.calls.borrow_mut().push(method);
        if self.fail_after_effect { Err(CpiError::cloud("the line\nbroke")) } else { Ok(answer) }
    }
}

impl Cloud for &Sky {
    fn stemcell_formats(&self) -> Vec<String> {
        vec!["sky-raw".into()]
    }

    fn memory(&self) -> Option<&Path> {
        self.memory.as_deref()
    }

    async fn create_vm(&self, call: &Call, vm: CreateVm, user_data: &mut UserData) -> Result<CreatedVm, CpiError> {
        assert_eq!(user_data.settings.agent_id, vm.agent_id);
        let cid = format!("vm-{}", call.id);
        self.vms.borrow_mut().insert(cid.clone());
        self.done("create_vm", CreatedVm { cid: VmCid::new(cid).unwrap(), networks: vm.networks, disks: None })
    }

    async fn delete_vm(&self, _: &Call, vm: DeleteVm) -> Result<(), CpiError> {
        self.vms.borrow_mut().remove(vm.vm_cid.as_str());
        self.done("delete_vm", ())
    }

    async fn has_vm(&self, _: &Call, vm: HasVm) -> Result<bool, CpiError> {
        Ok(self.vms.borrow().contains(vm.vm_cid.as_str()))
    }

    async fn create_disk(&self, call: &Call, disk: CreateDisk) -> Result<DiskCid, CpiError> {
        assert!(disk.size.0 != 666, "an author's mistake");
        let cid = format!("disk-{}", call.id);
        self.disks.borrow_mut().insert(cid.clone());
        self.done("create_disk", DiskCid::new(cid).unwrap())
    }

    async fn attach_disk(&self, _: &Call, disk: AttachDisk) -> Result<DiskHint, CpiError> {
        self.done("attach_disk", DiskHint::path(format!("/dev/{}", disk.disk_cid)))
    }
}

fn config() -> Config {
    Config::from_json(br#"{"cloud":{"plugin":"sky","properties":{}}}"#).unwrap()
}

fn ask(sky: &Sky, request: Value) -> Response {
    windlass_cpi::answer(&config(), request.to_string().as_bytes(), |_| Ok(sky))
}

fn ok(sky: &Sky, request: Value) -> Value {
    let response = ask(sky, request);
    assert_eq!(response.error, None);
    response.result
}

fn refused(sky: &Sky, request: Value) -> String {
    ask(sky, request).error.expect("an error").to_string()
}

const UUID: &str = "0b7d1b7c-50a4-4a0f-9a0e-6a2f0a6f6d11";

fn call(method: &str, arguments: Value, request_id: &str) -> Value {
    json!({"method": method, "arguments": arguments, "api_version": 2,
        "context": {"director_uuid": "d-1", "request_id": request_id, "vm": {"stemcell": {"api_version": 3}}}})
}

fn vm_arguments(agent: &str) -> Value {
    json!([agent, "sc-1", {}, {"default": {"type": "manual", "ip": "10.0.0.5"}}, [], {"bosh": {}}])
}

#[test]
fn info_is_the_same_whatever_the_version() {
    let sky = Sky::default();
    let expected = json!({"stemcell_formats": ["sky-raw"], "api_version": 2, "windlass": {"replay": false}});
    for version in [Value::Null, json!(1), json!(2), json!(3), json!(99)] {
        assert_eq!(ok(&sky, json!({"method": "info", "arguments": [], "api_version": version})), expected);
    }
    let lowered = json!({"method": "info", "arguments": [], "context": {"debug": {"cpi": {"api_version": 1}}}});
    assert_eq!(ok(&sky, lowered)["api_version"], 1);
}

#[test]
fn results_take_the_shape_of_the_requests_version() {
    let sky = Sky::default();
    let vm = ok(&sky, call("create_vm", vm_arguments("a"), "cpi-1"));
    assert_eq!(vm[1]["default"]["ip"], "10.0.0.5");
    let mut attach = call("attach_disk", json!(["vm-1", "disk-1"]), "cpi-1");
    assert_eq!(ok(&sky, attach.clone()), json!({"path": "/dev/disk-1"}));
    attach["api_version"] = json!(1);
    assert_eq!(ok(&sky, attach.clone()), Value::Null);
    attach["api_version"] = json!(3);
    assert!(refused(&sky, attach).starts_with("Bosh::Clouds::CpiError: 'attach_disk' was asked in contract version 3"));
}

#[test]
fn a_vm_that_needs_a_registry_is_refused_before_anything_is_made() {
    let sky = Sky::default();
    let mut request = call("create_vm", vm_arguments("a"), "cpi-1");
    request["context"]["vm"] = json!({"stemcell": {}});
    let error = refused(&sky, request);
    assert!(error.contains("CloudError") && error.contains("version 2 and stemcell version 1"), "{error}");
    assert!(sky.vms.borrow().is_empty());
}

#[test]
fn wrong_requests_are_refused_before_any_effect_and_surplus_is_ignored() {
    let sky = Sky::default();
    for (request, word) in [
        (json!({"method": "create_disk", "arguments": [1024]}), "argument 2 (cloud_properties)"),
        (json!({"method": "create_disk", "arguments": ["1024", {}, null]}), "argument 1 (size)"),
        (json!({"method": "create_disk", "arguments": {}}), "'arguments' is an object"),
        (json!({"method": "has_vm", "arguments": [""]}), "argument 1 (vm_cid)"),
        (json!({"method": "has_vm?", "arguments": ["x"]}), "NotImplemented"),
        (json!({"method": "CREATE_DISK", "arguments": [1, {}, null]}), "NotImplemented"),
        (json!({"method": "snapshot_disk", "arguments": ["disk-1", {}]}), "NotImplemented"),
        (json!({"method": 7, "arguments": []}), "'method' is a number"),
        (json!({"arguments": []}), "'method' is missing"),
        (json!([]), "an array, not an object"),
    ] {
        let error = refused(&sky, request);
        assert!(error.contains(word), "{error} should say {word}");
    }
    assert!(sky.calls.borrow().is_empty());
    assert_eq!(ok(&sky, json!({"method": "has_vm", "arguments": ["x", "later"], "later": 1})), json!(false));
}

#[test]
fn a_panic_is_an_answer() {
    let error = refused(&Sky::default(), call("create_disk", json!([666, {}, null]), "cpi-1"));
    assert!(error.starts_with("Bosh::Clouds::CpiError") && !error.contains("mistake"), "{error}");
}

#[test]
fn messages_stay_on_one_line() {
    let sky = Sky { fail_after_effect: true, ..Sky::default() };
    assert!(refused(&sky, call("create_disk", json!([1, {}, null]), "cpi-1")).ends_with("the line | broke"));
}

#[test]
fn a_repeated_request_has_one_effect() {
    let folder = tempfile::tempdir().unwrap();
    let sky = Sky::remembering(folder.path());
    let request = call("create_disk", json!([1024, {}, null]), UUID);
    let first = ok(&sky, request.clone());
    assert_eq!(ok(&sky, request), first);
    assert_eq!(*sky.calls.borrow(), ["create_disk"]);
    let other = refused(&sky, call("create_disk", json!([2048, {}, null]), UUID));
    assert!(other.contains("other arguments"), "{other}");
    assert_eq!(ok(&sky, json!({"method": "info", "arguments": []}))["windlass"]["replay"], true);
}

#[test]
fn six_digits_are_never_taken_for_a_repetition() {
    let folder = tempfile::tempdir().unwrap();
    let sky = Sky::remembering(folder.path());
    let request = call("create_disk", json!([1024, {}, null]), "cpi-482913");
    assert_ne!(ok(&sky, request.clone()), ok(&sky, request));
}

#[test]
fn a_request_that_failed_half_way_finishes_what_it_began() {
    let folder = tempfile::tempdir().unwrap();
    let mut sky = Sky { fail_after_effect: true, ..Sky::remembering(folder.path()) };
    let request = call("create_disk", json!([1024, {}, null]), UUID);
    refused(&sky, request.clone());
    sky.fail_after_effect = false;
    ok(&sky, request);
    assert_eq!(sky.disks.borrow().len(), 1, "the second call made no second disk");
}

#[test]
fn a_vm_is_known_by_its_agent_until_it_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let sky = Sky::remembering(folder.path());
    let first = ok(&sky, call("create_vm", vm_arguments("a"), "cpi-1"));
    assert_eq!(ok(&sky, call("create_vm", vm_arguments("a"), "cpi-2")), first);
    assert_eq!(ok(&sky, call("create_vm", vm_arguments("a"), UUID)), first);
    assert_ne!(ok(&sky, call("create_vm", vm_arguments("b"), "cpi-3")), first);
    ok(&sky, call("delete_vm", json!([first[0]]), "cpi-4"));
    let second = ok(&sky, call("create_vm", vm_arguments("a"), "cpi-5"));
    assert_ne!(second, first, "a cid that a caller has seen is never given out again");
}

#[test]
fn replayed_answers_have_the_shape_of_the_version_that_asks() {
    let folder = tempfile::tempdir().unwrap();
    let sky = Sky::remembering(folder.path());
    let mut request = call("attach_disk", json!(["vm-1", "disk-1"]), UUID);
    assert_eq!(ok(&sky, request.clone()), json!({"path": "/dev/disk-1"}));
    request["api_version"] = json!(1);
    assert_eq!(ok(&sky, request), Value::Null);
    assert_eq!(*sky.calls.borrow(), ["attach_disk"]);
}

#[test]
fn memory_holds_no_arguments_and_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let sky = Sky::remembering(folder.path());
    let mut arguments = vm_arguments("a");
    arguments[5] = json!({"bosh": {"password": "hunter2"}});
    ok(&sky, call("create_vm", arguments, UUID));
    let mut files = 0;
    for shard in std::fs::read_dir(folder.path()).unwrap() {
        for file in std::fs::read_dir(shard.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            assert!(!std::fs::read_to_string(&path).unwrap().contains("hunter2"));
            files += 1;
        }
    }
    assert_eq!(files, 5, "two records with their locks, and how the VM gets its settings");
}

#[test]
fn the_example_stays_an_afternoons_work() {
    assert!(include_str!("../../examples/directory_cloud.rs").lines().count() <= 150);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(".*", inner, 0..6).prop_map(|map| json!(map)),
        ]
    })
}

fn is_valid(response: &Response) -> bool {
    let wire = serde_json::to_value(response).unwrap();
    let known = response.error.as_ref().is_none_or(|error| error.kind.as_str().starts_with("Bosh::Clouds::"));
    wire["log"].is_string() && known && wire.as_object().is_some_and(|fields| fields.len() == 3)
}

proptest! {
    #[test]
    fn arbitrary_bytes_get_one_valid_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let sky = Sky::default();
        prop_assert!(is_valid(&windlass_cpi::answer(&config(), &bytes, |_| Ok(&sky))));
    }

    #[test]
    fn arbitrary_fields_get_one_valid_answer(
        method in prop_oneof![Just("create_vm"), Just("create_disk"), Just("attach_disk"), Just("info"), Just("x")],
        arguments in any_json(), context in any_json(), version in any_json(),
    ) {
        let request = json!({"method": method, "arguments": arguments, "context": context, "api_version": version});
        prop_assert!(is_valid(&ask(&Sky::default(), request)));
    }
}
