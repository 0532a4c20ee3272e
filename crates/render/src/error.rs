//! What can go wrong, in the words of BOSH.

use std::fmt;

/// What needs Ruby, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// The template's path below `templates/`, or `monit`.
    pub template: String,
    pub line: usize,
    pub construct: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "template '{}' (line {}) needs Ruby for {}", self.template, self.line, self.construct)
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
}

/// All errors of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobErrors {
    pub job: String,
    pub errors: Vec<TemplateError>,
}

/// One template's error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    pub template: String,
    pub line: usize,
    pub message: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Error filling in template '{}' (line {}: {})", self.template, self.line, self.message)
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
