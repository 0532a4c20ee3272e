//! `create-env`: brings the VM and its disk to what the manifest says.

use std::path::{Component, Path};
use std::sync::Arc;

use sha2::{Digest, Sha512};
use windlass_contract::{ApiVersion, DiskCid};
use windlass_operations::agents::Agents;
use windlass_operations::ledger::{Change, Fact, NewStemcell};
use windlass_operations::settle;
use windlass_operations::software::SoftwareSource;
use windlass_operations::steps::InstanceWork;
use windlass_planning::names::CpiName;
use windlass_planning::plan::{Action, ActionKind};

use crate::cloud_provider::{self, CloudProvider, CpiForm};
use crate::cpi_release::{self, CpiSoftware};
use crate::ledger::EnvLedger;
use crate::manifest::{self, Wanted};
use crate::plan::{self, Found, Wishes};
use crate::releases::{self, ReadReleases};
use crate::report::{End, Report};
use crate::run::{
    Cloud, EnvError, EnvOptions, Identity, PING_PATIENCE, Seen, agents, disks_on_record, instance_spec, vm_on_record,
};
use crate::software::EnvSoftware;
use crate::state::{ReleaseEntry, StateFile, StemcellEntry};
use crate::stemcell::{self, Stemcell};

/// Brings the VM and its disk to what the manifest says. A run that was interrupted is continued.
pub async fn create(options: &EnvOptions, wishes: Wishes) -> Result<(), EnvError> {
    let report = options.report();
    let ledger = EnvLedger::new(StateFile::open(&options.state_path)?);
    let installation = installation_id(&ledger);
    let validating = validate(options, &report, &installation);
    let Validated { wanted, provider, releases, software, stemcell } = report.stage("validating", validating).await?;
    let sha: String = Sha512::digest(options.manifest.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let entries = releases::entries(&wanted.releases, &releases.releases, options.folder(), &options.downloads);
    let change = change(&ledger, &stemcell, &entries, &sha);
    let agents = agents(&provider, &wanted.env, &ledger).await?;
    if change.is_none()
        && wishes == (Wishes { skip_drain: wishes.skip_drain, ..Wishes::default() })
        && let Some(vm) = vm_on_record(&ledger, &wanted.networks)
        && agents.of(&vm).wait_until_ready(PING_PATIENCE).await.is_ok()
    {
        report.line("No deployment, stemcell or release changes. Skipping deploy.");
        return Ok(());
    }
    report.go_on()?;
    identify(&ledger, &installation)?;
    let cpi = install_cpi(options, &report, &installation, &wanted.name, &releases, &provider).await?;
    report.go_on()?;
    let mut versions = vec![stemcell.manifest.api_version.unwrap_or_default()];
    versions.extend(ledger.state_file().current_stemcell().map(|known| known.api_version.unwrap_or_default()));
    let cloud = Cloud::open(options, &ledger, &provider, cpi.as_ref(), &wanted.networks, &versions).await?;
    say_what_runs(&report, &cloud, &provider);
    let (report, ledger, wanted, provider) = (&report, &ledger, &wanted, &provider);
    let run = Run { report, ledger, cloud: &cloud, wanted, provider, releases: entries, software };
    let done = run.go(stemcell, wishes, change, agents, &sha).await;
    cloud.close().await;
    done.map_err(EnvError::or_stopped)
}

/// What a manifest wants, with everything that it names at hand.
struct Validated {
    wanted: Wanted,
    provider: CloudProvider,
    releases: Arc<ReadReleases>,
    software: Option<Arc<EnvSoftware>>,
    stemcell: Stemcell,
}

/// Finds all mistakes that can be found before anything changes, in templates as well.
async fn validate(options: &EnvOptions, report: &Report, installation: &str) -> Result<Validated, EnvError> {
    let (wanted, provider) = report
        .step("Validating deployment manifest", async {
            options.read(|document, findings| {
                let provider = cloud_provider::read(document, findings);
                let wanted = manifest::read(document, findings);
                wanted.zip(provider)
            })
        })
        .await?;
    let mut needed: Vec<&str> = provider.releases();
    for job in &wanted.jobs {
        if !needed.contains(&job.release.as_str()) {
            needed.push(&job.release);
        }
    }
    let releases = releases::read(options, report, &wanted.releases, &needed).await?;
    if let CpiForm::Release(jobs) = &provider.cpi {
        report.step("Validating cpi release", async { cpi_release::validate(options, &releases, jobs) }).await?;
    }
    let compiled = cpi_release::folder(options, installation).join("compiled");
    let software = EnvSoftware::new(&wanted, &releases, &options.renderer, compiled)?.map(Arc::new);
    if let Some(software) = software.clone() {
        let networks = wanted.networks.clone();
        let rendering = async move {
            let rendered = tokio::task::spawn_blocking(move || software.render(&networks).map(drop)).await;
            Ok::<_, EnvError>(rendered.map_err(|error| EnvError::Access(error.to_string()))??)
        };
        report.step("Rendering job templates", rendering).await?;
    }
    let tarball = match stemcell::local_path(&wanted.stemcell.url, options.folder()) {
        Some(path) => path,
        None => {
            let fetching = stemcell::fetch(&wanted.stemcell, &options.downloads, options.patience);
            let fetching = async { Ok::<_, EnvError>(report.unless_stopped(fetching).await??) };
            report.step("Downloading stemcell", fetching).await?
        }
    };
    report.go_on()?;
    let stemcell = report.step("Validating stemcell", async { stemcell::read(tarball) }).await?;
    Ok(Validated { wanted, provider, releases, software, stemcell })
}

/// The stage in which a CPI of releases is installed; nothing for one that is here already.
pub(crate) async fn install_cpi(
    options: &EnvOptions,
    report: &Report,
    installation: &str,
    deployment: &str,
    releases: &Arc<ReadReleases>,
    provider: &CloudProvider,
) -> Result<Option<CpiSoftware>, EnvError> {
    let CpiForm::Release(jobs) = &provider.cpi else { return Ok(None) };
    let installing = CpiSoftware::install(options, report, installation, deployment, releases, jobs);
    report.stage("installing CPI", installing).await.map(Some)
}

/// What differs from the run before, in words; none if nothing does.
fn change(ledger: &EnvLedger, stemcell: &Stemcell, releases: &[ReleaseEntry], sha: &str) -> Option<&'static str> {
    let file = ledger.state_file();
    let is_same = |known: &StemcellEntry| is_of(known, stemcell);
    if file.state.current_vm_cid.is_empty() {
        return None;
    }
    if !file.own_state.intents.is_empty() || file.state.current_manifest_sha.is_empty() {
        return Some("an earlier run did not finish");
    }
    if !file.current_stemcell().is_some_and(is_same) {
        return Some("the stemcell changed");
    }
    let is_known = |release: &ReleaseEntry| {
        let is_same = |known: &ReleaseEntry| known.name == release.name && known.version == release.version;
        file.state.releases.iter().any(is_same)
    };
    if file.state.releases.len() != releases.len() || !releases.iter().all(is_known) {
        return Some("the releases changed");
    }
    (file.state.current_manifest_sha != sha).then_some("the manifest changed")
}

fn is_of(known: &StemcellEntry, stemcell: &Stemcell) -> bool {
    known.name == stemcell.manifest.name && known.version == stemcell.manifest.version
}

/// What the environment's folder of packages is called; a new name if it has none yet.
pub(crate) fn installation_id(ledger: &EnvLedger) -> String {
    let known = ledger.state_file().state.installation_id.clone();
    if is_name(&known) { known } else { uuid::Uuid::new_v4().to_string() }
}

/// A state file that somebody edited must not lead elsewhere.
fn is_name(id: &str) -> bool {
    let mut parts = Path::new(id).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(one)), None) if one == id)
}

/// Gives a new state its ids, before anything is made under them.
pub(crate) fn identify(ledger: &EnvLedger, installation: &str) -> Result<(), EnvError> {
    Ok(ledger.change(|file| {
        file.state.installation_id = installation.to_owned();
        if file.state.director_id.is_empty() {
            file.state.director_id = uuid::Uuid::new_v4().to_string();
        }
    })?)
}

fn say_what_runs(report: &Report, cloud: &Cloud, provider: &CloudProvider) {
    match (cloud.has_registry(), provider.ssh_tunnel.is_some()) {
        (true, _) => report.line("A registry runs for the time of this run: the CPI or the stemcell needs it."),
        (false, true) => report.line("cloud_provider.ssh_tunnel is ignored: no registry is needed."),
        (false, false) => {}
    }
}

/// Settles what earlier runs left open, also what could not be settled then, and tells what cannot be settled now.
pub(crate) async fn settle(report: &Report, cloud: &Cloud, ledger: &EnvLedger) -> Result<(), EnvError> {
    ledger.change(|file| file.own_state.intents.iter_mut().for_each(|intent| intent.doubt = None))?;
    settle::settle_intents(&cloud.clouds, ledger).await?;
    for intent in &ledger.state_file().own_state.intents {
        let (method, subject) = (intent.change.method(), intent.change.subject());
        report.line(&format!(
            "Nobody knows whether {method} for {subject} happened; look whether the cloud has one too many"
        ));
    }
    Ok(())
}

/// What a run works with once everything was found to be in order.
struct Run<'a> {
    report: &'a Report,
    ledger: &'a EnvLedger,
    cloud: &'a Cloud,
    wanted: &'a Wanted,
    provider: &'a CloudProvider,
    releases: Vec<ReleaseEntry>,
    software: Option<Arc<EnvSoftware>>,
}

impl Run<'_> {
    async fn go(
        &self,
        stemcell: Stemcell,
        wishes: Wishes,
        change: Option<&'static str>,
        agents: Arc<Agents>,
        sha: &str,
    ) -> Result<(), EnvError> {
        settle(self.report, self.cloud, self.ledger).await?;
        self.report.go_on()?;
        let uploaded = self.upload(&stemcell).await?;
        let deploying = self.deploy(uploaded, wishes, change, agents, sha);
        self.report.stage("deploying", deploying).await?;
        self.delete_unused_stemcells().await
    }

    async fn upload(&self, stemcell: &Stemcell) -> Result<StemcellEntry, EnvError> {
        let manifest = &stemcell.manifest;
        let title = format!("Uploading stemcell '{}/{}'", manifest.name, manifest.version);
        let find = || self.ledger.state_file().state.stemcells.iter().find(|known| is_of(known, stemcell)).cloned();
        if let Some(known) = find() {
            self.report.skipped(&title, "Stemcell already uploaded");
            return Ok(known);
        }
        let uploading = async {
            let folder = tempfile::tempdir().map_err(|source| EnvError::File { path: std::env::temp_dir(), source })?;
            windlass_stemcell::unpack(&stemcell.tarball, folder.path()).map_err(stemcell::StemcellError::from)?;
            let new = NewStemcell::of(manifest, &CpiName::Default);
            let create = Change::CreateStemcell { stemcell: new, image: folder.path().join("image") };
            self.cloud.perform(manifest.api_version, create).await
        };
        let made = self.report.step(&title, uploading).await?;
        find().ok_or_else(|| EnvError::Access(format!("create_stemcell gave {made:?} instead of a stemcell")))
    }

    async fn deploy(
        &self,
        stemcell: StemcellEntry,
        wishes: Wishes,
        change: Option<&'static str>,
        agents: Arc<Agents>,
        sha: &str,
    ) -> Result<(), EnvError> {
        let vm = vm_on_record(self.ledger, &self.wanted.networks);
        let disks = disks_on_record(self.ledger);
        self.report.go_on()?;
        self.ledger.change(|file| {
            file.state.current_manifest_sha.clear();
            file.state.releases.clear();
            file.state.current_release_ids.clear();
            file.own_state.vm = vm.clone();
            file.own_state.disks = disks.clone();
        })?;
        let seen = match &vm {
            Some(vm) => self.cloud.inspect_vm(self.report, &agents, vm, &disks).await?,
            None => Seen::default(),
        };
        let disk = disks.iter().find(|disk| disk.active);
        let Seen { exists, answers, mounted } = seen;
        let found = Found { vm: vm.as_ref(), exists, answers, disk, mounted: &mounted };
        let why = plan::reason(&found, wishes, change).unwrap_or_else(|| "an earlier run did not finish".to_owned());
        let actions = plan::plan(&found, self.wanted.disk.as_ref(), wishes, &why);
        self.show(&actions);

        let report = self.report.of(self.ledger, &self.wanted.group, self.cloud.vms.clone());
        let spec = instance_spec(self.wanted, self.provider, &stemcell, self.software.as_deref());
        let mut context = self.cloud.context(agents, &report, &Identity::of(self.wanted));
        context.software = self.software.clone().map(|software| software as Arc<dyn SoftwareSource>);
        let mut work = InstanceWork {
            context,
            spec: Some(spec),
            watch: Some(self.wanted.watch),
            vm,
            spare: None,
            disks,
            mounted_now: Default::default(),
            next: None,
            keeps_spec: false,
            prepared: None,
        };
        for action in &actions {
            self.report.go_on()?;
            work.context.progress = Arc::new(report.about(disk_of(&action.what)));
            if let (ActionKind::Start, Some(software), Some(vm)) = (&action.what, &self.software, &work.vm) {
                software.compile(&work.context, vm, &report).await?;
            }
            work.act(&action.what).await?;
        }
        self.report.end_step(&End::Finished);
        self.delete_unused_disks().await?;
        let releases = self.releases.clone();
        Ok(self.ledger.change(|file| {
            file.state.current_manifest_sha = sha.to_owned();
            file.state.current_release_ids = releases.iter().map(|release| release.id.clone()).collect();
            file.state.releases = releases;
        })?)
    }

    fn show(&self, actions: &[Action]) {
        self.report.line("  Plan:");
        for action in actions {
            self.report.line(&format!("    {}: {}", action.what.describe(), action.reason));
        }
    }

    /// Disks that a run before left over, once the current one is in its place with the data.
    async fn delete_unused_disks(&self) -> Result<(), EnvError> {
        let unused: Vec<DiskCid> = {
            let file = self.ledger.state_file();
            let Some(current) = file.current_disk() else { return Ok(()) };
            file.state.disks.iter().filter(|disk| disk.id != current.id).map(|disk| disk.cid.clone()).collect()
        };
        for cid in unused {
            let title = format!("Deleting unused disk '{cid}'");
            self.report.step(&title, self.cloud.perform(None, Change::DeleteDisk { cid })).await?;
        }
        Ok(())
    }

    async fn delete_unused_stemcells(&self) -> Result<(), EnvError> {
        let (current, known) = {
            let file = self.ledger.state_file();
            (file.state.current_stemcell_id.clone(), file.state.stemcells.clone())
        };
        for stemcell in known.into_iter().filter(|stemcell| stemcell.id != current) {
            let title = format!("Deleting unused stemcell '{}'", stemcell.cid);
            self.report.step(&title, delete_stemcell(self.cloud, &stemcell)).await?;
        }
        Ok(())
    }
}

pub(crate) async fn delete_stemcell(cloud: &Cloud, stemcell: &StemcellEntry) -> Result<Fact, EnvError> {
    let version: Option<ApiVersion> = stemcell.api_version;
    cloud.perform(version, Change::DeleteStemcell { cpi: CpiName::Default, cid: stemcell.cid.clone() }).await
}

fn disk_of(what: &ActionKind) -> Option<DiskCid> {
    match what {
        ActionKind::DetachDisk { disk }
        | ActionKind::AttachDisk { disk: Some(disk), .. }
        | ActionKind::ResizeDisk { disk, .. }
        | ActionKind::MigrateDisk { disk, .. } => Some(disk.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_a_state_file_names_one_folder_and_leads_nowhere() {
        for id in ["i-1", "0d6f2c9e-7b0c-4f0e-8d6a-1d1f6c2b9a55"] {
            assert!(is_name(id), "{id}");
        }
        for id in ["", ".", "..", "../..", "/etc", "a/b", "a/", "./a"] {
            assert!(!is_name(id), "{id}");
        }
    }
}
