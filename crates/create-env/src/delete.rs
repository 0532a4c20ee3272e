//! `delete-env`: removes the VM, its disks and its stemcells, in this order, and then what is known of them.

use std::path::Path;
use std::sync::Arc;

use windlass_contract::Networks;
use windlass_durable::file;
use windlass_manifest::Findings;
use windlass_operations::agents::Agents;
use windlass_operations::ledger::Change;
use windlass_operations::steps::InstanceWork;
use windlass_planning::plan::ActionKind;
use windlass_planning::records::VmRecord;

use crate::cloud_provider::CpiForm;
use crate::create::{delete_stemcell, identify, install_cpi, installation_id, settle};
use crate::ledger::EnvLedger;
use crate::report::{End, Report};
use crate::run::{Cloud, EnvError, EnvOptions, Identity, agents, disks_on_record, vm_on_record};
use crate::{cloud_provider, cpi_release, manifest, releases};

/// Removes everything that the state knows of.
pub async fn delete(options: &EnvOptions, skip_drain: bool) -> Result<(), EnvError> {
    let report = options.report();
    let ledger = options.known_state("deleted")?;
    let validating = async {
        report
            .step("Validating deployment manifest", async {
                options.read(|document, findings| {
                    let provider = cloud_provider::read(document, findings)?;
                    // Parts of the manifest may be gone or wrong by now; only the networks are needed, if there are any.
                    let wanted = manifest::read(document, &mut Findings::new());
                    Some((provider, wanted, manifest::read_releases(document)))
                })
            })
            .await
    };
    let validating = async {
        let (provider, wanted, listed) = validating.await?;
        let releases = releases::read(options, &report, &listed, &provider.releases()).await?;
        if let CpiForm::Release(jobs) = &provider.cpi {
            report.step("Validating cpi release", async { cpi_release::validate(options, &releases, jobs) }).await?;
        }
        Ok::<_, EnvError>((provider, wanted, releases))
    };
    let (provider, wanted, releases) = report.stage("validating", validating).await?;
    report.go_on()?;
    let installation = installation_id(&ledger);
    identify(&ledger, &installation)?;
    let deployment = wanted.as_ref().map_or("unknown", |wanted| wanted.name.as_str()).to_owned();
    let (networks, env) = wanted.map(|wanted| (wanted.networks, wanted.env)).unwrap_or_default();
    let agents = agents(&provider, &env, &ledger).await?;
    let versions: Vec<_> =
        ledger.state_file().state.stemcells.iter().map(|known| known.api_version.unwrap_or_default()).collect();
    let cpi = install_cpi(options, &report, &installation, &deployment, &releases, &provider).await?;
    report.go_on()?;
    let cloud = Cloud::open(options, &ledger, &provider, cpi.as_ref(), &networks, &versions).await?;
    let deleting = delete_all(&report, &ledger, &cloud, agents, &networks, skip_drain);
    let deleted = report.stage("deleting deployment", deleting).await;
    let vms = cloud.vms.clone();
    cloud.close().await;
    deleted.map_err(EnvError::or_stopped)?;
    report
        .step("Uninstalling local artifacts for CPI and deployment", async {
            if let Some(cloud) = vms.as_deref().and_then(Path::parent) {
                remove_empty_cloud(cloud, &ledger)?;
            }
            remove_installation(options, &installation)?;
            Ok::<_, EnvError>(ledger.state_file().remove()?)
        })
        .await
}

/// Compiled packages are of no use any more, neither ours nor those of BOSH's command line.
fn remove_installation(options: &EnvOptions, installation: &str) -> Result<(), EnvError> {
    // A state file that somebody edited must not lead elsewhere.
    if installation.parse::<uuid::Uuid>().is_err() {
        return Ok(());
    }
    let path = options.installations.join(installation);
    file::remove(&path).map_err(|source| EnvError::File { path, source })
}

async fn delete_all(
    report: &Report,
    ledger: &EnvLedger,
    cloud: &Cloud,
    agents: Arc<Agents>,
    networks: &Networks,
    skip_drain: bool,
) -> Result<(), EnvError> {
    settle(report, cloud, ledger).await?;
    let report = &report.of(ledger, "unknown", cloud.vms.clone());
    if let Some(vm) = vm_on_record(ledger, networks) {
        delete_vm(report, ledger, cloud, agents, vm, skip_drain).await?;
    }
    for disk in disks_on_record(ledger) {
        report.go_on()?;
        let title = if disk.active { "Deleting disk" } else { "Deleting unused disk" };
        let change = Change::DeleteDisk { cid: disk.cid.clone() };
        report.step(&format!("{title} '{}'", disk.cid), cloud.perform(None, change)).await?;
    }
    let stemcells = ledger.state_file().state.stemcells.clone();
    for stemcell in stemcells {
        report.go_on()?;
        report.step(&format!("Deleting stemcell '{}'", stemcell.cid), delete_stemcell(cloud, &stemcell)).await?;
    }
    Ok(())
}

async fn delete_vm(
    report: &Report,
    ledger: &EnvLedger,
    cloud: &Cloud,
    agents: Arc<Agents>,
    vm: VmRecord,
    skip_drain: bool,
) -> Result<(), EnvError> {
    let disks = disks_on_record(ledger);
    ledger.change(|file| {
        file.own_state.vm = Some(vm.clone());
        file.own_state.disks = disks.clone();
    })?;
    let seen = cloud.inspect_vm(report, &agents, &vm, &disks).await?;
    let mut actions = Vec::new();
    if seen.answers {
        actions.push(ActionKind::Stop { drain: !skip_drain });
        actions.extend(seen.mounted.into_iter().map(|disk| ActionKind::DetachDisk { disk: disk.cid }));
    }
    actions.push(ActionKind::DeleteVm { vm: vm.cid.clone() });
    let context = cloud.context(agents, report, &Identity::unknown());
    let mut work = InstanceWork {
        context,
        spec: None,
        watch: None,
        vm: Some(vm),
        spare: None,
        disks,
        mounted_now: Default::default(),
        next: None,
        keeps_spec: false,
        prepared: None,
    };
    for what in &actions {
        report.go_on()?;
        work.act(what).await?;
    }
    report.end_step(&End::Finished);
    Ok(())
}

/// An embedded cloud beside the state goes with it, unless something is left in it.
fn remove_empty_cloud(cloud: &Path, ledger: &EnvLedger) -> Result<(), EnvError> {
    let is_ours = cloud == ledger.state_file().path_with_suffix(".cloud");
    let is_empty =
        |shelf: &&str| std::fs::read_dir(cloud.join(shelf)).map_or(true, |mut entries| entries.next().is_none());
    if is_ours && cloud.exists() && ["stemcells", "vms", "disks", "snapshots", "networks"].iter().all(is_empty) {
        file::remove(cloud).map_err(|source| EnvError::File { path: cloud.to_owned(), source })?;
    }
    Ok(())
}
