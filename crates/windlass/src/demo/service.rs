//! The story of a service: a release is made from its sources, deployed, asked over HTTP, changed, killed, scaled and tested.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use windlass_cloud_local::Isolation;
use windlass_director_client::DirectorClient;
use windlass_director_client::known_names;

use super::telling::{
    Chapters, connect, expect, in_time, kill_and_wait, shell, shell_below, show, store_of, the_disk, verb, write,
};
use super::{DemoError, Stage, release, say};

/// As in the example.
pub(super) const DEPLOYMENT: &str = "guestbook";
const MANIFEST: &str = include_str!("../../../../examples/guestbook.yml");
/// What the example says, and what the demo makes of it.
const TITLE: &str = "title: Guest book";
const OTHER_TITLE: &str = "title: Visitors";
const TWO: &str = "instances: 2";
const THREE: &str = "instances: 3";
const PORT: u16 = 8080;

const ENTRY: &str = "Ada was here";
const PATIENCE: Duration = Duration::from_secs(10);

/// Tells it up to the end of the deployment.
pub(super) async fn tell(stage: &Stage, chapters: &mut Chapters) -> Result<(), DemoError> {
    let director = connect(stage)?;
    let files = &stage.place.files;

    chapters.begin("A release, made from its sources: a program in C, two jobs and an errand.");
    release::write(&files.join("guestbook"))?;
    let make = ["create-release", "--dir", "guestbook", "--force", "--version", "1", "--tarball", "guestbook.tgz"];
    super::telling::command(&make);
    quietly(stage, &make).await?;
    verb(stage, &["upload-release", "guestbook.tgz"]).await?;

    chapters.begin("A plan: what a deploy will do, and why. The deploy does exactly that.");
    write(&files.join("guestbook.yml"), MANIFEST)?;
    verb(stage, &["plan", "guestbook.yml"]).await?;
    verb(stage, &["deploy", "-n", "guestbook.yml"]).await?;

    chapters.begin("It runs: two web servers, and a store with a disk, which a link leads to.");
    let columns = ["--column", "instance", "--column", "process", "--column", "process_state", "--column", "ips"];
    let listed = [&["instances", "--ps", "-d", DEPLOYMENT][..], &columns].concat();
    verb(stage, &listed).await?;
    let web = addresses(&director, "web").await?;
    let (first, second) = (&web[0], web.get(1).unwrap_or(&web[0]));
    signed(first, ENTRY).await?;
    say("\nThe other web server asks the same store:");
    read(second, "Guest book", &[ENTRY]).await?;

    chapters.begin("A property changes. Only what must restarts: the store runs on.");
    write(&files.join("guestbook.yml"), &MANIFEST.replace(TITLE, OTHER_TITLE))?;
    verb(stage, &["plan", "guestbook.yml"]).await?;
    verb(stage, &["deploy", "-n", "guestbook.yml"]).await?;
    say("");
    read(first, "Visitors", &[ENTRY]).await?;

    chapters.begin(
        "The store's VM dies. Nobody does anything: the director notices, and makes\n   another with the same disk.",
    );
    let before = the_disk(&director, DEPLOYMENT).await?;
    let after = kill_and_wait(stage, &director, &before).await?;
    let entries = store_of(stage, &after)?.join("guestbook/entries");
    if stage.isolation == Isolation::Process {
        show(&entries, ENTRY)?;
    }
    in_time(async || get(first).await.ok().filter(|page| page.contains(ENTRY))).await?;
    read(first, "Visitors", &[ENTRY]).await?;

    chapters.begin("More visitors, more web servers. The errand asks every one of them.");
    let scaled = MANIFEST.replace(TITLE, OTHER_TITLE).replace(TWO, THREE);
    write(&files.join("guestbook.yml"), &scaled)?;
    verb(stage, &["plan", "guestbook.yml"]).await?;
    verb(stage, &["deploy", "-n", "guestbook.yml"]).await?;
    verb(stage, &["run-errand", "smoke", "-d", DEPLOYMENT, "--column", "exit_code", "--column", "stdout"]).await?;
    expect(addresses(&director, "web").await?.len() == 3, "there are not three web servers")
}

/// Ends the deployment; its disk becomes an orphan.
pub(super) async fn end(stage: &Stage, chapters: &mut Chapters) -> Result<(), DemoError> {
    let director = connect(stage)?;
    let disk = the_disk(&director, DEPLOYMENT).await?;
    let entries = store_of(stage, &disk)?.join("guestbook/entries");
    chapters.begin("The deployment ends, and its data does not: the disk becomes an orphan.");
    verb(stage, &["delete-deployment", "-n", "-d", DEPLOYMENT]).await?;
    verb(stage, &["disks", "--orphaned", "--column", "disk_cid", "--column", "size", "--column", "orphaned_at"])
        .await?;
    if stage.isolation == Isolation::Process {
        say("\nIt still holds the data:");
        show(&entries, ENTRY)?;
    }
    Ok(())
}

/// Runs a command whose output is of no interest.
async fn quietly(stage: &Stage, arguments: &[&str]) -> Result<(), DemoError> {
    let output = stage.place.verb(arguments).env("HOME", &stage.place.files).output().await;
    let output = output.map_err(|source| DemoError::Spawn { what: "a verb", source })?;
    match output.status.success() {
        true => Ok(()),
        false => {
            say(String::from_utf8_lossy(&output.stderr).trim_end());
            Err(DemoError::Verb { command: format!("windlass {}", arguments.join(" ")) })
        }
    }
}

/// The addresses of a group's instances.
async fn addresses(director: &DirectorClient, group: &str) -> Result<Vec<String>, DemoError> {
    let members = known_names::members(director, DEPLOYMENT).await.map_err(DemoError::Director)?;
    let ours = members.into_iter().filter(|member| member.job == group);
    let addresses: Vec<String> = ours.filter_map(|member| member.ips.into_iter().next()).collect();
    expect(!addresses.is_empty(), "the web servers have no addresses")?;
    Ok(addresses)
}

/// Signs the guest book, and shows how.
async fn signed(address: &str, text: &str) -> Result<(), DemoError> {
    shell(&format!("curl -d '{text}' http://{address}:{PORT}/"));
    let page = ask(address, "POST", text).await.map_err(|error| silent(address, &error))?;
    say(page.trim_end());
    expect(page.contains(text), "the guest book does not have what was written into it")
}

/// Shows what a web server says.
async fn read(address: &str, title: &str, entries: &[&str]) -> Result<(), DemoError> {
    shell_below(&format!("curl http://{address}:{PORT}/"));
    let page = get(address).await.map_err(|error| silent(address, &error))?;
    say(page.trim_end());
    expect(page.starts_with(title), "the title is another one")?;
    expect(entries.iter().all(|entry| page.contains(entry)), "the guest book has lost an entry")
}

fn silent(address: &str, error: &io::Error) -> DemoError {
    DemoError::Broken(format!("the web server at {address}:{PORT} does not answer: {error}"))
}

async fn get(address: &str) -> io::Result<String> {
    ask(address, "GET", "").await
}

async fn ask(address: &str, method: &str, body: &str) -> io::Result<String> {
    let asked = async {
        let mut stream = TcpStream::connect((address, PORT)).await?;
        let request = format!(
            "{method} / HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        match answer.split_once("\r\n\r\n") {
            Some((head, page)) if head.starts_with("HTTP/1.1 200 ") => Ok(page.to_owned()),
            Some((_, page)) => Err(io::Error::other(page.trim().to_owned())),
            None => Err(io::Error::other("it breaks off")),
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_what_the_demo_takes_it_for() {
        let manifest = windlass_manifest::Document::parse(MANIFEST).unwrap();
        assert_eq!(manifest.root().field("name").unwrap().string().unwrap(), DEPLOYMENT);
        for text in [TITLE, TWO] {
            assert_eq!(MANIFEST.matches(text).count(), 1, "the demo changes '{text}'");
        }
    }
}
