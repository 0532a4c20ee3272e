//! `stop-env` and `start-env`: only the agent is asked, no CPI.

use windlass_agent_client::Agent;
use windlass_operations::clouds::Clouds;
use windlass_operations::steps::InstanceWork;
use windlass_planning::plan::ActionKind;
use windlass_planning::records::{DiskRecord, VmRecord};

use crate::report::End;
use crate::run::{
    EnvError, EnvOptions, Identity, PING_PATIENCE, agents, context, disks_on_record, instance_spec, vm_on_record,
};
use crate::{cloud_provider, manifest};

/// Stops what runs on the VM.
pub async fn stop(options: &EnvOptions, skip_drain: bool) -> Result<(), EnvError> {
    act(options, "stopping deployment", "stopped", ActionKind::Stop { drain: !skip_drain }).await
}

/// Starts what runs on the VM.
pub async fn start(options: &EnvOptions) -> Result<(), EnvError> {
    act(options, "starting deployment", "started", ActionKind::Start).await
}

async fn act(options: &EnvOptions, stage: &str, done: &'static str, what: ActionKind) -> Result<(), EnvError> {
    let report = options.report();
    let ledger = options.known_state(done)?;
    let validating = report.step("Validating deployment manifest", async {
        options
            .read(|document, findings| manifest::read(document, findings).zip(cloud_provider::read(document, findings)))
    });
    let (wanted, provider) = report.stage("validating", validating).await?;
    let vm =
        vm_on_record(&ledger, &wanted.networks).ok_or_else(|| EnvError::NoVm { path: options.state_path.clone() })?;
    let agents = agents(&provider, &wanted.env, &ledger).await?;
    let stemcell = ledger.state_file().current_stemcell().cloned();
    let spec = stemcell.map(|stemcell| instance_spec(&wanted, &provider, &stemcell, None));
    let acting = async {
        let agent = agents.of(&vm);
        let waiting = agent.wait_until_ready(PING_PATIENCE);
        report.step(&format!("Waiting for the agent on VM '{}'", vm.cid), waiting).await?;
        let report = report.of(&ledger, &wanted.group, None);
        let context = context(Clouds::none(), &ledger, agents.clone(), &report, &Identity::of(&wanted));
        let mut disks = disks_on_record(&ledger);
        if what == ActionKind::Start {
            find_on_vm(&mut disks, &vm, &agent).await?;
        }
        let mut work = InstanceWork {
            context,
            spec,
            watch: Some(wanted.watch),
            vm: Some(vm.clone()),
            spare: None,
            disks,
            mounted_now: Default::default(),
            next: None,
            // The agent knows what it runs; the releases need not be there.
            keeps_spec: true,
            prepared: None,
        };
        work.act(&what).await?;
        report.end_step(&End::Finished);
        Ok(())
    };
    report.stage(stage, acting).await.map_err(EnvError::or_stopped)
}

/// Another command line may have attached disks without saying where; the agent knows those that it has mounted.
async fn find_on_vm(disks: &mut [DiskRecord], vm: &VmRecord, agent: &Agent) -> Result<(), EnvError> {
    let is_elsewhere = |disk: &&mut DiskRecord| disk.active && disk.vm.as_ref() != Some(&vm.cid);
    let Some(disk) = disks.iter_mut().find(is_elsewhere) else { return Ok(()) };
    if agent.list_disk().await?.contains(&disk.cid) {
        (disk.vm, disk.hint) = (Some(vm.cid.clone()), None);
    }
    Ok(())
}
