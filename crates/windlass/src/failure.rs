//! Why a verb failed, for the one line at the end.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use windlass_director_client::ClientError;
use windlass_director_client::environment::EnvironmentError;
use windlass_director_client::known_environments::KnownError;

use crate::demo::DemoError;
use crate::interpolation::InterpolationError;
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
    #[error("{}", task_failed(doing, *task, state, why))]
    Task { doing: String, task: u64, state: String, why: String },
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
    #[error("no deployment '{name}'{}", known.hint(name))]
    NoSuchDeployment { name: String, known: KnownNames },
    #[error("no instance '{instance}' in deployment '{deployment}'{}", known.hint(instance))]
    NoSuchInstance { instance: String, deployment: String, known: KnownNames },
    #[error("{message}{}", known.hint(name))]
    Missing { message: String, name: String, known: KnownNames },
    #[error("no table has a column '{name}'{}", known.hint(name))]
    NoColumn { name: String, known: KnownNames },
    #[error("--no-converge touches one instance, so name it: GROUP/ID")]
    NoConvergeNeedsInstance,
    #[error("'{0}' is not among what a cloud has and the director does not know; 'windlass leaks' lists that")]
    NoLeak(String),
    #[error(transparent)]
    Trust(#[from] windlass_cloud_incus::trust::TrustError),
    #[error("{0} problem(s) found")]
    Problems(usize),
    #[error("that is none of the choices; nothing was changed")]
    NoChoice,
    #[error("there is nobody to ask for a resolution: 'windlass cloud-check' takes --auto, --resolution or --report")]
    NobodyToAsk,
    #[error("--watch draws on a terminal, and this is none")]
    WatchNeedsTerminal,
    #[error("--watch is for verbs that list, such as instances, vms, tasks, disks and status")]
    NotToWatch,
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
    #[error("no instance with a VM matches '{0}'; 'windlass instances' lists them")]
    NoInstanceWithVm(String),
    #[error("the way to '{instance}' broke off: {why}")]
    WayInBroken { instance: String, why: String },
    #[error("interrupted")]
    WayInInterrupted,
    #[error("--tty is for one instance, but {0} match; name one as GROUP/ID")]
    TerminalSeveral(usize),
    #[error("--tty needs a terminal, and this is none; leave it out")]
    NoTerminal,
    #[error("a copy goes from here to instances or from instances to here; some paths have a colon on the wrong side")]
    CpBothSides,
    #[error(
        "files of {0} instances would overwrite each other; write '((instance_id))' into the last path, or name one instance"
    )]
    CpSeveral(usize),
    #[error(
        "the director calls an instance '{0}', which is no plain name for a file; write a path without '((instance_id))'"
    )]
    OddInstanceId(String),
    #[error("not everything was copied ({failed} of {all} instances)")]
    CpIncomplete { failed: usize, all: usize },
    #[error(transparent)]
    Copy(windlass_archive::copies::CopyError),
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
    #[error(
        "no instance could be prepared for ssh: {0}; the minimal stemcell and those of '--userland host' have no ssh server, and \
         'windlass stemcell build --debian SUITE --package openssh-server' makes one that has"
    )]
    SshSetup(String),
    #[error(
        "ssh did not get into {0}; VMs of the minimal stemcell and of '--userland host' have no ssh server, and 'windlass exec -t \
         {0} -- bash' needs none"
    )]
    SshConnect(String),
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
    #[error("'{}' is {is}; {expected}", path.display())]
    OtherDocument { path: PathBuf, is: &'static str, expected: &'static str },
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
    #[error("--cpi takes 'local', 'incus', 'sim', or the command line of a CPI")]
    CpiCommand(#[source] windlass_certify::CommandLineError),
    #[error("the director cannot start")]
    DirectorStart(#[source] windlass_director::StartError),
    #[error("the director did not start: {why}\nits log: {}", log.display())]
    NotStarted { why: String, log: PathBuf },
    #[error("no director keeps its state in '{}'; --state-dir or WINDLASS_STATE_DIR names another place", state_dir.display())]
    NoDirectorHere { state_dir: PathBuf },
    #[error("no director runs here; 'windlass up' starts one")]
    NoDirectorRuns,
    #[error("not everything could be removed from '{}':\n{left}", state_dir.display())]
    Left { state_dir: PathBuf, left: String },
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
    #[error(transparent)]
    Bench(#[from] windlass_bench::BenchError),
    #[error("not measured: {0}")]
    Unmeasured(String),
    #[error(transparent)]
    Certify(#[from] CertifyFailure),
    #[error("{problems} of these keep a director from running here; the last column says what to do")]
    Unfit { problems: usize },
    #[error(transparent)]
    Env(Box<windlass_create_env::EnvError>),
    #[error(transparent)]
    Install(Box<windlass_installation::InstallError>),
    #[error("the release is not to be had")]
    FetchRelease(#[source] Box<windlass_download::KeptError>),
    #[error("a release that is downloaded needs --sha1, so that it is known to be the one that is meant")]
    ReleaseWithoutDigest,
    #[error(
        "the CPI was compiled and rendered but does not answer 'info', so it was not put in use; look at its properties and at what \
         it says"
    )]
    CpiDoesNotAnswer(#[source] Box<windlass_cpi_client::CallError>),
    #[error("interrupted; what a CPI is still doing will be settled by the next run")]
    EnvInterrupted,
    #[error(transparent)]
    Demo(#[from] DemoError),
}

/// The names that there are, for a user who named something that is not there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownNames(pub(crate) Vec<String>);

/// More names do not help.
const LISTED: usize = 12;

impl KnownNames {
    fn hint(&self, name: &str) -> String {
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        let listed = names.iter().take(LISTED).map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
        let listed = match names.len() {
            0 => "there is none".to_owned(),
            count if count > LISTED => format!("there are {listed} and {} more", count - LISTED),
            1 => format!("there is {listed}"),
            _ => format!("there are {listed}"),
        };
        match windlass_manifest::fields::meant(name, &names) {
            Some(meant) => format!("; did you mean '{meant}'? ({listed})"),
            None => format!("; {listed}"),
        }
    }
}

/// The cause first, what led there below, each once.
fn task_failed(doing: &str, task: u64, state: &str, why: &str) -> String {
    // Each part that did not begin any more says so; that it was cancelled is one thing.
    if state == "cancelled" || why.contains("the task was cancelled") {
        return format!("task {task} was cancelled while {doing}");
    }
    let (cause, ways) = cause_first(why);
    let mut lines: Vec<String> = if cause.is_empty() { Vec::new() } else { vec![cause] };
    lines.extend(ways);
    lines.push(format!("while {doing}: task {task} ended as '{state}'; 'windlass task {task} --debug' tells more"));
    lines.join("\n")
}

/// An error of the director has its cause at its end, behind what was being done. Gives the cause, and what was done, the
/// innermost first.
pub(crate) fn cause_first(text: &str) -> (String, Vec<String>) {
    let mut ways = Vec::new();
    let mut rest = text.trim();
    while let Some((way, cause)) = rest.split_once(": ").filter(|(way, _)| is_a_way(way)) {
        ways.push(way.to_owned());
        rest = cause.trim_start();
    }
    ways.reverse();
    (rest.to_owned(), ways)
}

/// Whether words before a colon only tell what was being done. What is not known to be so belongs to the cause.
fn is_a_way(words: &str) -> bool {
    const ENDS: [&str; 2] = [" failed", " with an error"];
    let is_class = words.starts_with("Bosh::") && !words.contains(' ');
    let is_step = words.contains(" failed while ") || words.contains(" failed for ");
    let is_answer = words.contains(" with an error (request ");
    !words.contains('\n') && (is_class || is_step || is_answer || ENDS.iter().any(|end| words.ends_with(end)))
}

/// A failure for people and scripts: what is wrong first, then what was being done.
pub(crate) fn report(failure: &Failure) -> String {
    match failure {
        Failure::Director { doing, source } => {
            let (cause, ways) = cause_first(&windlass_contract::explain(source));
            let ways: String = ways.iter().map(|way| format!("\n{way}")).collect();
            tidy(&format!("{cause}{ways}\nwhile {doing}"))
        }
        other => chain(other),
    }
}

/// How far lines may be indented.
const DEEPEST: usize = 20;

/// An error with its causes. What they quote from files and from the network must not steer the terminal, and if it has
/// several lines, such as a director's list of problems, all but the first are indented: none passes for a message of ours.
pub(crate) fn chain(error: &dyn Error) -> String {
    tidy(&windlass_contract::explain(error))
}

/// The text without what steers a terminal; all lines but the first are indented.
pub(crate) fn tidy(text: &str) -> String {
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
    fn the_cause_of_a_failure_stands_first_and_once() {
        let why = "creating the VM of db/900e failed while creating VM: create_vm failed for a VM for instance 900e: the CPI \
            answered 'create_vm' with an error (request eab6): Bosh::Clouds::CloudError: 192.0.2.0/24 overlaps eth0: choose another";
        let failure = Failure::Task {
            doing: "updating deployment 'shop'".into(),
            task: 7,
            state: "error".into(),
            why: why.into(),
        };
        let expected = "192.0.2.0/24 overlaps eth0: choose another\n  Bosh::Clouds::CloudError\n  \
            the CPI answered 'create_vm' with an error (request eab6)\n  create_vm failed for a VM for instance 900e\n  \
            creating the VM of db/900e failed while creating VM\n  \
            while updating deployment 'shop': task 7 ended as 'error'; 'windlass task 7 --debug' tells more";
        assert_eq!(report(&failure), expected);
        let why =
            "creating the VM of db/1 failed while naming VM: the task was cancelled\ncreating the VM of db/2 failed";
        let failure =
            Failure::Task { doing: "updating 'shop'".into(), task: 8, state: "error".into(), why: why.into() };
        assert_eq!(report(&failure), "task 8 was cancelled while updating 'shop'");
        assert_eq!(
            cause_first("networks[0].subnets: no range: give one").1,
            Vec::<String>::new(),
            "all of it is the cause"
        );
    }

    #[test]
    fn who_misspells_a_name_is_told_what_there_is() {
        let known = KnownNames(vec!["shop".into(), "blog".into()]);
        let failure = Failure::NoSuchDeployment { name: "shpo".into(), known };
        assert_eq!(chain(&failure), "no deployment 'shpo'; did you mean 'shop'? (there are 'shop', 'blog')");
        let failure = Failure::NoSuchDeployment { name: "x".into(), known: KnownNames::default() };
        assert_eq!(chain(&failure), "no deployment 'x'; there is none");
    }

    #[test]
    fn what_a_failure_quotes_neither_passes_for_another_message_nor_steers_the_terminal() {
        let source = io::Error::other("first\n\r\nsecond \u{1b}[31m");
        let failure = Failure::File { path: "x.yml".into(), source };
        assert_eq!(chain(&failure), "cannot read 'x.yml': first\n  second [31m");
        let nested = Failure::Render("Errors are:\n  - one\n    -   two".to_owned());
        assert_eq!(chain(&nested), "Errors are:\n    - one\n      - two");
    }
}
