//! Tables of partitions: read, written and grown by `sfdisk`, which every stemcell has and which knows both kinds.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::command::{CommandError, tool};
use super::devices;

/// How long a partition may take to appear after its table was written.
const PATIENCE: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(50);

/// why the partitions are not as they should be
#[derive(Debug, thiserror::Error)]
pub(crate) enum PartitionError {
    #[error(transparent)]
    Tool(#[from] CommandError),
    /// the tool said something else
    #[error("cannot understand the partitions of {device} as sfdisk tells them")]
    Unreadable {
        device: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// the kernel does not show it
    #[error(
        "partition {path} did not appear within {PATIENCE:?} after the table of {device} was read; check the kernel's log"
    )]
    Missing { device: PathBuf, path: PathBuf },
    /// growing it would have moved it
    #[error("growing the partition of {device} moved its start from {before} to {after}; restore the table by hand")]
    Moved { device: PathBuf, before: u64, after: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) partitions: Vec<Partition>,
}

/// A partition; sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) number: u32,
    pub(super) path: PathBuf,
    pub(super) start: u64,
    pub(super) size: u64,
    /// Empty in old tables, which have no names.
    pub(super) name: String,
    /// Tells this partition from every other one.
    pub(super) id: String,
}

impl Partition {
    pub(super) fn end(&self) -> u64 {
        self.start + self.size
    }
}

#[derive(Deserialize)]
struct PartitionReport {
    partitiontable: ReportedTable,
}

#[derive(Deserialize)]
struct ReportedTable {
    #[serde(default)]
    id: String,
    #[serde(default = "usual_sector")]
    sectorsize: u64,
    #[serde(default)]
    partitions: Vec<ReportedPartition>,
}

fn usual_sector() -> u64 {
    512
}

#[derive(Deserialize)]
struct ReportedPartition {
    node: String,
    start: u64,
    size: u64,
    #[serde(default)]
    name: String,
    uuid: Option<String>,
}

/// The table of a device that has one.
pub(super) fn read(device: &Path) -> Result<Table, PartitionError> {
    let report = tool("sfdisk", ["--json".as_ref(), device]).run()?;
    let report: PartitionReport = serde_json::from_str(&report)
        .map_err(|source| PartitionError::Unreadable { device: device.to_owned(), source })?;
    let table = report.partitiontable;
    let partition = |found: ReportedPartition| {
        let number = number_in(&found.node, device);
        Partition {
            number,
            path: devices::partition(device, number),
            start: found.start * table.sectorsize,
            size: found.size * table.sectorsize,
            name: found.name,
            id: found.uuid.unwrap_or_else(|| format!("{}-{number:02}", table.id)),
        }
    };
    Ok(Table { partitions: table.partitions.into_iter().map(partition).collect() })
}

/// The number at the end of a partition's name, which begins with the name of its device.
fn number_in(node: &str, device: &Path) -> u32 {
    let after = device.to_str().and_then(|device| node.strip_prefix(device)).unwrap_or(node);
    after.trim_start_matches(|other: char| !other.is_ascii_digit()).parse().unwrap_or_default()
}

/// A partition to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewPartition {
    /// None takes what is left.
    pub(super) size: Option<u64>,
    pub(super) is_swap: bool,
    pub(super) name: String,
}

impl NewPartition {
    fn line(&self) -> String {
        let size = self.size.map(|size| format!("size={}MiB, ", size >> 20)).unwrap_or_default();
        let kind = if self.is_swap { "S" } else { "L" };
        format!("{size}type={kind}, name=\"{}\"\n", self.name)
    }
}

/// Whether marks of what was on a device before are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marks {
    /// There are none; should there be any, they stay.
    Keep,
    /// It is a disk that holds nothing of worth.
    Wipe,
}

/// Writes a new table with these partitions, and waits for them.
pub(super) fn create(device: &Path, wanted: &[NewPartition], marks: Marks) -> Result<Table, PartitionError> {
    let script: String = ["label: gpt\n".to_owned()].into_iter().chain(wanted.iter().map(NewPartition::line)).collect();
    let wipe = match marks {
        Marks::Keep => "never",
        Marks::Wipe => "always",
    };
    write(device, &["--wipe", wipe, "--wipe-partitions", wipe], &script)
}

/// Adds partitions after the last one.
pub(super) fn append(device: &Path, wanted: &[NewPartition]) -> Result<Table, PartitionError> {
    let script: String = wanted.iter().map(NewPartition::line).collect();
    // The disk is in use: what is on it now stays.
    write(device, &["--append", "--force", "--no-reread", "--wipe-partitions", "always"], &script)
}

/// Lets a partition, the last one, take all that is behind it.
pub(super) fn grow(device: &Path, number: u32) -> Result<Table, PartitionError> {
    let has_number = |partition: &&Partition| partition.number == number;
    let start = |table: &Table| table.partitions.iter().find(has_number).map_or(0, |partition| partition.start);
    let before = start(&read(device)?);
    // Also while it is mounted.
    let arguments = ["--force", "--no-reread", "--wipe", "never", "--wipe-partitions", "never"];
    let table = write(device, &[&arguments[..], &["-N", &number.to_string()]].concat(), ", +\n")?;
    match start(&table) {
        after if after == before => Ok(table),
        after => Err(PartitionError::Moved { device: device.to_owned(), before, after }),
    }
}

fn write(device: &Path, arguments: &[&str], script: &str) -> Result<Table, PartitionError> {
    let arguments = arguments.iter().map(Path::new).chain([device]);
    tool("sfdisk", arguments).reading(script).run()?;
    let table = read(device)?;
    show(device, &table)?;
    Ok(table)
}

/// Makes the kernel show the partitions of a table, with their sizes, also where it does not read tables itself.
pub(super) fn show(device: &Path, table: &Table) -> Result<(), PartitionError> {
    if table.partitions.is_empty() {
        return Ok(());
    }
    tool("partx", ["--update".as_ref(), device]).run()?;
    for partition in &table.partitions {
        let deadline = Instant::now() + PATIENCE;
        // A node of a partition that is gone may still be there.
        while File::open(&partition.path).is_err() {
            if Instant::now() >= deadline {
                return Err(PartitionError::Missing { device: device.to_owned(), path: partition.path.clone() });
            }
            std::thread::sleep(RETRY);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_asked_for_in_sfdisks_words() {
        let swap = NewPartition { size: Some(1 << 30), is_swap: true, name: "bosh-partition-a-0".into() };
        assert_eq!(swap.line(), "size=1024MiB, type=S, name=\"bosh-partition-a-0\"\n");
        assert_eq!(number_in("/dev/loop0p12", Path::new("/dev/loop0")), 12);
        assert_eq!(number_in("/dev/sdb1", Path::new("/dev/sdb")), 1);
        let rest = NewPartition { size: None, is_swap: false, name: "x".into() };
        assert_eq!(rest.line(), "type=L, name=\"x\"\n");
    }
}
