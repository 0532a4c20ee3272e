//! The story without software, for machines on which jobs cannot run: a VM with a disk lives, dies, comes back and grows.

use super::telling::{Chapters, connect, kill_and_wait, on_disk, shell_below, show, store_of, the_disk, verb, write};
use super::{DemoError, Stage, say, story};

/// As in the example.
pub(super) const DEPLOYMENT: &str = "example";
const MANIFEST: &str = include_str!("../../../../examples/deployment.yml");
const DATA: &str = "written before the VM died";
/// The size of the disk in the example, and the one that the demo makes it grow to, in MiB.
const EXAMPLE_SIZE: &str = "disk_size: 64";
const LARGER_SIZE: &str = "disk_size: 128";

pub(super) async fn tell(stage: &Stage, chapters: &mut Chapters) -> Result<(), DemoError> {
    let director = connect(stage)?;
    let files = &stage.place.files;

    chapters.begin("A plan: what a deploy will do, and why. The deploy does exactly that.");
    write(&files.join("deployment.yml"), MANIFEST)?;
    verb(stage, &["plan", "deployment.yml"]).await?;
    verb(stage, &["deploy", "-n", "deployment.yml"]).await?;

    chapters.begin("A VM and a disk.");
    verb(stage, &["vms", "-d", DEPLOYMENT, "--column", "instance", "--column", "ips", "--column", "vm_cid"]).await?;
    verb(stage, &["disks", "-d", DEPLOYMENT, "--column", "disk_cid", "--column", "size", "--column", "mounted"])
        .await?;
    let before = the_disk(&director, DEPLOYMENT).await?;
    let data = store_of(stage, &before)?.join("data.txt");
    write(&data, &format!("{DATA}\n"))?;
    say("\nThis machine sees the disk, so we can write to it:");
    shell_below(&format!("echo '{DATA}' > {}", on_disk(&data)));

    chapters
        .begin("The VM dies. Nobody does anything: the director notices, and makes another\n   with the same disk.");
    let after = kill_and_wait(stage, &director, &before).await?;
    show(&store_of(stage, &after)?.join("data.txt"), DATA)?;

    chapters.begin("The disk grows. The plan says how, and the data comes along.");
    let larger = story::cloud_config(stage).replace(EXAMPLE_SIZE, LARGER_SIZE);
    write(&files.join("cloud-config.yml"), &larger)?;
    verb(stage, &["update-cloud-config", "-n", "cloud-config.yml"]).await?;
    verb(stage, &["plan", "deployment.yml"]).await?;
    verb(stage, &["deploy", "-n", "deployment.yml"]).await?;
    verb(stage, &["disks", "-d", DEPLOYMENT, "--column", "disk_cid", "--column", "size"]).await?;
    let grown = the_disk(&director, DEPLOYMENT).await?;
    say("");
    show(&store_of(stage, &grown)?.join("data.txt"), DATA)
}

/// Ends the deployment; its disk becomes an orphan.
pub(super) async fn end(stage: &Stage, chapters: &mut Chapters) -> Result<(), DemoError> {
    chapters.begin("The deployment ends, and its data does not: the disk becomes an orphan.");
    verb(stage, &["delete-deployment", "-n", "-d", DEPLOYMENT]).await?;
    verb(stage, &["disks", "--orphaned", "--column", "disk_cid", "--column", "size", "--column", "orphaned_at"]).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_are_what_the_demo_takes_them_for() {
        let manifest = windlass_manifest::Document::parse(MANIFEST).unwrap();
        assert_eq!(manifest.root().field("name").unwrap().string().unwrap(), DEPLOYMENT);
        assert!(story::CLOUD_CONFIG.contains(EXAMPLE_SIZE), "the demo could not make the disk grow");
        assert!(story::CLOUD_CONFIG.contains(story::EXAMPLE_NET), "the demo could not put its own addresses there");
    }
}
