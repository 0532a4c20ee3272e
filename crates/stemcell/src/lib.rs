//! Stemcells: the images that VMs start from.
//!
//! A stemcell is a tarball with two files: `stemcell.MF`, its manifest, and `image`, which only a CPI understands.
//!
//! - [`inspect()`] says what is inside, and whether the image is the one that the manifest describes.
//! - [`unpack()`] puts both files into a folder, as `create_stemcell` expects them.
//! - [`build()`] makes a stemcell around an agent: a minimal one, or from a system ([`Base`]), or one that has the programs of
//!   the machine that its VMs run on. The same bytes from the same input each time.
//! - [`digest::verify`] checks a file against the digest that an operator gave.
//! - [`repack()`] changes what a stemcell says of itself, or puts another agent into it.
//!
//! Tarballs come from anywhere, so they are read as a stream that nothing can make large in memory, and only two names in them are
//! ever written to disk ([`archive`]). [`root_fs`] lists the files that make a root file system a stemcell; an agent that is not
//! static brings its libraries.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

mod accounts;
pub mod archive;
pub mod base;
pub mod build;
mod busybox;
mod companions;
pub mod debian;
pub mod digest;
mod host;
mod init;
pub mod inspect;
mod meter;
mod pack;
mod program;
pub mod repack;
pub mod root_fs;
mod tarball;
pub mod unpack;

pub use accounts::AccountTaken;
pub use archive::ReadError;
pub use base::RootFsError;
pub use build::{Base, BuildError, BuildOptions, HOST, build, host_version};
pub use busybox::find_busybox;
pub use debian::{Debian, DebianError};
pub use digest::DigestCheck;
pub use inspect::{Inspection, inspect};
pub use program::ProgramError;
pub use repack::{RepackError, RepackOptions, repack};
pub use unpack::unpack;
