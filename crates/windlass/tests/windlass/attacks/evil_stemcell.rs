//! Small stemcells that become large.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{EntryType, Header};

use crate::stemcell::tarball_of;

/// A stemcell for the built-in clouds.
pub(super) fn of_image(image: &[u8]) -> Vec<u8> {
    of_format("warden-tar", image)
}

pub(super) fn of_format(format: &str, image: &[u8]) -> Vec<u8> {
    let manifest = format!(
        "name: evil\nversion: '1'\noperating_system: evil\napi_version: 2\nstemcell_formats: [{format}]\ncloud_properties: {{}}\n"
    );
    tarball_of(&manifest, image)
}

/// An image whose only file has a name of so many letters.
pub(super) fn with_a_name_of(letters: u64) -> Vec<u8> {
    const PIECE: u64 = 16 << 20;
    let mut image = packed(long_name(letters).as_bytes());
    // The same packed piece again and again: each is a member of the archive.
    let piece = packed(&vec![b'a'; PIECE as usize]);
    (0..letters / PIECE).for_each(|_| image.extend(&piece));
    image.extend(packed(&a_file()));
    image
}

/// An image whose only file is that many folders deep.
pub(super) fn with_folders_in_folders(depth: usize) -> Vec<u8> {
    let name = "a/".repeat(depth) + "x";
    let mut archive = long_name(name.len() as u64).as_bytes().to_vec();
    archive.extend(name.as_bytes());
    archive.resize(archive.len().next_multiple_of(512), 0);
    archive.extend(a_file());
    packed(&archive)
}

/// The head of a name that follows.
fn long_name(letters: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_path("././@LongLink").unwrap();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(letters);
    header.set_cksum();
    header
}

fn a_file() -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_path("x").unwrap();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(0);
    header.set_cksum();
    [header.as_bytes().as_slice(), &[0; 1024]].concat()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}
