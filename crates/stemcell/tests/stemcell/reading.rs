//! Stemcells that others send.

use std::fs;

use windlass_contract::ApiVersion;
use windlass_contract::explain;
use windlass_stemcell::{DigestCheck, ReadError, unpack};

use crate::rig::{Folder, Tarball};

pub(crate) const MANIFEST: &str = "---\nname: ubuntu-stemcell\noperating_system: toronto-os\nversion: \"3\"\napi_version: 3\n\
    sha1: shawone\nstemcell_formats: [\"dummy\"]\ncloud_properties:\n  property1: test\n";

fn inspect(path: &std::path::Path) -> Result<windlass_stemcell::Inspection, ReadError> {
    windlass_stemcell::inspect(path, |_, _| {})
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

/// As the contract's document prints it.
const DOCUMENTED: &str = "---
#### stemcell api_version
api_version: 2
name: bosh-aws-xen-hvm-ubuntu-xenial-go_agent
version: '621.74'
bosh_protocol: '1'
sha1: da39a3ee5e6b4b0d3255bfef95601890afd80709
operating_system: ubuntu-xenial
stemcell_formats:
- aws-light
cloud_properties:
  ami:
    us-east-1: ami-xxxxxx
    us-west-1: ami-xxxxxx
";

#[test]
fn the_stemcell_of_the_documents_is_read_as_they_mean_it() {
    let folder = Folder::new();
    let path = folder.with(&Tarball::new().file("stemcell.MF", DOCUMENTED.as_bytes()).file("image", b"").gzip());
    let inspection = inspect(&path).unwrap();
    assert_eq!(inspection.digest, DigestCheck::Matches, "its image is empty");
    let manifest = inspection.manifest;
    assert_eq!(manifest.api_version, Some(ApiVersion::V2));
    assert_eq!(
        (manifest.name.as_str(), manifest.version.as_str(), manifest.os()),
        ("bosh-aws-xen-hvm-ubuntu-xenial-go_agent", "621.74", "ubuntu-xenial")
    );
    assert_eq!(manifest.stemcell_formats, ["aws-light"]);
    let images = serde_json::json!({"ami": {"us-east-1": "ami-xxxxxx", "us-west-1": "ami-xxxxxx"}});
    assert_eq!(serde_json::to_value(manifest.cloud_properties).unwrap(), images);
}

#[test]
fn a_light_stemcell_has_an_empty_image() {
    let manifest = MANIFEST.replace("shawone", "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    let folder = Folder::new();
    let path = folder.with(&Tarball::new().file("stemcell.MF", manifest.as_bytes()).file("image", b"").gzip());
    assert_eq!(inspect(&path).unwrap().digest, DigestCheck::Matches);
}

#[test]
fn a_stemcell_from_before_api_versions_is_read() {
    let manifest = "name: old\nversion: '1.0'\nbosh_protocol: '1'\nsha1: ''\ncloud_properties: {}\n";
    let folder = Folder::new();
    let path = folder.with(&Tarball::new().file("stemcell.MF", manifest.as_bytes()).file("image", b"abc").gzip());
    let inspection = inspect(&path).unwrap();
    assert_eq!(inspection.manifest.api_version.unwrap_or_default(), ApiVersion::V1);
    assert!(inspection.manifest.stemcell_formats.is_empty());
    assert_eq!(inspection.digest, DigestCheck::Unknown);
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

#[test]
fn names_and_sizes_that_nobody_needs_are_refused_before_they_are_read() {
    // A name of gigabytes compresses to next to nothing.
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_path("././@LongLink").unwrap();
    header.set_size(1 << 40);
    header.set_cksum();
    let mut endless = header.as_bytes().to_vec();
    endless.resize(8 << 20, b'a');
    assert!(refusal(&endless).contains("take more than 4 MiB"));
    let mut header = tar::Header::new_gnu();
    header.set_path("image").unwrap();
    header.set_size(u64::MAX / 2);
    header.set_cksum();
    let mut larger_than_any_disk = header.as_bytes().to_vec();
    larger_than_any_disk.extend([0; 1024]);
    let folder = Folder::new();
    let path = folder.with(&larger_than_any_disk);
    assert!(explain(&inspect(&path).unwrap_err()).contains("it ends inside 'image'"));
    let refused = unpack(&path, folder.0.path()).unwrap_err();
    assert!(explain(&refused).contains("MiB that are left for it"), "{}", explain(&refused));
}

#[test]
fn progress_ends_where_the_file_does() {
    let folder = Folder::new();
    let bytes = Tarball::new().file("stemcell.MF", MANIFEST.as_bytes()).file("image", &[7; 300_000]).gzip();
    let mut last = (0, None);
    windlass_stemcell::inspect(&folder.with(&bytes), |done, total| last = (done, total)).unwrap();
    assert_eq!(last, (bytes.len() as u64, Some(bytes.len() as u64)));
}
