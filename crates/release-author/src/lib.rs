//! The author's side of releases: everything that happens to one before a director sees it.
//!
//! - [`directory`]: a release directory, and what authors do to it: create, finalise, vendor, reset.
//! - [`built`]: a release whose archives are there, from a directory, a manifest or a tarball; and its tarball.
//! - [`blobs`]: the large files that are not in git.
//! - `sources`, `glob`, `fingerprint`: what jobs and packages are made of; `tree`: how it is packed.
//! - `index`, `config`, `yaml`: the files of a directory, in the original's form, so that both command lines can work on it.
//! - `cache`: archives in `~/.bosh/cache`; `store`: where final ones are kept for everybody.
//!
//! Directors and agents need nothing of this.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

pub mod blobs;
pub mod built;
pub mod directory;

mod build;
mod cache;
mod config;
mod error;
mod fingerprint;
mod git;
mod glob;
mod index;
mod sources;
mod store;
mod tree;
mod yaml;

use std::fs::File;
use std::path::Path;

use windlass_archive::digest::Digest;

pub use blobs::{Blob, Blobs};
pub use built::{BuiltJob, BuiltPackage, BuiltRelease, Part};
pub use directory::{Create, ReleaseDirectory};
pub use error::AuthorError;

/// What an author is told meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// One of many steps.
    Step(String),
    /// A result.
    Line(String),
    /// Something to think about.
    Warning(String),
}

/// Tells the author what happens.
pub type Tell<'a> = &'a mut dyn FnMut(Said);

/// Whether a file is what its digest says.
fn verify(path: &Path, what: &str, digest: &str) -> Result<(), AuthorError> {
    let parsed = Digest::parse(digest).map_err(|source| AuthorError::NoDigest {
        what: what.to_owned(),
        digest: digest.to_owned(),
        source,
    })?;
    let mut file = File::open(path).map_err(|error| AuthorError::Read(path.to_owned(), error))?;
    parsed.verify(&mut file).map_err(|source| AuthorError::Digest { what: what.to_owned(), source })
}
