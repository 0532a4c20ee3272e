//! A release whose archives are all there, its manifest and its tarball.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use windlass_archive::{Budget, Limits, Tarball, decompressed, first_bytes, inside};
use windlass_durable::file;

use crate::error::AuthorError;
use crate::verify;
use crate::yaml::scalar;

/// A job, package or licence with its archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    /// The digest of what it was made of.
    pub fingerprint: String,
    /// The digest of its archive.
    pub digest: String,
    pub archive: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltJob {
    pub part: Part,
    /// The packages that it needs.
    pub packages: Vec<String>,
}

/// A package, as source or compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltPackage {
    pub part: Part,
    /// The packages that it needs directly.
    pub dependencies: Vec<String>,
    /// For which `os/version` it is compiled; none for source.
    pub stemcell: Option<String>,
}

#[derive(Debug)]
pub struct BuiltRelease {
    pub name: String,
    pub version: String,
    /// The commit it was made of.
    pub commit_hash: String,
    /// Whether there were changes that no commit has.
    pub uncommitted_changes: bool,
    /// Its jobs, by name.
    pub jobs: Vec<BuiltJob>,
    /// Its packages, by name.
    pub packages: Vec<BuiltPackage>,
    pub license: Option<Part>,
    /// Whether its tarball is written without compression.
    pub no_compression: bool,
    /// Where archives of a tarball are laid out.
    pub(crate) _laid_out: Option<tempfile::TempDir>,
}

/// How digests are calculated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// For directors of long ago.
    Sha1,
    /// For those of today.
    Sha256,
}

impl BuiltRelease {
    /// Reads a tarball; each archive is what its digest says.
    pub fn of_tarball(tarball: &Path) -> Result<Self, AuthorError> {
        let folder = tempfile::tempdir().map_err(|error| AuthorError::Write(std::env::temp_dir(), error))?;
        let release = windlass_release::read(tarball, folder.path())?;
        let manifest = release.manifest;
        let jobs = manifest.jobs.into_iter().zip(release.jobs).map(|(listed, job)| BuiltJob {
            part: Part {
                name: listed.name,
                fingerprint: listed.fingerprint,
                digest: listed.sha1,
                archive: job.archive,
            },
            packages: job.job.spec.packages,
        });
        let listed = manifest.packages.into_iter().map(|package| (package, None));
        let compiled = manifest.compiled_packages.into_iter().map(|it| (it.package, Some(it.stemcell.to_string())));
        let mut packages = Vec::new();
        for (package, stemcell) in listed.chain(compiled) {
            let archive = release.packages.get(&package.name).cloned();
            let archive = archive.ok_or_else(|| AuthorError::NoArchive {
                name: package.name.clone(),
                fingerprint: package.fingerprint.clone(),
                digest: package.sha1.clone(),
            })?;
            let part = Part { name: package.name, fingerprint: package.fingerprint, digest: package.sha1, archive };
            packages.push(BuiltPackage { part, dependencies: package.dependencies, stemcell });
        }
        let license = manifest.license.zip(release.license).map(|(listed, archive)| Part {
            name: "license".to_owned(),
            fingerprint: listed.fingerprint,
            digest: listed.sha1,
            archive,
        });
        Ok(Self {
            name: manifest.name,
            version: manifest.version,
            commit_hash: manifest.commit_hash.unwrap_or_default(),
            uncommitted_changes: manifest.uncommitted_changes,
            jobs: jobs.collect(),
            packages,
            license,
            no_compression: manifest.no_compression,
            _laid_out: Some(folder),
        })
    }

    /// The commit, with a mark if that is not all.
    pub fn commit(&self) -> String {
        format!("{}{}", self.commit_hash, if self.uncommitted_changes { "+" } else { "" })
    }

    /// Whether it has compiled packages.
    pub fn is_compiled(&self) -> bool {
        self.packages.iter().any(|package| package.stemcell.is_some())
    }

    /// The text of its `release.MF`.
    pub fn manifest(&self) -> String {
        let mut text = format!(
            "name: {}\nversion: {}\ncommit_hash: {}\nuncommitted_changes: {}\n",
            scalar(&self.name),
            scalar(&self.version),
            scalar(&self.commit_hash),
            self.uncommitted_changes
        );
        let entry = |part: &Part| {
            let (name, fingerprint) = (scalar(&part.name), scalar(&part.fingerprint));
            let digest = scalar(&part.digest);
            format!("- name: {name}\n  version: {fingerprint}\n  fingerprint: {fingerprint}\n  sha1: {digest}\n")
        };
        if !self.jobs.is_empty() {
            text.push_str("jobs:\n");
        }
        for job in &self.jobs {
            text.push_str(&(entry(&job.part) + &names("packages", &job.packages)));
        }
        for (title, compiled) in [("packages", false), ("compiled_packages", true)] {
            let listed: Vec<_> = self.packages.iter().filter(|it| it.stemcell.is_some() == compiled).collect();
            if !listed.is_empty() {
                text.push_str(&format!("{title}:\n"));
            }
            for package in listed {
                text.push_str(&entry(&package.part));
                if let Some(stemcell) = &package.stemcell {
                    text.push_str(&format!("  stemcell: {}\n", scalar(stemcell)));
                }
                text.push_str(&names("dependencies", &package.dependencies));
            }
        }
        if let Some(license) = &self.license {
            let (fingerprint, digest) = (scalar(&license.fingerprint), scalar(&license.digest));
            text.push_str(&format!(
                "license:\n  version: {fingerprint}\n  fingerprint: {fingerprint}\n  sha1: {digest}\n"
            ));
        }
        text.push_str(&format!("no_compression: {}\n", self.no_compression));
        text
    }

    /// All archives.
    pub(crate) fn parts(&mut self) -> impl Iterator<Item = &mut Part> {
        let jobs = self.jobs.iter_mut().map(|job| &mut job.part);
        jobs.chain(self.packages.iter_mut().map(|package| &mut package.part)).chain(self.license.as_mut())
    }

    /// Says all digests with another algorithm, once the archives are checked by their own.
    pub fn rehash(&mut self, algorithm: Algorithm) -> Result<(), AuthorError> {
        for part in self.parts() {
            verify(&part.archive, &part.name, &part.digest)?;
            let failed = |error| AuthorError::Read(part.archive.clone(), error);
            let mut file = File::open(&part.archive).map_err(failed)?;
            part.digest = match algorithm {
                Algorithm::Sha1 => windlass_archive::digest::sha1(&mut file).map_err(failed)?,
                Algorithm::Sha256 => crate::fingerprint::digest_of(&mut file).map_err(failed)?,
            };
        }
        Ok(())
    }

    /// Writes its tarball, without the packages of these fingerprints.
    pub fn write_tarball(&self, to: &Path, without: &[String]) -> Result<(), AuthorError> {
        let cannot_write = |error| AuthorError::Write(to.to_owned(), error);
        let temporary = file::beside(to).map_err(cannot_write)?;
        let done = self.write_into(&temporary, without);
        let done = done.and_then(|()| file::rename(&temporary, to).map_err(cannot_write));
        if done.is_err() {
            file::discard(&temporary);
        }
        done
    }

    fn write_into(&self, path: &Path, without: &[String]) -> Result<(), AuthorError> {
        let failed = |error| AuthorError::Write(path.to_owned(), error);
        let file = File::create_new(path).map_err(failed)?;
        let file = if self.no_compression {
            self.write(file, without)?
        } else {
            // The archives inside are compressed; to look for more to gain costs time and gives nothing.
            self.write(GzEncoder::new(file, Compression::fast()), without)?.finish().map_err(failed)?
        };
        file.sync_all().map_err(failed)
    }

    fn write<W: Write>(&self, to: W, without: &[String]) -> Result<W, AuthorError> {
        let cannot_write = |error| AuthorError::Write(PathBuf::from("the tarball"), error);
        let mut tar = tar::Builder::new(to);
        add(&mut tar, "release.MF", self.manifest().as_bytes()).map_err(cannot_write)?;
        if !self.jobs.is_empty() {
            folder(&mut tar, "jobs/").map_err(cannot_write)?;
        }
        for job in &self.jobs {
            add_file(&mut tar, &format!("jobs/{}.tgz", job.part.name), &job.part.archive)?;
        }
        for (place, compiled) in [("packages", false), ("compiled_packages", true)] {
            let mut listed = self.packages.iter().filter(|it| it.stemcell.is_some() == compiled).peekable();
            if listed.peek().is_some() {
                folder(&mut tar, &format!("{place}/")).map_err(cannot_write)?;
            }
            for package in listed.filter(|package| !without.contains(&package.part.fingerprint)) {
                add_file(&mut tar, &format!("{place}/{}.tgz", package.part.name), &package.part.archive)?;
            }
        }
        if let Some(license) = &self.license {
            add_file(&mut tar, "license.tgz", &license.archive)?;
            for (name, content) in files_of(&license.archive)? {
                let added = match content {
                    Laid::File(content) => add(&mut tar, &name, &content),
                    Laid::Link(target) => {
                        tar.append_link(&mut header(0, tar::EntryType::Symlink, 0o777), &name, target)
                    }
                };
                added.map_err(cannot_write)?;
            }
        }
        tar.into_inner().map_err(cannot_write)
    }
}

fn names(key: &str, names: &[String]) -> String {
    match names {
        [] => format!("  {key}: []\n"),
        names => {
            let lines: String = names.iter().map(|name| format!("  - {}\n", scalar(name))).collect();
            format!("  {key}:\n{lines}")
        }
    }
}

fn header(size: u64, kind: tar::EntryType, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header
}

fn folder(tar: &mut tar::Builder<impl Write>, name: &str) -> io::Result<()> {
    tar.append_data(&mut header(0, tar::EntryType::Directory, 0o755), name, io::empty())
}

fn add(tar: &mut tar::Builder<impl Write>, name: &str, content: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(content.len() as u64, tar::EntryType::Regular, 0o644), name, content)
}

fn add_file(tar: &mut tar::Builder<impl Write>, name: &str, path: &Path) -> Result<(), AuthorError> {
    let failed = |error| AuthorError::Read(path.to_owned(), error);
    let file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let mut header = header(size, tar::EntryType::Regular, 0o644);
    tar.append_data(&mut header, name, file.take(size)).map_err(failed)
}

/// What lies beside a licence's archive.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Laid {
    File(Vec<u8>),
    Link(PathBuf),
}

/// The files of a licence, which lie beside its archive for people.
fn files_of(license: &Path) -> Result<Vec<(String, Laid)>, AuthorError> {
    let failed = |error| AuthorError::Read(license.to_owned(), error);
    let mut file = File::open(license).map_err(failed)?;
    let start = first_bytes(&mut file).map_err(failed)?;
    let limits = Limits { bytes: 16 << 20, entries: 1000, ..Limits::default() };
    let mut files = Vec::new();
    let reader = decompressed(&start, io::BufReader::new(file));
    Tarball::within(reader, &Budget::new(limits)).each(failed, |entry| {
        let name = inside(&entry.path_bytes()).and_then(|path| path.to_str().map(str::to_owned));
        let is_license = |name: &String| name.starts_with("LICENSE") || name.starts_with("NOTICE");
        let Some(name) = name.filter(is_license) else { return Ok(()) };
        if entry.header().entry_type().is_file() {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(failed)?;
            files.push((name, Laid::File(content)));
        } else if let Some(target) = entry.link_name().map_err(failed)? {
            files.push((name, Laid::Link(target.into_owned())));
        }
        Ok(())
    })?;
    files.sort();
    Ok(files)
}
