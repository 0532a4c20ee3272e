//! Which facts can become true after others: what a cloud or an agent could confirm, and nothing that the steps never do.

use windlass_contract::{AgentId, ApiVersion, DiskHint, MiB, Object, Secret, SnapshotCid, StemcellCid, VmCid};
use windlass_planning::names::{CpiName, DeploymentName, DiskName, InstanceId};
use windlass_planning::records::{DiskRecord, InstanceRecord, InstanceState, SnapshotRecord, StemcellOfVm, VmRecord};

use crate::ledger::{Fact, Model, NewStemcell};

/// Makes facts. Names that it gives are new ones.
#[derive(Debug, Default)]
pub struct LegalFacts {
    given: u32,
}

/// The first instance of its group, which was brought to where it is to be.
pub fn new_instance_record(
    deployment: impl Into<DeploymentName>,
    group: &str,
    id: impl Into<InstanceId>,
) -> InstanceRecord {
    InstanceRecord {
        id: id.into(),
        deployment: deployment.into(),
        group: group.to_owned(),
        index: 0,
        az: None,
        bootstrap: true,
        state: InstanceState::Started,
        spec: None,
        applied: None,
        converged: true,
        ignored: false,
    }
}

/// A VM as a cloud answered it.
pub fn new_vm_record(cid: VmCid, instance: &InstanceId, spare: bool) -> VmRecord {
    let agent_id = AgentId::new(format!("agent-of-{cid}")).unwrap_or_else(|_| AgentId::random());
    VmRecord {
        cid,
        agent_id,
        instance: instance.clone(),
        cpi: CpiName::Default,
        stemcell: StemcellOfVm { name: "jammy".into(), version: "1".into(), api_version: Some(ApiVersion(2)) },
        networks: Default::default(),
        cloud_properties: object("vm", "large"),
        wanted_env: object("tag", "t"),
        env_values: None,
        disks: None,
        mbus_user: "user".into(),
        mbus_password: Secret::new("password"),
        created_at: 1,
        ready: false,
        spare,
        certificate: None,
    }
}

fn object(key: &str, value: &str) -> Object {
    [(key.to_owned(), value.into())].into_iter().collect()
}

impl LegalFacts {
    fn name(&mut self, kind: &str) -> String {
        self.given += 1;
        format!("{kind}-{}", self.given)
    }

    fn cid<T: TryFrom<String, Error: std::fmt::Debug>>(&mut self, kind: &str) -> T {
        #[expect(clippy::unwrap_used, reason = "the name is not empty")]
        T::try_from(self.name(kind)).unwrap()
    }

    /// Everything that can become true next.
    pub fn after(&mut self, model: &Model) -> Vec<Fact> {
        let mut facts = vec![Fact::Nothing];
        self.stemcells(model, &mut facts);
        for instance in &model.instances {
            self.vms(model, instance, &mut facts);
            self.new_disks(model, instance, &mut facts);
        }
        facts.extend(model.orphaned_vms.iter().map(|vm| Fact::VmDeleted { cid: vm.cid.clone() }));
        for disk in &model.disks {
            self.disk(model, disk, &mut facts);
        }
        for disk in &model.orphan_disks {
            self.orphan_disk(model, disk, &mut facts);
        }
        facts.extend(model.snapshots.iter().map(|snapshot| Fact::SnapshotDeleted { cid: snapshot.cid.clone() }));
        facts
    }

    fn stemcells(&mut self, model: &Model, facts: &mut Vec<Fact>) {
        let mut new = |version: String| {
            let stemcell = NewStemcell {
                name: "jammy".into(),
                version,
                operating_system: "ubuntu-jammy".into(),
                sha1: "0".into(),
                api_version: Some(ApiVersion(3)),
                cloud_properties: Object::new(),
                cpi: CpiName::Default,
            };
            Fact::StemcellCreated { stemcell, cid: self.cid::<StemcellCid>("stemcell") }
        };
        facts.push(new("1".into()));
        facts.push(new("2".into()));
        let gone = |known: &windlass_planning::records::StemcellRecord| Fact::StemcellDeleted {
            cpi: known.cpi.clone(),
            cid: known.cid.clone(),
        };
        facts.extend(model.stemcells.iter().map(gone));
    }

    fn vms(&mut self, model: &Model, instance: &InstanceId, facts: &mut Vec<Fact>) {
        let (vm, spare) = (model.vm_of(instance, false), model.vm_of(instance, true));
        if vm.is_none() || spare.is_none() {
            let vm = new_vm_record(self.cid("vm"), instance, vm.is_some());
            facts.push(Fact::VmCreated { vm: Box::new(vm) });
        }
        for known in vm.iter().chain(&spare) {
            facts.push(Fact::VmReady { cid: known.cid.clone() });
            facts.push(Fact::VmDeleted { cid: known.cid.clone() });
        }
        // A VM is given up only when its disks are detached.
        if let (Some(from), Some(to)) = (vm, spare)
            && !model.disks.iter().any(|disk| disk.vm.as_ref() == Some(&from.cid))
        {
            facts.push(Fact::VmSwapped { from: from.cid.clone(), to: to.cid.clone() });
        }
        if let (Some(only), None) = (vm, spare)
            && !model.disks.iter().any(|disk| disk.vm.as_ref() == Some(&only.cid))
        {
            facts.push(Fact::VmOrphaned { cid: only.cid.clone() });
        }
        let has_disks = model.disks.iter().any(|disk| disk.instance == *instance);
        if vm.is_none() && spare.is_none() && !has_disks {
            facts.push(Fact::InstanceRemoved { instance: instance.clone() });
        }
    }

    fn new_disks(&mut self, model: &Model, instance: &InstanceId, facts: &mut Vec<Fact>) {
        for name in [DiskName::Managed, DiskName::Named("data".to_owned())] {
            let disk = DiskRecord {
                cid: self.cid("disk"),
                instance: instance.clone(),
                name: name.clone(),
                cpi: CpiName::Default,
                size: MiB(64),
                cloud_properties: object("type", "fast"),
                active: false,
                vm: None,
                mounted: false,
                hint: None,
            };
            if !has_active(model, instance, &name) {
                let disk = DiskRecord { cid: self.cid("disk"), ..disk.clone() };
                facts.push(Fact::DiskAdopted { disk });
            }
            facts.push(Fact::DiskCreated { disk });
        }
    }

    fn disk(&mut self, model: &Model, disk: &DiskRecord, facts: &mut Vec<Fact>) {
        let cid = || disk.cid.clone();
        facts.push(Fact::DiskResized { disk: cid(), size: MiB(disk.size.0 + 64) });
        facts.push(self.snapshot(disk));
        let Some(attached_to) = &disk.vm else {
            if let Some(vm) = model.vm_of(&disk.instance, false) {
                facts.push(attached(disk, &vm.cid, true));
                facts.push(attached(disk, &vm.cid, false));
            }
            facts.push(Fact::DiskOrphaned { disk: cid() });
            facts.extend(deleted(model, disk));
            return;
        };
        // Asked again, a cloud answers again.
        facts.push(attached(disk, attached_to, true));
        facts.push(Fact::DiskDetached { disk: cid() });
        facts.push(Fact::DiskUnmounted { disk: cid() });
        let rival = |other: &&DiskRecord| {
            (&other.instance, &other.name) == (&disk.instance, &disk.name) && other.active && other.cid != disk.cid
        };
        match model.disks.iter().find(rival) {
            None => facts.push(Fact::DiskMounted { disk: cid() }),
            Some(old) => facts.push(Fact::DiskReplaced { old: old.cid.clone(), new: cid() }),
        }
    }

    fn orphan_disk(&mut self, model: &Model, disk: &DiskRecord, facts: &mut Vec<Fact>) {
        facts.push(self.snapshot(disk));
        facts.extend(deleted(model, disk));
        for instance in model.instances.iter().filter(|instance| !has_active(model, instance, &DiskName::Managed)) {
            let adopted = DiskRecord { instance: instance.clone(), name: DiskName::Managed, ..disk.clone() };
            facts.push(Fact::DiskAdopted { disk: adopted });
        }
    }

    fn snapshot(&mut self, disk: &DiskRecord) -> Fact {
        let snapshot = SnapshotRecord {
            cid: self.cid::<SnapshotCid>("snapshot"),
            disk: disk.cid.clone(),
            cpi: disk.cpi.clone(),
            clean: true,
            created_at: 1,
        };
        Fact::SnapshotTaken { snapshot }
    }
}

fn has_active(model: &Model, instance: &InstanceId, name: &DiskName) -> bool {
    model.disks.iter().any(|disk| disk.instance == *instance && disk.name == *name && disk.active)
}

fn attached(disk: &DiskRecord, vm: &VmCid, with_hint: bool) -> Fact {
    let hint = with_hint.then(|| DiskHint::path(format!("/dev/of-{}", disk.cid)));
    Fact::DiskAttached { disk: disk.cid.clone(), vm: vm.clone(), hint }
}

/// Snapshots are deleted before their disk.
fn deleted(model: &Model, disk: &DiskRecord) -> Option<Fact> {
    let has_snapshots = model.snapshots.iter().any(|snapshot| snapshot.disk == disk.cid);
    (!has_snapshots).then(|| Fact::DiskDeleted { disk: disk.cid.clone() })
}
