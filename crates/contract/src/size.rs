//! Sizes of disks and memory.

use serde::{Deserialize, Serialize};
use serde_json::Number;

/// A size in MiB: a whole number on the wire, never a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Number")]
pub struct MiB(pub u64);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a size is a whole number of MiB, not {0}")]
pub struct NotASize(String);

/// Above this, a float no longer tells whole numbers apart.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

impl TryFrom<Number> for MiB {
    type Error = NotASize;

    /// `1024.0` is whole: some languages write all numbers that way.
    fn try_from(number: Number) -> Result<Self, NotASize> {
        let whole = |float: &f64| float.fract() == 0.0 && (0.0..LARGEST_EXACT).contains(float);
        number
            .as_u64()
            .or_else(|| number.as_f64().filter(whole).map(|float| float as u64))
            .map(Self)
            .ok_or_else(|| NotASize(number.to_string()))
    }
}

impl std::fmt::Display for MiB {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} MiB", self.0)
    }
}
