//! Archives are found, or made, several at a time.

use std::collections::VecDeque;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};

use windlass_durable::{file, kill_point};

use crate::built::Part;
use crate::cache::Cache;
use crate::error::AuthorError;
use crate::index::{Build, Builds, Kind};
use crate::sources::{Recipe, Sources};
use crate::store::Store;
use crate::tree::Tree;
use crate::{Said, Tell};

/// Where archives are found.
#[derive(Debug)]
pub(crate) struct ArchivePlaces<'a> {
    pub(crate) release: &'a Path,
    pub(crate) cache: &'a Cache,
    pub(crate) store: &'a Store,
}

/// Something whose archive is wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) fingerprint: String,
    pub(crate) recipe: Option<Recipe>,
}

impl From<Sources> for Wanted {
    fn from(sources: Sources) -> Self {
        let Sources { kind, name, fingerprint, recipe, .. } = sources;
        Self { kind, name, fingerprint, recipe }
    }
}

/// Tells from a thread.
type Sender = mpsc::Sender<Said>;

fn step(sender: &Sender, text: String) {
    // A receiver that is gone has failed for another reason.
    let _ = sender.send(Said::Step(text));
}

impl ArchivePlaces<'_> {
    /// The archives of all, in the same order. All failures are told.
    pub(crate) fn fill(&self, wanted: Vec<Wanted>, tell: Tell<'_>) -> Result<Vec<Part>, AuthorError> {
        let count = wanted.len();
        let queue = Mutex::new(wanted.into_iter().enumerate().collect::<VecDeque<_>>());
        let results = Mutex::new((Vec::with_capacity(count), Vec::new()));
        let (sender, receiver) = mpsc::channel();
        let workers = std::thread::available_parallelism().map_or(1, NonZero::get).min(count.max(1));
        let work = |sender: Sender| {
            loop {
                let Some((place, wanted)) = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front() else {
                    break;
                };
                let part = self.one(&wanted, &sender);
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                match part {
                    Ok(part) => results.0.push((place, part)),
                    Err(error) => results.1.push(error),
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let sender = sender.clone();
                scope.spawn(|| work(sender));
            }
            drop(sender);
            for said in receiver {
                tell(said);
            }
        });
        let (mut parts, errors) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        AuthorError::of(errors)?;
        parts.sort_by_key(|(place, _)| *place);
        Ok(parts.into_iter().map(|(_, part)| part).collect())
    }

    fn one(&self, wanted: &Wanted, sender: &Sender) -> Result<Part, AuthorError> {
        let Wanted { kind, name, fingerprint, recipe } = wanted;
        let dev = Builds::of(&self.release.join(".dev_builds"), *kind, name);
        let part = |digest: &str, archive: PathBuf| Part {
            name: name.clone(),
            fingerprint: fingerprint.clone(),
            digest: digest.to_owned(),
            archive,
        };
        let known = dev.find(fingerprint)?;
        if let Some(build) = &known
            && let Some(archive) = self.cache.find(&build.digest)?
        {
            return Ok(part(&build.digest, archive));
        }
        let finished = Builds::of(&self.release.join(".final_builds"), *kind, name);
        if let Some(build) = finished.find(fingerprint)? {
            let archive = self.fetch(wanted, &build, sender)?;
            return Ok(part(&build.digest, archive));
        }
        match (recipe, known) {
            (Some(recipe), _) => {
                let (digest, archive) = self.make(wanted, recipe, &dev, sender)?;
                Ok(part(&digest, archive))
            }
            (None, None) => Err(AuthorError::NotBuilt { name: name.clone(), fingerprint: fingerprint.clone() }),
            (None, Some(known)) => Err(AuthorError::NoArchive {
                name: name.clone(),
                fingerprint: fingerprint.clone(),
                digest: known.digest,
            }),
        }
    }

    /// A final archive: from here, or from the store.
    fn fetch(&self, wanted: &Wanted, build: &Build, sender: &Sender) -> Result<PathBuf, AuthorError> {
        if let Some(archive) = self.cache.find(&build.digest)? {
            return Ok(archive);
        }
        let missing = || AuthorError::NoArchive {
            name: wanted.name.clone(),
            fingerprint: wanted.fingerprint.clone(),
            digest: build.digest.clone(),
        };
        let id = build.blob.as_ref().ok_or_else(missing)?;
        let desc = format!("'{}/{}' (sha1={})", wanted.name, wanted.fingerprint, build.digest);
        step(sender, format!("-- Started downloading {desc}"));
        let path = self.cache.path(&build.digest)?;
        let fetched = self.store.get(id, &build.digest, &path);
        let word = if fetched.is_ok() { "Finished" } else { "Failed" };
        step(sender, format!("-- {word} downloading {desc}"));
        fetched.map(|()| path)
    }

    fn make(
        &self,
        wanted: &Wanted,
        recipe: &Recipe,
        dev: &Builds,
        sender: &Sender,
    ) -> Result<(String, PathBuf), AuthorError> {
        let temporary = self.cache.temporary()?;
        let made = self.pack(recipe, &temporary).and_then(|digest| {
            let desc = format!("{} '{}/{}'", wanted.kind.word(), wanted.name, wanted.fingerprint);
            step(sender, format!("Adding {desc}..."));
            let archive = self.cache.adopt(&temporary, &digest)?;
            dev.put(Build::new(&wanted.fingerprint, &digest, None))?;
            step(sender, format!("Added {desc}"));
            Ok((digest, archive))
        });
        if made.is_err() {
            file::discard(&temporary);
        }
        made
    }

    fn pack(&self, recipe: &Recipe, into: &Path) -> Result<String, AuthorError> {
        let tree = Tree::of(&recipe.contents, recipe.links)?;
        kill_point("before an archive is packed");
        let Some(script) = &recipe.pre_packaging else { return tree.pack(into, recipe.compress) };
        let folder = tempfile::tempdir().map_err(|error| AuthorError::Write(std::env::temp_dir(), error))?;
        tree.prepared(script, self.release, folder.path())?.pack(into, recipe.compress)
    }

    /// Puts an archive among the final ones, unless it is there; what is on record then.
    pub(crate) fn finish(&self, kind: Kind, name: &str, part: &Part, tell: Tell<'_>) -> Result<Build, AuthorError> {
        let index = Builds::of(&self.release.join(".final_builds"), kind, name);
        if let Some(build) = index.find(&part.fingerprint)? {
            return Ok(build);
        }
        let desc = format!("{name}/{}", part.fingerprint);
        tell(Said::Step(format!("Adding {} '{desc}'...", kind.word())));
        self.cache.copy(&part.archive, &part.digest)?;
        let blob = format!("'{desc}' (sha1={})", part.digest);
        tell(Said::Step(format!("-- Started uploading {blob}")));
        kill_point("before a blob is kept");
        let id = self.store.put(&part.archive)?;
        kill_point("after a blob is kept");
        tell(Said::Step(format!("-- Finished uploading {blob}")));
        let build = Build::new(&part.fingerprint, &part.digest, Some(id));
        index.put(build.clone())?;
        tell(Said::Step(format!("Added {} '{desc}'", kind.word())));
        Ok(build)
    }
}
