//! How the demo tells its story: chapters, commands as they would be typed, what they print, and whether that is so.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_cloud_local::Isolation;
use windlass_contract::DiskHint;
use windlass_director_client::DirectorClient;
use windlass_director_client::answers::{Disk, Task};

use super::{DemoError, Stage, say};
use crate::formats::{self, short_ids};

/// How long the resurrector may take. It looks every second, and believes a silence of three.
const RESURRECTION: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
pub(super) const QUICK_RESURRECTOR: &str = "resurrector: {interval: 1s, agent_timeout: 3s}\n";

/// What a line is, and so how it looks.
#[derive(Clone, Copy)]
enum Ink {
    Chapter,
    Command,
}

/// Counts the chapters.
#[derive(Default)]
pub(super) struct Chapters(u32);

impl Chapters {
    /// Begins the next one.
    pub(super) fn begin(&mut self, text: &str) {
        self.0 += 1;
        say(&format!("\n{}", painted(Ink::Chapter, &format!("{}. {text}", self.0))));
    }
}

fn painted(ink: Ink, text: &str) -> String {
    let plain = !io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some();
    let code = match ink {
        Ink::Chapter => "1",
        Ink::Command => "36",
    };
    if plain { text.to_owned() } else { format!("\u{1b}[{code}m{text}\u{1b}[0m") }
}

/// Shows a line of a shell.
pub(super) fn shell(line: &str) {
    say("");
    shell_below(line);
}

/// The same below what stands above.
pub(super) fn shell_below(line: &str) {
    say(&painted(Ink::Command, &in_shell_lines(&format!("$ {line}"))));
}

const WIDTH: usize = 80;

/// A command in lines that fit a terminal, as one may type it there. Where words belong together, such as those of a quoted text, it has room.
fn in_shell_lines(line: &str) -> String {
    if line.lines().all(|line| line.chars().count() <= WIDTH) {
        return line.to_owned();
    }
    formats::folded(line, WIDTH - 2, 4).replace('\n', " \\\n")
}

/// Shows a command of ours.
pub(super) fn command(arguments: &[&str]) -> String {
    let line = format!("windlass {}", arguments.join(" "));
    shell(&line);
    line
}

/// Shows a command and runs it.
pub(super) async fn verb(stage: &Stage, arguments: &[&str]) -> Result<(), DemoError> {
    let line = command(arguments);
    carry_out(stage, arguments, line).await
}

/// Runs a command that was shown as `line`.
pub(super) async fn carry_out(stage: &Stage, arguments: &[&str], line: String) -> Result<(), DemoError> {
    // The demo is for people, wherever it prints.
    let status = stage.place.verb(arguments).args(["--tty", "--brief"]).status().await;
    match status.map_err(|source| DemoError::Spawn { what: "a verb", source })?.success() {
        true => Ok(()),
        false => Err(DemoError::Verb { command: line }),
    }
}

/// The director of the demo.
pub(super) fn connect(stage: &Stage) -> Result<DirectorClient, DemoError> {
    match &stage.place.environment {
        Some(environment) => DirectorClient::new(environment).map_err(DemoError::Director),
        None => Err(DemoError::Broken("no director runs".into())),
    }
}

/// The mounted disk of a deployment, which has one.
pub(super) async fn the_disk(director: &DirectorClient, deployment: &str) -> Result<Disk, DemoError> {
    let disks: Vec<Disk> = director.get("/windlass/disks").await.map_err(DemoError::Director)?;
    let ours = disks.into_iter().find(|disk| disk.deployment == deployment && disk.mounted);
    ours.ok_or_else(|| DemoError::Broken("the instance has no mounted disk".into()))
}

/// Kills the VM that has the disk, and waits until the director has made another one. Gives the disk as it is then.
pub(super) async fn kill_and_wait(stage: &Stage, director: &DirectorClient, before: &Disk) -> Result<Disk, DemoError> {
    let place = stage.place.state_dir.display().to_string();
    let line = command(&["--state-dir", "$DIR", "local", "kill", &short_ids(&before.vm_cid)]);
    carry_out(stage, &["--state-dir", &place, "local", "kill", &before.vm_cid], line).await?;
    say("(waiting for the director to notice)");
    let path = format!("/tasks?verbose=2&limit=5&deployment={}", before.deployment);
    let repair = in_time(async || {
        let tasks: Vec<Task> = director.get(&path).await.ok()?;
        tasks.into_iter().find(|task| task.user == "resurrector").map(|task| task.id.to_string())
    })
    .await?;
    verb(stage, &["task", &repair]).await?;
    let other_vm = async || the_disk(director, &before.deployment).await.ok().filter(|it| it.vm_cid != before.vm_cid);
    let after = in_time(other_vm).await?;
    expect(after.disk_cid == before.disk_cid, "the disk is another one")?;
    let (old, new) = (short_ids(&before.vm_cid), short_ids(&after.vm_cid));
    say(&format!("\nThe VM was {old} and is {new} now. The disk is the same:"));
    Ok(after)
}

/// Waits for what a resurrection brings.
pub(super) async fn in_time<T>(look: impl AsyncFn() -> Option<T>) -> Result<T, DemoError> {
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
pub(super) fn store_of(stage: &Stage, disk: &Disk) -> Result<PathBuf, DemoError> {
    if stage.isolation == Isolation::Container {
        return Ok(stage.place.state_dir.join("cloud/vms").join(&disk.vm_cid).join("disks").join(&disk.disk_cid));
    }
    let hint = DiskHint::try_from(disk.hint.clone()).map_err(|error| DemoError::Broken(error.to_string()))?;
    hint.get("path").map(PathBuf::from).ok_or_else(|| DemoError::Broken("the disk's hint has no path".into()))
}

#[expect(clippy::disallowed_methods, reason = "the data that the demo looks for again")]
pub(super) fn write(path: &Path, text: &str) -> Result<(), DemoError> {
    std::fs::write(path, text).map_err(|source| DemoError::Data { path: path.to_owned(), source })
}

/// A file of a disk, without the way to the disk.
pub(super) fn on_disk(path: &Path) -> String {
    let shown = path.display().to_string();
    let from = shown.rfind("/disk-").unwrap_or(0);
    format!("…{}", short_ids(&shown[from..]))
}

/// Shows a file of a disk, in which a line must be.
pub(super) fn show(path: &Path, line: &str) -> Result<(), DemoError> {
    let text = std::fs::read_to_string(path).map_err(|source| DemoError::Data { path: path.to_owned(), source })?;
    shell_below(&format!("cat {}", on_disk(path)));
    say(text.trim_end());
    expect(text.lines().any(|it| it == line), "the data on the disk is not what was written")
}

pub(super) fn expect(holds: bool, otherwise: &str) -> Result<(), DemoError> {
    if holds { Ok(()) } else { Err(DemoError::Broken(otherwise.to_owned())) }
}
