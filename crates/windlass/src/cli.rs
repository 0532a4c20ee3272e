//! Every verb and flag of the command line.

mod author;
mod changes;
mod clouds;
mod configs;
mod envs;
mod groups;
mod remote;
mod slug;
mod stemcells;
mod uploads;
mod visits;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use windlass_bench::BenchVerb;
use windlass_contract::Secret;
use windlass_director::settings::Isolation;
use windlass_director_client::environment::{self, DirectorFlags, Environment, EnvironmentError};

use crate::interpolation::InterpolationArgs;
pub(crate) use author::*;
pub(crate) use changes::*;
pub(crate) use clouds::*;
use clouds::{CERTIFY_HELP, LOCAL_HELP};
pub(crate) use configs::*;
use envs::ENV_HELP;
pub(crate) use envs::{CreateEnvArgs, EnvArgs, StopEnvArgs};
pub(crate) use groups::command;
pub(crate) use remote::*;
pub(crate) use slug::{Instance, Selection, Slug, selected_path};
pub(crate) use stemcells::*;
pub(crate) use uploads::*;
pub(crate) use visits::*;

/// Deploys software and keeps it alive: BOSH in one program.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, disable_version_flag = true, max_term_width = 100, after_help = FIRST_STEPS)]
pub(crate) struct Cli {
    /// Print version
    #[arg(short = 'v', long, short_alias = 'V', action = clap::ArgAction::Version)]
    version: Option<bool>,
    // Some verbs have a flag of this name, so it stands before the verb.
    /// Before the verb: file with the names of directors [env: BOSH_CONFIG] [default: ~/.bosh/config]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Cli {
    /// With what stands before the verb among the global flags.
    pub(crate) fn complete(mut self) -> Self {
        self.global.names_file = self.config.take();
        if let Verb::Remote(RemoteVerb::Exec(arguments)) = &mut self.verb {
            arguments.terminal |= self.global.tty;
        }
        self
    }
}

impl Global {
    /// A variable, or the flag that stands for it.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        match (&self.names_file, name) {
            (Some(file), "BOSH_CONFIG") => Some(file.display().to_string()),
            _ => std::env::var(name).ok().filter(|value| !value.is_empty()),
        }
    }

    /// What they say of the director.
    pub(crate) fn director(&self) -> DirectorFlags {
        DirectorFlags {
            environment: self.environment.clone(),
            ca_cert: self.ca_cert.clone(),
            client: self.client.clone(),
            client_secret: self.client_secret.clone(),
            state_dir: self.state_dir.clone(),
        }
    }

    /// The director that flags, variables and the state of this machine name.
    pub(crate) fn environment(&self) -> Result<Environment, EnvironmentError> {
        environment::resolve(&self.director(), |name| self.variable(name))
    }
}

const FIRST_STEPS: &str = "First steps:
  windlass demo      shows everything on this machine in a minute, and cleans up
  windlass up        starts a director here, which the other verbs then find
  windlass status    shows what runs, in one screen
  windlass down      stops the director; with --all it removes everything";

/// Flags that all verbs understand.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Global {
    /// Director, as https://HOST:PORT [env: BOSH_ENVIRONMENT]
    #[arg(short, long, global = true, value_name = "URL", help_heading = GLOBAL)]
    pub(crate) environment: Option<String>,
    /// The director's CA: a file or the PEM text [env: BOSH_CA_CERT]
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL, allow_hyphen_values = true)]
    pub(crate) ca_cert: Option<String>,
    /// User [env: BOSH_CLIENT]
    #[arg(long, global = true, value_name = "NAME", help_heading = GLOBAL)]
    pub(crate) client: Option<String>,
    /// Password; better given as a variable [env: BOSH_CLIENT_SECRET]
    #[arg(long, global = true, value_name = "SECRET", help_heading = GLOBAL, value_parser = secret)]
    pub(crate) client_secret: Option<Secret>,
    /// Deployment [env: BOSH_DEPLOYMENT]
    #[arg(short, long, global = true, value_name = "NAME", help_heading = GLOBAL)]
    pub(crate) deployment: Option<String>,
    /// State directory of the director on this machine [env: WINDLASS_STATE_DIR]
    #[arg(long, global = true, value_name = "DIR", help_heading = GLOBAL)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Ask nothing [env: BOSH_NON_INTERACTIVE]
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) non_interactive: bool,
    /// Print JSON
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
    /// Print as on a terminal [env: BOSH_TTY]
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) tty: bool,
    /// No colours
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) no_color: bool,
    /// Leave out what repeats, and shorten ids: for the demo
    #[arg(long, global = true, hide = true)]
    pub(crate) brief: bool,
    /// Show only this column of tables; may be repeated
    #[arg(long = "column", global = true, value_name = "NAME", help_heading = GLOBAL)]
    pub(crate) columns: Vec<String>,
    /// On a terminal, show tables in full, as BOSH does: all columns, whole ids and dates
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) wide: bool,
    /// On a terminal, for verbs that list: draw it again every so many seconds, until Ctrl-C
    #[arg(long, global = true, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          help_heading = GLOBAL, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) watch: Option<u16>,
    /// Releases are made with SHA-256 digests; that is the default
    #[arg(long, global = true, hide = true)]
    pub(crate) sha2: bool,
    /// The file with the names of directors.
    #[arg(skip)]
    pub(crate) names_file: Option<PathBuf>,
    /// Deployments to ask at once
    #[arg(long, global = true, value_name = "N", default_value_t = 5, help_heading = GLOBAL, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) parallel: u16,
}

const GLOBAL: &str = "Global options";

pub(crate) fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Change a document by operations and variables, and print it
    #[command(alias = "int")]
    Interpolate(InterpolateArgs),
    /// Create or update one VM from a manifest and a state file, without a director
    #[command(after_help = ENV_HELP)]
    CreateEnv(CreateEnvArgs),
    /// Delete what create-env made, with its disks
    DeleteEnv(StopEnvArgs),
    /// Stop what runs on the VM of create-env
    StopEnv(StopEnvArgs),
    /// Start what runs on the VM of create-env
    StartEnv(EnvArgs),
    /// Render the templates of one job on this machine, and show the files or what is wrong
    #[command(after_help = RENDER_HELP)]
    Render(RenderArgs),
    /// Look at this machine, and say what will work on it and what to do about the rest
    Doctor,
    /// Show everything on this machine in a minute, and clean up
    Demo(DemoArgs),
    /// Start a director in the background, with a stemcell and a cloud config to begin with
    Up(UpArgs),
    /// Show in one screen what runs here, and how it is
    Status,
    /// Stop the director of this machine; its VMs keep running
    Down(DownArgs),
    /// Run a director in the foreground
    Director(DirectorArgs),
    /// Run a registry in the foreground, for stemcells older than version 2
    #[command(after_help = REGISTRY_HELP)]
    Registry(RegistryArgs),
    /// Build, inspect and repack stemcells
    #[command(subcommand)]
    Stemcell(StemcellVerb),

    #[command(flatten)]
    Author(AuthorVerb),

    /// Show what a stemcell says of itself
    InspectLocalStemcell {
        /// Tarball
        file: PathBuf,
    },
    /// Change what a stemcell says of itself, or its agent
    RepackStemcell(StemcellRepackArgs),

    #[command(flatten)]
    Remote(RemoteVerb),
    /// Give a director a name, to use it with -e
    AliasEnv {
        /// Name
        alias: String,
    },
    /// Forget a director by its name
    UnaliasEnv {
        /// Name
        alias: String,
    },
    /// List the directors that have names
    #[command(alias = "envs")]
    Environments,
    /// Keep the credentials for a director
    #[command(aliases = ["l", "login"])]
    LogIn,
    /// Forget the credentials for a director
    #[command(alias = "logout")]
    LogOut,

    /// Print a script that lets a shell complete words
    #[command(after_help = COMPLETION_HELP)]
    Completion {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Print what a word of a command line may be completed to
    #[command(hide = true)]
    CompleteNames {
        /// The words behind the program's name, up to the one to complete
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Write the manual pages into a directory
    #[command(after_help = MAN_HELP)]
    ManPages {
        /// Directory, such as /usr/local/share/man/man1
        directory: PathBuf,
    },
    /// Measure
    #[command(subcommand)]
    Bench(BenchVerb),
    /// Certify a CPI, in whatever language it is written
    #[command(after_help = CERTIFY_HELP)]
    Certify(CertifyArgs),
    /// Install CPI releases, or serve one call of a built-in CPI: the request on stdin, the answer on stdout
    #[command(subcommand)]
    Cpi(CpiVerb),
    /// Look into the embedded cloud, and tidy it up
    #[command(subcommand, after_help = LOCAL_HELP)]
    Local(LocalVerb),
    /// Host the agents of the simulated cloud in the foreground, or look into that cloud
    Sim(SimArgs),
    /// Run the agent of a VM, with the flags of BOSH's
    Agent {
        /// Flags of BOSH's agent
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RenderArgs {
    /// Folder of the job, with spec, monit and templates; with --release the job's name
    #[arg(long, value_name = "DIR", required_unless_present = "diff")]
    pub(crate) job: Option<PathBuf>,
    /// Release tarball to take the job from
    #[arg(long, value_name = "FILE")]
    pub(crate) release: Option<PathBuf>,
    /// Properties of the job, as in a manifest; without them, its defaults
    #[arg(long, value_name = "FILE")]
    pub(crate) properties: Option<PathBuf>,
    /// What else templates see, such as index, networks and links
    #[arg(long, value_name = "FILE")]
    pub(crate) spec: Option<PathBuf>,
    /// Write the files below a directory instead of showing them
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Let Ruby, where it is needed, read all files of this machine: for machines that cannot cage it
    #[arg(long)]
    pub(crate) uncaged: bool,
    /// Show which lines of which files a deploy of this manifest would change, with the tags of templates in the place of values;
    /// for admins of the director
    #[arg(long, value_name = "MANIFEST", conflicts_with_all = ["job", "release", "properties", "spec", "output", "uncaged"])]
    pub(crate) diff: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) changes: InterpolationArgs,
}

const RENDER_HELP: &str = "Nothing is sent to a director, except with --diff. Templates that are not native are rendered by the Ruby of this machine,\n\
    which sees nothing but itself.\n\n\
    Examples:\n  windlass render --job jobs/web --properties web.yml\n  \
    windlass render --release shop-1.tgz --job web --output rendered\n  windlass render --diff manifest.yml";

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Leave the director and the deployment running
    #[arg(long)]
    pub(crate) keep: bool,
    /// End demos that were kept or killed, and remove what they left
    #[arg(long, conflicts_with_all = ["keep", "isolation"])]
    pub(crate) end: bool,
    /// How VMs are kept apart [default: as root, and without --keep, container; otherwise process]
    #[arg(long, value_name = "WORD", value_parser = demo_isolation)]
    pub(crate) isolation: Option<windlass_cloud_local::Isolation>,
}

#[derive(Debug, Args)]
pub(crate) struct DirectorArgs {
    /// Settings; DIR/director.yml if it is there. Flags win over them
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address and port to listen on; port 0 for any [default: 127.0.0.1:25555]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Database other than the embedded one, for example postgres://USER:PASSWORD@HOST/NAME
    #[arg(long, value_name = "URL", value_parser = secret)]
    pub(crate) db: Option<Secret>,
    /// Name of the director [default: windlass]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Default CPI: local, incus, sim, or the command line of another, as for certify [default: local]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) cpi: Option<String>,
    /// Its configuration, in the form of cpi.json
    #[arg(long, value_name = "FILE", requires = "cpi")]
    pub(crate) cpi_config: Option<PathBuf>,
    /// How VMs of the embedded cloud are kept apart: auto, container or process [default: auto]
    #[arg(long, value_name = "WORD", value_parser = isolation)]
    pub(crate) isolation: Option<Isolation>,
    /// How the log is written, which is DIR/director.log
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Outlive the terminal: for 'windlass up'
    #[arg(long, hide = true)]
    pub(crate) background: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// The stemcell whose VMs have the programs of this machine, instead of the minimal one: for releases that need a compiler
    #[arg(long, value_name = "WHOSE")]
    pub(crate) userland: Option<Userland>,
    /// Address and port that the director listens on; port 0 for any [default: 127.0.0.1:25555]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// How VMs are kept apart: auto, container or process [default: auto]
    #[arg(long, value_name = "WORD", value_parser = isolation)]
    pub(crate) isolation: Option<Isolation>,
}

#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// Remove everything, too: deployments with their disks, stemcells, releases, and the state directory
    #[arg(long)]
    pub(crate) all: bool,
}

/// How a log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One object per line
    Json,
}

fn demo_isolation(word: &str) -> Result<windlass_cloud_local::Isolation, String> {
    match word {
        "container" => Ok(windlass_cloud_local::Isolation::Container),
        "process" => Ok(windlass_cloud_local::Isolation::Process),
        _ => Err("expected 'container' or 'process'".to_owned()),
    }
}

fn isolation(word: &str) -> Result<Isolation, String> {
    let found = Isolation::WORDS.iter().find(|(known, _)| *known == word).map(|(_, isolation)| *isolation);
    found.ok_or_else(|| "expected auto, container or process".to_owned())
}

const COMPLETION_HELP: &str = "For example: 'windlass completion bash > /etc/bash_completion.d/windlass'";

const MAN_HELP: &str =
    "For example: 'windlass man-pages /usr/local/share/man/man1', then 'man windlass' and 'man windlass-deploy'";

const REGISTRY_HELP: &str = "Who may write is said by lines USER:PASSWORD, in the variable WINDLASS_REGISTRY_CREDENTIALS or \
in a file; if neither is given, a password is made up and kept in DIR/registry/credentials. CPIs write with the first line; \
further ones let the VMs of an earlier password read on while it is replaced.";

#[derive(Debug, Args)]
pub(crate) struct RegistryArgs {
    /// Address and port to listen on, where the VMs can reach it; port 0 for any
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:25777")]
    pub(crate) listen: SocketAddr,
    /// Database other than the embedded one, for example postgres://USER:PASSWORD@HOST/NAME
    #[arg(long, value_name = "URL", env = "WINDLASS_REGISTRY_DB", hide_env_values = true, value_parser = secret)]
    pub(crate) db: Option<Secret>,
    /// File with lines USER:PASSWORD
    #[arg(long, value_name = "FILE")]
    pub(crate) credentials: Option<PathBuf>,
    /// Certificate as PEM, with the chain behind it: speak TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Key of the certificate as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Let VMs without credentials read from the addresses in their settings, as BOSH does
    #[arg(long)]
    pub(crate) read_by_address: bool,
    /// Let everybody on this machine read everything, as BOSH does
    #[arg(long)]
    pub(crate) trust_loopback: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InterpolateArgs {
    /// Document; '-' is the standard input
    pub(crate) manifest: PathBuf,
    #[command(flatten)]
    pub(crate) changes: InterpolationArgs,
    /// Print only what this path leads to, such as /admin_password or /groups/name=web
    #[arg(long, value_name = "OP-PATH")]
    pub(crate) path: Option<windlass_manifest::patch::Path>,
    /// A variable without a value is an error
    #[arg(long)]
    pub(crate) var_errs: bool,
    /// A value that is not used is an error
    #[arg(long)]
    pub(crate) var_errs_unused: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_contradict_each_other_nowhere() {
        Cli::command().debug_assert();
    }

    /// A flag with the name of a global one of another type is found out only when it is read.
    #[test]
    fn every_measurement_can_be_asked_for() {
        for what in
            ["agent", "all", "api", "cpi-call", "deploy", "dns", "health", "kills", "local", "registry", "supervise"]
        {
            let cli = Cli::try_parse_from(["windlass", "bench", what]);
            assert!(matches!(cli.unwrap().verb, Verb::Bench(_)), "{what}");
        }
    }

    #[test]
    fn global_flags_stand_before_or_after_the_verb() {
        let before = Cli::parse_from(["windlass", "-d", "shop", "-n", "vms"]);
        let after = Cli::parse_from(["windlass", "vms", "-d", "shop", "-n"]);
        for cli in [before, after] {
            assert_eq!(cli.global.deployment.as_deref(), Some("shop"));
            assert!(cli.global.non_interactive);
        }
    }

    #[test]
    fn the_flags_of_the_original_are_understood() {
        let lines = [
            "--config x env",
            "--sha2 env",
            "--ca-cert -----BEGIN env",
            "deploy m.yml --fix-releases --skip-upload-releases --force-latest-variables -v a=b",
            "update-runtime-config r.yml --fix-releases",
            "-d shop export-release shop/1 ubuntu-jammy/1.2 --dir d --job web --job db",
            "create-env e.yml --package-dir p",
            "delete-env e.yml --package-dir p",
            "logs db -f --num 3 -q --job a --gw-host h --gw-user u --gw-private-key k --gw-socks5 s --gw-disable",
            "logs --director --agent-endpoint https://u:p@h:6868 --agent-certificate c",
            "ssh db/1 -i k -l me --gw-socks5 s -r -c ls -c x",
            "ssh db/1 uptime",
            "ssh --director --agent-endpoint https://u:p@h:6868 --agent-certificate c",
            "scp -r db/1:/x y -i k -l me",
            "pcap db web/1 -i eth1 -f x -s 1 -o f --stop-timeout 5s",
            "snapshots db/1",
            "delete-network n",
            "inspect-local-stemcell s.tgz",
            "repack-stemcell a.tgz b.tgz --name n --cloud-properties {} --empty-image --format f --version 2",
            "create-recovery-plan p.yml",
            "recover p.yml",
        ];
        for line in lines {
            let words = ["windlass"].into_iter().chain(line.split(' '));
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
        for flag in ["-v", "-V", "--version"] {
            let shown = Cli::try_parse_from(["windlass", flag]).unwrap_err();
            assert_eq!(shown.kind(), clap::error::ErrorKind::DisplayVersion, "{flag}");
        }
    }

    #[test]
    fn recent_is_30_unless_said_otherwise() {
        let recent = |words: &[&str]| match Cli::parse_from(words).verb {
            Verb::Remote(RemoteVerb::Tasks(arguments)) => arguments.recent,
            other => panic!("{other:?}"),
        };
        assert_eq!(recent(&["windlass", "tasks"]), None);
        assert_eq!(recent(&["windlass", "tasks", "--recent"]), Some(30));
        assert_eq!(recent(&["windlass", "tasks", "--recent=5"]), Some(5));
    }

    #[test]
    fn a_password_does_not_reach_the_debug_form_of_the_command_line() {
        let cli = Cli::parse_from(["windlass", "--client-secret", "hunter2", "env"]);
        assert!(!format!("{cli:?}").contains("hunter2"));
    }
}
