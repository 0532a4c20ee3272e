//! Flags of the verbs that go to instances.

use std::path::PathBuf;

use clap::Args;
use windlass_contract::Secret;

use super::Selection;

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// GROUP or GROUP/ID; everything if absent
    #[arg(value_name = "GROUP[/ID]")]
    pub(crate) instances: Option<Selection>,
    /// Folder to write to
    #[arg(long, default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Show what is written from now on, until Ctrl-C: through agents, or over ssh by a gateway or with agents of BOSH
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Show the last N lines of each file, in the same way
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) num: u32,
    /// With --follow or --num: do not name the files
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// With --follow or --num: only of this job; may be repeated
    #[arg(long = "job", value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// Only of these jobs, separated by commas
    #[arg(long = "only", value_name = "FILTER")]
    pub(crate) filters: Vec<String>,
    /// Only the agent's
    #[arg(long, group = "kind_of_logs")]
    pub(crate) agent: bool,
    /// Only the system's
    #[arg(long, group = "kind_of_logs")]
    pub(crate) system: bool,
    /// The agent's, the system's and those of jobs
    #[arg(long, group = "kind_of_logs")]
    pub(crate) all_logs: bool,
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    #[command(flatten)]
    pub(crate) env: EnvAgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RunErrandArgs {
    /// The job, or the group that is an errand
    #[arg(value_name = "NAME")]
    pub(crate) errand: String,
    /// Only on this instance, or on these of GROUP; GROUP/first for one of it; may be repeated
    #[arg(long = "instance", value_name = "GROUP[/ID]")]
    pub(crate) instances: Vec<Selection>,
    /// Leave the VM that was made for it
    #[arg(long)]
    pub(crate) keep_alive: bool,
    /// Only if something changed since it last succeeded
    #[arg(long)]
    pub(crate) when_changed: bool,
    /// Fetch its logs
    #[arg(long)]
    pub(crate) download_logs: bool,
    /// Folder to write logs to
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) logs_dir: PathBuf,
}

pub(super) const EXEC_HELP: &str = "On one instance it is as if the command ran here: input, output and exit code are its own, Ctrl-C interrupts it, and it ends \
when this program does. On several, lines of output begin with the instance. No shell reads the command: for one, write \
'windlass exec db/0 -- sh -c \"ls *.log\"'. With -t it has this terminal: \
'windlass exec -t db/0 -- bash' is a shell. Agents of BOSH do not \
know this; 'windlass ssh' goes to their VMs";

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// GROUP/ID, or GROUP for all of it
    #[arg(value_name = "GROUP[/ID]")]
    pub(crate) instances: Selection,
    /// As root, and not as vcap
    #[arg(long)]
    pub(crate) root: bool,
    /// With this terminal, for shells and programs that draw; so does --tty
    #[arg(short = 't')]
    pub(crate) terminal: bool,
    /// The command, best after '--'
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

pub(super) const CP_HELP: &str = "A path with a colon is one on instances: GROUP/ID:PATH, GROUP:PATH or :PATH for all of them; if it is relative, it begins in the \
user's home. '((instance_id))' in a path stands for the id of each. Links inside of folders are copied as the files that they lead \
to; links to folders, pipes and devices are named and left out";

#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    /// Where from, and last where to
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// Folders with all that is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// As root, and not as vcap
    #[arg(long)]
    pub(crate) root: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SshArgs {
    /// GROUP or GROUP/ID; everything if absent. With --private-key also an address
    #[arg(value_name = "GROUP[/ID]")]
    pub(crate) instances: Option<Selection>,
    /// Run this instead of a shell; several are one command line
    #[arg(short, long, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    /// Options for the ssh program, separated by spaces
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) opts: Option<String>,
    /// Collect what commands print into a table
    #[arg(short, long)]
    pub(crate) results: bool,
    /// The command, if none is given by -c
    #[arg(value_name = "COMMAND")]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) key: KeyArgs,
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    #[command(flatten)]
    pub(crate) env: EnvAgentArgs,
}

pub(super) const SCP_HELP: &str = "A path with a colon is one on instances: GROUP/ID:PATH, GROUP:PATH or :PATH for all of them. \
'((instance_id))' in a path stands for the id of each, for example: 'windlass scp db:/var/log/syslog syslog.((instance_id))'";

#[derive(Debug, Args)]
pub(crate) struct ScpArgs {
    /// Where from, and last where to
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// Folders with all that is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) key: KeyArgs,
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
    #[command(flatten)]
    pub(crate) env: EnvAgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PcapArgs {
    /// GROUP or GROUP/ID; everything if absent
    #[arg(value_name = "GROUP[/ID]")]
    pub(crate) instances: Vec<Selection>,
    /// Network interface
    #[arg(short, long, value_name = "NAME", default_value = "eth0")]
    pub(crate) interface: String,
    /// Only what this expression of tcpdump matches
    #[arg(short, long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// At most so many bytes of each packet
    #[arg(short, long, value_name = "BYTES", default_value_t = 65535)]
    pub(crate) snaplen: u32,
    /// File to write the packets of all to
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// BOSH's client waits so long for the rest; here packets are written as they come
    #[arg(long, value_name = "TIME", hide = true)]
    pub(crate) stop_timeout: Option<String>,
    #[command(flatten)]
    pub(crate) gateway: GatewayArgs,
}

/// The VM that create-env made, instead of instances of a deployment.
#[derive(Debug, Args)]
pub(crate) struct EnvAgentArgs {
    /// Go to the VM that create-env made
    #[arg(long, requires = "agent_endpoint", requires = "agent_certificate")]
    pub(crate) director: bool,
    /// With --director: its agent, as https://USER:PASSWORD@HOST:PORT [env: BOSH_AGENT_ENDPOINT]
    #[arg(long, value_name = "URL", env = "BOSH_AGENT_ENDPOINT", hide_env = true, value_parser = super::secret)]
    pub(crate) agent_endpoint: Option<Secret>,
    /// With --director: the CA of its agent, a file or the PEM text [env: BOSH_AGENT_CERTIFICATE]
    #[arg(long, value_name = "FILE", env = "BOSH_AGENT_CERTIFICATE", hide_env = true, allow_hyphen_values = true)]
    pub(crate) agent_certificate: Option<String>,
}

/// The user for ssh, if not one that is made for the visit.
#[derive(Debug, Default, Args)]
pub(crate) struct KeyArgs {
    /// Go there with this key, which the VM knows, instead of as a user that the director lets in; its own key is not checked
    #[arg(short = 'i', long, value_name = "FILE")]
    pub(crate) private_key: Option<PathBuf>,
    /// With --private-key: as this user
    #[arg(short = 'l', long, value_name = "NAME", default_value = "vcap")]
    pub(crate) username: String,
}

/// How one comes to instances over ssh.
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    /// Jump host [env: BOSH_GW_HOST]
    #[arg(long, env = "BOSH_GW_HOST", hide_env = true, value_name = "HOST")]
    pub(crate) gw_host: Option<String>,
    /// User on the jump host [env: BOSH_GW_USER]
    #[arg(long, env = "BOSH_GW_USER", hide_env = true, value_name = "NAME")]
    pub(crate) gw_user: Option<String>,
    /// Key for the jump host [env: BOSH_GW_PRIVATE_KEY]
    #[arg(long, env = "BOSH_GW_PRIVATE_KEY", hide_env = true, value_name = "FILE")]
    pub(crate) gw_private_key: Option<PathBuf>,
    /// Use no jump host, even if one is named [env: BOSH_GW_DISABLE]
    #[arg(long, env = "BOSH_GW_DISABLE", hide_env = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub(crate) gw_disable: bool,
    /// SOCKS5 proxy, as socks5://HOST:PORT [env: BOSH_ALL_PROXY]
    #[arg(long, env = "BOSH_ALL_PROXY", hide_env = true, value_name = "URL")]
    pub(crate) gw_socks5: Option<String>,
}

impl GatewayArgs {
    /// Whether the user says how one comes there.
    pub(crate) fn is_named(&self) -> bool {
        let is_given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        (is_given(&self.gw_host) && !self.gw_disable) || is_given(&self.gw_socks5)
    }
}
