//! Which process does the work of somebody who came in, and as whom.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};
use windlass_contract::way_in::{WayIn, Work};
use windlass_durable::kill_point;

use super::own_program::{Order, WAY_IN};
use super::terminal::Terminal;
use crate::agent::Agent;
use crate::supervisor;

/// The user of jobs.
const USER: &str = "vcap";
const PATH: &str = "/var/vcap/bosh/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// why the work cannot begin
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkError {
    #[error("a simulated VM has no files and no programs; deploy to another cloud to look into a VM")]
    Simulated,
    /// the files are somebody else's
    #[error(
        "this VM has no files of its own, so commands would run among those of the machine; make its stemcell with \
         'windlass stemcell build --userland host', or use containers"
    )]
    NoRoot,
    /// root is not at hand
    #[error("the agent of this VM is not root, so nobody else is; leave out --root")]
    NotRoot,
    /// there is nothing to run
    #[error("no command is given")]
    NoCommand,
    #[error("this VM has no terminals; leave out --tty")]
    NoTerminal(#[source] io::Error),
    /// the program cannot be started
    #[error("cannot run '{program}': {source}")]
    Start { program: String, source: io::Error },
}

/// Somebody in `/etc/passwd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) ids: (u32, u32),
    pub(super) home: PathBuf,
}

impl Account {
    fn named(name: &str, passwd: &str) -> Option<Self> {
        let entry = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|entry| entry[0] == name)?;
        let ids = (entry.get(2)?.parse().ok()?, entry.get(3)?.parse().ok()?);
        Some(Self { name: name.to_owned(), ids, home: entry.get(5)?.into() })
    }

    /// Where the work begins: at home, where one may go there.
    fn folder(&self) -> &Path {
        let may_enter = |found: std::fs::Metadata| {
            found.is_dir() && (self.ids.0 == 0 || found.uid() == self.ids.0 || found.mode() & 0o001 != 0)
        };
        if std::fs::metadata(&self.home).is_ok_and(may_enter) { &self.home } else { Path::new("/") }
    }

    /// The user who does the work; none for the agent's own.
    fn of(root: bool) -> Result<Option<Self>, WorkError> {
        match (root, rustix::process::geteuid().is_root()) {
            (true, false) => Err(WorkError::NotRoot),
            (_, false) => Ok(None),
            (root, true) => {
                let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
                Ok(Self::named(if root { "root" } else { USER }, &passwd))
            }
        }
    }
}

/// A process that works.
#[derive(Debug)]
pub(super) struct StartedWork {
    pub(super) child: Child,
    /// In the place of pipes.
    pub(super) terminal: Option<Terminal>,
}

/// Starts it, with pipes or on a terminal, in a process group of its own.
pub(super) fn start(agent: &Agent, wanted: &WayIn) -> Result<StartedWork, WorkError> {
    if agent.simulation.is_some() {
        return Err(WorkError::Simulated);
    }
    // Logs are below the agent's own folder everywhere.
    if !agent.platform.runs_jobs() && !matches!(wanted.work, Work::Logs(_)) {
        return Err(WorkError::NoRoot);
    }
    let account = match &wanted.work {
        // Over ssh they are read with sudo.
        Work::Logs(_) => None,
        _ => Account::of(wanted.root)?,
    };
    let mut command = match &wanted.work {
        Work::Run { command } => program(command, account.as_ref())?,
        work => {
            let order = Order {
                work: work.clone(),
                ids: account.as_ref().map(|account| account.ids),
                system_logs: agent.platform.system_logs(),
            };
            let mut command = Command::new(supervisor::program());
            // What it can be told is JSON by its types.
            let order = serde_json::to_string(&order).unwrap_or_default();
            command.arg(WAY_IN).arg("-b").arg(agent.base.path()).arg(order);
            command
        }
    };
    if let Some(account) = &account {
        command.current_dir(account.folder());
    }
    let terminal = match &wanted.work {
        Work::Terminal { command: words, .. } if words.is_empty() => return Err(WorkError::NoCommand),
        Work::Terminal { size, kind, .. } => {
            set_environment(&mut command, account.as_ref());
            command.env("TERM", kind);
            let owner = account.as_ref().map(|account| account.ids).filter(|ids| *ids != (0, 0));
            let (terminal, theirs) = Terminal::open(*size, owner).map_err(WorkError::NoTerminal)?;
            let twin = || theirs.try_clone().map_err(WorkError::NoTerminal);
            command.stdin(twin()?).stdout(twin()?).stderr(theirs);
            Some(terminal)
        }
        _ => {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            // On a terminal it has a session of its own, which it makes itself.
            command.process_group(0);
            None
        }
    };
    command.kill_on_drop(true);
    kill_point("before somebody's command is started");
    let name = match &wanted.work {
        Work::Run { command } => command.first().cloned().unwrap_or_default(),
        _ => "the agent's program".to_owned(),
    };
    let child = command.spawn().map_err(|source| WorkError::Start { program: name, source })?;
    Ok(StartedWork { child, terminal })
}

/// What a program finds in its environment: nothing of the agent's.
fn set_environment(command: &mut Command, account: Option<&Account>) {
    command.env_clear().env("PATH", PATH).env("LANG", "C.UTF-8");
    if let Some(Account { name, home, .. }) = account {
        command.env("HOME", home).env("USER", name).env("LOGNAME", name);
    }
}

fn program(words: &[String], account: Option<&Account>) -> Result<Command, WorkError> {
    let (name, arguments) = words.split_first().ok_or(WorkError::NoCommand)?;
    let mut command = Command::new(name);
    command.args(arguments);
    set_environment(&mut command, account);
    // Where root is the only user there is, groups cannot be set either.
    if let Some((user, group)) = account.map(|account| account.ids).filter(|ids| *ids != (0, 0)) {
        command.gid(group).uid(user);
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_their_whole_name() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nvcap2:x:7:7::/x:/bin/sh\nvcap:x:1000:1001:v:/home/vcap:/bin/bash\nbad\n";
        let vcap = Account { name: "vcap".into(), ids: (1000, 1001), home: "/home/vcap".into() };
        assert_eq!(Account::named("vcap", passwd), Some(vcap));
        assert_eq!(Account::named("bad", passwd), None);
        assert_eq!(Account::named("nobody", passwd), None);
    }
}
