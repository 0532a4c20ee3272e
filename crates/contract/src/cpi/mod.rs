//! What crosses the boundary between a caller (director or command line) and a CPI executable.
//!
//! - [`envelope`]: one request on stdin, one response on stdout.
//! - [`methods`]: every method with its arguments and answer.
//! - [`answer`]: answers whose shape depends on the request's version.
//! - [`error`]: the error types by their wire names.

pub mod answer;
pub mod envelope;
pub mod error;
pub mod methods;

pub use answer::{Answer, AttachedDisk, CpiInfo, CreatedNetwork, CreatedVm, UpdatedDisk};
pub use envelope::{Context, Request, Response};
pub use error::{CpiError, ErrorType};
pub use methods::{ArgumentError, Method};
