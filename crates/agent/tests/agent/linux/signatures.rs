//! What is on a disk already is never formatted.

use std::io::{Seek, SeekFrom, Write};
use std::process::{Command, Stdio};

use serde_json::json;

use super::own_machine::{MIB, OwnMachine};
use super::private::{in_namespaces, run};

const SIZE: u64 = 64 * MIB;

/// How something comes to a disk, and what the error calls it.
type Case = (&'static str, fn(&str), &'static str);

fn tool(program: &str, arguments: &[&str], device: &str) {
    run(program, arguments.iter().copied().chain([device]));
}

fn bytes(device: &str, offset: u64, bytes: &[u8]) {
    let mut file = std::fs::File::options().write(true).open(device).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

fn partitions(device: &str, script: &str) {
    let mut child =
        Command::new("sfdisk").args(["--quiet", device]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// The partition is shown by the kernel under the device's own name.
fn in_partition(device: &str, script: &str, put: impl Fn(&str)) {
    partitions(device, script);
    run("partx", ["--update", device]);
    put(&format!("{device}p1"));
}

const CASES: &[Case] = &[
    ("ext4", |device| tool("mke2fs", &["-q", "-t", "ext4"], device), "an ext4 file system on the whole disk"),
    ("ext3", |device| tool("mke2fs", &["-q", "-t", "ext3"], device), "an ext2 or ext3 file system"),
    ("ext2", |device| tool("mke2fs", &["-q", "-t", "ext2"], device), "an ext2 or ext3 file system"),
    ("journal", |device| tool("mke2fs", &["-q", "-O", "journal_dev"], device), "a journal of ext4"),
    ("xfs", |device| tool("mkfs.xfs", &["-q"], device), "an xfs file system on the whole disk"),
    ("swap", |device| tool("mkswap", &[], device), "swap space"),
    ("swap of large pages", |device| tool("mkswap", &["--pagesize", "65536"], device), "swap space"),
    ("LUKS", |device| bytes(device, 0, b"LUKS\xba\xbe\x00\x02"), "an encrypted disk (LUKS)"),
    (
        "LVM",
        |device| bytes(device, 512, b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001"),
        "an LVM physical volume",
    ),
    ("RAID 1.2", |device| bytes(device, 4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0"), "a RAID member"),
    // Superblocks of versions 0.90 and 1.0 are at the end of the disk.
    ("RAID 1.0", |device| bytes(device, SIZE - 8192, b"\xfc\x4e\x2b\xa9\x01\0\0\0"), "data of a kind"),
    ("btrfs", |device| bytes(device, 0x10040, b"_BHRfS_M"), "a btrfs file system"),
    ("FAT", |device| bytes(device, 0x52, b"FAT32   "), "a FAT file system"),
    ("NTFS", |device| bytes(device, 3, b"NTFS    "), "an NTFS file system"),
    ("ZFS", |device| bytes(device, 0x20000, b"\x0c\xb1\xba\0\0\0\0\0"), "data of a kind"),
    ("an unknown header", |device| bytes(device, 12345, b"?"), "data of a kind"),
    ("an unknown end", |device| bytes(device, SIZE - 1, b"?"), "data of a kind"),
    ("an empty table", |device| partitions(device, "label: gpt\n"), "a partition table without partitions"),
    ("an old empty table", |device| partitions(device, "label: dos\n"), "a partition table without partitions"),
    ("two partitions", |device| partitions(device, "label: gpt\nsize=10MiB\nsize=10MiB\n"), "Expected 1, got 2"),
    (
        "swap in a partition",
        |device| in_partition(device, "label: gpt\ntype=S\n", |partition| tool("mkswap", &[], partition)),
        "p1 holds swap space",
    ),
    (
        "ext3 in an old partition",
        |device| {
            in_partition(device, "label: dos\ntype=83\n", |partition| tool("mke2fs", &["-q", "-t", "ext3"], partition))
        },
        "p1 holds an ext2 or ext3 file system",
    ),
    (
        "LUKS in a partition",
        |device| in_partition(device, "label: gpt\n,,L\n", |partition| bytes(partition, 0, b"LUKS\xba\xbe")),
        "p1 holds an encrypted disk",
    ),
    (
        "something in a partition",
        |device| in_partition(device, "label: gpt\n,,L\n", |partition| bytes(partition, 3 * MIB, b"?")),
        "p1 holds data of a kind",
    ),
];

#[test]
fn a_disk_with_anything_on_it_is_never_formatted() {
    in_namespaces("linux::signatures::a_disk_with_anything_on_it_is_never_formatted", async || {
        for kind in ["ext4", "xfs"] {
            let mut own = OwnMachine::new(json!({}));
            own.machine.settings["env"]["persistent_disk_fs"] = json!(kind);
            own.machine.start().await;
            for (position, (name, put, expected)) in CASES.iter().enumerate() {
                // Smaller ones cannot be made.
                let size = if *name == "xfs" { 400 * MIB } else { SIZE };
                let disk = own.disk(&format!("{kind}-{position}"), size);
                put(&disk.path());
                run("blockdev", ["--flushbufs", &disk.path()]);
                let before = disk.image.with_extension("before");
                run("cp", ["--sparse=always".as_ref(), disk.image.as_os_str(), before.as_os_str()]);
                for _ in 0..2 {
                    let Err(error) = own.mount(&format!("d{position}"), json!(disk.path())).await else {
                        panic!("{name} was not refused");
                    };
                    assert!(error.contains(expected) && error.contains(&disk.path()), "{name}: {error}");
                    assert!(error.contains(&format!("isk 'd{position}'")), "{name}: {error}");
                }
                run("blockdev", ["--flushbufs", &disk.path()]);
                run("cmp", [&disk.image, &before]);
                assert!(own.mounted("store").is_none());
                for image in [&disk.image, &before] {
                    std::fs::remove_file(image).unwrap();
                }
                own.detach(disk);
            }
        }
    });
}

#[test]
fn a_partition_of_another_agent_is_taken_over() {
    in_namespaces("linux::signatures::a_partition_of_another_agent_is_taken_over", async || {
        let own = OwnMachine::started(json!({})).await;
        for (position, table) in ["label: dos\n,,L\n", "label: gpt\n,,L\n"].into_iter().enumerate() {
            let disk = own.disk(&format!("disk-{position}"), 64 * MIB);
            in_partition(&disk.path(), table, |partition| {
                tool("mke2fs", &["-q", "-t", "ext4", "-L", "theirs"], partition)
            });
            let cid = format!("d{position}");
            own.mount(&cid, json!(disk.path())).await.unwrap();
            assert_eq!(
                run("blkid", ["-p", "-s", "LABEL", "-o", "value", &format!("{}p1", disk.path())]).trim(),
                "theirs"
            );
            own.unmount(&cid).await;
        }
        // A partition with nothing in it is as good as a blank disk.
        let disk = own.disk("blank", 64 * MIB);
        partitions(&disk.path(), "label: gpt\n,,L\n");
        own.mount("blank", json!(disk.path())).await.unwrap();
        assert_eq!(own.mounted("store").unwrap().0, "ext4");
    });
}
