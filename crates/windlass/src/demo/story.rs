//! What the demo shows, in order.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use serde_json::json;
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

const DATA: &str = "written before the VM was replaced";

/// Tells the story, and checks on the way that it is true.
pub(super) async fn tell(stage: &mut Stage, keep: bool) -> Result<(), DemoError> {
    say(
        "Windlass demo: a director, a cloud and a VM with a disk, on this machine, without privileges and without a registry.",
    );

    chapter(1, "A director. It needs nothing but a place for its state.");
    let place = stage.state_dir.display().to_string();
    command(&["director", "--listen", "127.0.0.1:0", "--state-dir", &place]);
    let pid = stage.start_director().await?;
    say(&format!("(it runs as process {pid}, and wrote how to connect into env.sh)"));
    say(&format!("$ . {place}/env.sh"));
    let director = connect(stage)?;
    verb(stage, &["env"]).await?;

    chapter(2, "A stemcell: the image that VMs start from, with our agent inside.");
    verb(stage, &["stemcell", "build", "--output", "minimal.tgz"]).await?;
    verb(stage, &["upload-stemcell", "minimal.tgz"]).await?;

    chapter(3, "The cloud config: what the cloud offers. Here, loopback addresses and disks of 64 MiB.");
    write(&stage.files.join("cloud-config.yml"), &CLOUD_CONFIG.replace(EXAMPLE_NET, &stage.net.prefix))?;
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
    let data = store_of(&before)?.join("data.txt");
    write(&data, &format!("{DATA}\n"))?;
    say("");
    say(&format!("The hint leads to the disk itself, so we can write to it:\n$ echo '{DATA}' > {}", data.display()));

    chapter(6, "A new VM for the same instance. The disk is detached, kept, and attached to the new VM.");
    verb(stage, &["recreate", "-n", "-d", DEPLOYMENT, "db"]).await?;
    verb(stage, &["disks", "-d", DEPLOYMENT]).await?;
    let after = the_disk(&director).await?;
    expect(after.vm_cid != before.vm_cid, "the VM is still the old one")?;
    expect(after.disk_cid == before.disk_cid, "the disk is another one")?;
    say("");
    say(&format!("The VM was {} and is now {}. The disk is the same:", before.vm_cid, after.vm_cid));
    let data = store_of(&after)?.join("data.txt");
    show(&data)?;

    chapter(7, "No registry. Director, CPI and stemcell all speak version 2, so the CPI gave the VM its settings.");
    let (cpi, stemcell) = versions(stage, &director).await?;
    let request = cpi.min(ApiVersion::HIGHEST);
    let without_registry = SettingsFrom::decide(request, stemcell) == SettingsFrom::UserData;
    expect(without_registry, "a version below 2 needs a registry")?;
    say(&format!("CPI: {cpi}   stemcell: {stemcell}   so requests: {request}, and nobody needs a registry"));

    if keep {
        go_on_with(stage, pid);
        return Ok(());
    }

    chapter(8, "The end of the deployment is not the end of its data: the disk becomes an orphan.");
    verb(stage, &["delete-deployment", "-n", "-d", DEPLOYMENT]).await?;
    verb(stage, &["vms"]).await?;
    verb(stage, &["disks", "--orphaned"]).await?;
    say("");
    say("It still holds the data:");
    show(&data)?;

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

/// In process isolation a disk is a folder, and its hint says where.
fn store_of(disk: &Disk) -> Result<PathBuf, DemoError> {
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
    }
}
