//! What can go wrong, in the words of BOSH.

use std::fmt;

use crate::RubyError;

/// What needs Ruby, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// The template's path below `templates/`, or `monit`.
    pub template: String,
    pub line: usize,
    pub construct: String,
    /// Whether the construct is a mistake, as Ruby 3.1 reads it.
    pub is_syntax: bool,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { template, line, construct, is_syntax } = self;
        match is_syntax {
            true => write!(
                formatter,
                "template '{template}' has a syntax error at line {line}, as Ruby 3.1 reads it: {construct}"
            ),
            false => write!(formatter, "template '{template}' (line {line}) needs Ruby for {construct}"),
        }
    }
}

/// why a job is not rendered
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// the native backend does not know a construct; Ruby does
    #[error("{0}")]
    NeedsRuby(Unsupported),
    /// templates say so themselves, or ask for what there is not
    #[error("{0}")]
    Failed(JobErrors),
    /// Ruby cannot be asked
    #[error(transparent)]
    Ruby(#[from] RubyError),
    /// Ruby is needed, and cannot be asked
    #[error("job '{job}' cannot be rendered: {why}, and {ruby}")]
    NoRuby { job: String, why: Box<Unsupported>, ruby: RubyError },
    /// a mistake, which Ruby would tell better if it could be asked
    #[error("job '{job}' cannot be rendered: {why}\n{excerpt}")]
    Syntax { job: String, why: Box<Unsupported>, excerpt: String },
}

/// All errors of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobErrors {
    pub job: String,
    pub errors: Vec<TemplateError>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    pub template: String,
    /// Ruby does not always tell.
    pub line: Option<usize>,
    pub message: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.map_or_else(|| "unknown".to_owned(), |line| line.to_string());
        write!(formatter, "Error filling in template '{}' (line {line}: {})", self.template, self.message)
    }
}

impl JobErrors {
    /// Whether it is `monit` that failed. BOSH shows that error alone, directly under the instance group.
    pub fn is_of_monit(&self) -> bool {
        matches!(self.errors.as_slice(), [error] if error.template == crate::MONIT)
    }
}

impl fmt::Display for JobErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([error], true) = (self.errors.as_slice(), self.is_of_monit()) {
            return write!(formatter, "{error}");
        }
        write!(formatter, "Unable to render templates for job '{}'. Errors are:", self.job)?;
        for error in &self.errors {
            let text = error.to_string();
            for (index, line) in text.trim().lines().enumerate() {
                write!(formatter, "\n  {}{line}", if index == 0 { "- " } else { "" })?;
            }
        }
        Ok(())
    }
}
