//! The verbs of people who make releases.

use std::path::{Path, PathBuf};

use windlass_release_author::built::Algorithm;
use windlass_release_author::{Blob, BuiltPackage, BuiltRelease, Create, ReleaseDirectory, Said};

use crate::cli::{AuthorVerb, CreateReleaseArgs, DirArgs, FinalizeReleaseArgs, RedigestArgs};
use crate::failure::Failure;
use crate::formats;
use crate::screen::Screen;
use crate::table::Table;

pub(super) fn run(screen: &mut Screen, verb: AuthorVerb) -> Result<(), Failure> {
    let at = |dir: &DirArgs| ReleaseDirectory::at(&dir.dir);
    match verb {
        AuthorVerb::InitRelease { dir, git } => at(&dir)?.init(git)?,
        AuthorVerb::ResetRelease(dir) => at(&dir)?.reset(&mut teller(screen))?,
        AuthorVerb::GenerateJob { name, dir } => at(&dir)?.generate_job(&name)?,
        AuthorVerb::GeneratePackage { name, dir } => at(&dir)?.generate_package(&name)?,
        AuthorVerb::CreateRelease(arguments) => create(screen, arguments)?,
        AuthorVerb::FinalizeRelease(arguments) => finalize(screen, arguments)?,
        AuthorVerb::VendorPackage { package, source, dir, prefix } => {
            let source = ReleaseDirectory::at(&source)?;
            at(&dir)?.vendor(&package, &source, &prefix, &mut teller(screen))?;
        }
        AuthorVerb::InspectLocalRelease { file } => show(screen, &BuiltRelease::of_tarball(&file)?, Some(&file)),
        AuthorVerb::Sha1ifyRelease(arguments) => redigest(screen, arguments, Algorithm::Sha1)?,
        AuthorVerb::Sha2ifyRelease(arguments) => redigest(screen, arguments, Algorithm::Sha256)?,
        AuthorVerb::Blobs(dir) => screen.table(&blobs(at(&dir)?.blobs().list()?)),
        AuthorVerb::AddBlob { file, blob, dir } => at(&dir)?.blobs().add(&file, &blob, &mut teller(screen))?,
        AuthorVerb::RemoveBlob { blob, dir } => at(&dir)?.blobs().remove(&blob, &mut teller(screen))?,
        AuthorVerb::SyncBlobs(dir) => at(&dir)?.blobs().sync(&mut teller(screen))?,
        AuthorVerb::UploadBlobs(dir) => at(&dir)?.blobs().upload(&mut teller(screen))?,
    }
    screen.check_columns()
}

/// Steps stand together, results by themselves.
pub(super) fn teller(screen: &mut Screen) -> impl FnMut(Said) {
    let mut among_steps = false;
    move |said| match said {
        Said::Step(text) => {
            let text = format!("{}\n", screen.fitted_with_short_ids(&text));
            if among_steps {
                screen.continue_line(&text)
            } else {
                screen.begin_line(&text)
            }
            among_steps = true;
        }
        Said::Line(text) => {
            screen.line(&text);
            among_steps = false;
        }
        Said::Warning(text) => {
            screen.warning(&text);
            among_steps = false;
        }
    }
}

fn create(screen: &mut Screen, arguments: CreateReleaseArgs) -> Result<(), Failure> {
    let directory = ReleaseDirectory::at(&arguments.dir.dir)?;
    let release = match &arguments.manifest {
        Some(manifest) => directory.of_manifest(manifest, &mut teller(screen))?,
        None => {
            let options = Create {
                name: arguments.name,
                version: arguments.release_version,
                timestamp: arguments.timestamp_version,
                is_final: arguments.is_final,
                force: arguments.force,
            };
            directory.create(&options, &mut teller(screen))?
        }
    };
    let tarball = arguments.tarball.map(|path| named(&path, &release)).transpose()?;
    if let Some(path) = &tarball {
        release.write_tarball(path, &[])?;
    }
    show(screen, &release, tarball.as_deref());
    Ok(())
}

/// Where a tarball goes: absolute, as the original shows it, and with the release's name and version in it.
fn named(path: &Path, release: &BuiltRelease) -> Result<PathBuf, Failure> {
    let text = path.to_string_lossy().replace("((name))", &release.name).replace("((version))", &release.version);
    std::path::absolute(&text).map_err(|source| Failure::Write { path: path.to_owned(), source })
}

fn finalize(screen: &mut Screen, arguments: FinalizeReleaseArgs) -> Result<(), Failure> {
    let directory = ReleaseDirectory::at(&arguments.dir.dir)?;
    let mut release = open(&directory, &arguments.source, screen)?;
    release.name = arguments.name.unwrap_or(release.name);
    directory.finalize(&mut release, arguments.release_version.as_deref(), arguments.force, &mut teller(screen))?;
    show(screen, &release, None);
    Ok(())
}

/// A release from wherever a user says: a tarball, the manifest of a version, or a directory with its latest version.
pub(super) fn open(directory: &ReleaseDirectory, path: &Path, screen: &mut Screen) -> Result<BuiltRelease, Failure> {
    if path.extension().is_some_and(|extension| extension == "yml") {
        return Ok(directory.of_manifest(path, &mut teller(screen))?);
    }
    if path.is_dir() {
        return Ok(ReleaseDirectory::at(path)?.find(None, None, &mut teller(screen))?);
    }
    Ok(BuiltRelease::of_tarball(path)?)
}

fn redigest(screen: &mut Screen, arguments: RedigestArgs, algorithm: Algorithm) -> Result<(), Failure> {
    let mut release = BuiltRelease::of_tarball(&arguments.file)?;
    release.rehash(algorithm)?;
    let path = arguments.destination;
    let path = std::path::absolute(&path).map_err(|source| Failure::Write { path, source })?;
    release.write_tarball(&path, &[])?;
    show(screen, &release, Some(&path));
    Ok(())
}

fn show(screen: &mut Screen, release: &BuiltRelease, archive: Option<&Path>) {
    let mut summary = Table {
        header: vec!["Name", "Version", "Commit Hash"],
        rows: vec![vec![release.name.clone(), release.version.clone(), release.commit()]],
        transpose: true,
        ..Table::default()
    };
    if let Some(archive) = archive {
        summary.header.push("Archive");
        summary.rows[0].push(archive.display().to_string());
    }
    screen.table(&summary);
    let mut jobs: Vec<Vec<String>> = release
        .jobs
        .iter()
        .map(|job| {
            let name = format!("{}/{}", job.part.name, job.part.fingerprint);
            vec![name, job.part.digest.clone(), job.packages.join("\n")]
        })
        .collect();
    jobs.sort();
    screen.table(&Table { content: "jobs", header: vec!["Job", "Digest", "Packages"], rows: jobs, ..Table::default() });
    screen.table(&packages(release));
}

fn packages(release: &BuiltRelease) -> Table {
    let mut header = vec!["Package", "Digest", "Dependencies"];
    if release.is_compiled() {
        header.extend(["OS", "OS Version"]);
    }
    let row = |package: &BuiltPackage| {
        let part = &package.part;
        let name = format!("{}/{}", part.name, part.fingerprint);
        let mut row = vec![name, part.digest.clone(), package.dependencies.join("\n")];
        if let Some(stemcell) = &package.stemcell {
            let (os, version) = stemcell.split_once('/').unwrap_or((stemcell, ""));
            row.extend([os.to_owned(), version.to_owned()]);
        }
        row.resize(header.len(), String::new());
        row
    };
    let mut rows: Vec<Vec<String>> = release.packages.iter().map(row).collect();
    rows.sort();
    Table { content: "packages", header, rows, ..Table::default() }
}

fn blobs(blobs: Vec<Blob>) -> Table {
    let row = |blob: Blob| {
        let id = blob.id.unwrap_or_else(|| "(local)".to_owned());
        vec![blob.path, formats::size(blob.size), id, blob.digest]
    };
    let rows = blobs.into_iter().map(row).collect();
    Table { content: "blobs", header: vec!["Path", "Size", "Blobstore ID", "Digest"], rows, ..Table::default() }
}
