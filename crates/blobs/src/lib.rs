//! Blobs: files that are kept under an id, in a folder, in an S3-compatible store or in Google's.
//!
//! - [`BlobstoreChoice`]: which of them, from `provider` and `options` as BOSH names them.
//! - [`Store`]: one place. It puts and fetches files, streams from disk to disk and never holds more than one part of a file.
//! - [`Blobstore`]: what a director keeps: a place with drawers, a limit, and copies on this machine of what is elsewhere.
//!
//! What a store says of its errors may repeat credentials, so [`Store`] takes them out of every message.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

mod blobstore;
mod bucket;
mod cache;
mod error;
mod folder;
mod options;
mod profile;
mod store;

pub use blobstore::{BlobFile, Blobstore, Drawer};
pub use error::{BlobAction, BlobError};
pub use options::{BlobstoreChoice, GcsOptions, OptionsError, S3Options};
pub use store::{Listed, Store};
