//! Stemcells: the images that VMs start from.
//!
//! A stemcell is a tarball with two files: `stemcell.MF`, its manifest, and `image`, which only a CPI understands.
//!
//! - [`inspect()`] says what is inside, and whether the image is the one that the manifest describes.
//! - [`unpack()`] puts both files into a folder, as `create_stemcell` expects them.
//! - [`build()`] makes a minimal stemcell around an agent, the same bytes from the same input each time.
//!
//! Tarballs come from anywhere, so they are read as a stream ([`archive`]), and only two names in them are ever
//! written to disk. [`root_fs`] lists the files of the stemcell that we build.

pub mod archive;
pub mod build;
pub mod digest;
pub mod inspect;
pub mod root_fs;
pub mod unpack;

pub use archive::ReadError;
pub use build::{BuildError, BuildOptions, build};
pub use digest::DigestCheck;
pub use inspect::{Inspection, inspect};
pub use unpack::unpack;
