//! Numbers, sizes and times of settings.

use std::time::Duration;

use windlass_manifest::fields::{Fields, number};
use windlass_manifest::{At, Content, Problem};

const SIZES: [(&str, u64); 3] = [("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Bytes, or a number with a unit.
pub(super) fn size(at: &At<'_>) -> Result<u64, Problem> {
    let parsed = match &at.node().content {
        Content::Number(bytes) => bytes.as_u64(),
        Content::String(text) => SIZES
            .iter()
            .find_map(|(unit, bytes)| text.strip_suffix(unit)?.trim().parse::<u64>().ok()?.checked_mul(*bytes)),
        _ => None,
    };
    parsed.filter(|size| *size > 0).ok_or_else(|| at.problem("expected a size such as 500MiB, 50GiB or 2TiB"))
}

pub(super) fn optional_number(fields: &mut Fields<'_, '_>, key: &str, least: u64, most: u64) -> Option<u64> {
    let at = fields.optional(key)?;
    fields.check(number(&at, least, most))
}

pub(super) fn set_count(fields: &mut Fields<'_, '_>, key: &str, most: u64, setting: &mut usize) {
    if let Some(count) = optional_number(fields, key, 1, most) {
        *setting = count as usize;
    }
}

pub(super) fn set_duration(fields: &mut Fields<'_, '_>, key: &str, setting: &mut Duration) {
    if let Some(given) = fields.optional(key).and_then(|at| fields.check(duration(&at))) {
        *setting = given;
    }
}

pub(super) fn set_never_or_duration(fields: &mut Fields<'_, '_>, key: &str, setting: &mut Option<Duration>) {
    let Some(at) = fields.optional(key) else { return };
    if matches!(&at.node().content, Content::String(word) if word == "never") {
        *setting = None;
    } else if let Some(given) = fields.check(duration(&at)) {
        *setting = Some(given);
    }
}

const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 86400)];
/// A century: longer ones are slips, and would overflow where they are added to something.
const LONGEST: u64 = 100 * 365 * 86400;

/// Seconds, or a number with a unit.
pub(super) fn duration(at: &At<'_>) -> Result<Duration, Problem> {
    let parsed = match &at.node().content {
        Content::Number(seconds) => seconds.as_u64(),
        Content::String(text) => UNITS
            .iter()
            .find_map(|(unit, seconds)| text.strip_suffix(*unit)?.trim().parse::<u64>().ok()?.checked_mul(*seconds)),
        _ => None,
    };
    let allowed = parsed.filter(|seconds| (1..=LONGEST).contains(seconds));
    allowed.map(Duration::from_secs).ok_or_else(|| {
        at.problem("expected a time such as 30s, 10m, 12h or 5d, of at least a second and at most a hundred years")
    })
}
