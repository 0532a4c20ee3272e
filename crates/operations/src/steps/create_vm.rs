//! Makes a VM and waits until its agent knows who it is. Given a VM whose agent never got ready, it goes on from there.

use serde_json::json;
use windlass_contract::agent::UpdateSettings;
use windlass_contract::{AgentId, DiskCid, Object};
use windlass_planning::desired::canonical;
use windlass_planning::plan::InstanceSpec;
use windlass_planning::records::VmRecord;

use super::step::steps;
use super::{Context, Operation, StepError};
use crate::ledger::{Change, Fact, NewVm};

/// How often a VM is tried to be made when the cloud says that it may be tried again.
const CREATE_TRIES: u32 = 5;

/// A VM to be made for an instance.
#[derive(Debug)]
pub struct CreateVm {
    /// What everything works with.
    pub context: Context,
    /// What the instance is to become.
    pub spec: InstanceSpec,
    /// Disks that will be attached.
    pub disks: Vec<DiskCid>,
    /// The VM, once it exists.
    pub vm: Option<VmRecord>,
    /// Whether it is made beside the instance's VM, to take its place later.
    pub spare: bool,
}

steps! { CreateVm:
    CreateVm => create, undo delete, unless |op| op.vm.is_some();
    NameVm => set_metadata;
    // A VM whose agent does not answer is of no use, also when an earlier run made it.
    WaitForAgent => wait_for_agent, undo delete;
    UpdateSettings => update_settings;
    IntroduceAgent => introduce;
    RecordVm => record_ready;
}

impl Operation for CreateVm {
    const NAME: &'static str = "creating the VM";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [super::Step<Self>] {
        STEPS
    }
}

impl CreateVm {
    fn vm(&self) -> Result<&VmRecord, StepError> {
        self.vm.as_ref().ok_or_else(|| self.context.not_on_record("VM"))
    }
}

/// Clouds that are short of something for a moment say so.
async fn create(op: &mut CreateVm) -> Result<(), StepError> {
    for attempt in 1.. {
        match create_once(op).await {
            Err(StepError::Cloud(error)) if attempt < CREATE_TRIES && error.is_ok_to_retry() => {
                tracing::info!(instance = %op.context.instance, attempt, %error, "the VM was not created; trying again");
            }
            other => return other,
        }
    }
    Ok(())
}

async fn create_once(op: &mut CreateVm) -> Result<(), StepError> {
    let agent_id = AgentId::random();
    let access = op.context.agents.access(&agent_id, &op.spec.networks)?;
    let mut env = op.spec.env.clone();
    let mut bosh = to_object(&access.env)?;
    bosh.extend(op.context.agents.env().clone());
    if let Some(given) = env.get("bosh").and_then(|bosh| bosh.as_object()) {
        bosh.extend(given.clone());
    }
    let groups = groups(op);
    bosh.insert("group".into(), json!(groups.last()));
    bosh.insert("groups".into(), json!(groups));
    if !op.context.instance.tags.is_empty() {
        bosh.insert("tags".into(), json!(op.context.instance.tags));
    }
    env.insert("bosh".into(), bosh.into());
    let vm = NewVm {
        agent_id,
        instance: op.context.instance.id.clone(),
        cpi: op.spec.cpi.clone(),
        stemcell_cid: op.spec.stemcell_cid.clone(),
        stemcell: op.spec.stemcell.clone(),
        cloud_properties: op.spec.cloud_properties.clone(),
        networks: op.spec.networks.clone(),
        disk_cids: op.disks.clone(),
        env,
        wanted_env: op.spec.env.clone(),
        env_values: op.spec.env_values.clone(),
        variables: op.spec.variables,
        mbus_user: access.user,
        mbus_password: access.password,
        certificate: op.context.agents.certificate_from_now()?,
        spare: op.spare,
    };
    let change = Change::CreateVm { vm: Box::new(vm) };
    match op.context.perform(&op.spec.cpi, op.spec.stemcell.api_version, change).await? {
        Fact::VmCreated { vm } => op.vm = Some(*vm),
        other => return Err(StepError::wrong_fact("create_vm", &other)),
    }
    Ok(())
}

fn to_object(env: &windlass_contract::settings::BoshEnv) -> Result<Object, StepError> {
    match serde_json::to_value(env) {
        Ok(serde_json::Value::Object(object)) => Ok(object),
        _ => Err(StepError::AgentEnv),
    }
}

/// The six combinations by which clouds group VMs; the last is the most specific.
fn groups(op: &CreateVm) -> Vec<String> {
    let instance = &op.context.instance;
    let (director, deployment, group) =
        (canonical(&instance.director), canonical(&instance.deployment), canonical(&instance.group));
    vec![
        director.clone(),
        deployment.clone(),
        group.clone(),
        format!("{director}-{deployment}"),
        format!("{deployment}-{group}"),
        format!("{director}-{deployment}-{group}"),
    ]
}

async fn delete(op: &mut CreateVm) -> Result<(), StepError> {
    let Some(vm) = op.vm.take() else { return Ok(()) };
    let change = Change::DeleteVm { cid: vm.cid.clone() };
    if let Err(error) = op.context.perform(&vm.cpi, vm.stemcell.api_version, change).await {
        op.vm = Some(vm);
        return Err(error);
    }
    Ok(())
}

async fn set_metadata(op: &mut CreateVm) -> Result<(), StepError> {
    let vm = op.vm()?;
    let change = Change::SetVmMetadata { cid: vm.cid.clone(), metadata: op.context.vm_metadata() };
    op.context.perform(&vm.cpi, vm.stemcell.api_version, change).await.map(drop)
}

async fn wait_for_agent(op: &mut CreateVm) -> Result<(), StepError> {
    op.context.wait_for_agent(op.vm()?).await
}

async fn update_settings(op: &mut CreateVm) -> Result<(), StepError> {
    // An agent older than the message has nothing to be told by it.
    let _ = op.context.agent_until_cancelled(op.vm()?).update_settings(&UpdateSettings::default()).await?;
    Ok(())
}

async fn introduce(op: &mut CreateVm) -> Result<(), StepError> {
    let instance = &op.context.instance;
    let spec = json!({
        "deployment": instance.deployment,
        "job": {"name": instance.group},
        "index": instance.index,
        "id": instance.id,
        "networks": op.vm()?.networks,
    });
    let spec = spec.as_object().cloned().unwrap_or_default();
    Ok(op.context.agent_until_cancelled(op.vm()?).apply(&spec).await?)
}

async fn record_ready(op: &mut CreateVm) -> Result<(), StepError> {
    let cid = op.vm()?.cid.clone();
    op.context.ledger.record(&Fact::VmReady { cid }).await?;
    if let Some(vm) = &mut op.vm {
        vm.ready = true;
    }
    Ok(())
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::without_vm());
#[cfg(test)]
super::fault_tests::fault_tests!(faults_of_a_spare_one, Scene::with_vm().wants_spare_vm());
