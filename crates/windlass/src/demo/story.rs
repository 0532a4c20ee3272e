//! What the demo shows, in order.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use windlass_cloud_local::Isolation;
use windlass_contract::version::SettingsFrom;
use windlass_contract::{ApiVersion, DiskHint};

use super::{DemoError, Stage, say};
use crate::director_answers::{Disk, Stemcell};
use crate::director_client::DirectorClient;

/// The deployment's name, as in the example.
pub(super) const DEPLOYMENT: &str = "example";

const CLOUD_CONFIG: &str = include_str!("../../../../examples/cloud-config.yml");
const MANIFEST: &str = include_str!("../../../../examples/deployment.yml");
/// The addresses of the example, for which the demo puts its own.
const EXAMPLE_NET: &str = "127.84.0.";

const DATA: &str = "written before the VM died";

/// The size of the disk in the example, and the one that the demo makes it grow to, in MiB.
const EXAMPLE_SIZE: &str = "disk_size: 64";
const LARGER_SIZE: &str = "disk_size: 128";

/// How long the resurrector may take. It looks every second, and believes a silence of three.
const RESURRECTION: Duration = Duration::from_secs(60);
pub(super) const QUICK_RESURRECTOR: &str = "resurrector: {interval: 1s, agent_timeout: 3s}\n";

/// Tells the story, and checks on the way that it is true.
pub(super) async fn tell(stage: &mut Stage, keep: bool) -> Result<(), DemoError> {
    say("Windlass demo: a director, a cloud and a VM with a disk, on this machine, without a registry.");
    say(match stage.isolation {
        Isolation::Container => {
            "VMs are containers here, in network and mount namespaces that end with the demo; nothing of the machine is touched."
        }
        Isolation::Process => "VMs are processes here, on loopback addresses, without privileges.",
    });

    chapter(1, "A director. It needs nothing but a place for its state.");
    let place = stage.state_dir.display().to_string();
    let isolation = stage.isolation.to_string();
    command(&["director", "--listen", "127.0.0.1:0", "--isolation", &isolation, "--state-dir", &place]);
    let pid = stage.start_director().await?;
    say(&format!("(it runs as process {pid}, and wrote how to connect into env.sh)"));
    say(&format!("$ . {place}/env.sh"));
    let director = connect(stage)?;
    verb(stage, &["env"]).await?;

    chapter(2, "A stemcell: the image that VMs start from, with our agent inside.");
    verb(stage, &["stemcell", "build", "--output", "minimal.tgz"]).await?;
    verb(stage, &["upload-stemcell", "minimal.tgz"]).await?;

    chapter(3, "The cloud config: what the cloud offers. Here, addresses and disks of 64 MiB.");
    let cloud_config = CLOUD_CONFIG.replace(EXAMPLE_NET, stage.net_prefix());
    write(&stage.files.join("cloud-config.yml"), &cloud_config)?;
    verb(stage, &["update-cloud-config", "-n", "cloud-config.yml"]).await?;

    chapter(4, "A plan: what a deploy would do, and why. Then the deploy, which does exactly that.");
    write(&stage.files.join("deployment.yml"), MANIFEST)?;
    verb(stage, &["plan", "deployment.yml"]).await?;
    verb(stage, &["deploy", "-n", "deployment.yml"]).await?;

    chapter(5, "What there is now: a VM, an instance, and a disk with the hint by which the agent found it.");
    for what in ["vms", "instances", "disks"] {
        verb(stage, &[what, "-d", DEPLOYMENT]).await?;
    }
    let before = the_disk(&director).await?;
    let data = store_of(stage, &before)?.join("data.txt");
    write(&data, &format!("{DATA}\n"))?;
    say("");
    say(&format!("This machine sees the disk, so we can write to it:\n$ echo '{DATA}' > {}", data.display()));

    chapter(6, "The VM dies. Nobody does anything: the director notices, and makes a new one with the same disk.");
    verb(stage, &["local", "kill", &before.vm_cid, "--state-dir", &place]).await?;
    let after = resurrected(&director, &before).await?;
    verb(stage, &["tasks", "--recent", "--all", "-d", DEPLOYMENT]).await?;
    expect(after.disk_cid == before.disk_cid, "the disk is another one")?;
    say("");
    say(&format!("The VM was {} and is now {}. The disk is the same:", before.vm_cid, after.vm_cid));
    show(&store_of(stage, &after)?.join("data.txt"))?;

    chapter(7, "The disk grows. The plan says how, and the data comes along.");
    write(&stage.files.join("cloud-config.yml"), &cloud_config.replace(EXAMPLE_SIZE, LARGER_SIZE))?;
    verb(stage, &["update-cloud-config", "-n", "cloud-config.yml"]).await?;
    verb(stage, &["plan", "deployment.yml"]).await?;
    verb(stage, &["deploy", "-n", "deployment.yml"]).await?;
    verb(stage, &["disks", "-d", DEPLOYMENT]).await?;
    let grown = the_disk(&director).await?;
    say("");
    show(&store_of(stage, &grown)?.join("data.txt"))?;

    chapter(8, "No registry. Director, CPI and stemcell all speak version 2, so the CPI gave the VM its settings.");
    let (cpi, stemcell) = versions(stage, &director).await?;
    let request = cpi.min(ApiVersion::HIGHEST);
    let without_registry = SettingsFrom::decide(request, stemcell) == SettingsFrom::UserData;
    expect(without_registry, "a version below 2 needs a registry")?;
    say(&format!("CPI: {cpi}   stemcell: {stemcell}   so requests: {request}, and nobody needs a registry"));

    if keep {
        go_on_with(stage, pid);
        return Ok(());
    }

    chapter(9, "The end of the deployment is not the end of its data: the disk becomes an orphan.");
    verb(stage, &["delete-deployment", "-n", "-d", DEPLOYMENT]).await?;
    verb(stage, &["vms"]).await?;
    verb(stage, &["disks", "--orphaned"]).await?;
    if stage.isolation == Isolation::Process {
        say("");
        say("It still holds the data:");
        show(&store_of(stage, &grown)?.join("data.txt"))?;
    }

    say("\nThat was all. The demo now stops its director and removes everything. To go on:\n");
    say("  windlass demo --keep     leaves the director and the deployment running, to play with");
    say("  windlass director        runs a director that stays; the files of this demo are in examples/");
    say("  windlass --help          shows all verbs; those of 'bosh' work as you know them");
    Ok(())
}

fn chapter(number: u32, text: &str) {
    say(&bold(&format!("\n{number}. {text}")));
}

fn bold(text: &str) -> String {
    let plain = !io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some();
    if plain { text.to_owned() } else { format!("\u{1b}[1m{text}\u{1b}[0m") }
}

fn command(arguments: &[&str]) -> String {
    let line = format!("windlass {}", arguments.join(" "));
    say(&format!("\n{}", bold(&format!("$ {line}"))));
    line
}

/// Shows a command and runs it.
async fn verb(stage: &Stage, arguments: &[&str]) -> Result<(), DemoError> {
    let line = command(arguments);
    // The demo is for people, wherever it prints.
    let status = stage.verb(arguments).arg("--tty").status().await;
    match status.map_err(|source| DemoError::Spawn { what: "a verb", source })?.success() {
        true => Ok(()),
        false => Err(DemoError::Verb { command: line }),
    }
}

fn connect(stage: &Stage) -> Result<DirectorClient, DemoError> {
    match &stage.environment {
        Some(environment) => DirectorClient::new(environment).map_err(DemoError::Director),
        None => Err(DemoError::Broken("no director runs".into())),
    }
}

async fn the_disk(director: &DirectorClient) -> Result<Disk, DemoError> {
    let disks: Vec<Disk> = director.get("/windlass/disks").await.map_err(DemoError::Director)?;
    let ours = disks.into_iter().find(|disk| disk.deployment == DEPLOYMENT && disk.mounted);
    ours.ok_or_else(|| DemoError::Broken("the instance has no mounted disk".into()))
}

/// Waits for the same disk on another VM.
async fn resurrected(director: &DirectorClient, before: &Disk) -> Result<Disk, DemoError> {
    say("\n(waiting for the resurrector)");
    let deadline = tokio::time::Instant::now() + RESURRECTION;
    loop {
        match the_disk(director).await {
            Ok(disk) if disk.vm_cid != before.vm_cid => return Ok(disk),
            _ if tokio::time::Instant::now() > deadline => {
                return Err(DemoError::Broken("the VM that died was not replaced".into()));
            }
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Where this machine sees a disk: a folder that its hint names, or the image that is mounted for its VM.
fn store_of(stage: &Stage, disk: &Disk) -> Result<PathBuf, DemoError> {
    if stage.isolation == Isolation::Container {
        return Ok(stage.state_dir.join("cloud/vms").join(&disk.vm_cid).join("disks").join(&disk.disk_cid));
    }
    let hint = DiskHint::try_from(disk.hint.clone()).map_err(|error| DemoError::Broken(error.to_string()))?;
    hint.get("path").map(PathBuf::from).ok_or_else(|| DemoError::Broken("the disk's hint has no path".into()))
}

/// The versions of the CPI and of the stemcell.
async fn versions(stage: &Stage, director: &DirectorClient) -> Result<(ApiVersion, ApiVersion), DemoError> {
    let request = json!({"method": "info", "arguments": [], "context": {}, "api_version": 2});
    say(&format!("\n{}", bold(&format!("$ echo '{request}' | windlass cpi local --config cpi/local.json"))));
    let answer = stage.call_cpi(&request).await.map_err(|source| DemoError::Spawn { what: "the CPI", source })?;
    say(&answer["result"].to_string());
    let stemcells: Vec<Stemcell> = director.get("/stemcells").await.map_err(DemoError::Director)?;
    let stemcell = stemcells.first().and_then(|stemcell| stemcell.api_version).map_or(ApiVersion::V1, ApiVersion);
    let cpi = answer["result"]["api_version"].as_u64().and_then(|version| version.try_into().ok());
    Ok((cpi.map_or(ApiVersion::V1, ApiVersion), stemcell))
}

fn write(path: &Path, text: &str) -> Result<(), DemoError> {
    std::fs::write(path, text).map_err(|source| DemoError::Data { path: path.to_owned(), source })
}

fn show(path: &Path) -> Result<(), DemoError> {
    let text = std::fs::read_to_string(path).map_err(|source| DemoError::Data { path: path.to_owned(), source })?;
    say(&format!("{}\n{}", bold(&format!("$ cat {}", path.display())), text.trim_end()));
    expect(text.trim_end() == DATA, "the data on the disk is not what was written")
}

fn expect(holds: bool, otherwise: &str) -> Result<(), DemoError> {
    if holds { Ok(()) } else { Err(DemoError::Broken(otherwise.to_owned())) }
}

fn go_on_with(stage: &Stage, pid: u32) {
    let place = stage.state_dir.display();
    say(&format!("\nThe director and the deployment '{DEPLOYMENT}' keep running. To use them:\n"));
    say(&format!("  . {place}/env.sh"));
    say(&format!("  windlass vms    (or bosh vms; the demo's files are in {place}/demo)\n"));
    say("To end them and remove everything:\n");
    say(&format!(
        "  windlass delete-deployment -n -d {DEPLOYMENT} && kill {pid} && tail --pid {pid} -f /dev/null && rm -r {place}"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_are_what_the_demo_takes_them_for() {
        let manifest = windlass_manifest::Document::parse(MANIFEST).unwrap();
        assert_eq!(manifest.root().field("name").unwrap().string().unwrap(), DEPLOYMENT);
        windlass_manifest::Document::parse(CLOUD_CONFIG).unwrap();
        assert!(CLOUD_CONFIG.contains(EXAMPLE_NET), "the demo could not put its own addresses there");
        assert!(CLOUD_CONFIG.contains(EXAMPLE_SIZE), "the demo could not make the disk grow");
    }
}
