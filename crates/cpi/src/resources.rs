//! What a cloud keeps in a folder: one folder per resource with a record that a person can read, shared safely by any
//! number of CPI processes.
//!
//! For clouds that have no other place to remember what they made. A [`Resources`] holds the resources of one kind. A resource
//! appears and disappears as a whole; what a killed process left half done is invisible (its name starts with a dot) and is
//! removed by a later call. Changes are made under the resource's lock.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;
use windlass_contract::cpi::{CpiError, ErrorType};
use windlass_durable::file;
use windlass_durable::kill_point;
use windlass_durable::lock::{FileLock, Locks};

/// A record that is kept in a folder of its own.
pub trait Kept: Serialize + DeserializeOwned {
    /// The folder of all resources of this kind.
    const FOLDER: &'static str;
    /// What their cids start with.
    const PREFIX: &'static str;
    const FILE: &'static str = "record.json";
}

/// why the state could not be read or changed
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// the file system refused
    #[error("cannot {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// a record that this cloud did not write
    #[error("{} is not a record of this cloud; restore it or delete its folder", path.display())]
    NotARecord {
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

impl From<StateError> for CpiError {
    fn from(error: StateError) -> Self {
        let (kind, cause) = match &error {
            StateError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                (ErrorType::NoDiskSpace, source.to_string())
            }
            StateError::Io { source, .. } => (ErrorType::CloudError, source.to_string()),
            StateError::NotARecord { source, .. } => (ErrorType::CloudError, source.to_string()),
        };
        CpiError::new(kind, format!("{error}: {cause}"))
    }
}

fn io_error<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> StateError + 'a {
    move |source| StateError::Io { doing, path: path.to_owned(), source }
}

/// How long a change waits for another change of the same resource.
const PATIENCE: Duration = Duration::from_secs(120);

/// What an interrupted process left is removed when it is this old and the process is gone.
const LEFTOVER_AGE: Duration = Duration::from_secs(600);

/// The folder of all resources of one kind. A cid that is not of our form names nothing: it is never made a path.
#[derive(Debug)]
pub struct Resources<R> {
    folder: PathBuf,
    locks: PathBuf,
    record: PhantomData<R>,
}

impl<R: Kept> Resources<R> {
    /// The resources of this kind in a cloud's state folder. Touches nothing.
    pub fn new(state: &Path) -> Self {
        Self { folder: state.join(R::FOLDER), locks: state.join("locks"), record: PhantomData }
    }

    /// The cid of what `id` stands for.
    pub fn cid(&self, id: Uuid) -> String {
        format!("{}{id}", R::PREFIX)
    }

    /// The folder of a resource, whether it exists or not; none if the cid is not of our form.
    pub fn path(&self, cid: &str) -> Option<PathBuf> {
        let id = Uuid::try_parse(cid.strip_prefix(R::PREFIX)?).ok()?;
        (self.cid(id) == cid).then(|| self.folder.join(cid))
    }

    /// The record of a resource; none if there is no such resource.
    pub fn read(&self, cid: &str) -> Result<Option<R>, StateError> {
        let Some(path) = self.path(cid).map(|folder| folder.join(R::FILE)) else { return Ok(None) };
        match fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(record) => Ok(Some(record)),
                Err(source) => Err(StateError::NotARecord { path, source }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error("read", &path)(error)),
        }
    }

    /// Replaces the record of a resource that exists.
    pub fn write(&self, cid: &str, record: &R) -> Result<(), StateError> {
        let path = self.folder.join(cid).join(R::FILE);
        file::write_json(&path, record, file::PRIVATE).map_err(io_error("write", &path))
    }

    /// Makes a resource, or, on any failure, none: `fill` gets a folder that nobody sees yet. One that an interrupted call
    /// made stays as it is.
    pub fn make(
        &self,
        cid: &str,
        record: &R,
        fill: impl FnOnce(&Path) -> Result<(), CpiError>,
    ) -> Result<(), CpiError> {
        if self.read(cid)?.is_some() {
            return Ok(());
        }
        file::create_private_dir(&self.folder).map_err(io_error("make", &self.folder))?;
        self.purge(cid)?;
        self.sweep();
        let folder = self.folder.join(cid);
        let hidden = file::beside(&folder).map_err(io_error("make", &folder))?;
        let made = (|| {
            file::create_private_dir(&hidden).map_err(io_error("make", &hidden))?;
            kill_point("a resource's hidden folder is there");
            fill(&hidden)?;
            let path = hidden.join(R::FILE);
            file::write_json(&path, record, file::PRIVATE).map_err(io_error("write", &path))?;
            Ok(file::rename(&hidden, &folder).map_err(io_error("make", &folder))?)
        })();
        if made.is_err() {
            let _ = file::remove_all(&hidden);
        }
        made
    }

    /// Removes a resource and what interrupted calls left of it. Its lock must be held.
    pub fn remove(&self, cid: &str) -> Result<(), StateError> {
        let Some(folder) = self.path(cid) else { return Ok(()) };
        file::remove_tree(&folder).map_err(io_error("remove", &folder))?;
        self.purge(cid)?;
        self.sweep();
        let lock = self.locks.join(cid);
        file::remove_file(&lock).map_err(io_error("remove", &lock))
    }

    /// The cids of the resources that exist, without a look at their records.
    pub fn cids(&self) -> Result<BTreeSet<String>, StateError> {
        Ok(self.names()?.into_iter().filter(|name| self.path(name).is_some()).collect())
    }

    /// The resources that exist.
    pub fn all(&self) -> Result<Vec<R>, StateError> {
        let mut records = Vec::new();
        for name in self.names()? {
            if let Some(record) = self.read(&name)? {
                records.push(record);
            }
        }
        Ok(records)
    }

    /// What interrupted calls left half done, once their process is gone.
    pub fn leftovers(&self) -> Result<Vec<PathBuf>, StateError> {
        let names = self.names()?.into_iter();
        Ok(names
            .filter(|name| file::is_leftover(name.as_ref()) && !maker_runs(name))
            .map(|name| self.folder.join(name))
            .collect())
    }

    /// Removes something half done, if it is one of this kind.
    pub fn remove_leftover(&self, path: &Path) -> Result<(), StateError> {
        match self.leftovers()?.iter().find(|leftover| *leftover == path) {
            Some(path) => file::remove_all(path).map_err(io_error("remove", path)),
            None => Ok(()),
        }
    }

    /// Locks that nobody holds, of resources of this kind that are gone.
    pub fn stale_locks(&self) -> Result<Vec<PathBuf>, StateError> {
        let mut stale = Vec::new();
        for entry in fs::read_dir(&self.locks).into_iter().flatten().flatten() {
            let Some(cid) = entry.file_name().into_string().ok().filter(|cid| self.path(cid).is_some()) else {
                continue;
            };
            if !self.is_locked(&cid) && self.read(&cid)?.is_none() {
                stale.push(entry.path());
            }
        }
        Ok(stale)
    }

    /// Whether a process is changing the resource.
    pub fn is_locked(&self, cid: &str) -> bool {
        FileLock::is_held(&self.locks.join(cid)).unwrap_or(true)
    }

    /// Locks a resource against changes by other processes.
    pub fn lock(&self, cid: &str) -> Result<FileLock, StateError> {
        file::create_private_dir(&self.locks).map_err(io_error("make", &self.locks))?;
        Locks::new(&self.locks).acquire(cid, PATIENCE).map_err(io_error("lock", &self.locks.join(cid)))
    }

    /// Locks a resource and reads its record; none if there is no such resource.
    pub fn lock_existing(&self, cid: &str) -> Result<Option<(FileLock, R)>, StateError> {
        if self.read(cid)?.is_none() {
            return Ok(None);
        }
        let lock = self.lock(cid)?;
        match self.read(cid)? {
            Some(record) => Ok(Some((lock, record))),
            None => {
                // It went while we waited, and we made its lock again.
                let path = self.locks.join(cid);
                file::remove_file(&path).map_err(io_error("remove", &path))?;
                Ok(None)
            }
        }
    }

    /// Like [`Resources::lock_existing`], for removals: what interrupted calls left of a resource that does not exist goes, too.
    pub fn lock_to_remove(&self, cid: &str) -> Result<Option<(FileLock, R)>, StateError> {
        if self.path(cid).is_none() {
            return Ok(None);
        }
        if self.read(cid)?.is_none() && !self.locks.join(cid).exists() {
            self.purge(cid)?;
            return Ok(None);
        }
        let lock = self.lock(cid)?;
        match self.read(cid)? {
            Some(record) => Ok(Some((lock, record))),
            None => {
                self.remove(cid)?;
                Ok(None)
            }
        }
    }

    /// Removes what interrupted calls left of one resource. Nobody else may be changing it.
    fn purge(&self, cid: &str) -> Result<(), StateError> {
        let middle = format!("-{cid}-");
        for name in self.names()? {
            if file::is_leftover(name.as_ref()) && name.contains(&middle) {
                let path = self.folder.join(&name);
                file::remove_all(&path).map_err(io_error("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Removes what processes that are gone left long ago. Nothing depends on it.
    fn sweep(&self) {
        for name in self.names().unwrap_or_default() {
            if !file::is_leftover(name.as_ref()) {
                continue;
            }
            let path = self.folder.join(&name);
            let is_old = fs::metadata(&path)
                .and_then(|metadata| metadata.modified())
                .is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > LEFTOVER_AGE));
            if is_old && !maker_runs(&name) {
                let _ = file::remove_all(&path);
            }
        }
    }

    fn names(&self) -> Result<Vec<String>, StateError> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(io_error("list", &self.folder))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(io_error("list", &self.folder))?;
            names.extend(entry.file_name().into_string().ok());
        }
        Ok(names)
    }
}

/// Whether the process that made something half done still runs: its pid is in the name.
fn maker_runs(name: &str) -> bool {
    let maker = name.rsplit('-').nth(1).unwrap_or_default();
    Path::new("/proc").join(maker).exists()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Thing(u32);

    impl Kept for Thing {
        const FOLDER: &'static str = "things";
        const PREFIX: &'static str = "thing-";
        const FILE: &'static str = "thing.json";
    }

    #[test]
    fn a_cid_that_is_not_ours_is_never_a_path() {
        let things = Resources::<Thing>::new(Path::new("/nowhere"));
        let id = Uuid::new_v4();
        assert!(things.path(&things.cid(id)).is_some());
        for foreign in
            ["", "thing-", "../..", "thing-../../etc", &format!("vm-{id}"), &format!("thing-{}", id.simple())]
        {
            assert_eq!(things.path(foreign), None, "{foreign}");
            assert_eq!(things.read(foreign).unwrap(), None);
        }
        assert_eq!(things.path(&format!("thing-{id}/../x")), None);
        assert_eq!(things.path(&things.cid(id).to_uppercase()), None);
    }

    #[test]
    fn a_failure_leaves_nothing_and_a_leftover_is_purged() {
        let state = tempfile::tempdir().unwrap();
        let things = Resources::<Thing>::new(state.path());
        let cid = things.cid(Uuid::new_v4());
        things.make(&cid, &Thing(1), |_| Err(CpiError::cloud("no"))).unwrap_err();
        assert_eq!(things.names().unwrap(), Vec::<String>::new());
        let living = things.folder.join(format!(".new-{cid}-{}-0", std::process::id()));
        let dead = things.folder.join(format!(".new-{cid}-4000000000-0/read-only"));
        for folder in [&living, &dead] {
            fs::create_dir_all(folder).unwrap();
        }
        assert_eq!(things.leftovers().unwrap(), [dead.parent().unwrap()], "what is being made is not left over");
        things.remove_leftover(&living).unwrap();
        things.remove_leftover(dead.parent().unwrap()).unwrap();
        assert!(living.exists() && !dead.exists());
        fs::create_dir_all(&dead).unwrap();
        things.make(&cid, &Thing(1), |_| Ok(())).unwrap();
        assert_eq!(things.names().unwrap(), [cid.as_str()]);
        fs::create_dir(things.folder.join(".trash-x")).unwrap();
        assert_eq!(things.cids().unwrap(), BTreeSet::from([cid.clone()]), "nothing that is half done");
        fs::remove_dir(things.folder.join(".trash-x")).unwrap();
        things.make(&cid, &Thing(2), |_| Ok(())).unwrap();
        assert_eq!(things.all().unwrap(), [Thing(1)], "made once, however often it is asked for");
        let lock = things.lock(&cid).unwrap();
        assert!(things.is_locked(&cid));
        drop(lock);
        assert!(!things.is_locked(&cid) && things.stale_locks().unwrap().is_empty());
        things.remove(&cid).unwrap();
        let gone = things.cid(Uuid::new_v4());
        drop(things.lock(&gone).unwrap());
        assert_eq!(things.stale_locks().unwrap(), [things.locks.join(&gone)]);
        fs::remove_file(things.locks.join(&gone)).unwrap();
        assert!(things.names().unwrap().is_empty() && fs::read_dir(&things.locks).unwrap().next().is_none());
    }
}
