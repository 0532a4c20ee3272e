//! Templates of jobs become files: without Ruby where they can, by a caged Ruby where they must.
//!
//! A release's templates are ERB: text with Ruby code in it. BOSH runs that code beside all secrets; here, a subset of Ruby is
//! evaluated that has no way to the machine. What is not in the subset is never approximated: it is named with template, line and
//! construct, and left to Ruby.
//!
//! ```text
//! template ── erb ──▶ Ruby program ── parse ──▶ tree ── check ──▶ evaluate ──▶ text
//!                     (same lines)    (refuses        (refuses     (refuses what values
//!                                      syntax)         names)       turn out to be)
//! ```
//!
//! - [`Renderer`]: what a director asks: [`check`](Renderer::check) at upload, [`render`](Renderer::render) at deploy.
//! - [`Native`]: without Ruby. [`Ruby`]: with the Ruby of this machine, in a cage. [`Backends`]: natively where it can be, by Ruby
//!   where it must.
//! - [`hashes`], [`archive()`]: what becomes of rendered jobs. [`render_hidden`]: what people may see of them.
//!
//! | question | file |
//! |---|---|
//! | What does `-%>` trim? | `erb.rs` |
//! | Which syntax is native? | `parse/lower.rs`, `calls.rs`, `literals.rs` |
//! | Which methods are native? | `NAMES` in each file of `methods/` |
//! | What does `p` do? | `evaluate/binding.rs`, `links.rs` |
//! | What may a template take? | `evaluate/mod.rs`, counted by `memory.rs`; with Ruby: `ruby/cage.rs` |
//! | What do errors say where others read them? | `redaction.rs` |
//! | What can a template do to this machine? | nothing; with Ruby: `ruby/cage.rs`, `ruby/syscalls.rs` |

mod archive;
mod backends;
mod check;
mod erb;
mod error;
mod evaluate;
mod excerpt;
mod hashes;
mod hidden;
mod memory;
mod methods;
mod native;
mod parse;
mod pattern;
#[cfg(test)]
mod peak;
mod redaction;
mod ruby;
mod templates;
mod tree;
mod value;

pub use archive::archive;
pub use backends::Backends;
pub use error::{JobErrors, RenderError, TemplateError, Unsupported};
pub use excerpt::excerpt;
pub use hashes::configuration_hash;
pub use hidden::{ChangedLine, HiddenLine, LineChange, changed_lines, render_hidden};
pub use native::Native;
pub use ruby::{Cage, Ruby, RubyError, RubySetup, render_cage};
use serde_json::Value;
pub use templates::ProvidedLink;
use windlass_release::Job;

/// The name of the template that says which processes a job has.
pub(crate) const MONIT: &str = "monit";

/// Something that renders jobs.
pub trait Renderer: Send + Sync {
    /// The first thing in a job that this cannot render, as far as templates tell without values.
    fn check(&self, job: &Job) -> Result<(), Unsupported>;

    /// Renders a job with the template spec of an instance, narrowed to the job: `properties` and `links` are the job's own.
    fn render(&self, job: &Job, spec: &Value) -> Result<RenderedJob, RenderError>;
}

/// How many bytes the files of a job may have together.
pub const LARGEST_JOB: usize = 32 << 20;

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
