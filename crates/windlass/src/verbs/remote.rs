//! Which verb does what with the director.

use crate::cli::{Global, RemoteVerb};
use crate::failure::Failure;
use crate::session::Session;
use crate::verbs::change_instances::{self, Change};
use crate::verbs::config_kinds::{self, Kind};
use crate::verbs::{
    attach_disk, cancel_task, clean_up, cloud_check, config, configs, cp, curl, delete_deployment, delete_disk,
    delete_release, delete_stemcell, delete_vm, deploy, deployment, deployments, disks, env, errands, events, exec,
    explain, export_release, ignore, inspect_release, instances, leaks, locks, logs, manifest, networks, orphaned_vms,
    pcap, plan, recovery, releases, run_errand, scp, snapshots, ssh, stemcells, task, tasks, test_webhook,
    update_resurrection, upload_release, upload_stemcell, variables, vms,
};

pub(super) async fn run(session: &mut Session<'_>, flags: &Global, verb: RemoteVerb) -> Result<(), Failure> {
    match verb {
        RemoteVerb::Env { details } => env::run(session, details).await,
        RemoteVerb::UploadStemcell(arguments) => upload_stemcell::run(session, &arguments).await,
        RemoteVerb::Stemcells => stemcells::run(session).await,
        RemoteVerb::DeleteStemcell { stemcell, force } => delete_stemcell::run(session, &stemcell, force).await,
        RemoteVerb::UploadRelease(arguments) => upload_release::run(session, &arguments).await,
        RemoteVerb::InspectRelease { release } => inspect_release::run(session, &release).await,
        RemoteVerb::ExportRelease(arguments) => export_release::run(session, &arguments).await,
        RemoteVerb::DeleteRelease { release, force } => delete_release::run(session, &release, force).await,
        RemoteVerb::Releases => releases::run(session).await,
        RemoteVerb::UpdateCloudConfig(config) => {
            config_kinds::update(session, Kind::Cloud, &config.document, &config.name.name, false, false).await
        }
        RemoteVerb::CloudConfig(name) => config_kinds::show(session, Kind::Cloud, &name.name).await,
        RemoteVerb::UpdateRuntimeConfig { config, no_redact, fix_releases } => {
            config_kinds::update(session, Kind::Runtime, &config.document, &config.name.name, no_redact, fix_releases)
                .await
        }
        RemoteVerb::RuntimeConfig(name) => config_kinds::show(session, Kind::Runtime, &name.name).await,
        RemoteVerb::UpdateCpiConfig { config, no_redact } => {
            config_kinds::update(session, Kind::Cpi, &config, "", no_redact, false).await
        }
        RemoteVerb::CpiConfig => config_kinds::show(session, Kind::Cpi, "").await,
        RemoteVerb::Configs(arguments) => configs::run(session, &arguments).await,
        RemoteVerb::Config(which) => config::show(session, &which).await,
        RemoteVerb::UpdateConfig(arguments) => config::update(session, &arguments).await,
        RemoteVerb::DeleteConfig(which) => config::delete(session, &which).await,
        RemoteVerb::DiffConfig(arguments) => config::diff(session, &arguments).await,
        RemoteVerb::Deploy(arguments) => deploy::run(session, &arguments).await,
        RemoteVerb::Plan(arguments) => plan::run(session, &arguments).await,
        RemoteVerb::Deployments => deployments::run(session).await,
        RemoteVerb::Deployment => deployment::run(session).await,
        RemoteVerb::Manifest => manifest::run(session).await,
        RemoteVerb::DeleteDeployment { force } => delete_deployment::run(session, force).await,
        RemoteVerb::Variables => variables::run(session).await,
        RemoteVerb::ImportVariables { path } => variables::import(session, &path).await,
        RemoteVerb::ExportVariables { path } => variables::export(session, &path).await,
        RemoteVerb::Vms(arguments) => vms::run(session, &arguments).await,
        RemoteVerb::Instances(arguments) => instances::run(session, &arguments).await,
        RemoteVerb::Explain { instance } => explain::run(session, &instance).await,
        RemoteVerb::Start(arguments) => change_instances::run(session, &arguments, &Change::start()).await,
        RemoteVerb::Stop { change, soft: _, hard, drain } => {
            change_instances::run(session, &change, &Change::stop(hard, &drain)).await
        }
        RemoteVerb::Restart { change, drain } => {
            change_instances::run(session, &change, &Change::restart(&drain)).await
        }
        RemoteVerb::Recreate(arguments) => {
            change_instances::run(session, &arguments.change, &Change::recreate(&arguments)).await
        }
        RemoteVerb::CloudCheck(arguments) => cloud_check::run(session, &arguments).await,
        RemoteVerb::CreateRecoveryPlan { path } => recovery::create_plan(session, &path).await,
        RemoteVerb::Recover { path } => recovery::recover(session, &path).await,
        RemoteVerb::Ignore { instance } => ignore::run(session, &instance, true).await,
        RemoteVerb::Unignore { instance } => ignore::run(session, &instance, false).await,
        RemoteVerb::UpdateResurrection { enabled } => update_resurrection::run(session, enabled).await,
        RemoteVerb::DeleteVm { cid } => delete_vm::run(session, &cid).await,
        RemoteVerb::OrphanedVms => orphaned_vms::run(session).await,
        RemoteVerb::Logs(arguments) => logs::run(session, &arguments).await,
        RemoteVerb::Ssh(arguments) => ssh::run(session, &arguments).await,
        RemoteVerb::Scp(arguments) => scp::run(session, &arguments).await,
        RemoteVerb::Exec(arguments) => exec::run(session, &arguments).await,
        RemoteVerb::Cp(arguments) => cp::run(session, &arguments).await,
        RemoteVerb::Pcap(arguments) => pcap::run(session, &arguments).await,
        RemoteVerb::Errands => errands::run(session).await,
        RemoteVerb::RunErrand(arguments) => run_errand::run(session, &arguments).await,
        RemoteVerb::Disks { orphaned: true } => disks::run_orphaned(session).await,
        RemoteVerb::Disks { orphaned: false } => disks::run(session).await,
        RemoteVerb::AttachDisk { instance, disk_cid, disk_properties } => {
            attach_disk::run(session, &instance, &disk_cid, disk_properties).await
        }
        RemoteVerb::OrphanDisk { cid } => delete_disk::orphan(session, &cid).await,
        RemoteVerb::DeleteDisk { cid } => delete_disk::run(session, &cid).await,
        RemoteVerb::Networks { orphaned } => networks::run(session, orphaned).await,
        RemoteVerb::DeleteNetwork { name } => networks::delete(session, &name).await,
        RemoteVerb::Snapshots { .. } => snapshots::list(session).await,
        RemoteVerb::TakeSnapshot { instance } => snapshots::take(session, instance.as_ref()).await,
        RemoteVerb::DeleteSnapshot { cid } => snapshots::delete(session, &cid).await,
        RemoteVerb::DeleteSnapshots => snapshots::delete_all(session).await,
        RemoteVerb::Tasks(arguments) => tasks::run(session, &arguments).await,
        RemoteVerb::Task(arguments) => task::run(session, &arguments).await,
        RemoteVerb::CancelTask { id } => cancel_task::run(session, id).await,
        RemoteVerb::CancelTasks { types, states } => cancel_task::run_many(session, &types, &states).await,
        RemoteVerb::Events(arguments) => events::list(session, &arguments).await,
        RemoteVerb::Event { id } => events::show(session, &id).await,
        RemoteVerb::Locks => locks::run(session).await,
        RemoteVerb::Unlock { name } => locks::unlock(session, &name).await,
        RemoteVerb::TestWebhook => test_webhook::run(session).await,
        RemoteVerb::CleanUp(arguments) => clean_up::run(session, &arguments).await,
        RemoteVerb::Leaks(arguments) => leaks::run(session, flags, &arguments).await,
        RemoteVerb::Curl(arguments) => curl::run(session, &arguments).await,
    }
}
