//! Why a verb failed, for the one line at the end.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use crate::demo::DemoError;
use crate::director_client::ClientError;
use crate::environment::EnvironmentError;
use crate::interpolation::InterpolationError;
use crate::known_environments::KnownError;
use crate::verbs::certify::CertifyFailure;

/// why a verb failed
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Known(#[from] KnownError),
    #[error(
        "there is nobody to ask for a password: give --client and --client-secret, or BOSH_CLIENT and BOSH_CLIENT_SECRET"
    )]
    NoCredentialsToLogIn,
    #[error("the director at {url} does not know this user and password")]
    WrongCredentials { url: String },
    #[error("{doing}")]
    Director { doing: String, source: ClientError },
    #[error("{doing}: task {task} ended as '{state}'; 'windlass task {task} --debug' tells more")]
    Task { doing: String, task: u64, state: String },
    #[error("stopped; nothing was changed")]
    Declined,
    #[error("nobody answered whether to go on, so nothing was changed; -n goes on without a question")]
    NoConsent,
    #[error("name a deployment with -d or BOSH_DEPLOYMENT; 'windlass deployments' lists them")]
    NoDeployment,
    #[error("the manifest is for deployment '{manifest}', not '{flag}'; leave out -d or give another manifest")]
    OtherDeployment { manifest: String, flag: String },
    #[error("no {kind} config; 'windlass update-{kind}-config FILE' makes one")]
    NoConfig { kind: &'static str },
    #[error("no config of type '{kind}' and name '{name}'; 'windlass configs' lists them")]
    NoSuchConfig { kind: String, name: String },
    #[error(
        "another change of the config came first: its latest number is '{latest}', not '{expected}'; look at it and try again"
    )]
    ConfigChanged { latest: String, expected: String },
    #[error("no deployment '{0}'; 'windlass deployments' lists them")]
    NoSuchDeployment(String),
    #[error("no instance '{instance}' in deployment '{deployment}'; 'windlass instances' lists them")]
    NoSuchInstance { instance: String, deployment: String },
    #[error("no table has a column '{0}'; without --column all are shown")]
    NoColumn(String),
    #[error("--no-converge touches one instance, so name it: GROUP/ID")]
    NoConvergeNeedsInstance,
    #[error("{0} problem(s) found")]
    Problems(usize),
    #[error("that is none of the choices; nothing was changed")]
    NoChoice,
    #[error("there is nobody to ask for a resolution: 'windlass cloud-check' takes --auto, --resolution or --report")]
    NobodyToAsk,
    #[error("only orphaned networks can be listed: give --orphaned")]
    OnlyOrphanedNetworks,
    #[error(
        "stopped waiting; task {task} goes on: 'windlass task {task}' follows it, 'windlass cancel-task {task}' ends it"
    )]
    Interrupted { task: u64 },
    #[error("{0}")]
    Render(String),
    #[error("'{0}' is no version of a release; write it as NAME/VERSION")]
    NoReleaseVersion(String),
    #[error("the release has no job '{name}'; it has {has}")]
    NoSuchJob { name: String, has: String },
    #[error(transparent)]
    Release(#[from] Box<windlass_release::ReleaseError>),
    #[error("cannot write '{}'", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the header '{0}' is not of the form NAME: VALUE")]
    Header(String),
    #[error("the director answered {0}")]
    CurlStatus(reqwest::StatusCode),
    #[error("no path names an instance; write it as GROUP/ID:PATH, GROUP:PATH or :PATH")]
    ScpNoRemote,
    #[error("'{first}' and '{other}' are different instances, and one copy goes to the same ones; use two")]
    ScpSeveral { first: String, other: String },
    #[error("'{text}' names no instance: {why}")]
    ScpInstances { text: String, why: String },
    #[error("the director does not say which group problems belong to; use 'windlass cloud-check'")]
    NoGroupsOfProblems,
    #[error("the plan repairs '{kind}' of '{group}' by '{resolution}', which is not offered; there are {known}")]
    UnfitRecoveryPlan { group: String, kind: String, resolution: String, known: String },
    #[error("give --agent-endpoint https://USER:PASSWORD@HOST:PORT and --agent-certificate")]
    AgentEndpoint,
    #[error("the agent of the VM that create-env made cannot be asked")]
    Agent(#[source] Box<dyn Error + Send + Sync>),
    #[error("what was downloaded was damaged on its way; try again")]
    DownloadDigest,
    #[error("'{0}' is no name of a network interface")]
    PcapInterface(String),
    #[error("not everything was captured: {0}")]
    Pcap(String),
    #[error("no instance could be prepared for ssh: {0}")]
    SshSetup(String),
    #[error("a shell needs one instance, but {0} match; name one as GROUP/ID, or give a command with -c")]
    SshSeveral(usize),
    #[error("the command failed on {failed} of {all} instances")]
    SshCommand { failed: usize, all: usize },
    #[error("Errand '{errand}' {how} (exit code {code})")]
    Errand { errand: String, how: &'static str, code: i64 },
    #[error("cannot make a key for ssh")]
    SshKey(#[source] Box<dyn Error + Send + Sync>),
    #[error("deployment '{0}' has no manifest: no deploy of it has succeeded yet")]
    NoManifest(String),
    #[error("no task is running; 'windlass tasks --recent' lists those that ended")]
    NoTask,
    #[error("cannot read '{}'", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("'{}' is not valid", path.display())]
    Yaml { path: PathBuf, source: Box<dyn Error + Send + Sync> },
    #[error(transparent)]
    Interpolation(#[from] InterpolationError),
    #[error(transparent)]
    Cloud(#[from] windlass_contract::cpi::CpiError),
    #[error("{failed} of {found} could not be removed: {first}")]
    Garbage { failed: usize, found: usize, first: String },
    #[error(transparent)]
    SimHost(#[from] windlass_cloud_sim::agents::HostError),
    #[error(transparent)]
    Author(#[from] windlass_release_author::AuthorError),
    #[error("cannot clone '{url}'")]
    Clone { url: String, source: io::Error },
    #[error(transparent)]
    StemcellBuild(#[from] windlass_stemcell::BuildError),
    #[error(transparent)]
    StemcellRepack(#[from] windlass_stemcell::RepackError),
    #[error(transparent)]
    Stemcell(#[from] windlass_stemcell::ReadError),
    #[error("cannot find a place for the director's state; name one with --state-dir")]
    NoStateDir,
    #[error(transparent)]
    DirectorSettings(windlass_director::settings::SettingsError),
    #[error("the director cannot start")]
    DirectorStart(#[source] windlass_director::StartError),
    #[error("another director took over the database, so this one ended; its tasks are for the other one to settle")]
    Deposed,
    #[error("cannot use '{}'", path.display())]
    StateDir { path: PathBuf, source: io::Error },
    #[error("{place} holds no credentials; it must have a line USER:PASSWORD")]
    NoCredentials { place: String },
    #[error("the registry cannot start")]
    RegistryStart(#[source] windlass_registry::server::StartError),
    #[error("{0}")]
    Process(&'static str, #[source] io::Error),
    #[error("cannot {doing}")]
    Bench { doing: &'static str, source: io::Error },
    #[error("not measured: {0}; the lines above say why")]
    Unmeasured(String),
    #[error(
        "this build cannot be killed at its steps; build one that can, and run it: \
         'cargo run --release --features kill-points -- bench kills'"
    )]
    NoKillPoints,
    #[error("no sweep of '{unknown}'; there are {known}")]
    NoSuchMethod { unknown: String, known: String },
    #[error("the CPI has no good answer to '{call}': {reason}; 'windlass certify' tells more about it")]
    BenchAnswer { call: &'static str, reason: String },
    #[error(transparent)]
    Certify(#[from] CertifyFailure),
    #[error("{problems} of these keep a director from running here; the last column says what to do")]
    Unfit { problems: usize },
    #[error(transparent)]
    Env(Box<windlass_create_env::EnvError>),
    #[error("interrupted; what a CPI is still doing will be settled by the next run")]
    EnvInterrupted,
    #[error(transparent)]
    Demo(#[from] DemoError),
}

/// How far lines may be indented.
const DEEPEST: usize = 20;

/// An error with its causes. What they quote from files and from the network shall not steer the terminal, and if it has
/// several lines, such as a director's list of problems, all but the first are indented: none passes for a message of ours.
pub(crate) fn chain(error: &dyn Error) -> String {
    let text = windlass_contract::explain(error);
    let tidy = |line: &str| {
        // A list within a list stays one.
        let indented = line.len() - line.trim_start_matches(' ').len();
        let line = line.replace(|letter: char| letter.is_control(), " ");
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        (!words.is_empty()).then(|| format!("{}{words}", " ".repeat(indented.min(DEEPEST))))
    };
    let lines: Vec<_> = text.trim_start().lines().filter_map(tidy).collect();
    lines.join("\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failure_quotes_neither_passes_for_another_message_nor_steers_the_terminal() {
        let source = io::Error::other("first\n\r\nsecond \u{1b}[31m");
        let failure = Failure::File { path: "x.yml".into(), source };
        assert_eq!(chain(&failure), "cannot read 'x.yml': first\n  second [31m");
        let nested = Failure::Render("Errors are:\n  - one\n    -   two".to_owned());
        assert_eq!(chain(&nested), "Errors are:\n    - one\n      - two");
    }
}
