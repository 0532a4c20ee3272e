//! Natively where it can be, by Ruby where it must.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use windlass_release::Job;

use crate::error::{RenderError, Unsupported};
use crate::{Native, RenderedJob, Renderer, Ruby, RubyError, excerpt, templates};

/// Both backends. A job is rendered by one of them as a whole.
#[derive(Debug)]
pub struct Backends {
    /// None where the operator wants none.
    ruby: Option<Ruby>,
    asked_ruby: AtomicBool,
}

impl Backends {
    pub fn new(ruby: Option<Ruby>) -> Self {
        Self { ruby, asked_ruby: AtomicBool::new(false) }
    }

    /// The same with Ruby processes of its own ([`Ruby::apart`]).
    pub fn apart(&self) -> Self {
        Self::new(self.ruby.as_ref().map(Ruby::apart))
    }

    /// Whether a template could have changed what the others gave: Ruby runs them all in one process.
    pub fn asked_ruby(&self) -> bool {
        self.asked_ruby.load(Ordering::Relaxed)
    }

    /// By Ruby, for this reason.
    fn by_ruby(&self, job: &Job, spec: &Value, why: Unsupported) -> Result<RenderedJob, RenderError> {
        self.asked_ruby.store(true, Ordering::Relaxed);
        let rendered = match &self.ruby {
            Some(ruby) => ruby.render_job(job, spec),
            None => Err(RubyError::Forbidden),
        };
        let unavailable = |ruby| {
            let (job_name, why) = (job.spec.name.clone(), Box::new(why));
            let template = templates::of(job).into_iter().find(|template| template.source == why.template);
            match template.and_then(|template| excerpt(template.content, why.line)).filter(|_| why.is_syntax) {
                Some(excerpt) => RenderError::Syntax { job: job_name, why, excerpt },
                None => RenderError::NoRuby { job: job_name, why, ruby },
            }
        };
        rendered.map_err(unavailable)?.map_err(RenderError::Failed)
    }
}

impl Renderer for Backends {
    /// What needs Ruby.
    fn check(&self, job: &Job) -> Result<(), Unsupported> {
        Native.check(job)
    }

    fn render(&self, job: &Job, spec: &Value) -> Result<RenderedJob, RenderError> {
        match Native.render(job, spec) {
            Err(RenderError::NeedsRuby(why)) => self.by_ruby(job, spec, why),
            rendered => rendered,
        }
    }
}
