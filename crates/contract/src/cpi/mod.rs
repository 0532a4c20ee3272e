//! What crosses the boundary between a caller (director or command line) and a CPI executable.
//!
//! - [`envelope`]: one request on stdin, one response on stdout.
//! - [`methods`]: every method with its arguments and answer.
//! - [`declaration`]: what a method locks and hides, what a repeated request does, how long an answer may be.
//! - [`redaction`]: what of a request never reaches a log or a message.
//! - [`answer`]: answers whose shape depends on the request's version.
//! - [`limits`]: what a plan cannot have in a cloud.
//! - [`error`]: the error types by their wire names.

pub mod answer;
pub mod declaration;
mod encoded;
pub mod envelope;
pub mod error;
pub mod limits;
pub mod methods;
pub mod redaction;

pub use answer::{Answer, AttachedDisk, CpiInfo, CreatedNetwork, CreatedVm, UpdatedDisk};
pub use declaration::{Declaration, Hides, Repeated, Resource};
pub use envelope::{Context, Request, Response};
pub use error::{CpiError, ErrorType};
pub use limits::{CloudLimits, NetworkInUse};
pub use methods::{ArgumentError, Method, MethodName};
pub use redaction::{Redactor, redact};
