//! A visit to instances over ssh: the director lets a user in, work is done there, and the user is forgotten again.
//!
//! A VM's answer is believed only about its key. Where it is, the director knows; how one comes there, the user says.

mod departure;
pub(crate) mod env_agent;
pub(crate) mod programs;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use windlass_contract::agent::host_key;
use windlass_director_client::answers::{SshHost, Task};
use windlass_director_client::{ClientError, DirectorClient, escape};
use windlass_durable::file;

use crate::chosen_instances::chosen;
use crate::cli::{GatewayArgs, KeyArgs, Selection};
use crate::failure::Failure;
use crate::screen::Screen;
use crate::session::{Call, Session, While};
use crate::task_view;
use departure::Departure;

/// How long a user that is being let in is waited for, before it is removed.
const ENTERING: Duration = Duration::from_secs(10);

/// An instance that is visited.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) user: String,
    pub(crate) address: IpAddr,
    pub(crate) group: String,
    pub(crate) id: String,
}

impl Host {
    /// `group/id`, or the address of one that no instance was named for.
    pub(crate) fn name(&self) -> String {
        if self.group.is_empty() { self.address.to_string() } else { format!("{}/{}", self.group, self.id) }
    }
}

/// What the ssh program needs.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    gateway: &'a GatewayArgs,
    /// The private key.
    identity: PathBuf,
    /// Holds the keys; gone with it.
    folder: tempfile::TempDir,
    /// Whether the host must show a key that is known.
    is_strict: bool,
    departure: Departure,
}

/// Does some work on instances, as a user that is there only for it, or as the owner of a key that they know.
pub(crate) async fn during(
    session: &mut Session<'_>,
    gateway: &GatewayArgs,
    key: &KeyArgs,
    selected: &[Option<&Selection>],
    work: impl FnOnce(&mut Screen, &Visit<'_>, &[Host]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::SshKey(error.into()))?;
    let departure = Departure::listen()?;
    if let Some(identity) = key.private_key.clone() {
        let host = known_host(session, &key.username, selected.first().copied().flatten()).await?;
        let visit = Visit { gateway, identity, folder, is_strict: false, departure: departure.clone() };
        return departure.during(|| work(session.screen, &visit, &[host]), visit.forget());
    }
    let user = SshUser::new(session.using_deployment()?, folder.path())?;
    let identity = folder.path().join("key");
    let visit = Visit { gateway, identity, folder, is_strict: true, departure: departure.clone() };
    let mut visited = Visited::default();
    let went = match departure.unless_asked(user.enter(session, selected, &mut visited)).await {
        Some(Ok(answers)) => visit.hosts(&user.user, answers).and_then(|hosts| {
            let (director, cleanups, forget) = (session.director.twin(), user.cleanups(&visited), visit.forget());
            let path = user.path();
            let abandoned = async move {
                let _ = leave(&director, &path, &cleanups).await;
                forget.await;
            };
            departure.during(|| work(session.screen, &visit, &hosts), abandoned)
        }),
        Some(Err(failure)) => Err(failure),
        None => Err(Failure::WayInInterrupted),
    };
    visited.settle(&session.director).await;
    let cleaned = leave(&session.director, &user.path(), &user.cleanups(&visited)).await;
    went.and(cleaned.while_("cleaning up after ssh"))
}

/// Removes users. Nobody waits for it, as with BOSH; the agent forgets users at its next start as well.
async fn leave(director: &DirectorClient, path: &str, cleanups: &[Value]) -> Result<(), ClientError> {
    let mut left = Ok(());
    for cleanup in cleanups {
        left = left.and(director.send_json(path, cleanup).await);
    }
    left
}

/// Where a user was let in.
#[derive(Debug, Default)]
struct Visited {
    targets: Vec<Value>,
    /// The task that lets it in, until it is known to have ended.
    task: Option<u64>,
}

impl Visited {
    /// Waits until nobody is let in any more: who comes later than it is removed would stay.
    async fn settle(&self, director: &DirectorClient) {
        let Some(task) = self.task else { return };
        let ended = async {
            while let Ok(task) = director.get::<Task>(&format!("/tasks/{task}")).await
                && task.is_running()
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let _ = tokio::time::timeout(ENTERING, ended).await;
    }
}

/// A user of one visit.
struct SshUser {
    deployment: String,
    user: String,
    public_key: String,
}

impl SshUser {
    /// With a key that nobody else has, in `folder`.
    fn new(deployment: String, folder: &Path) -> Result<Self, Failure> {
        let key = windlass_pki::generate::generate("ssh", &Value::Null, &mut |_| Ok(None));
        let key = key.map_err(|error| Failure::SshKey(error.into()))?;
        let text = |part: &str| key.get(part).and_then(Value::as_str).unwrap_or_default().to_owned();
        let private = folder.join("key");
        file::write(&private, text("private_key").as_bytes(), file::PRIVATE)
            .map_err(|source| Failure::Write { path: private, source })?;
        let unique = uuid::Uuid::new_v4().simple().to_string();
        Ok(Self { deployment, user: format!("bosh_{}", &unique[..15]), public_key: text("public_key") })
    }

    fn path(&self) -> String {
        format!("/deployments/{}/ssh", escape(&self.deployment))
    }

    fn body(&self, command: &str, target: &Value, params: Value) -> Value {
        json!({"command": command, "deployment_name": self.deployment, "target": target, "params": params})
    }

    /// What undoes a visit.
    fn cleanups(&self, visited: &Visited) -> Vec<Value> {
        let users = json!({"user_regex": format!("^{}", self.user)});
        visited.targets.iter().map(|target| self.body("cleanup", target, users.clone())).collect()
    }

    /// Is let in, and notes where, so that all of it can be undone.
    async fn enter(
        &self,
        session: &mut Session<'_>,
        selected: &[Option<&Selection>],
        visited: &mut Visited,
    ) -> Result<Vec<SshHost>, Failure> {
        let doing = format!("setting up ssh in deployment '{}'", self.deployment);
        let mut answers = Vec::new();
        for selection in selected {
            let target = target(*selection);
            visited.targets.push(target.clone());
            let params = json!({"user": self.user, "public_key": self.public_key});
            let call = Call::new(Method::POST, self.path()).with_json(self.body("setup", &target, params));
            let task = session.begin(call, &doing).await?;
            visited.task = Some(task);
            task_view::follow(session, task, &doing).await?;
            visited.task = None;
            let result = task_view::result(session, task, &doing).await?;
            let told: Vec<SshHost> = serde_json::from_str(&result).map_err(ClientError::from_json).while_(&doing)?;
            answers.extend(told);
        }
        Ok(answers)
    }
}

fn target(selection: Option<&Selection>) -> Value {
    match selection {
        None => json!({"ids": [], "indexes": []}),
        Some(Selection::Group(group)) => json!({"job": group, "ids": [], "indexes": []}),
        Some(Selection::Instance(one)) => json!({"job": one.group, "ids": [one.id], "indexes": [one.id]}),
    }
}

/// Where the owner of a key goes: to an address, or to the only VM that is meant.
async fn known_host(session: &mut Session<'_>, user: &str, selection: Option<&Selection>) -> Result<Host, Failure> {
    let host = |address, group: &str, id: &str| Host {
        user: user.to_owned(),
        address,
        group: group.to_owned(),
        id: id.to_owned(),
    };
    if let Some(Selection::Group(group)) = selection
        && let Ok(address) = group.parse()
    {
        return Ok(host(address, "", ""));
    }
    let deployment = session.using_deployment()?;
    let instances = chosen(session, &deployment, selection).await?;
    let meant: Vec<_> = instances.into_iter().filter_map(|one| Some((one.address?, one))).collect();
    match meant.as_slice() {
        [(address, one)] => Ok(host(*address, &one.group, &one.id)),
        [] => Err(Failure::SshSetup("no instance with a VM and an address matches".to_owned())),
        several => Err(Failure::SshSeveral(several.len())),
    }
}

impl Visit<'_> {
    /// Starts a program that ends with the visit.
    pub(crate) fn start(&self, program: &mut Command) -> Result<Child, Failure> {
        let child = program.spawn().map_err(|error| Failure::Process("cannot start ssh or scp", error))?;
        self.departure.started(&child);
        Ok(child)
    }

    /// Removes the keys, when the program ends without leaving here.
    fn forget(&self) -> impl Future<Output = ()> + Send + 'static {
        let folder = self.folder.path().to_owned();
        async move { drop(file::remove_all(&folder)) }
    }

    /// The hosts that let the user in, and their keys where the ssh program finds them. A VM may have written the answers.
    fn hosts(&self, user: &str, answers: Vec<SshHost>) -> Result<Vec<Host>, Failure> {
        let refused: Vec<&str> =
            answers.iter().filter(|host| host.status != "success").map(|host| host.status.as_str()).collect();
        if answers.is_empty() || !refused.is_empty() {
            let why = if refused.is_empty() { "no instance matches".to_owned() } else { refused.join(", ") };
            return Err(Failure::SshSetup(why));
        }
        let mut hosts = Vec::new();
        let mut lines = String::new();
        for answer in answers {
            let told = answer.ip.unwrap_or_default();
            let Ok(address) = told.parse::<IpAddr>() else {
                return Err(Failure::SshSetup(format!("'{told}' is no address of {}/{}", answer.job, answer.id)));
            };
            if let Some(key) = answer.host_public_key.as_deref().and_then(host_key) {
                lines.push_str(&format!("{address} {key}\n"));
            }
            hosts.push(Host { user: user.to_owned(), address, group: answer.job, id: answer.id });
        }
        let known = self.known_hosts();
        file::write(&known, lines.as_bytes(), file::PRIVATE)
            .map_err(|source| Failure::Write { path: known, source })?;
        Ok(hosts)
    }

    fn known_hosts(&self) -> PathBuf {
        self.folder.path().join("known_hosts")
    }

    /// Options for the programs `ssh` and `scp`. With a user of the director's, the host must show the key that it told.
    pub(crate) fn options(&self, host: &Host) -> Vec<String> {
        let mut words = Vec::new();
        let mut option = |text: String| words.extend(["-o".to_owned(), text]);
        option("ServerAliveInterval=30".into());
        option("ForwardAgent=no".into());
        option("PasswordAuthentication=no".into());
        option("IdentitiesOnly=yes".into());
        option(format!("StrictHostKeyChecking={}", if self.is_strict { "yes" } else { "no" }));
        option(format!("IdentityFile={}", self.identity.display()));
        option(format!("UserKnownHostsFile={}", self.known_hosts().display()));
        if let Some(jump) = jump(self.gateway, host.address) {
            option(format!("ProxyCommand={jump}"));
        }
        words
    }
}

/// How to come there by another host, if the user names one.
fn jump(gateway: &GatewayArgs, address: IpAddr) -> Option<String> {
    let target = if address.is_ipv6() { "[%h]:%p" } else { "%h:%p" };
    if let Some(proxy) = gateway.gw_socks5.as_deref().filter(|proxy| !proxy.is_empty()) {
        if let Some(tunnel) = proxy.strip_prefix("ssh+") {
            return through_tunnel(tunnel, target);
        }
        let place = proxy.split_once("://").map_or(proxy, |(_, place)| place).trim_end_matches('/');
        return Some(format!("nc -X 5 -x {} %h %p", quoted(place)));
    }
    let host = gateway.gw_host.as_deref().filter(|host| !host.is_empty() && !gateway.gw_disable)?;
    let user = gateway.gw_user.as_deref().unwrap_or("vcap");
    let identity = |path: &PathBuf| {
        let path = quoted(&path.display().to_string());
        format!(" -o PasswordAuthentication=no -o IdentitiesOnly=yes -o IdentityFile={path}")
    };
    let identity = gateway.gw_private_key.as_ref().map(identity).unwrap_or_default();
    // It only forwards bytes, and who is at their end is checked: the gateway's own key need not be.
    let unchecked = "-o ClearAllForwardings=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null";
    Some(format!(
        "ssh -tt -W {target} -l {} {} -o ServerAliveInterval=30 -o ForwardAgent=no {unchecked}{identity}",
        quoted(user),
        quoted(host)
    ))
}

/// What BOSH's client does with a SOCKS proxy inside of an ssh connection, ssh does by itself.
fn through_tunnel(url: &str, target: &str) -> Option<String> {
    let url = reqwest::Url::parse(url).ok()?;
    let host = quoted(url.host_str()?.trim_matches(['[', ']']));
    let user = percent_encoding::percent_decode_str(url.username()).decode_utf8_lossy().into_owned();
    let key = url.query_pairs().find(|(name, _)| name == "private-key");
    let key =
        key.map(|(_, path)| format!(" -o IdentitiesOnly=yes -o IdentityFile={}", quoted(&path))).unwrap_or_default();
    let (user, port) = (quoted(&user), url.port().unwrap_or(22));
    let unchecked = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null";
    Some(format!(
        "ssh -W {target} -p {port} -l {user} {host} -o ServerAliveInterval=30 -o ForwardAgent=no {unchecked}{key}"
    ))
}

/// For a shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, RemoteVerb, Verb};

    /// The hosts of an answer with the known hosts and the options for the first, or why there are none.
    #[tokio::main(flavor = "current_thread")]
    async fn visited(line: &[&str], answer: &str) -> Result<(String, String), String> {
        let Verb::Remote(RemoteVerb::Ssh(arguments)) = Cli::parse_from(line).verb else { panic!("{line:?}") };
        let folder = tempfile::tempdir().unwrap();
        let (gateway, departure) = (&arguments.gateway, Departure::listen().unwrap());
        let visit = Visit { gateway, identity: "/key".into(), folder, is_strict: true, departure };
        let hosts = visit.hosts("bosh_1", serde_json::from_str(answer).unwrap()).map_err(|error| error.to_string())?;
        let options = visit.options(&hosts[0]).join(" ").replace(&visit.folder.path().display().to_string(), "/visit");
        Ok((std::fs::read_to_string(visit.known_hosts()).unwrap(), options))
    }

    const HONEST: &str =
        r#"[{"status":"success","ip":"10.0.0.2","host_public_key":"ssh-rsa AAAA\n","id":"1","index":0,"job":"db"}]"#;

    #[test]
    fn only_the_host_that_the_director_named_is_visited() {
        let (known, options) = visited(&["windlass", "ssh", "db/1", "--gw-disable"], HONEST).unwrap();
        assert_eq!(known, "10.0.0.2 ssh-rsa AAAA\n");
        let expected = "StrictHostKeyChecking=yes -o IdentityFile=/key -o UserKnownHostsFile=/visit/known_hosts";
        assert!(options.contains(expected) && !options.contains("ProxyCommand"), "{options}");
    }

    /// A VM could let the operator's machine connect anywhere, with the operator's keys, and vouch for other VMs.
    #[test]
    fn a_vm_writes_nothing_of_the_operators_command() {
        let hostile = r#"[{"status":"success","ip":"127.78.0.2","host_public_key":"ssh-ed25519 AAAA\n* ssh-ed25519 ATTACKER",
            "gateway_host":"127.0.0.66","gateway_user":"root","id":"1","index":0,"job":"db"}]"#;
        let (known, options) = visited(&["windlass", "ssh", "db/1"], hostile).unwrap();
        assert_eq!(known, "", "nobody is vouched for");
        assert!(!options.contains("ProxyCommand") && !options.contains("127.0.0.66"), "{options}");
        for address in ["-oProxyCommand=x", "evil.example", "10.0.0.2 x", ""] {
            let refused = visited(&["windlass", "ssh"], &HONEST.replace("10.0.0.2", address)).unwrap_err();
            assert!(refused.contains("no address of db/1"), "{refused}");
        }
    }

    #[test]
    fn a_gateway_cannot_add_words_to_the_command() {
        let line = ["windlass", "ssh", "--gw-host", "jump; rm x", "--gw-user", "o'n"];
        let (_, options) = visited(&line, HONEST).unwrap();
        assert!(options.contains(r"ProxyCommand=ssh -tt -W %h:%p -l 'o'\''n' 'jump; rm x' "), "{options}");
        let (_, options) = visited(&["windlass", "ssh", "--gw-socks5", "socks5://127.0.0.1:9; x"], HONEST).unwrap();
        assert!(options.contains("ProxyCommand=nc -X 5 -x '127.0.0.1:9; x' %h %p"), "{options}");
        let tunnel = "ssh+socks5://jumpbox@10.0.0.5:2222?private-key=/my%20key";
        let (_, options) = visited(&["windlass", "ssh", "--gw-socks5", tunnel], HONEST).unwrap();
        assert!(options.contains("ProxyCommand=ssh -W %h:%p -p 2222 -l 'jumpbox' '10.0.0.5' "), "{options}");
        assert!(options.ends_with("IdentityFile='/my key'"), "{options}");
    }
}
