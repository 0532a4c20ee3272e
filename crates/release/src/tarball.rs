//! A whole release, read from its tarball.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_archive::digest::Digest;
use windlass_archive::{Budget, Limits, Space, Tarball, decompressed, first_bytes, inside};

use crate::error::ReleaseError;
use crate::job::Job;
use crate::manifest::{self, Package, ReleaseManifest};
use crate::members::Members;

/// `release.MF` of the largest releases has some hundred KiB.
const LARGEST_MANIFEST: u64 = 4 << 20;

/// The largest releases have some hundred packages.
const MOST_MEMBERS: u64 = 20_000;

/// The licence's archive in the tarball.
const LICENSE: &str = "license.tgz";

/// What the templates and descriptions of all jobs may have together: they are held in memory, and those of public releases have less than ten.
const LARGEST_JOBS_MIB: usize = 32;

/// What the packages of a release may have together, once they are unpacked. Those of the largest public releases have a tenth.
const OF_ALL_PACKAGES: Limits = Limits { bytes: 64 << 30, entries: 2_000_000, time: Duration::from_secs(20 * 60) };

/// A release that was read, and whose archives are in a folder.
#[derive(Debug)]
pub struct Release {
    pub manifest: ReleaseManifest,
    /// Its jobs, in the manifest's order.
    pub jobs: Vec<JobArchive>,
    /// The archives of its packages, by name: source, or compiled where the release is. A client leaves out those that the
    /// director has.
    pub packages: BTreeMap<String, PathBuf>,
    /// The archive of its licence.
    pub license: Option<PathBuf>,
}

/// A job and its archive.
#[derive(Debug)]
pub struct JobArchive {
    pub job: Job,
    pub archive: PathBuf,
}

/// Reads a release and lays its archives out in `folder`, which is the caller's, and empty. Each archive is what `release.MF`
/// says, each job can be read, and each package that a job needs is listed.
pub fn read(tarball: &Path, folder: &Path) -> Result<Release, ReleaseError> {
    let (text, archives) = lay_out(tarball, folder)?;
    let manifest = ReleaseManifest::parse(&text)?;
    let mut jobs = Vec::new();
    let mut of_jobs = 0;
    for entry in &manifest.jobs {
        let archive = found(&archives, "job", "jobs", &entry.name)?;
        verify("job", &entry.name, &entry.sha1, &archive)?;
        let job = Job::read(&archive, &entry.name)?;
        let is_listed = |package: &String| manifest.all_packages().any(|listed| listed.name == *package);
        if let Some(package) = job.spec.packages.iter().find(|package| !is_listed(package)) {
            return Err(ReleaseError::UnknownPackage { job: entry.name.clone(), package: package.clone() });
        }
        of_jobs += job.size();
        if of_jobs > LARGEST_JOBS_MIB << 20 {
            return Err(ReleaseError::LargeJobs { job: entry.name.clone(), mib: LARGEST_JOBS_MIB });
        }
        jobs.push(JobArchive { job, archive });
    }
    let mut packages = BTreeMap::new();
    let budget = Budget::new(OF_ALL_PACKAGES);
    let compiled = manifest.compiled_packages.iter().map(|compiled| &compiled.package);
    let sources = manifest.packages.iter().map(|package| ("package", "packages", package));
    for (kind, place, package) in
        sources.chain(compiled.map(|package| ("compiled package", "compiled_packages", package)))
    {
        packages.extend(package_archive(&archives, kind, place, package, &budget)?);
    }
    let license = archives.get(Path::new(LICENSE)).cloned().filter(|_| manifest.license.is_some());
    if let (Some(listed), Some(archive)) = (&manifest.license, &license) {
        verify("licence", "license", &listed.sha1, archive)?;
    }
    Ok(Release { manifest, jobs, packages, license })
}

/// Reads what a tarball has, and nothing behind it: `release.MF` and what it says.
pub fn read_manifest(tarball: &Path) -> Result<(String, ReleaseManifest), ReleaseError> {
    /// Ends the reading.
    enum Stop {
        Found(String),
        Failed(io::Error),
    }
    let mut file = open(tarball)?;
    let damaged = |source| ReleaseError::Archive("the tarball".to_owned(), source);
    let start = first_bytes(&mut file).map_err(damaged)?;
    let stopped = Tarball::new(decompressed(&start, BufReader::new(file))).each(Stop::Failed, |entry| {
        if inside(&entry.path_bytes()).as_deref() != Some(Path::new(manifest::NAME)) {
            return Ok(());
        }
        let mut text = String::new();
        entry.take(LARGEST_MANIFEST).read_to_string(&mut text).map_err(Stop::Failed)?;
        Err(Stop::Found(text))
    });
    match stopped {
        Ok(()) => Err(ReleaseError::NoManifest),
        Err(Stop::Failed(error)) => Err(damaged(error)),
        Err(Stop::Found(text)) => ReleaseManifest::parse(&text).map(|manifest| (text, manifest)),
    }
}

/// Clients leave out packages that a director has.
fn package_archive(
    archives: &BTreeMap<PathBuf, PathBuf>,
    kind: &'static str,
    place: &str,
    package: &Package,
    budget: &Budget,
) -> Result<Option<(String, PathBuf)>, ReleaseError> {
    let Ok(archive) = found(archives, kind, place, &package.name) else { return Ok(None) };
    verify(kind, &package.name, &package.sha1, &archive)?;
    check(kind, &package.name, &archive, budget)?;
    Ok(Some((package.name.clone(), archive)))
}

fn found(
    archives: &BTreeMap<PathBuf, PathBuf>,
    kind: &'static str,
    place: &str,
    name: &str,
) -> Result<PathBuf, ReleaseError> {
    let file = format!("{place}/{name}.tgz");
    let missing = || ReleaseError::Missing { kind, name: name.to_owned(), file: file.clone() };
    archives.get(Path::new(&file)).cloned().ok_or_else(missing)
}

fn verify(kind: &'static str, name: &str, digest: &str, archive: &Path) -> Result<(), ReleaseError> {
    let digest =
        Digest::parse(digest).map_err(|source| ReleaseError::NoDigest { kind, name: name.to_owned(), source })?;
    let mut file = open(archive)?;
    digest.verify(&mut file).map_err(|source| ReleaseError::Digest { kind, name: name.to_owned(), source })
}

/// Whether an archive can be read to its end, and agents can unpack it. Nothing of it is written.
fn check(kind: &'static str, name: &str, archive: &Path, budget: &Budget) -> Result<(), ReleaseError> {
    let mut file = open(archive)?;
    let damaged = |source| ReleaseError::Archive(format!("the archive of {kind} '{name}'"), source);
    let start = first_bytes(&mut file).map_err(damaged)?;
    // Compressed in ways that only agents read: they say so when they cannot.
    let others: [&[u8]; 3] = [b"BZh", &[0xfd, b'7', b'z', b'X', b'Z'], &[0x28, 0xb5, 0x2f, 0xfd]];
    if others.iter().any(|other| start.starts_with(other)) {
        return Ok(());
    }
    // A name that is there twice is only written twice.
    let mut members = Members::of(&format!("the archive of {kind} '{name}'"));
    Tarball::within(decompressed(&start, BufReader::new(file)), budget).each(damaged, |entry| members.unpackable(entry))
}

fn open(path: &Path) -> Result<File, ReleaseError> {
    File::open(path).map_err(|source| ReleaseError::Read { path: path.to_owned(), source })
}

/// Unlike `io::copy`, tells a damaged tarball from a disk that takes no more.
fn copy(from: &mut impl Read, path: &Path, damaged: impl Fn(io::Error) -> ReleaseError) -> Result<(), ReleaseError> {
    let cannot_write = |source| ReleaseError::Write { path: path.to_owned(), source };
    let mut to = File::create_new(path).map_err(cannot_write)?;
    let mut space = Space::of(path.parent().unwrap_or(Path::new(".")));
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                space.take(count as u64).and_then(|()| to.write_all(&buffer[..count])).map_err(cannot_write)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(damaged(error)),
        }
    }
}

/// Writes the archives of a release into `folder`; returns the manifest's text, and where each archive is by its path in the
/// tarball.
fn lay_out(tarball: &Path, folder: &Path) -> Result<(String, BTreeMap<PathBuf, PathBuf>), ReleaseError> {
    let damaged = |source| ReleaseError::Archive("the tarball".to_owned(), source);
    let mut file = open(tarball)?;
    let start = first_bytes(&mut file).map_err(damaged)?;
    let no_space = |source| ReleaseError::Write { path: folder.to_owned(), source };
    let limits = Limits { entries: MOST_MEMBERS, ..Limits::of_space(folder).map_err(no_space)? };
    let mut members = Members::of("the tarball");
    let mut text = None;
    let mut archives = BTreeMap::new();
    let reader = decompressed(&start, BufReader::with_capacity(64 * 1024, file));
    Tarball::within(reader, &Budget::new(limits)).each(damaged, |entry| {
        let Some(path) = members.file(entry)? else { return Ok(()) };
        if path == Path::new(manifest::NAME) {
            let mut bytes = Vec::new();
            entry.take(LARGEST_MANIFEST + 1).read_to_end(&mut bytes).map_err(damaged)?;
            let is_fine = bytes.len() as u64 <= LARGEST_MANIFEST;
            let not_text =
                || damaged(io::Error::new(io::ErrorKind::InvalidData, "release.MF is too large or not UTF-8"));
            text = Some(String::from_utf8(bytes).ok().filter(|_| is_fine).ok_or_else(not_text)?);
        } else if path == Path::new(LICENSE)
            || (path.extension().is_some_and(|extension| extension == "tgz") && path.components().count() == 2)
        {
            // Numbered: their names in the tarball are those of strangers.
            let archive = folder.join(format!("{}.tgz", archives.len()));
            copy(entry, &archive, damaged)?;
            archives.insert(path, archive);
        }
        Ok(())
    })?;
    Ok((text.ok_or(ReleaseError::NoManifest)?, archives))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small archive may have millions of entries, and a release thousands of such archives.
    #[test]
    fn packages_share_what_a_release_may_take_and_the_one_too_many_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.tgz");
        let mut builder = tar::Builder::new(File::create(&path).unwrap());
        for number in 0..600 {
            let mut header = tar::Header::new_gnu();
            header.set_size(0);
            builder.append_data(&mut header, number.to_string(), io::empty()).unwrap();
        }
        builder.into_inner().unwrap();
        let budget = Budget::new(Limits { entries: 1000, ..OF_ALL_PACKAGES });
        check("package", "first", &path, &budget).unwrap();
        let refused = check("package", "second", &path, &budget).unwrap_err();
        let ReleaseError::Archive(what, why) = &refused else { panic!("{refused}") };
        assert_eq!(what, "the archive of package 'second'");
        assert!(why.to_string().contains("more than 1000 entries"), "{why}");
    }
}
