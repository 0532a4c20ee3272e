//! Why a measurement failed.

use std::io;

use windlass_certify::CommandLineError;

/// why a measurement failed
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("cannot {doing}")]
    Failed { doing: &'static str, source: io::Error },
    #[error(transparent)]
    Cloud(#[from] windlass_contract::cpi::CpiError),
    #[error("--cpi cannot be run")]
    Command(#[source] CommandLineError),
    #[error("the CPI has no good answer to '{call}': {reason}; 'windlass certify' tells more about it")]
    Answer { call: &'static str, reason: String },
    #[error(
        "this build cannot be killed at its steps; build one that can, and run it: \
         'cargo run --release --features kill-points -- bench kills'"
    )]
    NoKillPoints,
    #[error("no sweep of '{unknown}'; there are {known}")]
    NoSuchMethod { unknown: String, known: String },
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
}
