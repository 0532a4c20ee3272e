//! Stemcells that we build, and those that others send.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tempfile::TempDir;
use windlass_contract::ApiVersion;
use windlass_stemcell::{BuildError, BuildOptions, DigestCheck, ReadError, build, inspect, unpack};

const MANIFEST: &str = "---\nname: ubuntu-stemcell\noperating_system: toronto-os\nversion: \"3\"\napi_version: 3\n\
    sha1: shawone\nstemcell_formats: [\"dummy\"]\ncloud_properties:\n  property1: test\n";

/// A tarball made entry by entry; names go in unchecked, as a hostile sender would write them.
struct Tarball(tar::Builder<Vec<u8>>);

impl Tarball {
    fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    fn entry(mut self, kind: tar::EntryType, name: &str, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        if kind.is_symlink() {
            header.set_link_name("elsewhere").unwrap();
        }
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    fn file(self, name: &str, content: &[u8]) -> Self {
        self.entry(tar::EntryType::Regular, name, content)
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }

    fn gzip(self) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&self.bytes()).unwrap();
        encoder.finish().unwrap()
    }
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn with(&self, bytes: &[u8]) -> PathBuf {
        let path = self.path("stemcell.tgz");
        fs::write(&path, bytes).unwrap();
        path
    }
}

/// The message with its causes, as the command line prints it.
fn explain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

fn refusal(bytes: &[u8]) -> String {
    let folder = Folder::new();
    let path = folder.with(bytes);
    let inspected = explain(&inspect(&path).unwrap_err());
    let into = folder.path("unpacked");
    fs::create_dir(&into).unwrap();
    assert_eq!(explain(&unpack(&path, &into).unwrap_err()), inspected, "inspecting and unpacking agree");
    let written: Vec<_> = fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(written.iter().all(|name| name == "image"), "{written:?}");
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 2, "nothing was written outside of the folder");
    inspected
}

#[test]
fn a_stemcell_is_read_compressed_or_not_in_any_order() {
    let gzipped = Tarball::new().file("stemcell.MF", MANIFEST.as_bytes()).file("image", b"abc").gzip();
    let plain = Tarball::new()
        .entry(tar::EntryType::Directory, "./", b"")
        .file("./image", b"abc")
        .file("./packages.txt", b"sh")
        .file("./deep/image", b"another")
        .file("./stemcell.MF", MANIFEST.as_bytes())
        .bytes();
    for bytes in [gzipped, plain] {
        let folder = Folder::new();
        let path = folder.with(&bytes);
        let inspection = inspect(&path).unwrap();
        assert_eq!((inspection.manifest.name.as_str(), inspection.manifest.os()), ("ubuntu-stemcell", "toronto-os"));
        assert_eq!(inspection.manifest.api_version, Some(ApiVersion(3)));
        assert_eq!((inspection.size, inspection.image_size), (bytes.len() as u64, 3));
        assert_eq!(inspection.digest, DigestCheck::Unknown, "placeholders are common and harmless");
        let into = folder.path("unpacked");
        fs::create_dir(&into).unwrap();
        assert_eq!(unpack(&path, &into).unwrap(), inspection.manifest);
        assert_eq!(fs::read(into.join("image")).unwrap(), b"abc");
        assert_eq!(fs::read_to_string(into.join("stemcell.MF")).unwrap(), MANIFEST);
        assert_eq!(fs::read_dir(&into).unwrap().count(), 2);
    }
}

#[test]
fn a_light_stemcell_has_an_empty_image() {
    let manifest = MANIFEST.replace("shawone", "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    let folder = Folder::new();
    let path = folder.with(&Tarball::new().file("stemcell.MF", manifest.as_bytes()).file("image", b"").gzip());
    assert_eq!(inspect(&path).unwrap().digest, DigestCheck::Matches);
}

#[test]
fn what_is_not_a_stemcell_is_refused_with_the_reason() {
    assert!(refusal(b"").contains("is not a tarball, or it is damaged"));
    assert!(refusal(&b"hello, world\n".repeat(100)).contains("is not a tarball, or it is damaged"));
    assert!(refusal(&Tarball::new().file("image", b"abc").gzip()).contains("contains no 'stemcell.MF'"));
    assert!(refusal(&Tarball::new().file("stemcell.MF", MANIFEST.as_bytes()).gzip()).contains("contains no 'image'"));
    let folder = Folder::new();
    assert!(matches!(inspect(&folder.path("missing")), Err(ReadError::Open { .. })));
}

#[test]
fn a_bad_manifest_is_explained_with_its_line() {
    let stemcell = |manifest: &str| Tarball::new().file("stemcell.MF", manifest.as_bytes()).file("image", b"").gzip();
    assert!(refusal(&stemcell("name: a\nversion: 'x\n")).contains("not valid YAML: "));
    assert!(refusal(&stemcell("name: a\nname: b\n")).contains("at line 2"));
    let unquoted = refusal(&stemcell("name: a\nversion: 1.10\n"));
    assert!(unquoted.ends_with("version: expected a string, found a number; put it in quotes (line 2)"), "{unquoted}");
    assert!(refusal(&stemcell("name: a\n")).ends_with("version: is required, but missing (line 1)"));
    let formats = refusal(&stemcell("name: a\nversion: '1'\nstemcell_formats: warden-tar\n"));
    assert!(formats.ends_with("stemcell_formats: expected a sequence, found a string (line 3)"), "{formats}");
    assert!(refusal(&stemcell(&format!("name: {}\n", "a".repeat(2 << 20)))).contains("larger than 1024 KiB"));
}

#[test]
fn hostile_stemcells_are_refused() {
    let good = || Tarball::new().file("stemcell.MF", MANIFEST.as_bytes());
    assert!(refusal(&good().file("../image", b"abc").gzip()).contains("'../image' points outside"));
    assert!(refusal(&good().file("a/../../image", b"abc").gzip()).contains("points outside"));
    assert!(refusal(&good().file("/image", b"abc").gzip()).contains("points outside"));
    for kind in [tar::EntryType::Symlink, tar::EntryType::Link, tar::EntryType::Directory, tar::EntryType::Char] {
        assert!(
            refusal(&good().entry(kind, "image", b"").gzip()).contains("'image' in the stemcell is not a regular file")
        );
    }
    assert!(
        refusal(&good().file("image", b"a").file("./image", b"b").gzip()).contains("'image' is in the stemcell more")
    );
}

#[test]
fn a_truncated_or_damaged_stemcell_is_refused_wherever_it_breaks() {
    let image: Vec<u8> = (0..100_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let whole = || Tarball::new().file("stemcell.MF", MANIFEST.as_bytes()).file("image", &image);
    let (gzip, plain) = (whole().gzip(), whole().bytes());
    for cut in [10, 700, gzip.len() / 2, gzip.len() - 1] {
        assert!(refusal(&gzip[..cut]).contains("damaged"), "cut at {cut}");
    }
    for cut in [100, 700, plain.len() / 2] {
        assert!(refusal(&plain[..cut]).contains("damaged"), "cut at {cut}");
    }
    let mut flipped = gzip.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x55;
    assert!(refusal(&flipped).contains("damaged"), "gzip's checksum tells");
}

#[test]
fn unpacking_never_overwrites_or_follows_a_link() {
    let folder = Folder::new();
    let path = folder.with(&Tarball::new().file("stemcell.MF", MANIFEST.as_bytes()).file("image", b"abc").gzip());
    fs::write(folder.path("precious"), "precious").unwrap();
    let into = folder.path("unpacked");
    fs::create_dir(&into).unwrap();
    std::os::unix::fs::symlink(folder.path("precious"), into.join("image")).unwrap();
    assert!(matches!(unpack(&path, &into), Err(ReadError::Write { .. })));
    assert_eq!(fs::read_to_string(folder.path("precious")).unwrap(), "precious");
}

fn options(folder: &Folder, output: &str) -> BuildOptions {
    let agent = folder.path("agent");
    fs::write(&agent, b"#!/bin/sh\nexit 0\n".repeat(10_000)).unwrap();
    BuildOptions { version: "1.10".into(), ..BuildOptions::new(agent, folder.path(output)) }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let folder = Folder::new();
    for (output, mode) in [("a.tgz", 0o755), ("b.tgz", 0o700)] {
        let options = options(&folder, output);
        fs::set_permissions(&options.agent, fs::Permissions::from_mode(mode)).unwrap();
        build(&options, |_, _| {}).unwrap();
        // The next agent is a new file, with another time and other permissions.
        fs::remove_file(&options.agent).unwrap();
    }
    assert_eq!(fs::read(folder.path("a.tgz")).unwrap(), fs::read(folder.path("b.tgz")).unwrap());
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 2, "nothing is left over");
}

#[test]
fn what_was_built_holds_what_an_agent_needs() {
    let folder = Folder::new();
    let options = options(&folder, "stemcell.tgz");
    let mut last = (0, 0);
    build(&options, |done, total| {
        assert!(done > last.0 && done <= total);
        last = (done, total);
    })
    .unwrap();
    assert_eq!(last, (170_000, 170_000));
    let inspection = inspect(&options.output).unwrap();
    assert_eq!(inspection.digest, DigestCheck::Matches);
    let manifest = &inspection.manifest;
    assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("windlass-minimal", "1.10"));
    assert_eq!((manifest.os(), manifest.api_version), ("windlass-minimal", Some(ApiVersion::V2)));
    assert_eq!(manifest.stemcell_formats, ["warden-tar"]);

    let into = folder.path("unpacked");
    fs::create_dir(&into).unwrap();
    unpack(&options.output, &into).unwrap();
    let root = folder.path("root");
    extract(&into.join("image"), &root);
    let agent = root.join("var/vcap/bosh/bin/bosh-agent");
    assert_eq!(fs::read(&agent).unwrap(), fs::read(&options.agent).unwrap());
    assert_eq!(mode(&agent), 0o755);
    assert_eq!(mode(&root.join("tmp")), 0o1777);
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(root.join("var/vcap/bosh/agent.json")).unwrap()).unwrap();
    let source = &config["Infrastructure"]["Settings"]["Sources"][0];
    assert_eq!(source["Type"], "File");
    assert_eq!(source["SettingsPath"], "/var/vcap/bosh/warden-cpi-agent-env.json");
    assert_eq!(config["Platform"]["Linux"]["BindMountPersistentDisk"], true);
    assert_eq!(fs::read_to_string(root.join("var/vcap/bosh/etc/operating_system")).unwrap(), "ubuntu\n");
    assert_eq!(fs::read_to_string(root.join("var/vcap/bosh/etc/stemcell_version")).unwrap(), "1.10\n");
    assert!(fs::read_to_string(root.join("etc/passwd")).unwrap().contains("\nvcap:x:1000:1000:"));
    for empty in ["dev", "proc", "sys", "tmp", "warden-cpi-dev", "var/vcap/micro_bosh/data/cache"] {
        assert_eq!(fs::read_dir(root.join(empty)).unwrap().count(), 0, "{empty}");
    }
    assert!(!root.join("var/vcap/data").exists(), "the agent makes it");
}

fn extract(image: &Path, root: &Path) {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(image).unwrap()));
    archive.set_preserve_permissions(true);
    archive.unpack(root).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_stemcell_that_could_not_work_is_not_built() {
    let folder = Folder::new();
    let good = options(&folder, "stemcell.tgz");
    let old = BuildOptions { api_version: ApiVersion::V1, ..good.clone() };
    assert!(matches!(build(&old, |_, _| {}), Err(BuildError::OldApiVersion(ApiVersion(1)))));
    let nameless = BuildOptions { name: String::new(), ..good.clone() };
    assert!(matches!(build(&nameless, |_, _| {}), Err(BuildError::Empty("name"))));
    for agent in [folder.path("missing"), folder.path("")] {
        assert!(matches!(build(&BuildOptions { agent, ..good.clone() }, |_, _| {}), Err(BuildError::Agent { .. })));
    }
    let nowhere = BuildOptions { output: folder.path("missing/stemcell.tgz"), ..good };
    assert!(matches!(build(&nowhere, |_, _| {}), Err(BuildError::Write { .. })));
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 1, "only the agent is there");
}

#[test]
fn a_build_replaces_an_older_stemcell_as_a_whole() {
    let folder = Folder::new();
    let options = options(&folder, "stemcell.tgz");
    fs::write(&options.output, "older").unwrap();
    build(&options, |_, _| {}).unwrap();
    let mut start = [0; 2];
    File::open(&options.output).unwrap().read_exact(&mut start).unwrap();
    assert_eq!(start, [0x1f, 0x8b]);
}
