//! Runs the checks one after the other.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use windlass_contract::cpi::{Context, Redactor, Request};
use windlass_contract::shortened;
use windlass_stemcell::BuildOptions;

use crate::answer::LONGEST_SHOWN;
use crate::caller::Caller;
use crate::cause::cause;
use crate::check::{Check, Level, NotPassed, Outcome, Verdict};
use crate::checks;
use crate::clean_up;
use crate::command_line::CommandLine;
use crate::matrix::{RegistryPlace, RunningRegistry};
use crate::profile::Profile;
use crate::report::{Report, Row};
use crate::scene::{Image, Observers, Scene};
use crate::shared_vm::LostVm;

/// What to certify, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    pub cpi: CommandLine,
    /// What its cloud needs.
    pub profile: Profile,
    /// A stemcell; before the profile's.
    pub stemcell: Option<PathBuf>,
    /// The agent of a stemcell that is built because none is named.
    pub agent: PathBuf,
    /// Ways to look into the cloud.
    pub observers: Observers,
    /// Ids of checks, or their beginnings; nothing means all.
    pub only: Vec<String>,
    /// A registry that runs while the checks run.
    pub registry: Option<RegistryPlace>,
    /// What has not begun by then is not observed.
    pub until: Option<Instant>,
}

/// What a run tells while it goes on.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Before the first check.
    Preparing(&'static str),
    /// A check begins, as number `number` of `total`.
    Begins {
        check: &'a Check,
        /// Counted from 1.
        number: usize,
        /// Of this many.
        total: usize,
    },
    /// A check ended.
    Ended(&'a Row),
    /// What was made is removed.
    CleaningUp,
}

/// why nothing could be certified
#[derive(Debug, thiserror::Error)]
pub enum CertifyError {
    /// no check has such an id
    #[error("no check is called '{0}', and none begins so; 'windlass certify --list-checks' names them all")]
    NoSuchCheck(String),
    /// no room for the stemcell
    #[error("there is no temporary directory for the stemcell")]
    TemporaryDirectory(#[source] std::io::Error),
    /// the stemcell cannot be read
    #[error("the stemcell '{}' cannot be used", path.display())]
    Stemcell {
        path: PathBuf,
        #[source]
        source: windlass_stemcell::ReadError,
    },
    /// the stemcell cannot be built
    #[error("the stemcell for the checks could not be built")]
    StemcellBuild(#[source] windlass_stemcell::BuildError),
    /// no threads for agents and registry
    #[error("there is no runtime to talk to agents with")]
    Runtime(#[source] std::io::Error),
    /// no certificates for agents
    #[error("agents cannot be given certificates")]
    Pki(#[from] windlass_pki::PkiError),
    /// no connections to agents
    #[error("agents cannot be talked to")]
    Tls(#[from] windlass_agent_client::TlsError),
    /// the registry did not start
    #[error("the registry did not start")]
    Registry(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Runs the checks of `plan`, until the end or until `stop` becomes true; then removes everything that they made.
pub fn certify(plan: &Plan, stop: &AtomicBool, mut progress: impl FnMut(Progress<'_>)) -> Result<Report, CertifyError> {
    let chosen = choose(&plan.only)?;
    let folder = tempfile::tempdir().map_err(CertifyError::TemporaryDirectory)?;
    progress(Progress::Preparing("the stemcell"));
    let image = image(plan, folder.path())?;
    let registry = plan.registry.as_ref().map(|place| RunningRegistry::start(place, folder.path())).transpose()?;
    let profile = registry.as_ref().map_or(Cow::Borrowed(&plan.profile), |it| Cow::Owned(it.told_in(&plan.profile)));
    let caller = Caller { command: plan.cpi.clone(), deadline: profile.call_deadline() };
    let scene = Scene::new(caller, &profile, &plan.observers, image, stop, plan.until);
    let secrets = secrets_of(&profile);
    let started = Instant::now();
    let mut rows: Vec<Row> = Vec::new();
    for (position, check) in chosen.iter().enumerate() {
        if scene.interrupted() {
            break;
        }
        progress(Progress::Begins { check, number: position + 1, total: chosen.len() });
        let began = Instant::now();
        let verdict = catch_unwind(AssertUnwindSafe(|| (check.run)(&scene)));
        let verdict = verdict.unwrap_or_else(|_| Err(NotPassed::failed("the check itself broke; stderr says where")));
        if matches!(verdict, Err(NotPassed::Interrupted)) {
            break;
        }
        clean_up::after_check(&scene);
        let lost = scene.shared_vm().take_lost();
        let mut row = row(check, verdict, lost, began, &secrets);
        row.same_as = rows.iter().find(|earlier| earlier.has_the_cause_of(&row)).map(|earlier| earlier.check.id);
        progress(Progress::Ended(&row));
        rows.push(row);
    }
    let interrupted = rows.len() < chosen.len();
    progress(Progress::CleaningUp);
    let leftovers = clean_up::at_the_end(&scene, &secrets);
    let calls = scene.seen().calls;
    Ok(Report { rows, leftovers, interrupted, calls, took: started.elapsed() })
}

fn choose(only: &[String]) -> Result<Vec<Check>, CertifyError> {
    // A whole id means that check alone, even if others begin so.
    let is_id = |wanted: &str| checks::all().any(|check| check.id == wanted);
    let matches = |check: &Check, wanted: &str| {
        if is_id(wanted) { check.id == wanted } else { check.id.starts_with(wanted) }
    };
    if let Some(nothing) = only.iter().find(|wanted| !checks::all().any(|check| matches(&check, wanted))) {
        return Err(CertifyError::NoSuchCheck(nothing.clone()));
    }
    let chosen = |check: &Check| only.is_empty() || only.iter().any(|wanted| matches(check, wanted));
    let (last, first): (Vec<Check>, Vec<Check>) = checks::all().filter(chosen).partition(|check| check.afterwards);
    Ok(first.into_iter().chain(last).collect())
}

fn image(plan: &Plan, folder: &Path) -> Result<Image, CertifyError> {
    let tarball = match plan.stemcell.as_ref().or(plan.profile.stemcell.as_ref()) {
        Some(path) => path.clone(),
        None => {
            let built = folder.join("stemcell.tgz");
            let mut options = BuildOptions::new(&plan.agent, &built);
            options.name = "windlass-certify".into();
            windlass_stemcell::build(&options, |_, _| {}).map_err(CertifyError::StemcellBuild)?;
            built
        }
    };
    image_of(&tarball, &folder.join("stemcell"))
}

/// Unpacks a stemcell into a new folder.
pub(crate) fn image_of(tarball: &Path, into: &Path) -> Result<Image, CertifyError> {
    std::fs::create_dir(into).map_err(CertifyError::TemporaryDirectory)?;
    let unpacked = windlass_stemcell::unpack(tarball, into)
        .map_err(|source| CertifyError::Stemcell { path: tarball.to_owned(), source })?;
    Ok(Image { path: into.join("image"), cloud_properties: unpacked.cloud_properties })
}

/// Removes the operator's credentials from whatever is shown, also where a call was no request at all.
pub(crate) fn secrets_of(profile: &Profile) -> Redactor {
    let mut properties = profile.context.clone();
    let wrong = profile.wrong_credentials.clone().unwrap_or_default();
    properties.extend(wrong.into_iter().map(|(key, value)| (format!("wrong {key}"), value)));
    let context = Context { properties, ..Context::default() };
    let request = Request { method: String::new(), arguments: Vec::new(), context, api_version: None };
    Redactor::of(&request).and_configuration(&profile.configuration)
}

fn row(check: &Check, verdict: Verdict, lost: Option<LostVm>, began: Instant, secrets: &Redactor) -> Row {
    let (mut outcome, mut what, mut calls) = match verdict {
        Ok(()) => (Outcome::Passed, String::new(), Vec::new()),
        Err(NotPassed::Failed(what, calls)) if check.level == Level::Warning => (Outcome::Warned, what, calls),
        Err(NotPassed::Failed(what, calls)) => (Outcome::Failed, what, calls),
        Err(NotPassed::Warned(what, calls)) => (Outcome::Warned, what, calls),
        Err(NotPassed::NotSupported(what)) if check.level == Level::Required => {
            (Outcome::Failed, format!("the contract demands this: {what}"), Vec::new())
        }
        Err(NotPassed::NotSupported(what)) => (Outcome::NotSupported, what, Vec::new()),
        Err(NotPassed::NotObserved(what, calls)) => (Outcome::NotObserved, what, calls),
        Err(NotPassed::Interrupted) => (Outcome::NotObserved, "interrupted".into(), Vec::new()),
    };
    if let Some(lost) = lost {
        // Whatever the check looked for: no call but delete_vm may cost a VM.
        outcome = Outcome::Failed;
        what = if what.is_empty() { lost.what } else { format!("{}; {what}", lost.what) };
        calls.extend(lost.calls);
    }
    let cause = cause(&what, &calls).map(|cause| shortened(cause, LONGEST_SHOWN));
    let calls = calls.iter().map(|call| call.shown(secrets)).collect();
    let what = shortened(secrets.message(&what), LONGEST_SHOWN);
    Row { check: *check, outcome, what, calls, cause, same_as: None, took: began.elapsed() }
}
