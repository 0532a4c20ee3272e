//! Fingerprints: digests of what a job, a package or a licence is made of. Who has the same fingerprint has the same content, so
//! releases of both command lines share what they have; every byte of the formula is BOSH's.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::AuthorError;

/// A file that becomes part of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    /// Its path in the archive.
    pub(crate) name: PathBuf,
    /// Whether its mode counts; it does not for scripts and licences.
    pub(crate) has_mode: bool,
}

impl Source {
    pub(crate) fn new(path: impl Into<PathBuf>, name: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), name: name.into(), has_mode: true }
    }

    pub(crate) fn without_mode(self) -> Self {
        Self { has_mode: false, ..self }
    }
}

/// What to do with links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// They are kept: packages and licences.
    Kept,
    /// What they lead to takes their place: jobs.
    Followed,
}

/// A file as it goes into the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// A file, and the digest of its content.
    File { executable: bool, digest: String },
    /// A link, and where it leads.
    Link(PathBuf),
}

/// The fingerprint of these files and of the names that they depend on, and what each file is.
pub(crate) fn fingerprint(
    sources: &[Source],
    links: Links,
    dependencies: &[String],
) -> Result<(String, Vec<(Source, Content)>), AuthorError> {
    let mut sorted = sources.to_vec();
    sorted.sort_by(|one, other| one.name.as_os_str().as_bytes().cmp(other.name.as_os_str().as_bytes()));
    let mut hasher = Sha256::new();
    hasher.update("v2");
    let mut contents = Vec::new();
    for source in sorted {
        let content = look(&source, links)?;
        hasher.update(source.name.as_os_str().as_bytes());
        let (digest, mode) = match &content {
            Content::Link(target) => (digest_of(&mut target.as_os_str().as_bytes()), "symlink"),
            Content::File { digest, executable: true } => (Ok(digest.clone()), "100755"),
            Content::File { digest, executable: false } => (Ok(digest.clone()), "100644"),
        };
        hasher.update(digest.map_err(|error| AuthorError::Read(source.path.clone(), error))?);
        if source.has_mode {
            hasher.update(mode);
        }
        contents.push((source, content));
    }
    let mut dependencies: Vec<&str> = dependencies.iter().map(String::as_str).collect();
    dependencies.sort_unstable();
    hasher.update(dependencies.join(","));
    Ok((hex(&hasher.finalize()), contents))
}

fn look(source: &Source, links: Links) -> Result<Content, AuthorError> {
    let path = &source.path;
    let failed = |error| AuthorError::Read(path.clone(), error);
    let metadata = fs::symlink_metadata(path).map_err(failed)?;
    if metadata.is_symlink() && links == Links::Kept {
        return Ok(Content::Link(fs::read_link(path).map_err(failed)?));
    }
    let target = fs::metadata(path).map_err(failed)?;
    if !target.is_file() {
        let kind = if target.is_dir() { "a folder" } else { "a device, socket or pipe" };
        return Err(AuthorError::Kind { path: path.clone(), kind });
    }
    // A link has all bits, so a job's file behind one can be executed.
    let mode = metadata.permissions().mode();
    let executable = mode & 0o111 != 0;
    if source.has_mode && executable && mode & 0o100 == 0 {
        return Err(AuthorError::Mode(path.clone()));
    }
    let executable = if source.has_mode { executable } else { mode & 0o100 != 0 };
    let digest = File::open(path).and_then(|mut file| digest_of(&mut file)).map_err(failed)?;
    Ok(Content::File { executable, digest })
}

/// SHA-256 with its prefix, as it stands in indexes and manifests.
pub(crate) fn digest_of(content: &mut impl io::Read) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(content, &mut hasher)?;
    Ok(format!("sha256:{}", hex(&hasher.finalize())))
}

/// The digest of a file.
pub(crate) fn digest_of_file(path: &Path) -> Result<String, AuthorError> {
    let digest = File::open(path).and_then(|mut file| digest_of(&mut file));
    digest.map_err(|error| AuthorError::Read(path.to_owned(), error))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The permissions that the folder of a file has in an archive.
pub(crate) fn mode_of_folder(file: &Path, links: Links) -> Result<u32, AuthorError> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let metadata = match links {
        Links::Kept => fs::symlink_metadata(folder),
        Links::Followed => fs::metadata(folder),
    };
    Ok(metadata.map_err(|error| AuthorError::Read(folder.to_owned(), error))?.mode() & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the original calculates for the same files, recorded.
    #[test]
    fn links_modes_and_dependencies_count_as_with_the_original() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("tool"), "x").unwrap();
        fs::set_permissions(at("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("tool", at("link")).unwrap();
        let of = |sources: &[Source], links, dependencies: &[&str]| {
            let dependencies: Vec<String> = dependencies.iter().map(|name| (*name).to_owned()).collect();
            fingerprint(sources, links, &dependencies).unwrap().0
        };
        let expected = |text: &str| hex(&Sha256::digest(text));
        let x = digest_of(&mut &b"x"[..]).unwrap();
        let (tool, link) = (Source::new(at("tool"), "b/tool"), Source::new(at("link"), "a"));
        assert_eq!(of(std::slice::from_ref(&tool), Links::Kept, &[]), expected(&format!("v2b/tool{x}100755")));
        let target = digest_of(&mut &b"tool"[..]).unwrap();
        let sources = [tool.clone(), link.clone()];
        let kept = expected(&format!("v2a{target}symlinkb/tool{x}100755base,other"));
        assert_eq!(of(&sources, Links::Kept, &["other", "base"]), kept);
        assert_eq!(of(&[link], Links::Followed, &[]), expected(&format!("v2a{x}100755")));
        assert_eq!(of(&[tool.without_mode()], Links::Kept, &[]), expected(&format!("v2b/tool{x}")));

        fs::set_permissions(at("tool"), fs::Permissions::from_mode(0o654)).unwrap();
        let refused = fingerprint(&[Source::new(at("tool"), "t")], Links::Kept, &[]).unwrap_err();
        assert!(refused.to_string().contains("chmod +x"), "{refused}");
        let folder = fingerprint(&[Source::new(folder.path(), "t")], Links::Kept, &[]).unwrap_err();
        assert!(folder.to_string().contains("is a folder"), "{folder}");
    }
}
