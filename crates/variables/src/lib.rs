//! Values of variables: passwords, keys and certificates that a manifest only names.
//!
//! A manifest has `((placeholders))`, and what is stored of it keeps them. A [`ConfigServer`] holds their values, each under a
//! name and, because values change, an id. [`Values`] are some of them in memory, which [`Values::fill`] puts into properties just
//! before templates are rendered.
//!
//! - [`key`]: the key that values are encrypted with, and where it comes from.
//! - [`cipher`]: encrypts values, each bound to its name and id.
//! - [`external`]: a config server somewhere else.
//! - [`fill`]: values in the places of placeholders.
//! - [`server`]: what a config server does.
//! - [`generate`]: how values are made, and when they are made once more.

pub mod cipher;
pub mod external;
pub mod fill;
pub mod generate;
pub mod key;
pub mod server;

pub use cipher::{Cipher, Unsealed};
pub use external::{Authorization, External, ExternalError, ExternalSettings};
pub use fill::{FillError, Scope, Values, size, with_absolute_names};
pub use generate::{Generation, Mode};
pub use key::{Key, KeyError, KeySource};
pub use server::{ConfigServer, ServerError, Version};
