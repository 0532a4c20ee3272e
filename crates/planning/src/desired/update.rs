//! How instances are updated: how many at a time, in what order, how long to watch them.

use serde::{Deserialize, Serialize};
use windlass_manifest::{At, Content, Problem};

use super::fields::{Fields, number};
use super::findings::Findings;

/// How instances are updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdateBlock {
    /// How many are tried first.
    pub canaries: Count,
    /// How many at a time.
    pub max_in_flight: Count,
    /// How long a canary is watched.
    pub canary_watch_time: WatchTime,
    /// How long every other instance is watched.
    pub update_watch_time: WatchTime,
    /// Whether the group is updated by itself, rather than at the same time as its neighbours.
    pub serial: bool,
    /// How a VM is replaced.
    pub vm_strategy: VmStrategy,
    /// Whether zones are updated at once when the group is deployed for the first time.
    pub zones_at_once_at_first: bool,
}

impl Default for UpdateBlock {
    fn default() -> Self {
        let watch = WatchTime { min: 1_000, max: 300_000 };
        Self {
            canaries: Count::Number(1),
            max_in_flight: Count::Number(1),
            canary_watch_time: watch,
            update_watch_time: watch,
            serial: true,
            vm_strategy: VmStrategy::DeleteCreate,
            zones_at_once_at_first: false,
        }
    }
}

/// A number of instances, or a share of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    Number(u64),
    /// Of a hundred.
    Percent(u64),
}

impl Count {
    /// How many of `size` that is, rounded down.
    pub fn of(self, size: usize) -> usize {
        let many = match self {
            Self::Number(number) => u128::from(number),
            Self::Percent(percent) => size as u128 * u128::from(percent) / 100,
        };
        usize::try_from(many).unwrap_or(usize::MAX)
    }
}

impl std::str::FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected a number such as 2, or a share such as 20%, found '{text}'");
        match text.trim().strip_suffix('%') {
            Some(percent) => match percent.trim().parse() {
                Ok(percent @ 0..=100) => Ok(Self::Percent(percent)),
                _ => Err(wrong()),
            },
            None => text.trim().parse().map(Self::Number).map_err(|_| wrong()),
        }
    }
}

/// From when on an instance is looked at, and until when it must run, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchTime {
    /// First look.
    pub min: u64,
    /// Last look.
    pub max: u64,
}

/// Watching for longer than a year is a mistake.
const LONGEST_WATCH: u64 = 365 * 24 * 3600 * 1000;

impl std::str::FromStr for WatchTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected milliseconds such as 30000, or from-to such as 1000-30000, found '{text}'");
        let (min, max) = match text.split_once('-') {
            Some((min, max)) => (min, max),
            None => (text, text),
        };
        let parse = |text: &str| text.trim().parse::<u64>().ok().filter(|time| *time <= LONGEST_WATCH);
        match (parse(min), parse(max)) {
            (Some(min), Some(max)) if min <= max => Ok(Self { min, max }),
            _ => Err(wrong()),
        }
    }
}

/// How a VM is replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VmStrategy {
    /// The old one is deleted first.
    #[default]
    DeleteCreate,
    /// The new one is made beside the old one and takes over ("hot swap").
    CreateSwapDelete,
}

const KEYS: [&str; 7] = [
    "canaries",
    "max_in_flight",
    "canary_watch_time",
    "update_watch_time",
    "serial",
    "vm_strategy",
    "initial_deploy_az_update_strategy",
];

/// The `update` block of `at`; what it does not say is `otherwise`.
pub(super) fn read_update(at: &At<'_>, otherwise: UpdateBlock, findings: &mut Findings) -> UpdateBlock {
    let Some(mut fields) = Fields::of(at, &KEYS, findings) else { return otherwise };
    let mut update = otherwise;
    let mut count = |name: &str, to: &mut Count| {
        if let Some(at) = fields.optional(name)
            && let Some(count) = fields.check(read_count(&at))
        {
            *to = count;
        }
    };
    count("canaries", &mut update.canaries);
    count("max_in_flight", &mut update.max_in_flight);
    let mut watch = |name: &str, to: &mut WatchTime| {
        if let Some(at) = fields.optional(name)
            && let Some(time) = fields.check(read_watch_time(&at))
        {
            *to = time;
        }
    };
    watch("canary_watch_time", &mut update.canary_watch_time);
    watch("update_watch_time", &mut update.update_watch_time);
    update.serial = fields.boolean("serial").unwrap_or(update.serial);
    let strategies =
        [("delete-create", VmStrategy::DeleteCreate), ("create-swap-delete", VmStrategy::CreateSwapDelete)];
    update.vm_strategy = fields.word("vm_strategy", &strategies).unwrap_or(update.vm_strategy);
    let at_first = [("serial", false), ("parallel", true)];
    update.zones_at_once_at_first =
        fields.word("initial_deploy_az_update_strategy", &at_first).unwrap_or(update.zones_at_once_at_first);
    update
}

fn read_count(at: &At<'_>) -> Result<Count, Problem> {
    match &at.node().content {
        Content::String(text) => text.parse().map_err(|error: String| at.problem(error)),
        _ => number(at, 0, u32::MAX.into()).map(Count::Number),
    }
}

fn read_watch_time(at: &At<'_>) -> Result<WatchTime, Problem> {
    match &at.node().content {
        Content::String(text) => text.parse().map_err(|error: String| at.problem(error)),
        _ => number(at, 0, LONGEST_WATCH).map(|time| WatchTime { min: time, max: time }),
    }
}

#[cfg(test)]
mod tests {
    use windlass_manifest::Document;

    use super::*;

    fn read(yaml: &str) -> (UpdateBlock, Vec<String>) {
        let mut findings = Findings::new();
        let document = Document::parse(yaml).unwrap();
        let update = read_update(&document.root(), UpdateBlock::default(), &mut findings);
        (update, findings.problems().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn numbers_shares_and_watch_times_are_read() {
        let (update, problems) = read(
            "{canaries: 0, max_in_flight: 40%, canary_watch_time: 1000-9000, update_watch_time: 500, serial: no, vm_strategy: create-swap-delete}",
        );
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!((update.canaries.of(5), update.max_in_flight.of(5)), (0, 2));
        assert_eq!(update.canary_watch_time, WatchTime { min: 1000, max: 9000 });
        assert_eq!(update.update_watch_time, WatchTime { min: 500, max: 500 });
        assert_eq!((update.serial, update.vm_strategy), (false, VmStrategy::CreateSwapDelete));
        assert_eq!(Count::Percent(100).of(usize::MAX), usize::MAX, "no overflow");
    }

    #[test]
    fn every_wrong_value_is_named() {
        let (_, problems) = read(
            "{canaries: -1, max_in_flight: 200%, canary_watch_time: 9000-1000, update_watch_time: soon, serial: maybe, vm_strategy: x, initial_deploy_az_update_strategy: y}",
        );
        for path in [
            "canaries",
            "max_in_flight",
            "canary_watch_time",
            "update_watch_time",
            "serial",
            "vm_strategy",
            "initial_deploy_az_update_strategy",
        ] {
            assert!(problems.iter().any(|problem| problem.starts_with(&format!("{path}: "))), "{path}: {problems:?}");
        }
    }
}
