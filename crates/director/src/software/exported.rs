//! The tarball of an exported release: jobs and compiled packages, as BOSH's director packs them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use windlass_manifest::to_yaml;
use windlass_operations::clock;
use windlass_planning::records::{JobRecord, PackageRecord, ReleaseRecord};

/// A package that was compiled, and where its archive is.
pub(crate) struct ExportedPackage {
    pub(crate) package: PackageRecord,
    /// The digest of the compiled archive.
    pub(crate) sha1: String,
    pub(crate) archive: PathBuf,
}

pub(crate) struct ExportedJob {
    pub(crate) job: JobRecord,
    pub(crate) archive: PathBuf,
}

/// The text of its `release.MF`, with BOSH's keys in BOSH's order.
pub(crate) fn manifest(
    release: &ReleaseRecord,
    stemcell: &str,
    packages: &[ExportedPackage],
    jobs: &[ExportedJob],
) -> String {
    let package = |ExportedPackage { package, sha1, .. }: &ExportedPackage| {
        json!({
            "name": package.name, "version": package.version, "fingerprint": package.fingerprint, "sha1": sha1,
            "stemcell": stemcell, "dependencies": package.dependencies,
        })
    };
    let job = |ExportedJob { job, .. }: &ExportedJob| json!({"name": job.name, "version": job.version, "fingerprint": job.fingerprint, "sha1": job.sha1});
    let manifest = json!({
        "compiled_packages": packages.iter().map(package).collect::<Value>(),
        "jobs": jobs.iter().map(job).collect::<Value>(),
        "commit_hash": release.commit_hash, "uncommitted_changes": release.uncommitted_changes,
        "name": release.name, "version": release.version,
    });
    format!("---\n{}", to_yaml(&manifest))
}

/// Writes the tarball, from file to file.
pub(crate) fn pack(manifest: &str, jobs: &[ExportedJob], packages: &[ExportedPackage], into: &Path) -> io::Result<()> {
    // The archives inside are compressed; to look for more to gain costs time and gives nothing.
    let mut tar = tar::Builder::new(GzEncoder::new(File::create_new(into)?, Compression::fast()));
    let text = manifest.as_bytes();
    tar.append(&header("./release.MF", text.len() as u64, tar::EntryType::Regular)?, text)?;
    tar.append(&header("./jobs/", 0, tar::EntryType::Directory)?, io::empty())?;
    for ExportedJob { job, archive } in jobs {
        add(&mut tar, &format!("./jobs/{}.tgz", job.name), archive)?;
    }
    tar.append(&header("./compiled_packages/", 0, tar::EntryType::Directory)?, io::empty())?;
    for ExportedPackage { package, archive, .. } in packages {
        add(&mut tar, &format!("./compiled_packages/{}.tgz", package.name), archive)?;
    }
    tar.into_inner()?.finish()?.sync_all()
}

/// Names begin with `./`, which the builder would leave away.
fn header(name: &str, size: u64, kind: tar::EntryType) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_gnu();
    let bytes = name.as_bytes();
    let place = header.as_old_mut().name.get_mut(..bytes.len());
    let too_long = || io::Error::new(io::ErrorKind::InvalidInput, format!("'{name}' is too long for a tar archive"));
    place.ok_or_else(too_long)?.copy_from_slice(bytes);
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(if kind.is_dir() { 0o755 } else { 0o644 });
    header.set_mtime(u64::try_from(clock::now()).unwrap_or_default());
    header.set_cksum();
    Ok(header)
}

fn add(tar: &mut tar::Builder<impl Write>, name: &str, archive: &Path) -> io::Result<()> {
    let file = File::open(archive)?;
    let size = file.metadata()?.len();
    match header(name, size, tar::EntryType::Regular) {
        Ok(header) => tar.append(&header, file.take(size)),
        // A name that needs an extension of the format, which the builder writes.
        Err(_) => {
            let mut header = header("./", size, tar::EntryType::Regular)?;
            tar.append_data(&mut header, name, file.take(size))
        }
    }
}

/// As clients check it.
pub(crate) fn digest(path: &Path, sha2: bool) -> io::Result<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match sha2 {
        true => Ok(format!("sha256:{}", hex(&hashed::<Sha256>(path)?))),
        false => Ok(hex(&hashed::<Sha1>(path)?)),
    }
}

fn hashed<D: Digest + Write>(path: &Path) -> io::Result<Vec<u8>> {
    let mut hash = D::new();
    io::copy(&mut File::open(path)?, &mut hash)?;
    Ok(hash.finalize().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exported_release_is_one_that_can_be_read_with_names_of_any_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let archive = |name: &str, files: &[(&str, &str)]| {
            let mut tar = tar::Builder::new(GzEncoder::new(File::create(path(name)).unwrap(), Compression::fast()));
            for (name, content) in files {
                let mut header = header("./", content.len() as u64, tar::EntryType::Regular).unwrap();
                tar.append_data(&mut header, name, content.as_bytes()).unwrap();
            }
            tar.into_inner().unwrap().finish().unwrap();
            digest(&path(name), false).unwrap()
        };
        let long = "p".repeat(120);
        let job = archive("job", &[("job.MF", &format!("name: web\npackages: [{long}]\n")), ("monit", "")]);
        let package = archive("package", &[("bin", "x")]);
        let release = ReleaseRecord {
            name: "shop".into(),
            version: "1".into(),
            commit_hash: "123e4".into(),
            ..ReleaseRecord::default()
        };
        let jobs = [ExportedJob {
            job: JobRecord {
                id: 1,
                name: "web".into(),
                version: "12".into(),
                fingerprint: "12".into(),
                sha1: job,
                blob: String::new(),
                spec: Value::Null,
            },
            archive: path("job"),
        }];
        let packages = [ExportedPackage {
            package: PackageRecord {
                id: 1,
                name: long.clone(),
                version: "0x1".into(),
                fingerprint: "0x1".into(),
                source: None,
                dependencies: Vec::new(),
            },
            sha1: package,
            archive: path("package"),
        }];
        let text = manifest(&release, "os/1", &packages, &jobs);
        assert!(text.starts_with("---\ncompiled_packages:\n"), "{text}");
        pack(&text, &jobs, &packages, &path("release.tgz")).unwrap();
        std::fs::create_dir(path("laid")).unwrap();
        let read = windlass_release::read(&path("release.tgz"), &path("laid")).unwrap();
        assert!(read.manifest.is_compiled && read.packages.contains_key(&long));
        assert_eq!((read.manifest.version.as_str(), read.manifest.commit_hash.as_deref()), ("1", Some("123e4")));
        assert_eq!(read.manifest.compiled_packages[0].stemcell.to_string(), "os/1");
        assert!(digest(&path("release.tgz"), true).unwrap().starts_with("sha256:"));
    }
}
