//! Releases: versioned bundles of jobs and packages, as `bosh create-release` makes them.
//!
//! - [`manifest`]: `release.MF`, the list of what a release has.
//! - [`tarball`]: a whole release is read, checked and laid out in a folder.
//! - [`job`]: one job: its `job.MF`, templates and `monit` files.
//! - [`graph`]: which packages need which, in which order they are compiled, and the key by which compiled ones are found again.
//! - [`version`]: versions and their order.
//!
//! Everything here comes from strangers: archives are read within limits, names cannot lead elsewhere, and an archive that is
//! not what its digest says is refused. Nothing here knows a database or a director.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

pub mod graph;
pub mod job;
pub mod manifest;
pub mod tarball;
pub mod version;

mod error;
mod members;

pub use error::ReleaseError;
pub use graph::{GraphError, PackageGraph};
pub use job::{Job, JobSpec, Property};
pub use manifest::{CompiledPackage, JobEntry, License, Package, ReleaseManifest, StemcellSlug};
pub use tarball::{Release, read};
pub use version::{StemcellLine, Version};
