//! Templates of jobs become files, without Ruby.
//!
//! A release's templates are ERB: text with Ruby code in it. BOSH runs that code beside all secrets; here, a subset of Ruby is
//! evaluated that has no way to the machine. What is not in the subset is refused with template, line and construct, and is
//! never approximated.
//!
//! ```text
//! template ── erb ──▶ Ruby program ── parse ──▶ tree ── check ──▶ evaluate ──▶ text
//!                     (same lines)    (refuses        (refuses     (refuses what values
//!                                      syntax)         names)       turn out to be)
//! ```
//!
//! - [`Renderer`]: what a director asks: [`check`](Renderer::check) at upload, [`render`](Renderer::render) at deploy.
//! - [`Native`]: the backend of this crate.
//! - [`hashes`], [`archive()`]: what becomes of rendered jobs.
//!
//! | question | file |
//! |---|---|
//! | What does `-%>` trim? | `erb.rs` |
//! | Which syntax is native? | `parse/lower.rs`, `calls.rs`, `literals.rs` |
//! | Which methods are native? | `NAMES` in each file of `methods/` |
//! | What does `p` do? | `evaluate/binding.rs`, `links.rs` |
//! | What may a template take? | `evaluate/mod.rs` |

mod archive;
mod check;
mod erb;
mod error;
mod evaluate;
mod hashes;
mod methods;
mod native;
mod parse;
mod pattern;
mod tree;
mod value;

pub use archive::archive;
pub use error::{JobErrors, RenderError, TemplateError, Unsupported};
pub use hashes::configuration_hash;
pub use native::Native;
use serde_json::Value;
use windlass_release::Job;

/// The name of the template that says which processes a job has.
pub(crate) const MONIT: &str = "monit";

/// What can render a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    Native,
    NeedsRuby(Unsupported),
}

/// Something that renders jobs.
pub trait Renderer: Send + Sync {
    /// Whether a job can be rendered, as far as its templates tell.
    fn check(&self, job: &Job) -> Support;

    /// Renders a job with the template spec of an instance, narrowed to the job: `properties` and `links` are the job's own.
    fn render(&self, job: &Job, spec: &Value) -> Result<RenderedJob, RenderError>;
}

/// A job's templates, filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedJob {
    pub monit: String,
    /// In the order of `job.MF`.
    pub files: Vec<RenderedFile>,
}

/// One file of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedFile {
    /// The template's path below `templates/`.
    pub source: String,
    /// Below the job's folder.
    pub destination: String,
    pub content: String,
}
