use windlass_contract::{AgentId, MiB, Networks, Object, Secret};

use super::*;
use crate::names::{CpiName, DiskName};
use crate::records::{InstanceRecord, InstanceState, StemcellOfVm, VmRecord};

fn current(vm: Option<&str>) -> Current {
    let record = InstanceRecord {
        id: "u-1".into(),
        deployment: "d".into(),
        group: "web".into(),
        index: 0,
        az: None,
        bootstrap: true,
        state: InstanceState::Started,
        spec: None,
        applied: None,
        converged: true,
        ignored: false,
    };
    let vm = vm.map(|cid| VmRecord {
        cid: VmCid::new(cid).unwrap(),
        agent_id: AgentId::random(),
        instance: "u-1".into(),
        cpi: CpiName::Default,
        stemcell: StemcellOfVm { name: "s".into(), version: "1".into(), api_version: None },
        networks: Networks::default(),
        cloud_properties: Object::new(),
        wanted_env: Object::new(),
        env_values: None,
        disks: None,
        mbus_user: String::new(),
        mbus_password: Secret::new(""),
        created_at: 0,
        ready: true,
        certificate: None,
        spare: false,
    });
    let disk = DiskRecord {
        cid: DiskCid::new("disk-1").unwrap(),
        instance: "u-1".into(),
        name: DiskName::Managed,
        cpi: CpiName::Default,
        size: MiB(64),
        cloud_properties: Object::new(),
        active: true,
        vm: vm.as_ref().map(|vm| vm.cid.clone()),
        mounted: true,
        hint: None,
    };
    let instance = CurrentInstance { vm, spare: None, disks: vec![disk], unresponsive: false, record };
    Current { instances: vec![instance], ..Current::default() }
}

/// Clients choose by these words, and scripts look for these descriptions.
/// As clients get it.
fn written(problem: &OpenProblem, current: &Current) -> serde_json::Value {
    serde_json::to_value(problem.shown(current)).unwrap()
}

#[test]
fn problems_are_shown_in_the_words_of_the_original() {
    let shown = |problem, vm| written(&OpenProblem { id: 3, problem }, &current(vm));
    let missing = shown(Problem::MissingVm { instance: "u-1".into() }, Some("29988"));
    assert_eq!(missing["description"], "VM for 'web/u-1 (0)' with cloud ID '29988' missing.");
    assert_eq!(
        missing["resolutions"],
        json!([
            {"name": "ignore", "plan": "Skip for now"},
            {"name": "recreate_vm_without_wait", "plan": "Recreate VM without waiting for processes to start"},
            {"name": "recreate_vm", "plan": "Recreate VM and wait for processes to start"},
            {"name": "delete_vm_reference", "plan": "Delete VM reference"},
        ])
    );
    let missing = shown(Problem::MissingVm { instance: "u-1".into() }, None);
    assert_eq!(missing["description"], "VM for 'web/u-1 (0)' missing.");
    let silent = shown(Problem::UnresponsiveAgent { instance: "u-1".into(), unreachable: None }, Some("29988"));
    assert_eq!(silent["description"], "VM for 'web/u-1 (0)' with cloud ID '29988' is not responding.");
    assert_eq!(silent["resolutions"].as_array().unwrap().len(), 6);
    // Only of one that the cloud cannot reach can somebody say that it is dead.
    let unreachable = Some("the member 'n2' does not answer".to_owned());
    let stranded = shown(Problem::UnresponsiveAgent { instance: "u-1".into(), unreachable }, Some("29988"));
    let description = "VM for 'web/u-1 (0)' with cloud ID '29988' is not responding. The cloud cannot reach it: the member \
         'n2' does not answer";
    assert_eq!(stranded["description"], description);
    assert_eq!(stranded["resolutions"][5]["name"], "declare_vm_dead");
    let disk = DiskCid::new("disk-1").unwrap();
    let mismatch = Problem::MountInfoMismatch { disk, owner_vms: vec![], is_detached: false };
    let shown = shown(mismatch, Some("29988"));
    assert_eq!(
        shown["description"],
        "Inconsistent mount information:\nRecord shows that disk 'disk-1' should be mounted on 29988.\n\
         However it is currently :\n\tNot mounted in any VM"
    );
    assert_eq!((&shown["data"], &shown["instance_group"]), (&json!({"owner_vms": []}), &json!("web")));
}

/// A script that has every lost VM recreated (`--resolution recreate_vm`) does not touch VMs that answer.
#[test]
fn failing_jobs_are_named_and_offer_nothing_that_replaces_a_vm() {
    let shown = |processes: &[&str], vm| {
        let processes = processes.iter().map(|name| (*name).to_owned()).collect();
        let problem = Problem::FailingJobs { instance: "u-1".into(), processes };
        written(&OpenProblem { id: 3, problem }, &current(vm))
    };
    let failing = shown(&["worker", "web"], Some("29988"));
    assert_eq!(failing["description"], "Jobs of 'web/u-1 (0)' are failing: worker, web.");
    assert_eq!((&failing["type"], &failing["instance_group"]), (&json!("failing_jobs"), &json!("web")));
    assert_eq!(
        failing["resolutions"],
        json!([{"name": "ignore", "plan": "Skip for now"}, {"name": "restart_jobs", "plan": "Restart jobs"}])
    );
    assert_eq!(shown(&[], Some("29988"))["description"], "Jobs of 'web/u-1 (0)' are failing.");
    assert_eq!(shown(&["web"], None)["type"], "invalid_problem");
}

#[test]
fn a_problem_whose_subject_is_gone_can_only_be_closed() {
    let gone = OpenProblem { id: 3, problem: Problem::MissingDisk { disk: DiskCid::new("other").unwrap() } };
    let shown = written(&gone, &current(None));
    assert_eq!((&shown["type"], &shown["resolutions"][0]["name"]), (&json!("invalid_problem"), &json!("close")));
    assert_eq!(gone.chosen(Some("close")), Ok(Resolution::Close));
}

#[test]
fn only_what_is_offered_can_be_chosen_and_nothing_harmful_is_automatic() {
    let disk = DiskCid::new("disk-1").unwrap();
    let problem = |problem| OpenProblem { id: 3, problem };
    let missing_vm = problem(Problem::MissingVm { instance: "u-1".into() });
    assert_eq!(missing_vm.chosen(None), Ok(Resolution::RecreateVmWithoutWait));
    assert!(missing_vm.chosen(Some("delete_disk")).unwrap_err().contains("only ignore, recreate_vm_without_wait"));
    assert!(missing_vm.chosen(Some("nonsense")).is_err());
    for other in [
        Problem::UnresponsiveAgent { instance: "u-1".into(), unreachable: None },
        Problem::UnresponsiveAgent { instance: "u-1".into(), unreachable: Some("it is far".into()) },
        Problem::FailingJobs { instance: "u-1".into(), processes: vec!["worker".into()] },
        Problem::MissingDisk { disk: disk.clone() },
        Problem::InactiveDisk { disk: disk.clone() },
        Problem::MountInfoMismatch { disk, owner_vms: vec![], is_detached: true },
    ] {
        assert_eq!(other.automatic(), Resolution::Ignore);
        assert_eq!(serde_json::to_value(&other).unwrap()["type"], other.kind());
        for (resolution, _) in other.resolutions() {
            assert_eq!(Resolution::parse(&resolution.name()), Some(*resolution));
        }
    }
}
