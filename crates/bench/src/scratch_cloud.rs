//! An embedded cloud in a folder of its own, for measurements: its CPI is called as directors call it, one process per call.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use windlass_agent_client::{Agent, AgentAccess, AgentClient, ClientTls};
use windlass_cloud_local::{Isolation, LocalCloud};
use windlass_contract::AgentId;
use windlass_installation::own_programs;
use windlass_pki::Authority;
use windlass_stemcell::{Base, BuildOptions, find_busybox};

/// How long one call, or the first answer of an agent, may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often an agent is asked whether it is there.
const PAUSE: Duration = Duration::from_millis(1);

/// The cloud. Callers delete their VMs before it ends: see [`ScratchCloud::clear`].
pub(crate) struct ScratchCloud {
    folder: tempfile::TempDir,
    isolation: Isolation,
    command: Vec<OsString>,
    authority: Authority,
    agents: AgentClient,
    /// The cid of a stemcell with our agent.
    pub(crate) stemcell: String,
}

/// A VM and the way to its agent.
pub(crate) struct ScratchVm {
    pub(crate) cid: String,
    pub(crate) agent: Agent,
}

impl ScratchCloud {
    /// A cloud with nothing but our minimal stemcell.
    pub(crate) async fn new(isolation: Isolation) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("cpi.json");
        let local = json!({"state_dir": folder.path().join("cloud"), "isolation": isolation});
        fs::write(&config, json!({"cloud": {"plugin": "local", "properties": {"local": local}}}).to_string())?;
        let (executable, arguments) = own_programs::cpi_command()?;
        let before = std::iter::once(executable.into()).chain(arguments);
        let command = before.chain(["local".into(), "--config".into(), config.into()]).collect();
        let authority = Authority::new().map_err(io::Error::other)?;
        let client = authority.new_client().map_err(io::Error::other)?;
        let agents = AgentClient::new(ClientTls::new(&authority, &client)).map_err(io::Error::other)?;
        let mut cloud = Self { folder, isolation, command, authority, agents, stemcell: String::new() };
        build_image(cloud.folder.path())?;
        let stemcell = cloud.ok("create_stemcell", json!([cloud.image(), {"name": "windlass-minimal"}])).await?;
        cloud.stemcell = text(&stemcell)?;
        Ok(cloud)
    }

    /// The image of our minimal stemcell.
    pub(crate) fn image(&self) -> PathBuf {
        self.folder.path().join("stemcell/image")
    }

    /// The folder that everything is in.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The state of the cloud.
    fn state(&self) -> PathBuf {
        self.folder.path().join("cloud")
    }

    /// The cloud as its operator sees it.
    pub(crate) fn seen(&self) -> io::Result<LocalCloud> {
        LocalCloud::configured(&self.folder.path().join("cpi.json")).map_err(io::Error::other)
    }

    /// The root file system that containers of the stemcell share.
    pub(crate) fn root(&self) -> PathBuf {
        self.state().join("stemcells").join(&self.stemcell).join("root")
    }

    /// The result of a call.
    pub(crate) async fn ok(&self, method: &str, arguments: Value) -> io::Result<Value> {
        let answer = self.send(&request(method, arguments), None).await?;
        answer
            .ok_or_else(|| io::Error::other(format!("{method} was killed")))
            .and_then(|answer| result(method, &answer))
    }

    /// The whole answer; none if the CPI was killed at the point `kill_at` of its way.
    pub(crate) async fn send(&self, request: &Value, kill_at: Option<u64>) -> io::Result<Option<Value>> {
        call_cpi(&self.command, request, kill_at).await
    }

    /// The arguments of `create_vm` for a VM with a dynamic address, and the access to its agent.
    pub(crate) fn vm_arguments(&self) -> io::Result<(Value, AgentId, AgentAccess)> {
        let agent_id = AgentId::random();
        let access = AgentAccess::new(&self.authority, &agent_id, &[]).map_err(io::Error::other)?;
        let networks = json!({"default": {"type": "dynamic", "default": ["dns", "gateway"]}});
        let arguments = json!([agent_id, self.stemcell, {}, networks, [], {"bosh": access.env}]);
        Ok((arguments, agent_id, access))
    }

    /// A VM, whose agent may not answer yet.
    pub(crate) async fn vm(&self) -> io::Result<ScratchVm> {
        let (arguments, agent_id, access) = self.vm_arguments()?;
        let created = self.ok("create_vm", arguments).await?;
        let address: IpAddr = text(&created[1]["default"]["ip"])?.parse().map_err(io::Error::other)?;
        let agent = self.agents.agent(access.endpoint(agent_id, vec![address]));
        Ok(ScratchVm { cid: text(&created[0])?, agent })
    }

    /// Deletes everything, also after a failure.
    pub(crate) async fn clear(&self) -> io::Result<()> {
        let listed = self.seen()?.status().map_err(io::Error::other)?.resources;
        for (kind, method) in [
            ("vm", "delete_vm"),
            ("disk", "delete_disk"),
            ("snapshot", "delete_snapshot"),
            ("network", "delete_network"),
            ("stemcell", "delete_stemcell"),
        ] {
            for resource in listed.iter().filter(|resource| resource.kind == kind) {
                self.ok(method, json!([resource.cid])).await?;
            }
        }
        Ok(())
    }

    /// Where this machine sees the data of a disk that is attached to a VM.
    pub(crate) fn data_folder(&self, vm: &str, disk: &str) -> PathBuf {
        match self.isolation {
            Isolation::Container => self.state().join("vms").join(vm).join("disks").join(disk),
            Isolation::Process => self.state().join("disks").join(disk).join("data"),
        }
    }

    /// How its VMs are kept apart.
    pub(crate) fn isolation(&self) -> Isolation {
        self.isolation
    }
}

/// Makes our minimal stemcell; its image is `stemcell/image` in the folder.
pub(crate) fn build_image(folder: &Path) -> io::Result<()> {
    let tarball = folder.join("stemcell.tgz");
    let mut options = BuildOptions::new(own_programs::agent()?, &tarball);
    options.base = Base::Minimal { busybox: find_busybox() };
    windlass_stemcell::build(&options, |_, _| {}).map_err(io::Error::other)?;
    let unpacked = folder.join("stemcell");
    fs::create_dir(&unpacked)?;
    windlass_stemcell::unpack(&tarball, &unpacked).map_err(io::Error::other)?;
    fs::remove_file(&tarball)
}

/// One call in a process of its own; none if it was killed at the point `kill_at` of its way.
pub(crate) async fn call_cpi(command: &[OsString], request: &Value, kill_at: Option<u64>) -> io::Result<Option<Value>> {
    let (program, arguments) = command.split_first().ok_or_else(|| io::Error::other("no CPI"))?;
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    if let Some(point) = kill_at {
        command.env(windlass_durable::kill_point::KILL_AT, point.to_string());
    }
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A CPI that is killed reads nothing: only its answer counts.
        let _ = stdin.write_all(request.to_string().as_bytes()).await;
    }
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output())
        .await
        .map_err(|_| io::Error::other(format!("the CPI does not answer {request}")))??;
    if kill_at.is_some() && output.status.signal() == Some(9) {
        return Ok(None);
    }
    serde_json::from_slice(&output.stdout).map(Some).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        io::Error::other(format!("the CPI's answer to {request} is no JSON ({error}); it said: {said}"))
    })
}

/// As directors write it, with an id of its own.
pub(crate) fn request(method: &str, arguments: Value) -> Value {
    let context = json!({"director_uuid": "bench", "request_id": uuid::Uuid::new_v4().to_string(),
        "vm": {"stemcell": {"api_version": 2}}});
    json!({"method": method, "arguments": arguments, "api_version": 2, "context": context})
}

/// The result in an answer.
pub(crate) fn result(method: &str, answer: &Value) -> io::Result<Value> {
    match &answer["error"] {
        Value::Null => Ok(answer["result"].clone()),
        error => Err(io::Error::other(format!("{method}: {}", error["message"].as_str().unwrap_or_default()))),
    }
}

/// A text that must be one.
pub(crate) fn text(value: &Value) -> io::Result<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| io::Error::other(format!("the CPI answered {value}")))
}

/// Waits until an agent answers.
pub(crate) async fn first_pong(agent: &Agent) -> io::Result<()> {
    let begun = Instant::now();
    while let Err(error) = agent.ping().await {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other(error));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
