//! `windlass bench agent`: from the start of an agent to its first pong, what a ping costs, and the memory of an agent that has
//! nothing to do; side by side with the original where `WINDLASS_ORIGINAL_AGENT` names it.
//!
//! Both are started in turn, with the same settings on the same platform, and asked by the same client.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use windlass_agent_client::{Agent, AgentClient, AgentEndpoint, ClientTls};
use windlass_contract::{AgentId, Secret};
use windlass_pki::Authority;

use crate::arguments::BenchAgentArgs;
use crate::error::BenchError;
use crate::figures::{DEBUG_BUILD, Figure, Report, Table, percentile};

/// The variable that names the original's executable.
const ORIGINAL: &str = "WINDLASS_ORIGINAL_AGENT";
/// Rounds before the first that counts: files come into the page cache.
const WARM_UP: usize = 1;
/// How long an agent may take for anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often an agent is asked whether it is there.
const PAUSE: Duration = Duration::from_micros(200);
/// How long the memory must stay the same to be that of an agent that has nothing to do.
const IDLE: Duration = Duration::from_millis(500);

pub(crate) async fn measure(arguments: &BenchAgentArgs) -> Result<Report, BenchError> {
    let agent = own_agent(arguments.agent.as_deref()).map_err(failed("find the agent"))?;
    let mut subjects = vec![MeasuredAgent::new("windlass", agent)];
    subjects.extend(std::env::var_os(ORIGINAL).map(|program| MeasuredAgent::new("original", vec![program])));
    let authority = Authority::new().map_err(|error| failed("make certificates")(io::Error::other(error)))?;
    for round in 0..WARM_UP + arguments.runs {
        // Nobody always goes first.
        subjects.rotate_left(1);
        for subject in &mut subjects {
            let figures = subject.measure(&authority, arguments.pings).await.map_err(failed("measure an agent"))?;
            if round >= WARM_UP {
                subject.figures.push(figures);
            }
        }
    }
    subjects.sort_by_key(|subject| subject.name != "windlass");
    Ok(Report { tables: vec![table(&subjects, arguments)], figures: quoted(&subjects) })
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> BenchError {
    move |source| BenchError::Failed { doing, source }
}

/// The agent of stemcells if it stands beside this program, as it does after `bin/build`, and otherwise this program.
pub(super) fn own_agent(wanted: Option<&Path>) -> io::Result<Vec<OsString>> {
    if let Some(agent) = wanted {
        return Ok(vec![agent.into()]);
    }
    let this = std::env::current_exe()?;
    let small = this.with_file_name("windlass-agent");
    Ok(if small.is_file() { vec![small.into()] } else { vec![this.into(), "agent".into()] })
}

/// What was seen of one agent.
#[derive(Debug, Clone, Copy)]
struct AgentFigures {
    first_pong: Duration,
    ping: Duration,
    idle_kib: u64,
}

/// An agent that is started many times.
struct MeasuredAgent {
    name: &'static str,
    command: Vec<OsString>,
    figures: Vec<AgentFigures>,
}

impl MeasuredAgent {
    fn new(name: &'static str, command: Vec<OsString>) -> Self {
        Self { name, command, figures: Vec::new() }
    }

    async fn measure(&self, authority: &Authority, pings: usize) -> io::Result<AgentFigures> {
        let folder = tempfile::tempdir()?;
        let agent = prepare(folder.path(), authority)?;
        let started = Instant::now();
        let running = self.start(folder.path())?;
        until_it_answers(&agent).await?;
        let first_pong = started.elapsed();
        let started = Instant::now();
        for _ in 0..pings {
            agent.ping().await.map_err(io::Error::other)?;
        }
        let ping = started.elapsed() / u32::try_from(pings.max(1)).unwrap_or(u32::MAX);
        Ok(AgentFigures { first_pong, ping, idle_kib: running.idle_memory().await? })
    }

    fn start(&self, folder: &Path) -> io::Result<Running> {
        let (program, before) = self.command.split_first().ok_or_else(|| io::Error::other("no agent"))?;
        let command = Command::new(program)
            .args(before)
            .args(["-P", "dummy", "-M", "dummy", "-C"])
            .arg(folder.join("agent.json"))
            .arg("-b")
            .arg(folder.join("base"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Running(command))
    }
}

async fn until_it_answers(agent: &Agent) -> io::Result<()> {
    let started = Instant::now();
    while let Err(error) = agent.ping().await {
        if started.elapsed() > PATIENCE {
            return Err(io::Error::other(error));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// An agent that has nothing to do.
pub(super) struct IdleAgent {
    running: Running,
    _folder: tempfile::TempDir,
}

impl IdleAgent {
    pub(super) async fn start(command: Vec<OsString>) -> io::Result<Self> {
        let authority = Authority::new().map_err(io::Error::other)?;
        let folder = tempfile::tempdir()?;
        let agent = prepare(folder.path(), &authority)?;
        let running = MeasuredAgent::new("windlass", command).start(folder.path())?;
        until_it_answers(&agent).await?;
        Ok(Self { running, _folder: folder })
    }

    pub(super) fn id(&self) -> u32 {
        self.running.0.id()
    }
}

/// Puts settings into a folder, and says how the agent with them will be reached.
fn prepare(folder: &Path, authority: &Authority) -> io::Result<Agent> {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let port = TcpListener::bind((address, 0))?.local_addr()?.port();
    let (agent_id, password) = (AgentId::random(), Secret::new(uuid::Uuid::new_v4().simple().to_string()));
    let identity = authority.agent(&agent_id, &[address]).map_err(io::Error::other)?;
    let cert = json!({"ca": authority.certificate(), "certificate": identity.certificate,
        "private_key": identity.private_key.reveal()});
    let url = format!("https://bench:{}@{address}:{port}", password.reveal());
    let blobstore = json!({"provider": "local", "options": {"blobstore_path": folder.join("blobs")}});
    let settings = json!({"agent_id": agent_id, "vm": {"name": "bench"}, "networks": {}, "blobstore": blobstore,
        "disks": {"system": "", "persistent": {}}, "env": {"bosh": {"mbus": {"urls": [url], "cert": cert}}}});
    let source = folder.join("settings.json");
    windlass_durable::file::write_json(&source, &settings, windlass_durable::file::PRIVATE)?;
    let sources = json!([{"Type": "File", "SettingsPath": source}]);
    let config = json!({"Platform": {"Linux": {}}, "Infrastructure": {"Settings": {"Sources": sources}}});
    std::fs::write(folder.join("agent.json"), config.to_string())?;
    let tls = ClientTls {
        ca_pem: authority.certificate().to_owned(),
        client_certificate_pem: String::new(),
        client_key_pem: Secret::new(""),
    };
    let endpoint = AgentEndpoint { agent_id, addresses: vec![address], port, user: "bench".to_owned(), password };
    Ok(AgentClient::new(tls).map_err(io::Error::other)?.agent(endpoint))
}

/// A process that does not outlive us.
struct Running(Child);

impl Running {
    /// The resident memory in KiB once it does not change any more.
    async fn idle_memory(&self) -> io::Result<u64> {
        let deadline = Instant::now() + PATIENCE;
        let (mut last, mut since) = (0, Instant::now());
        while since.elapsed() < IDLE {
            if Instant::now() > deadline {
                return Err(io::Error::other("the agent's memory does not come to rest"));
            }
            tokio::time::sleep(IDLE / 10).await;
            let now = self.resident()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(last)
    }

    fn resident(&self) -> io::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let line = line.ok_or_else(|| io::Error::other("the agent has ended"))?;
        line.trim().trim_end_matches(" kB").parse().map_err(io::Error::other)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Neither does anything to a process that was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// First pong, ping, and memory, each the median.
fn medians(subject: &MeasuredAgent) -> [f64; 3] {
    let median = |figure: &dyn Fn(&AgentFigures) -> Duration| {
        percentile(&subject.figures.iter().map(figure).collect::<Vec<_>>(), 50).as_secs_f64()
    };
    let mut memory: Vec<u64> = subject.figures.iter().map(|figures| figures.idle_kib).collect();
    memory.sort();
    let memory = memory.get(memory.len() / 2).copied().unwrap_or_default() as f64 / 1024.0;
    [median(&|figures| figures.first_pong), median(&|figures| figures.ping), memory]
}

fn quoted(subjects: &[MeasuredAgent]) -> Vec<Figure> {
    let Some((own, original)) = subjects.split_first() else { return Vec::new() };
    let ours = medians(own);
    let values =
        [format!("{:.1} ms", ours[0] * 1000.0), format!("{:.3} ms", ours[1] * 1000.0), format!("{:.1} MiB", ours[2])];
    let names = ["an agent, from its start to its first pong", "a ping of an agent", "memory of an idle agent"];
    let figures = names.into_iter().zip(values).map(|(what, value)| Figure::new(what, value));
    match original.first().map(medians) {
        Some(theirs) => figures
            .zip(ours.into_iter().zip(theirs))
            .map(|(figure, (own, their))| figure.against(format!("{:.2} times the original's", own / their)))
            .collect(),
        None => figures.collect(),
    }
}

fn table(subjects: &[MeasuredAgent], arguments: &BenchAgentArgs) -> Table {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for subject in subjects {
        let [first_pong, ping, memory] = medians(subject);
        rows.push(vec![
            subject.name.to_owned(),
            format!("{:.1} ms", first_pong * 1000.0),
            format!("{memory:.1} MiB"),
            format!("{:.3} ms", ping * 1000.0),
            format!("{:.0}", 1.0 / ping),
        ]);
    }
    if let [own, original] = subjects {
        let ([first_pong, ping, memory], [their_first_pong, their_ping, their_memory]) =
            (medians(own), medians(original));
        let ratio = |own: f64, their: f64| format!("{:.2}", own / their);
        rows.push(vec![
            "windlass : original".to_owned(),
            ratio(first_pong, their_first_pong),
            ratio(memory, their_memory),
            ratio(ping, their_ping),
            ratio(their_ping, ping),
        ]);
    }
    let mut notes =
        vec!["The aim: a first pong no later than the original's, a third of its memory, twice its pings per second."];
    if subjects.len() < 2 {
        notes.push("WINDLASS_ORIGINAL_AGENT may name the original's executable, to compare with.");
    }
    notes.extend(DEBUG_BUILD);
    Table {
        title: Some(format!(
            "{} starts each, in turn, and {} pings over one connection; medians",
            arguments.runs, arguments.pings
        )),
        header: vec!["Agent", "First Pong", "Idle Memory", "Ping", "Pings per Second"],
        rows,
        notes,
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_and_ratios_compare_ours_with_theirs() {
        let figures = |first_pong, ping, idle_kib| AgentFigures {
            first_pong: Duration::from_millis(first_pong),
            ping: Duration::from_micros(ping),
            idle_kib,
        };
        let mut own = MeasuredAgent::new("windlass", Vec::new());
        own.figures = vec![figures(900, 9000, 99_000), figures(10, 50, 5120), figures(9, 40, 5000)];
        let mut original = MeasuredAgent::new("original", Vec::new());
        original.figures = vec![figures(20, 200, 20480)];
        let arguments = BenchAgentArgs { runs: 3, pings: 1, agent: None };
        let rows = table(&[own, original], &arguments).rows;
        assert_eq!(rows[0], ["windlass", "10.0 ms", "5.0 MiB", "0.050 ms", "20000"]);
        assert_eq!(rows[2], ["windlass : original", "0.50", "0.25", "0.25", "4.00"]);
    }
}
