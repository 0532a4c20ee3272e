//! A release of one job and one package, deployed in each row: a process that writes to the persistent disk, wherever its agent
//! found that, and an errand that tells what is there.

use std::path::Path;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use windlass_agent_client::{Agent, CallError};
use windlass_contract::Object;

/// How long the process may take to run.
const START: Duration = Duration::from_secs(60);

/// How often it is looked at.
const PAUSE: Duration = Duration::from_millis(200);

const MONIT: &str = "check process keeper with pidfile /var/vcap/sys/run/keeper/keeper.pid
  start program \"/var/vcap/jobs/keeper/bin/ctl start\"
  stop program \"/var/vcap/jobs/keeper/bin/ctl stop\"
  group vcap
";

const CTL: &str = "#!/bin/sh
pidfile=/var/vcap/sys/run/keeper/keeper.pid
case $1 in
start) /var/vcap/packages/keeper/bin/keeper < /dev/null > /var/vcap/sys/log/keeper/keeper.log 2>&1 & echo $! > $pidfile ;;
stop) kill $(cat $pidfile); rm -f $pidfile ;;
esac
";

/// Each time that it is started, it adds a line on the disk.
const KEEPER: &str = "#!/bin/sh
mkdir -p /var/vcap/store/keeper
echo \"written by $(cat /var/vcap/instance/id)\" >> /var/vcap/store/keeper/lines
while :; do sleep 1; done
";

const RUN: &str = "#!/bin/sh
cat /var/vcap/store/keeper/lines
";

/// why a release does not run
#[derive(Debug, thiserror::Error)]
pub(super) enum ReleaseError {
    /// its archives cannot be made
    #[error("the archives of the release cannot be made")]
    Archive(#[source] std::io::Error),
    /// VMs of this cloud and stemcell have no jobs
    #[error("this VM cannot run jobs")]
    NoJobs,
    /// the agent does not do it
    #[error("{0} of a job")]
    Agent(&'static str, #[source] CallError),
    /// there is no process
    #[error("the process of a job does not run, its state is '{0}': its scripts need /bin/sh in the stemcell")]
    NotRunning(String),
    /// the errand fails
    #[error("what the job wrote to the disk cannot be read: {0}")]
    Unreadable(String),
}

/// A blob, and what a spec says about it.
fn blob(folder: &Path, id: &str, files: &[(&str, &str)]) -> std::io::Result<Value> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o755);
        archive.append_data(&mut header, name, text.as_bytes())?;
    }
    let bytes = archive.into_inner()?.finish()?;
    let digest: String = Sha1::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(folder.join(id), bytes)?;
    Ok(json!({"blobstore_id": id, "sha1": digest}))
}

/// Deploys it as a director does, on an instance with this id, and says which lines are on the disk when its process runs.
pub(super) async fn deploy(agent: &Agent, instance: &str) -> Result<Vec<String>, ReleaseError> {
    let folder = tempfile::tempdir().map_err(ReleaseError::Archive)?;
    let spec = spec(folder.path(), instance).map_err(ReleaseError::Archive)?;
    for id in ["certify-package", "certify-jobs"] {
        let handed_over = agent.put_blob(id, &folder.path().join(id)).await;
        handed_over.map_err(|error| ReleaseError::Agent("the archive", error))?;
    }
    agent.prepare(&spec).await.map_err(|error| match &error {
        CallError::Exception { message, .. } if message.contains("cannot run jobs") => ReleaseError::NoJobs,
        _ => ReleaseError::Agent("prepare", error),
    })?;
    agent.apply(&spec).await.map_err(|error| ReleaseError::Agent("apply", error))?;
    // Agents of the time before scripts do not know the message, and the job has none.
    let _ =
        agent.run_script("pre-start", &Object::new()).await.map_err(|error| ReleaseError::Agent("pre-start", error))?;
    agent.start().await.map_err(|error| ReleaseError::Agent("start", error))?;
    let deadline = Instant::now() + START;
    loop {
        let state = agent.get_state(false).await.map_err(|error| ReleaseError::Agent("get_state", error))?;
        let lines = if state.job_state == "running" { lines(agent).await? } else { Vec::new() };
        // The process runs before it has written.
        if lines.iter().any(|line| line == &format!("written by {instance}")) {
            return Ok(lines);
        }
        if Instant::now() >= deadline {
            return Err(ReleaseError::NotRunning(state.job_state));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Stops it, so that the disk can go.
pub(super) async fn stop(agent: &Agent) -> Result<(), ReleaseError> {
    agent.stop().await.map_err(|error| ReleaseError::Agent("stop", error))
}

async fn lines(agent: &Agent) -> Result<Vec<String>, ReleaseError> {
    let ran = agent.call("run_errand", vec![json!("keeper")]).await;
    let ran = ran.map_err(|error| ReleaseError::Agent("run_errand", error))?;
    match (ran["exit_code"].as_i64(), ran["stdout"].as_str()) {
        (Some(0), Some(text)) => Ok(text.lines().map(str::to_owned).collect()),
        // Nothing was written yet.
        (Some(_), _) if ran["stderr"].as_str().is_some_and(|text| text.contains("No such file")) => Ok(Vec::new()),
        _ => Err(ReleaseError::Unreadable(ran.to_string())),
    }
}

fn spec(folder: &Path, instance: &str) -> std::io::Result<Object> {
    let mut package = blob(folder, "certify-package", &[("./bin/keeper", KEEPER)])?;
    package["name"] = json!("keeper");
    package["version"] = json!("1");
    let files = [("./keeper/monit", MONIT), ("./keeper/bin/ctl", CTL), ("./keeper/bin/run", RUN)];
    let jobs = blob(folder, "certify-jobs", &files)?;
    let spec = json!({
        "deployment": "windlass-certify", "name": "keeper", "index": 0, "id": instance, "networks": {},
        "configuration_hash": "certify", "packages": {"keeper": package}, "rendered_templates_archive": jobs,
        "job": {"name": "keeper", "template": "keeper", "version": "1", "templates": [{"name": "keeper", "version": "1"}]},
    });
    Ok(spec.as_object().cloned().unwrap_or_default())
}
