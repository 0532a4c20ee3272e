//! `windlass ssh`: a shell on an instance, or a command on instances. The director lets a user in for as long as it takes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reqwest::Method;
use serde_json::{Value, json};
use windlass_durable::file;
use windlass_durable::kill_point;

use crate::cli::{Selection, SshArgs};
use crate::director_answers::SshHost;
use crate::director_client::{ClientError, escape};
use crate::failure::Failure;
use crate::session::{Call, Session, While};
use crate::table::Table;
use crate::task_view;

pub(super) async fn run(session: &mut Session<'_>, arguments: &SshArgs) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let visit = Visit::new(&deployment, arguments.instances.as_ref())?;
    let doing = format!("setting up ssh in deployment '{deployment}'");
    let path = format!("/deployments/{}/ssh", escape(&deployment));
    let call = Call::new(Method::POST, &path).with_json(visit.body("setup", visit.entrance()));
    let task = session.carry_out(call, &doing).await?;
    let result = task_view::result(session, task, &doing).await?;
    let hosts: Vec<SshHost> = serde_json::from_str(&result).map_err(ClientError::from_json).while_(&doing)?;
    let went = visit.go(session, arguments, &hosts);
    // Nobody waits for it, as with the original; the agent forgets users at its next start as well.
    let cleanup = visit.body("cleanup", json!({"user_regex": format!("^{}", visit.user)}));
    let cleaned = session.director.send_json(&path, &cleanup).await.while_("cleaning up after ssh");
    went.and(cleaned)
}

/// A user and key for one visit.
struct Visit {
    deployment: String,
    target: Value,
    user: String,
    public_key: String,
    /// Holds the key and the hosts' keys; gone with it.
    folder: tempfile::TempDir,
}

impl Visit {
    fn new(deployment: &str, instances: Option<&Selection>) -> Result<Self, Failure> {
        let key = windlass_pki::generate::generate("ssh", &Value::Null, &mut |_| Ok(None));
        let key = key.map_err(|error| Failure::SshKey(error.into()))?;
        let text = |part: &str| key.get(part).and_then(Value::as_str).unwrap_or_default().to_owned();
        let folder = tempfile::tempdir().map_err(|error| Failure::SshKey(error.into()))?;
        let private = folder.path().join("key");
        file::write(&private, text("private_key").as_bytes(), file::PRIVATE)
            .map_err(|source| Failure::Write { path: private, source })?;
        let target = match instances {
            None => json!({"ids": [], "indexes": []}),
            Some(Selection::Group(group)) => json!({"job": group, "ids": [], "indexes": []}),
            Some(Selection::Instance(one)) => json!({"job": one.group, "ids": [one.id], "indexes": [one.id]}),
        };
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let user = format!("bosh_{}", &unique[..15]);
        Ok(Self { deployment: deployment.to_owned(), target, user, public_key: text("public_key"), folder })
    }

    fn entrance(&self) -> Value {
        json!({"user": self.user, "public_key": self.public_key})
    }

    fn body(&self, command: &str, params: Value) -> Value {
        json!({"command": command, "deployment_name": self.deployment, "target": self.target, "params": params})
    }

    fn go(&self, session: &mut Session<'_>, arguments: &SshArgs, hosts: &[SshHost]) -> Result<(), Failure> {
        let refused: Vec<_> =
            hosts.iter().filter(|host| host.status != "success").map(|host| host.status.clone()).collect();
        if hosts.is_empty() || !refused.is_empty() {
            let why = if refused.is_empty() { "no instance matches".to_owned() } else { refused.join(", ") };
            return Err(Failure::SshSetup(why));
        }
        let known = self.folder.path().join("known_hosts");
        let lines: String = hosts.iter().map(|host| format!("{} {}\n", host.ip, host.host_public_key)).collect();
        file::write(&known, lines.as_bytes(), file::PRIVATE)
            .map_err(|source| Failure::Write { path: known, source })?;
        match (&arguments.command, hosts) {
            (None, [host]) => self.shell(arguments, host),
            (None, several) => Err(Failure::SshSeveral(several.len())),
            (Some(command), hosts) => self.command(session, arguments, hosts, command),
        }
    }

    fn shell(&self, arguments: &SshArgs, host: &SshHost) -> Result<(), Failure> {
        let mut ssh = Command::new("ssh");
        ssh.args(words(&self.user, self.folder.path(), arguments, host, true));
        kill_point("before ssh is started");
        let ended = ssh.status().map_err(|error| Failure::Process("cannot start ssh", error))?;
        if ended.success() { Ok(()) } else { Err(Failure::SshCommand { failed: 1, all: 1 }) }
    }

    fn command(
        &self,
        session: &mut Session<'_>,
        arguments: &SshArgs,
        hosts: &[SshHost],
        command: &str,
    ) -> Result<(), Failure> {
        let mut rows = Vec::new();
        for host in hosts {
            let mut ssh = Command::new("ssh");
            ssh.args(words(&self.user, self.folder.path(), arguments, host, false)).arg(command).stdin(Stdio::null());
            kill_point("before ssh is started");
            let ran = ssh.output().map_err(|error| Failure::Process("cannot start ssh", error))?;
            let instance = format!("{}/{}", host.job, host.id);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let code = ran.status.code().unwrap_or(-1);
            if !arguments.results {
                for (kind, bytes) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
                    for line in text(bytes).lines() {
                        session.screen.piece(&format!("{instance}: {kind} | {line}\n"));
                    }
                }
            }
            rows.push(vec![instance, text(&ran.stdout), text(&ran.stderr), code.to_string(), String::new()]);
        }
        let failed = rows.iter().filter(|row| row[3] != "0").count();
        rows.sort();
        let all = rows.len();
        if arguments.results {
            let header = vec!["Instance", "Stdout", "Stderr", "Exit Code", "Error"];
            session.screen.table(&Table { content: "results", header, rows, transpose: true, ..Table::default() });
        }
        if failed == 0 { Ok(()) } else { Err(Failure::SshCommand { failed, all }) }
    }
}

/// What the ssh program is started with. The host must show the key that the director told.
fn words(user: &str, folder: &Path, arguments: &SshArgs, host: &SshHost, terminal: bool) -> Vec<String> {
    let mut words: Vec<String> = terminal.then(|| "-tt".to_owned()).into_iter().collect();
    let mut option = |text: String| words.extend(["-o".to_owned(), text]);
    option("ServerAliveInterval=30".into());
    option("ForwardAgent=no".into());
    option("PasswordAuthentication=no".into());
    option("IdentitiesOnly=yes".into());
    option("StrictHostKeyChecking=yes".into());
    option(format!("IdentityFile={}", folder.join("key").display()));
    option(format!("UserKnownHostsFile={}", folder.join("known_hosts").display()));
    if let Some(jump) = jump(arguments, host) {
        option(format!("ProxyCommand={jump}"));
    }
    words.extend(arguments.opts.iter().flat_map(|opts| opts.split_whitespace()).map(str::to_owned));
    words.extend(["-l", user, "--", &host.ip].map(str::to_owned));
    words
}

/// How to come there by another host, if one is named.
fn jump(arguments: &SshArgs, host: &SshHost) -> Option<String> {
    if arguments.gw_disable {
        return None;
    }
    let gateway = arguments.gw_host.clone().or_else(|| host.gateway_host.clone()).filter(|host| !host.is_empty())?;
    let user = arguments.gw_user.clone().or_else(|| host.gateway_user.clone()).unwrap_or_else(|| "vcap".to_owned());
    let target = if host.ip.contains(':') { "[%h]:%p" } else { "%h:%p" };
    let identity = |path: &PathBuf| {
        let path = quoted(&path.display().to_string());
        format!(" -o PasswordAuthentication=no -o IdentitiesOnly=yes -o IdentityFile={path}")
    };
    let identity = arguments.gw_private_key.as_ref().map(identity).unwrap_or_default();
    // It only forwards bytes, and who is at their end is checked: the gateway's own key need not be.
    let unchecked = "-o ClearAllForwardings=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null";
    Some(format!(
        "ssh -tt -W {target} -l {} {} -o ServerAliveInterval=30 -o ForwardAgent=no {unchecked}{identity}",
        quoted(&user),
        quoted(&gateway)
    ))
}

/// For a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, RemoteVerb, Verb};

    fn started(line: &[&str]) -> String {
        let Verb::Remote(RemoteVerb::Ssh(arguments)) = Cli::parse_from(line).verb else { panic!("{line:?}") };
        let host =
            r#"{"status":"success","ip":"10.0.0.2","host_public_key":"ssh-rsa A","id":"1","index":0,"job":"db"}"#;
        words("bosh_1", Path::new("/visit"), &arguments, &serde_json::from_str(host).unwrap(), false).join(" ")
    }

    #[test]
    fn only_the_host_that_the_director_named_is_visited() {
        let words = started(&["windlass", "ssh", "db/1", "--gw-disable"]);
        assert!(
            words.contains(
                "StrictHostKeyChecking=yes -o IdentityFile=/visit/key -o UserKnownHostsFile=/visit/known_hosts"
            ),
            "{words}"
        );
        assert!(words.ends_with("-l bosh_1 -- 10.0.0.2"), "{words}");
        assert!(!words.contains("ProxyCommand"), "{words}");
    }

    #[test]
    fn a_gateway_cannot_add_words_to_the_command() {
        let words = started(&["windlass", "ssh", "--gw-host", "jump; rm x", "--gw-user", "o'n"]);
        assert!(words.contains(r"ProxyCommand=ssh -tt -W %h:%p -l 'o'\''n' 'jump; rm x' "), "{words}");
    }
}
