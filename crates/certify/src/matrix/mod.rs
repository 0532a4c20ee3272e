//! The version table, lived through: director × CPI × stemcell, in each row a VM that boots, gets its settings as the row
//! says, mounts a disk, loses and regains it, and is deleted, while a registry watches. A job writes to the disk, and finds it in a new VM.
//!
//! - [`table`]: the rows, and who asks in them.
//! - `life`: one VM from its creation to its end.
//! - `release`: what is deployed on it.
//! - `watched_registry`: a real registry that counts who comes.
//! - [`report`]: the table with what was seen in each cell.

mod life;
mod release;
pub mod report;
pub mod table;
mod watched_registry;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use windlass_agent_client::{AgentClient, ClientTls};
use windlass_contract::ApiVersion;
use windlass_pki::Authority;
use windlass_stemcell::BuildOptions;

pub use life::Observed;
pub use report::{Lived, MatrixReport};
pub use table::{Case, Client, Combination, cases};
pub use watched_registry::RegistryPlace;
pub(crate) use watched_registry::RunningRegistry;

use crate::caller::Caller;
use crate::check::NotPassed;
use crate::clean_up;
use crate::command_line::CommandLine;
use crate::profile::Profile;
use crate::run::{CertifyError, image_of, secrets_of};
use crate::scene::{Image, Observers, Scene};
use life::{Life, SharedRig};
use watched_registry::{WatchedRegistry, runtime};

/// Whose version table, and how.
#[derive(Debug, Clone)]
pub struct MatrixPlan {
    /// The CPI, speaking version 2.
    pub cpi: CommandLine,
    /// The CPI, speaking version 1; without it, the profile's `lower_version` is sent in the context.
    pub cpi_v1: Option<CommandLine>,
    /// What its cloud needs.
    pub profile: Profile,
    /// Stemcells of versions 1 and 2; those left out are built.
    pub stemcells: [Option<PathBuf>; 2],
    /// The agent of stemcells that are built.
    pub agent: PathBuf,
    /// Ways to look into the cloud.
    pub observers: Observers,
    /// Where the registry listens.
    pub registry: RegistryPlace,
    /// What has not begun by then is not observed.
    pub until: Option<Instant>,
}

/// Where the addresses of the table begin, behind those of the checks, and how many each pair of versions has for itself.
const FIRST_ADDRESS: usize = 100;
const ADDRESSES: usize = 25;

/// What a run tells while it goes on.
#[derive(Debug)]
pub enum MatrixProgress<'a> {
    /// A case begins, as number `number` of `total`.
    Begins {
        case: Case,
        /// Counted from 1.
        number: usize,
        /// Of this many.
        total: usize,
    },
    /// A case ended.
    Ended(&'a Lived),
}

/// Lives through the whole table, until the end or until `stop` becomes true; then removes everything that was made.
pub fn matrix(
    plan: &MatrixPlan,
    stop: &AtomicBool,
    mut progress: impl FnMut(MatrixProgress<'_>),
) -> Result<MatrixReport, CertifyError> {
    let started = Instant::now();
    let folder = tempfile::tempdir().map_err(CertifyError::TemporaryDirectory)?;
    let runtime = runtime()?;
    let registry = runtime.block_on(WatchedRegistry::start(&plan.registry, folder.path()))?;
    let authority = Authority::new()?;
    let agents = AgentClient::new(ClientTls::new(&authority, &authority.new_client()?))?;
    let with_programs = [plan.stemcells[0].is_some(), plan.stemcells[1].is_some()];
    let (registry, authority, agents) = (&registry, &authority, &agents);
    let silent = RefCell::default();
    let shared = SharedRig { runtime: &runtime, registry, authority, agents, with_programs, silent };
    let profiles = [1, 2].map(|cpi| profile(plan, cpi, registry));
    let mut scenes = Vec::new();
    for (cpi, profile) in [1, 2].into_iter().zip(&profiles) {
        for stemcell in [1, 2] {
            let into = folder.path().join(format!("cpi-{cpi}-stemcell-{stemcell}"));
            let image = stemcell_image(plan, stemcell, &into)?;
            let command = plan.cpi_v1.as_ref().filter(|_| cpi == 1).unwrap_or(&plan.cpi).clone();
            let caller = Caller { command, deadline: profile.call_deadline() };
            let scene = Scene::new(caller, profile, &plan.observers, image, stop, plan.until);
            let scene = scene.with_addresses_from(FIRST_ADDRESS + scenes.len() * ADDRESSES);
            scenes.push(((cpi, stemcell), scene));
        }
    }
    let secrets = secrets_of(&plan.profile);
    let total = cases().count();
    let mut lived = Vec::new();
    for (position, case) in cases().enumerate() {
        progress(MatrixProgress::Begins { case, number: position + 1, total });
        let began = Instant::now();
        let of_row = |(versions, _): &&((u64, u64), Scene)| *versions == (case.row.cpi, case.row.stemcell);
        let Some((_, scene)) = scenes.iter().find(of_row) else { continue };
        let (observed, differences, end) = Life::new(&shared, scene, case).live();
        if matches!(end, Err(NotPassed::Interrupted)) {
            break;
        }
        clean_up::after_check(scene);
        let one = Lived { took: began.elapsed(), ..Lived::new(case, observed, differences, end, &secrets) };
        progress(MatrixProgress::Ended(&one));
        lived.push(one);
    }
    let leftovers = scenes.iter().flat_map(|(_, scene)| clean_up::at_the_end(scene, &secrets)).collect();
    let calls = scenes.iter().map(|(_, scene)| scene.seen().calls).sum();
    Ok(MatrixReport { interrupted: lived.len() < total, lived, leftovers, calls, took: started.elapsed() })
}

/// What CPIs of this version are told in the context of every call.
fn profile(plan: &MatrixPlan, cpi: u64, registry: &WatchedRegistry) -> Profile {
    let mut profile = registry.told_in(&plan.profile);
    if cpi == 1 && plan.cpi_v1.is_none() {
        profile.context.extend(plan.profile.lower_version.clone());
    }
    profile
}

fn stemcell_image(plan: &MatrixPlan, version: u64, into: &Path) -> Result<Image, CertifyError> {
    std::fs::create_dir(into).map_err(CertifyError::TemporaryDirectory)?;
    let given = plan.stemcells[usize::from(version == 2)].clone();
    let tarball = match given {
        Some(path) => path,
        None => {
            let built = into.join("stemcell.tgz");
            let mut options = BuildOptions::new(&plan.agent, &built);
            options.name = format!("windlass-certify-{version}");
            options.api_version = if version == 1 { ApiVersion::V1 } else { ApiVersion::V2 };
            windlass_stemcell::build(&options, |_, _| {}).map_err(CertifyError::StemcellBuild)?;
            built
        }
    };
    image_of(&tarball, &into.join("stemcell"))
}
