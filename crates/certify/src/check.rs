//! What a check is, and what can come of it.

use crate::answer::Answer;
use crate::scene::Scene;

#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Stable: scripts and `--only` name it.
    pub id: &'static str,
    /// The numbers that this check covers in the contract's list of conformance checks.
    pub covers: &'static [u8],
    /// What its failure means.
    pub level: Level,
    /// Why it matters to an operator.
    pub why: &'static str,
    pub(crate) run: fn(&Scene) -> Verdict,
    /// Looks at everything that the other checks saw.
    pub(crate) afterwards: bool,
}

/// What a check's failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Must pass.
    Required,
    /// May be not supported or not observed, but must not be wrong.
    Optional,
    /// Worth knowing; never stands in the way.
    Warning,
}

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Seen to be right.
    Passed,
    /// Seen to be wrong.
    Failed,
    /// Right, or harmless, but worth knowing.
    Warned,
    /// The CPI says that it does not have this.
    NotSupported,
    /// Could not be looked at.
    NotObserved,
}

/// Nothing to say, or why the check did not pass.
pub(crate) type Verdict = Result<(), NotPassed>;

/// Why a check did not pass.
#[derive(Debug)]
pub(crate) enum NotPassed {
    /// With the calls that show it.
    Failed(String, Vec<Answer>),
    Warned(String, Vec<Answer>),
    NotSupported(String),
    NotObserved(String, Vec<Answer>),
    /// Somebody wants to end the run.
    Interrupted,
}

impl Level {
    /// For reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
            Self::Warning => "warning",
        }
    }
}

impl Outcome {
    /// For reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Warned => "warning",
            Self::NotSupported => "not supported",
            Self::NotObserved => "not observed",
        }
    }

    /// Whether a check of this level may end so in a certified CPI.
    pub fn satisfies(self, level: Level) -> bool {
        match self {
            Self::Passed | Self::Warned => true,
            Self::NotSupported | Self::NotObserved => level != Level::Required,
            Self::Failed => false,
        }
    }
}

/// A check; the tables of [`crate::checks`] consist of them.
pub(crate) const fn check(
    id: &'static str,
    covers: &'static [u8],
    level: Level,
    why: &'static str,
    run: fn(&Scene) -> Verdict,
) -> Check {
    Check { id, covers, level, why, run, afterwards: false }
}

/// A check on everything that the other checks saw.
pub(crate) const fn afterwards(
    id: &'static str,
    covers: &'static [u8],
    level: Level,
    why: &'static str,
    run: fn(&Scene) -> Verdict,
) -> Check {
    Check { id, covers, level, why, run, afterwards: true }
}

impl NotPassed {
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into(), Vec::new())
    }

    pub(crate) fn not_observed(what: impl Into<String>) -> Self {
        Self::NotObserved(what.into(), Vec::new())
    }

    /// What only prepares a check, and did not work, is another check's failure.
    pub(crate) fn while_preparing(self, what: &str) -> Self {
        match self {
            Self::Failed(why, calls) | Self::Warned(why, calls) => Self::NotObserved(format!("{what}: {why}"), calls),
            Self::NotSupported(why) => Self::NotObserved(format!("{what}: {why}"), Vec::new()),
            other => other,
        }
    }
}
