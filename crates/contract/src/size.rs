//! Sizes of disks and memory.

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};

/// A size in MiB: a whole number on the wire, never a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MiB(pub u64);

/// Above this, a float no longer tells whole numbers apart.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

impl Serialize for MiB {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for MiB {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(WholeNumber)
    }
}

struct WholeNumber;

impl Visitor<'_> for WholeNumber {
    type Value = MiB;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a whole number of MiB")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<MiB, E> {
        Ok(MiB(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<MiB, E> {
        u64::try_from(number).map(MiB).map_err(|_| not_whole(number))
    }

    /// `1024.0` is whole: some languages write all numbers that way.
    fn visit_f64<E: Error>(self, number: f64) -> Result<MiB, E> {
        let is_whole = number.fract() == 0.0 && (0.0..LARGEST_EXACT).contains(&number);
        if is_whole { Ok(MiB(number as u64)) } else { Err(not_whole(number)) }
    }
}

fn not_whole<E: Error>(number: impl std::fmt::Display) -> E {
    E::custom(format!("a size is a whole number of MiB, not {number}"))
}

impl std::fmt::Display for MiB {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} MiB", self.0)
    }
}
