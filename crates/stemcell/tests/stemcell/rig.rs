//! What the tests are made of: tarballs entry by entry, folders that go away, and what is found in an image.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tempfile::TempDir;
use windlass_stemcell::unpack;

/// A tarball made entry by entry; names go in unchecked, as a hostile sender would write them.
pub(crate) struct Tarball(tar::Builder<Vec<u8>>);

impl Tarball {
    pub(crate) fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    pub(crate) fn entry(mut self, kind: tar::EntryType, name: &str, content: &[u8]) -> Self {
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

    pub(crate) fn file(self, name: &str, content: &[u8]) -> Self {
        self.entry(tar::EntryType::Regular, name, content)
    }

    pub(crate) fn link(self, kind: tar::EntryType, name: &str, target: &str) -> Self {
        let mut tarball = self;
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o777);
        header.set_size(0);
        tarball.0.append_link(&mut header, name, target).unwrap();
        tarball
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }

    pub(crate) fn gzip(self) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&self.bytes()).unwrap();
        encoder.finish().unwrap()
    }
}

pub(crate) struct Folder(pub(crate) TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn with(&self, bytes: &[u8]) -> PathBuf {
        let path = self.path("stemcell.tgz");
        fs::write(&path, bytes).unwrap();
        path
    }
}

/// An entry of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) kind: tar::EntryType,
    pub(crate) mode: u32,
    pub(crate) owner: (u64, u64),
    pub(crate) mtime: u64,
    pub(crate) link: PathBuf,
    pub(crate) content: Vec<u8>,
    pub(crate) attributes: Vec<(String, Vec<u8>)>,
}

impl Found {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).unwrap()
    }
}

/// What is in the image of a stemcell, by path. Nothing is there twice.
pub(crate) fn image_of(stemcell: &Path) -> BTreeMap<String, Found> {
    let into = tempfile::tempdir().unwrap();
    unpack(stemcell, into.path()).unwrap();
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(into.path().join("image")).unwrap()));
    let mut found = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut attributes = Vec::new();
        for extension in entry.pax_extensions().unwrap().into_iter().flatten() {
            let extension = extension.unwrap();
            attributes.push((extension.key().unwrap().to_owned(), extension.value_bytes().to_vec()));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let header = entry.header();
        let path = entry.path().unwrap().to_str().unwrap().trim_end_matches('/').to_owned();
        let entry = Found {
            kind: header.entry_type(),
            mode: header.mode().unwrap(),
            owner: (header.uid().unwrap(), header.gid().unwrap()),
            mtime: header.mtime().unwrap(),
            link: entry.link_name().unwrap().unwrap_or_default().into_owned(),
            content,
            attributes,
        };
        assert_eq!(found.insert(path.clone(), entry), None, "{path} is there twice");
    }
    found
}
