//! `blobs/` and `config/blobs.yml`: files that are too large for git.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use windlass_durable::file;
use windlass_manifest::Object;

use crate::config::Config;
use crate::directory::ReleaseDirectory;
use crate::error::AuthorError;
use crate::fingerprint::digest_of_file;
use crate::store::Store;
use crate::yaml::{self, text};
use crate::{Said, Tell, verify};

/// The blobs of a release directory.
#[derive(Debug)]
pub struct Blobs {
    release: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Its path below `blobs/`.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its id in the store, once it is there.
    pub id: Option<String>,
    pub digest: String,
}

impl Blobs {
    pub(crate) fn of(release: &Path) -> Self {
        Self { release: release.to_owned() }
    }

    fn index(&self) -> PathBuf {
        self.release.join("config/blobs.yml")
    }

    fn file(&self, path: &str) -> Result<PathBuf, AuthorError> {
        let is_safe = |inner: &Path| inner == Path::new(path) && !path.is_empty() && !path.ends_with('/');
        let inner = windlass_archive::inside(path.as_bytes()).filter(|inner| is_safe(inner));
        Ok(self.release.join("blobs").join(inner.ok_or_else(|| AuthorError::BlobPath(path.to_owned()))?))
    }

    /// All of them, by path.
    pub fn list(&self) -> Result<Vec<Blob>, AuthorError> {
        let mut blobs: Vec<Blob> = yaml::load(&self.index(), |root| {
            if root.node().content == windlass_manifest::Content::Null {
                return Ok(Vec::new());
            }
            let blob = |(path, at): (&str, windlass_manifest::At<'_>)| {
                Ok(Blob {
                    path: path.to_owned(),
                    size: at.optional("size")?.map_or(Ok(0), |size| size.unsigned())?,
                    id: at.optional("object_id")?.map(|id| text(&id)).transpose()?.filter(|id| !id.is_empty()),
                    digest: text(&at.field("sha")?)?,
                })
            };
            root.entries()?.into_iter().map(blob).collect()
        })?;
        for blob in &blobs {
            self.file(&blob.path)?;
        }
        blobs.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(blobs)
    }

    fn save(&self, blobs: &[Blob]) -> Result<(), AuthorError> {
        let entry = |blob: &Blob| {
            let id = blob.id.as_ref().map(|id| format!("  object_id: {}\n", yaml::scalar(id))).unwrap_or_default();
            let key = windlass_manifest::original::to_yaml(&json!({blob.path.as_str(): Value::Null}));
            let key = key.trim_end_matches('\n').trim_end_matches(" null").to_owned();
            format!("{key}\n  size: {}\n{id}  sha: {}\n", blob.size, yaml::scalar(&blob.digest))
        };
        // The original's order of keys.
        let order: Object = blobs.iter().map(|blob| (blob.path.clone(), Value::Null)).collect();
        let sorted = windlass_manifest::original::parse(&windlass_manifest::original::to_yaml(&Value::Object(order)));
        let sorted = sorted.map_err(|error| AuthorError::Yaml(self.index(), error))?;
        let find = |path: &String| blobs.iter().find(|blob| blob.path == *path);
        let paths = sorted.as_object().into_iter().flat_map(Object::keys).filter_map(find);
        let text: String = paths.map(entry).collect();
        yaml::save(&self.index(), if text.is_empty() { "{}\n" } else { &text })
    }

    /// Adds a file, or replaces the one of its path.
    pub fn add(&self, from: &Path, path: &str, tell: Tell<'_>) -> Result<(), AuthorError> {
        let to = self.file(path)?;
        let _lock = ReleaseDirectory::lock(&self.release, tell)?;
        let mut blobs = self.list()?;
        let size = fs::metadata(from).and_then(|metadata| match metadata.is_file() {
            true => Ok(metadata.len()),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")),
        });
        let size = size.map_err(|error| AuthorError::Read(from.to_owned(), error))?;
        let digest = digest_of_file(from)?;
        self.put(from, &to)?;
        blobs.retain(|blob| blob.path != path);
        blobs.push(Blob { path: path.to_owned(), size, id: None, digest });
        self.save(&blobs)?;
        tell(Said::Line(format!("Added blob '{path}'")));
        Ok(())
    }

    fn put(&self, from: &Path, to: &Path) -> Result<(), AuthorError> {
        let failed = |error| AuthorError::Write(to.to_owned(), error);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        file::copy(from, to).map_err(failed)
    }

    /// Removes a file. One that is not there is no mistake.
    pub fn remove(&self, path: &str, tell: Tell<'_>) -> Result<(), AuthorError> {
        let at = self.file(path)?;
        let _lock = ReleaseDirectory::lock(&self.release, tell)?;
        let mut blobs = self.list()?;
        let before = blobs.len();
        blobs.retain(|blob| blob.path != path);
        // First the record: a file without one is removed by the next command.
        if blobs.len() < before {
            self.save(&blobs)?;
        }
        file::remove_file(&at).map_err(|error| AuthorError::Write(at, error))?;
        tell(Said::Line(format!("Removed blob '{path}'")));
        Ok(())
    }

    /// Fetches what is missing, and removes what is not listed.
    pub fn sync(&self, tell: Tell<'_>) -> Result<(), AuthorError> {
        let _lock = ReleaseDirectory::lock(&self.release, tell)?;
        self.sync_with(&Config::read(&self.release)?.store(), tell)
    }

    /// The caller has the lock.
    pub(crate) fn sync_with(&self, store: &Store, tell: Tell<'_>) -> Result<(), AuthorError> {
        let blobs = self.list()?;
        let found = self.files()?;
        for path in found.iter().filter(|path| !path.is_symlink()) {
            let is_listed = |blob: &Blob| self.release.join("blobs").join(&blob.path) == *path;
            if !blobs.iter().any(is_listed) {
                file::remove_file(path).map_err(|error| AuthorError::Write(path.clone(), error))?;
            }
        }
        for blob in &blobs {
            let to = self.file(&blob.path)?;
            let Some(id) = blob.id.as_ref().filter(|_| verify(&to, &blob.path, &blob.digest).is_err()) else {
                continue;
            };
            let size = bytes(blob.size);
            tell(Said::Step(format!(
                "Blob download '{}' ({size}) (id: {id} sha1: {}) started",
                blob.path, blob.digest
            )));
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder).map_err(|error| AuthorError::Write(to.clone(), error))?;
            }
            let fetched = store.get(id, &blob.digest, &to);
            let word = if fetched.is_ok() { "finished" } else { "failed" };
            tell(Said::Step(format!("Blob download '{}' (id: {id}) {word}", blob.path)));
            fetched?;
        }
        Ok(())
    }

    /// All files below `blobs/`; links are refused, because the oldest command line kept its files elsewhere behind them.
    fn files(&self) -> Result<Vec<PathBuf>, AuthorError> {
        let mut files = Vec::new();
        let blobs = self.release.join("blobs");
        if blobs.is_symlink() {
            return Err(AuthorError::BlobLinks(blobs));
        }
        let mut folders = vec![blobs];
        while let Some(folder) = folders.pop() {
            let failed = |error| AuthorError::Read(folder.clone(), error);
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(failed)?,
            };
            for entry in entries {
                let entry = entry.map_err(failed)?;
                let kind = entry.file_type().map_err(failed)?;
                if kind.is_symlink() {
                    return Err(AuthorError::BlobLinks(entry.path()));
                }
                let list = if kind.is_dir() { &mut folders } else { &mut files };
                list.push(entry.path());
            }
        }
        Ok(files)
    }

    /// Puts into the store what is not there yet.
    pub fn upload(&self, tell: Tell<'_>) -> Result<(), AuthorError> {
        let _lock = ReleaseDirectory::lock(&self.release, tell)?;
        let mut blobs = self.list()?;
        let missing: Vec<usize> = (0..blobs.len()).filter(|place| blobs[*place].id.is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let store = Config::read(&self.release)?.store();
        for place in missing {
            let Blob { path, size, digest, .. } = blobs[place].clone();
            let from = self.file(&path)?;
            if !from.is_file() {
                return Err(AuthorError::NoBlob(path));
            }
            verify(&from, &path, &digest)?;
            tell(Said::Step(format!("Blob upload '{path}' ({}) (sha1: {digest}) started", bytes(size))));
            let kept = store.put(&from);
            let Ok(id) = &kept else {
                tell(Said::Step(format!("Blob upload '{path}' failed")));
                return kept.map(|_| ());
            };
            blobs[place].id = Some(id.clone());
            self.save(&blobs)?;
            tell(Said::Step(format!("Blob upload '{path}' (id: {id}) finished")));
        }
        Ok(())
    }
}

/// As the original writes sizes there: powers of 1000, one digit after the point below ten.
fn bytes(size: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    if size < 10 {
        return format!("{size} B");
    }
    let mut power = 0;
    let mut whole = size as f64;
    while whole >= 1000.0 && power + 1 < UNITS.len() {
        whole /= 1000.0;
        power += 1;
    }
    let rounded = (whole * 10.0 + 0.5).floor() / 10.0;
    match rounded < 10.0 {
        true => format!("{rounded:.1} {}", UNITS[power]),
        false => format!("{rounded:.0} {}", UNITS[power]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_by_the_original() {
        let sizes = [(0, "0 B"), (9, "9 B"), (999, "999 B"), (1000, "1.0 kB"), (82_854_982, "83 MB"), (9_960, "10 kB")];
        for (size, text) in sizes {
            assert_eq!(bytes(size), text);
        }
    }
}
