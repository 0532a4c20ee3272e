//! A release that is to be exported, compiled for a stemcell: what of it is compiled, where and for what.

use windlass_contract::Object;
use windlass_manifest::Position;
use windlass_release::JobSpec;

use super::compiled;
use super::findings::{Findings, Place, Placed};
use super::instance_group::Lifecycle;
use super::links::DesiredLinks;
use super::resolve::{Desired, DesiredGroup, DesiredSize, Resolver, Wanted};
use super::software::{Releases, add_packages};
use super::stemcells::{Family, StemcellChoice, StemcellReference};
use super::update::{UpdateBlock, VmStrategy};
use crate::records::{ReleaseRecord, StemcellRecord};
use crate::software::Software;

#[derive(Debug, Clone)]
pub struct Export<'a> {
    pub release: &'a ReleaseRecord,
    /// Empty for all of them.
    pub jobs: &'a [String],
    /// In every cloud that has it.
    pub stemcells: Vec<StemcellChoice>,
}

/// The stemcell of an operating system, in every cloud that has it.
pub fn stemcell_of(os: &str, version: &str, uploaded: &[StemcellRecord]) -> Result<Vec<StemcellChoice>, String> {
    let placed = |value: &str| Placed { value: value.to_owned(), place: nowhere() };
    let reference =
        StemcellReference { alias: placed(""), family: Family::Os(os.to_owned()), version: placed(version) };
    reference.choose(uploaded)
}

fn nowhere() -> Place {
    Place { path: String::new(), position: Position { line: 1, column: 1 } }
}

/// The packages of the jobs as those of a group without instances, as BOSH has it. Properties, links and templates do not matter.
pub fn resolve_export(wanted: Wanted<'_>, export: Export<'_>, findings: &mut Findings) -> Desired {
    findings.begin("");
    let releases = Releases::choose(wanted.manifest, &[], wanted.releases, findings);
    let mut software = Software::default();
    for name in export.jobs.iter().filter(|name| !export.release.jobs.iter().any(|job| job.name == **name)) {
        let have: Vec<_> = export.release.jobs.iter().map(|job| job.name.as_str()).collect();
        let release = format!("{}/{}", export.release.name, export.release.version);
        findings.say(format!("Job '{name}' for release '{release}' doesn't exist; it has {}", have.join(", ")));
    }
    for job in export.release.jobs.iter().filter(|job| export.jobs.is_empty() || export.jobs.contains(&job.name)) {
        let read = JobSpec::parse(&job.spec.to_string(), &job.name).map_err(|error| error.to_string());
        if let Err(message) =
            read.and_then(|spec| add_packages(&mut software, &export.release.name, export.release, &spec))
        {
            findings.say(format!("{message}; upload the release again with --fix"));
        }
    }
    let ids = releases.ids();
    let resolver = Resolver { wanted, chosen: vec![("", export.stemcells.clone())], releases };
    let compilation = resolver.compilation(findings);
    let mut groups = [DesiredGroup {
        name: "dummy-job-for-compilation".to_owned(),
        place: nowhere(),
        instances: 0,
        zones: Vec::new(),
        vm_size: DesiredSize::Type { name: String::new(), cloud_properties: Object::new() },
        vm_extensions: Object::new(),
        stemcells: export.stemcells,
        disks: Vec::new(),
        networks: Vec::new(),
        env: Object::new(),
        tags: Object::new(),
        update: UpdateBlock::default(),
        strategy: VmStrategy::DeleteCreate,
        lifecycle: Lifecycle::Service,
        migrated_from: Vec::new(),
        software: Some(software),
    }];
    compiled::choose(&mut groups, &resolver.releases, wanted.compiled, findings);
    let deployment = wanted.manifest.name.as_ref().map_or("", |name| name.value.as_str());
    Desired {
        deployment: deployment.into(),
        groups: groups.into(),
        stemcells: Vec::new(),
        releases: ids,
        compilation,
        cpi_names: wanted.cpis.names(),
        links: DesiredLinks::default(),
        names: wanted.names,
        is_too_large: false,
        is_of_team: false,
    }
}
