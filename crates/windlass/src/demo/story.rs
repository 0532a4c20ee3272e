//! What the demo shows, in order.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use windlass_cloud_local::Isolation;
use windlass_contract::version::SettingsFrom;
use windlass_contract::{ApiVersion, DiskHint};

use super::{DemoError, Stage, place, release, say};
use crate::director_answers::{Disk, Stemcell, Task};
use crate::director_client::DirectorClient;
use crate::formats::short_ids;

/// The deployment's name, as in the example.
pub(super) const DEPLOYMENT: &str = "example";

const CLOUD_CONFIG: &str = include_str!("../../../../examples/cloud-config.yml");
const MANIFEST: &str = include_str!("../../../../examples/deployment.yml");
const JOBS_DEPLOYMENT: &str = "hello";
const JOBS_MANIFEST: &str = include_str!("../../../../examples/hello.yml");
/// The operating system in the example, and the one whose VMs run jobs where they are processes.
const EXAMPLE_OS: &str = "os: windlass-minimal";
const HOST_OS: &str = "os: windlass-host";
/// The addresses of the example, for which the demo puts its own.
const EXAMPLE_NET: &str = "127.84.0.";

const DATA: &str = "written before the VM died";

/// The size of the disk in the example, and the one that the demo makes it grow to, in MiB.
const EXAMPLE_SIZE: &str = "disk_size: 64";
const LARGER_SIZE: &str = "disk_size: 128";

/// How long the resurrector may take. It looks every second, and believes a silence of three.
const RESURRECTION: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
pub(super) const QUICK_RESURRECTOR: &str = "resurrector: {interval: 1s, agent_timeout: 3s}\n";

/// Tells the story, and checks on the way that it is true.
pub(super) async fn tell(stage: &mut Stage, keep: bool) -> Result<(), DemoError> {
    say("Windlass demo: a director, a cloud and a VM with a disk, on this machine.");
    say(match stage.isolation {
        Isolation::Container => {
            "VMs are containers here, in namespaces that end with the demo: nothing of the\n\
             machine is touched. Ids are shortened, and what repeats is left out."
        }
        Isolation::Process => {
            "VMs are processes here, on loopback addresses, without privileges. Ids are\n\
             shortened, and what repeats is left out."
        }
    });

    chapter(1, "A director. It needs nothing but a place for its state.");
    say(&format!("\n{}", painted(Ink::Command, &format!("$ DIR={}", stage.place.state_dir.display()))));
    let isolation = stage.isolation.to_string();
    command(&["--state-dir", "$DIR", "director", "--isolation", &isolation, "--listen", "127.0.0.1:0"]);
    let pid = stage.place.start_director(stage.isolation).await?;
    say(&format!("(it runs in the background, as process {pid})"));
    say(&format!("\n{}", painted(Ink::Command, "$ . $DIR/env.sh")));
    let director = connect(stage)?;

    chapter(2, "A stemcell: the image that VMs start from, with our agent inside.");
    verb(stage, &["stemcell", "build", "--output", "minimal.tgz"]).await?;
    verb(stage, &["upload-stemcell", "minimal.tgz"]).await?;

    chapter(3, "The cloud config: what the cloud offers. Here, addresses and disks.");
    let cloud_config = CLOUD_CONFIG.replace(EXAMPLE_NET, stage.net_prefix());
    write(&stage.place.files.join("cloud-config.yml"), &cloud_config)?;
    verb(stage, &["update-cloud-config", "-n", "cloud-config.yml"]).await?;

    chapter(4, "A plan: what a deploy will do, and why. The deploy does exactly that.");
    write(&stage.place.files.join("deployment.yml"), MANIFEST)?;
    verb(stage, &["plan", "deployment.yml"]).await?;
    verb(stage, &["deploy", "-n", "deployment.yml"]).await?;

    chapter(5, "A VM and a disk, with the hint by which the agent found the disk.");
    verb(stage, &["vms", "-d", DEPLOYMENT, "--column", "instance", "--column", "ips", "--column", "vm_cid"]).await?;
    verb(stage, &["disks", "-d", DEPLOYMENT, "--column", "disk_cid", "--column", "size", "--column", "mounted"])
        .await?;
    verb(stage, &["disks", "-d", DEPLOYMENT, "--column", "hint"]).await?;
    let before = the_disk(&director).await?;
    let data = store_of(stage, &before)?.join("data.txt");
    write(&data, &format!("{DATA}\n"))?;
    say("\nThis machine sees the disk, so we can write to it:");
    say(&painted(Ink::Command, &format!("$ echo '{DATA}' > {}", on_disk(&data))));

    chapter(6, "The VM dies. Nobody does anything: the director notices, and makes another\n   with the same disk.");
    let place = stage.place.state_dir.display().to_string();
    let line = command(&["--state-dir", "$DIR", "local", "kill", &short_ids(&before.vm_cid)]);
    carry_out(stage, &["--state-dir", &place, "local", "kill", &before.vm_cid], line).await?;
    say("(waiting for the director to notice)");
    let repair = resurrectors_task(&director).await?.to_string();
    verb(stage, &["task", &repair]).await?;
    let after = resurrected(&director, &before).await?;
    expect(after.disk_cid == before.disk_cid, "the disk is another one")?;
    let (old, new) = (short_ids(&before.vm_cid), short_ids(&after.vm_cid));
    say(&format!("\nThe VM was {old} and is {new} now. The disk is the same:"));
    show(&store_of(stage, &after)?.join("data.txt"))?;

    chapter(7, "The disk grows. The plan says how, and the data comes along.");
    write(&stage.place.files.join("cloud-config.yml"), &cloud_config.replace(EXAMPLE_SIZE, LARGER_SIZE))?;
    verb(stage, &["update-cloud-config", "-n", "cloud-config.yml"]).await?;
    verb(stage, &["plan", "deployment.yml"]).await?;
    verb(stage, &["deploy", "-n", "deployment.yml"]).await?;
    verb(stage, &["disks", "-d", DEPLOYMENT, "--column", "disk_cid", "--column", "size"]).await?;
    let grown = the_disk(&director).await?;
    say("");
    show(&store_of(stage, &grown)?.join("data.txt"))?;

    chapter(8, "No registry. Director, CPI and stemcell all speak version 2, so the CPI gave\n   the VM its settings.");
    let (cpi, stemcell) = versions(stage, &director).await?;
    let request = cpi.min(ApiVersion::HIGHEST);
    let without_registry = SettingsFrom::decide(request, stemcell) == SettingsFrom::UserData;
    expect(without_registry, "a version below 2 needs a registry")?;
    say(&format!("CPI: {cpi}   stemcell: {stemcell}   so requests: {request}, and nobody needs a registry"));

    chapter(
        9,
        "Software. A release is compiled, its templates are rendered without Ruby,\n   and its process is supervised.",
    );
    let has_jobs = software(stage).await?;

    if keep {
        go_on_with(stage);
        return Ok(());
    }

    chapter(10, "The deployments end, and their data does not: the disk becomes an orphan.");
    if has_jobs {
        verb(stage, &["delete-deployment", "-n", "-d", JOBS_DEPLOYMENT]).await?;
    }
    verb(stage, &["delete-deployment", "-n", "-d", DEPLOYMENT]).await?;
    verb(stage, &["disks", "--orphaned", "--column", "disk_cid", "--column", "size", "--column", "orphaned_at"])
        .await?;
    if stage.isolation == Isolation::Process {
        say("\nIt still holds the data:");
        show(&store_of(stage, &grown)?.join("data.txt"))?;
    }

    say("\nThat was all. The demo now stops its director and removes everything.\nTo go on:\n");
    say("  windlass demo --keep     leaves it all running, to play with");
    say("  windlass director        runs a director that stays; examples/ has the files");
    say("  windlass --help          shows all verbs; those of 'bosh' work as usual");
    Ok(())
}

/// Deploys a job. Says so where the machine does not let jobs run, and returns false.
async fn software(stage: &Stage) -> Result<bool, DemoError> {
    let info = stage.place.call_cpi(&json!({"method": "info", "arguments": []})).await;
    let info = info.map_err(|source| DemoError::Spawn { what: "the CPI", source })?;
    if info["result"]["windlass"]["jobs"] == false {
        say("\nJobs do not run on this machine; 'windlass doctor' says why, and what helps.");
        return Ok(false);
    }
    release::write(&stage.place.files.join("hello"), &stage.place.files.join("hello.tgz"))?;
    let mut manifest = JOBS_MANIFEST.to_owned();
    if stage.isolation == Isolation::Process {
        manifest = manifest.replace(EXAMPLE_OS, HOST_OS);
        say("\nProcesses get a stemcell that shows them the programs of this machine:");
        verb(stage, &["stemcell", "build", "--userland", "host", "--output", "host.tgz"]).await?;
        verb(stage, &["upload-stemcell", "host.tgz"]).await?;
    }
    write(&stage.place.files.join("hello.yml"), &manifest)?;
    verb(stage, &["upload-release", "hello.tgz"]).await?;
    verb(stage, &["deploy", "-n", "-d", JOBS_DEPLOYMENT, "hello.yml"]).await?;
    verb(stage, &["instances", "-d", JOBS_DEPLOYMENT, "--ps"]).await?;
    Ok(true)
}

/// What a line is, and so how it looks.
#[derive(Clone, Copy)]
enum Ink {
    Chapter,
    Command,
}

fn chapter(number: u32, text: &str) {
    say(&format!("\n{}", painted(Ink::Chapter, &format!("{number}. {text}"))));
}

fn painted(ink: Ink, text: &str) -> String {
    let plain = !io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some();
    let code = match ink {
        Ink::Chapter => "1",
        Ink::Command => "36",
    };
    if plain { text.to_owned() } else { format!("\u{1b}[{code}m{text}\u{1b}[0m") }
}

fn command(arguments: &[&str]) -> String {
    let line = format!("windlass {}", arguments.join(" "));
    say(&format!("\n{}", painted(Ink::Command, &format!("$ {line}"))));
    line
}

/// Shows a command and runs it.
async fn verb(stage: &Stage, arguments: &[&str]) -> Result<(), DemoError> {
    let line = command(arguments);
    carry_out(stage, arguments, line).await
}

async fn carry_out(stage: &Stage, arguments: &[&str], line: String) -> Result<(), DemoError> {
    // The demo is for people, wherever it prints.
    let status = stage.place.verb(arguments).args(["--tty", "--brief"]).status().await;
    match status.map_err(|source| DemoError::Spawn { what: "a verb", source })?.success() {
        true => Ok(()),
        false => Err(DemoError::Verb { command: line }),
    }
}

fn connect(stage: &Stage) -> Result<DirectorClient, DemoError> {
    match &stage.place.environment {
        Some(environment) => DirectorClient::new(environment).map_err(DemoError::Director),
        None => Err(DemoError::Broken("no director runs".into())),
    }
}

async fn the_disk(director: &DirectorClient) -> Result<Disk, DemoError> {
    let disks: Vec<Disk> = director.get("/windlass/disks").await.map_err(DemoError::Director)?;
    let ours = disks.into_iter().find(|disk| disk.deployment == DEPLOYMENT && disk.mounted);
    ours.ok_or_else(|| DemoError::Broken("the instance has no mounted disk".into()))
}

/// Waits for the task in which the VM that died is replaced.
async fn resurrectors_task(director: &DirectorClient) -> Result<u64, DemoError> {
    let path = format!("/tasks?verbose=2&limit=5&deployment={DEPLOYMENT}");
    in_time(async || {
        let tasks: Vec<Task> = director.get(&path).await.ok()?;
        tasks.into_iter().find(|task| task.user == "resurrector").map(|task| task.id)
    })
    .await
}

/// Waits for the same disk on another VM.
async fn resurrected(director: &DirectorClient, before: &Disk) -> Result<Disk, DemoError> {
    in_time(async || the_disk(director).await.ok().filter(|disk| disk.vm_cid != before.vm_cid)).await
}

/// Waits for what a resurrection brings.
async fn in_time<T>(look: impl AsyncFn() -> Option<T>) -> Result<T, DemoError> {
    let deadline = tokio::time::Instant::now() + RESURRECTION;
    loop {
        if let Some(found) = look().await {
            return Ok(found);
        }
        if tokio::time::Instant::now() > deadline {
            return Err(DemoError::Broken("the VM that died was not replaced".into()));
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// Where this machine sees a disk: a folder that its hint names, or the image that is mounted for its VM.
fn store_of(stage: &Stage, disk: &Disk) -> Result<PathBuf, DemoError> {
    if stage.isolation == Isolation::Container {
        return Ok(stage.place.state_dir.join("cloud/vms").join(&disk.vm_cid).join("disks").join(&disk.disk_cid));
    }
    let hint = DiskHint::try_from(disk.hint.clone()).map_err(|error| DemoError::Broken(error.to_string()))?;
    hint.get("path").map(PathBuf::from).ok_or_else(|| DemoError::Broken("the disk's hint has no path".into()))
}

/// The versions of the CPI and of the stemcell.
async fn versions(stage: &Stage, director: &DirectorClient) -> Result<(ApiVersion, ApiVersion), DemoError> {
    let request = json!({"method": "info", "arguments": []});
    let line = format!("$ echo '{request}' |\n    windlass cpi local --config $DIR/cpi/local.json");
    say(&format!("\n{}", painted(Ink::Command, &line)));
    let answer = stage.place.call_cpi(&request).await.map_err(|source| DemoError::Spawn { what: "the CPI", source })?;
    say(&in_lines_that_fit(&answer["result"]));
    let stemcells: Vec<Stemcell> = director.get("/stemcells").await.map_err(DemoError::Director)?;
    let stemcell = stemcells.first().and_then(|stemcell| stemcell.api_version).map_or(ApiVersion::V1, ApiVersion);
    let cpi = answer["result"]["api_version"].as_u64().and_then(|version| version.try_into().ok());
    Ok((cpi.map_or(ApiVersion::V1, ApiVersion), stemcell))
}

/// The answer to `info` on a terminal, without which addresses and networks of this machine are taken.
fn in_lines_that_fit(info: &Value) -> String {
    let mut info = info.clone();
    if let Some(extensions) = info["windlass"].as_object_mut() {
        extensions.retain(|key, _| !key.starts_with("networks_") && key != "addresses_in_use");
    }
    let line = info.to_string().replacen("],", "],\n ", 1);
    let line = line.replacen(",\"docker", ",\n \"docker", 1).replacen(",\"largest", ",\n \"largest", 1);
    line.strip_suffix("}}").map_or_else(|| line.clone(), |line| format!("{line},…}}}}"))
}

fn write(path: &Path, text: &str) -> Result<(), DemoError> {
    std::fs::write(path, text).map_err(|source| DemoError::Data { path: path.to_owned(), source })
}

/// A file of a disk, without the way to the disk.
fn on_disk(path: &Path) -> String {
    let shown = path.display().to_string();
    let from = shown.rfind("/disk-").unwrap_or(0);
    format!("…{}", short_ids(&shown[from..]))
}

fn show(path: &Path) -> Result<(), DemoError> {
    let text = std::fs::read_to_string(path).map_err(|source| DemoError::Data { path: path.to_owned(), source })?;
    say(&format!("{}\n{}", painted(Ink::Command, &format!("$ cat {}", on_disk(path))), text.trim_end()));
    expect(text.trim_end() == DATA, "the data on the disk is not what was written")
}

fn expect(holds: bool, otherwise: &str) -> Result<(), DemoError> {
    if holds { Ok(()) } else { Err(DemoError::Broken(otherwise.to_owned())) }
}

fn go_on_with(stage: &Stage) {
    let place = stage.place.state_dir.display();
    say(&format!("\nThe director and the deployment '{DEPLOYMENT}' keep running. To use them:\n"));
    say(&format!("  . {place}/env.sh"));
    say("  windlass vms    (or bosh vms)");
    say(&format!("  cd {place}/demo    (the manifests of this demo)\n"));
    say("To end them and remove everything:\n");
    let named = if place::is_usual(&stage.place.state_dir) { String::new() } else { format!(" --state-dir {place}") };
    say(&format!("  windlass demo --end{named}"));
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
        let manifest = windlass_manifest::Document::parse(JOBS_MANIFEST).unwrap();
        assert_eq!(manifest.root().field("name").unwrap().string().unwrap(), JOBS_DEPLOYMENT);
        assert!(JOBS_MANIFEST.contains(EXAMPLE_OS), "the demo could not choose another stemcell");
    }
}
