//! Stemcells: which one a manifest means.

use windlass_contract::{ApiVersion, StemcellCid};
use windlass_manifest::At;

use super::fields::Fields;
use super::findings::{Findings, Placed};
use crate::names::CpiName;
use crate::records::StemcellRecord;

/// Which stemcell an alias means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StemcellReference {
    pub alias: Placed<String>,
    /// By operating system, or by name.
    pub family: Family,
    /// A version, `latest`, or `621.latest` for the latest of those that begin with 621.
    pub version: Placed<String>,
}

/// What stemcells of several versions have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Family {
    /// The operating system.
    Os(String),
    Name(String),
}

/// A stemcell in one cloud.
#[derive(Debug, Clone, PartialEq)]
pub struct StemcellChoice {
    /// The CPI's name.
    pub cpi: CpiName,
    pub cid: StemcellCid,
    pub name: String,
    pub version: String,
    /// What manifests name it by.
    pub os: String,
    /// What its agent can do.
    pub api_version: Option<ApiVersion>,
    /// The record.
    pub id: i64,
}

impl StemcellReference {
    pub(super) fn read(at: &At<'_>, findings: &mut Findings) -> Option<Self> {
        let mut fields = Fields::of(at, &["alias", "os", "name", "version"], findings)?;
        let (alias, version) = (fields.text("alias"), fields.text("version"));
        let family = match (fields.optional_text("os"), fields.optional_text("name")) {
            (Some(os), None) => Some(Family::Os(os.value)),
            (None, Some(name)) => Some(Family::Name(name.value)),
            _ => {
                fields.push("needs either 'os' or 'name'");
                None
            }
        };
        Some(Self { alias: alias?, family: family?, version: version? })
    }

    /// The stemcell in every cloud that has it.
    pub fn choose(&self, uploaded: &[StemcellRecord]) -> Result<Vec<StemcellChoice>, String> {
        let of_family = |stemcell: &&StemcellRecord| match &self.family {
            Family::Os(os) => stemcell.operating_system == *os,
            Family::Name(name) => stemcell.name == *name,
        };
        let wanted = self.version.value.as_str();
        let fits = |stemcell: &&StemcellRecord| match wanted.strip_suffix("latest") {
            Some("") => true,
            Some(prefix) if prefix.ends_with('.') => begins_with(&stemcell.version, prefix.trim_end_matches('.')),
            _ => stemcell.version == wanted,
        };
        let best = uploaded
            .iter()
            .filter(of_family)
            .filter(fits)
            .max_by(|one, other| compare_versions(&one.version, &other.version));
        let Some(best) = best else {
            let have: Vec<_> = uploaded.iter().map(describe).collect();
            let have = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
            let missing = self.missing(uploaded.iter().any(|stemcell| of_family(&stemcell)));
            return Err(format!("{missing}; uploaded: {have}; use upload-stemcell"));
        };
        // One operating system may come by several names; a deployment uses one of them.
        let is_chosen = |stemcell: &&StemcellRecord| stemcell.name == best.name && stemcell.version == best.version;
        Ok(uploaded.iter().filter(of_family).filter(is_chosen).map(StemcellChoice::of).collect())
    }
}

impl StemcellReference {
    /// In BOSH's words.
    fn missing(&self, has_family: bool) -> String {
        let wanted = &self.version.value;
        match (&self.family, wanted.strip_suffix("latest")) {
            (Family::Os(os), None) => format!("Stemcell version '{wanted}' for OS '{os}' doesn't exist"),
            (Family::Name(name), None) => format!("Stemcell '{name}/{wanted}' doesn't exist"),
            (Family::Os(os), Some(prefix)) if has_family => {
                format!("Stemcell with Operating System '{os}' exists, but version with prefix '{prefix}' not found")
            }
            (Family::Name(name), Some(prefix)) if has_family => {
                format!("Stemcell '{name}' exists, but version with prefix '{prefix}' not found")
            }
            (Family::Os(os), Some(_)) => format!("Stemcell with Operating System '{os}' doesn't exist"),
            (Family::Name(name), Some(_)) => format!("Stemcell '{name}' doesn't exist"),
        }
    }
}

impl StemcellChoice {
    fn of(stemcell: &StemcellRecord) -> Self {
        Self {
            cpi: stemcell.cpi.clone(),
            cid: stemcell.cid.clone(),
            name: stemcell.name.clone(),
            version: stemcell.version.clone(),
            os: stemcell.operating_system.clone(),
            api_version: stemcell.api_version,
            id: stemcell.id,
        }
    }
}

fn describe(stemcell: &StemcellRecord) -> String {
    format!("{}/{} ({})", stemcell.name, stemcell.version, stemcell.operating_system)
}

fn begins_with(version: &str, prefix: &str) -> bool {
    version.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+', '_']))
}

/// The order of two versions, older first.
pub fn compare_versions(one: &str, other: &str) -> std::cmp::Ordering {
    Version::of(one).cmp(&Version::of(other))
}

/// Versions in their order: `release[-pre][+post]`, numbers by value, a pre-release before its release.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version<'a> {
    release: Vec<Segment<'a>>,
    is_release: bool,
    pre: Vec<Segment<'a>>,
    post: Vec<Segment<'a>>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Segment<'a> {
    Number(u128),
    Word(&'a str),
}

impl<'a> Version<'a> {
    fn of(text: &'a str) -> Self {
        let (text, post) = text.split_once('+').unwrap_or((text, ""));
        let (release, pre) = text.split_once('-').unwrap_or((text, ""));
        Self { release: segments(release), is_release: pre.is_empty(), pre: segments(pre), post: segments(post) }
    }
}

/// Zeros at the end say nothing: 1.0 is 1. `_` counts as `.`.
fn segments(text: &str) -> Vec<Segment<'_>> {
    let part = |part| str::parse(part).map_or(Segment::Word(part), Segment::Number);
    let mut segments: Vec<_> = text.split(['.', '_']).filter(|part| !part.is_empty()).map(part).collect();
    while segments.last() == Some(&Segment::Number(0)) {
        segments.pop();
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::super::findings::Place;
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let mut versions = ["1.10", "1.9", "1", "2-rc.1", "2", "2+build.2", "2+build.10", "2_1", "1.9.x"];
        versions.sort_by(|one, other| Version::of(one).cmp(&Version::of(other)));
        assert_eq!(versions, ["1", "1.9", "1.9.x", "1.10", "2-rc.1", "2", "2+build.2", "2+build.10", "2_1"]);
        assert_eq!(Version::of("1.0").cmp(&Version::of("1")), std::cmp::Ordering::Equal);
    }

    fn stemcell(name: &str, version: &str, cpi: &str) -> StemcellRecord {
        StemcellRecord {
            id: 1,
            name: name.into(),
            version: version.into(),
            operating_system: "os".into(),
            cpi: cpi.into(),
            cid: StemcellCid::new(format!("{name}-{version}-{cpi}")).unwrap(),
            api_version: None,
            deployments: Vec::new(),
        }
    }

    fn choose(family: Family, version: &str) -> Result<Vec<String>, String> {
        let place = Place { path: String::new(), position: windlass_manifest::Position { line: 1, column: 1 } };
        let placed = |value: &str| Placed { value: value.to_owned(), place: place.clone() };
        let reference = StemcellReference { alias: placed("a"), family, version: placed(version) };
        let uploaded = [
            stemcell("s", "621.9", "a"),
            stemcell("s", "621.10", "a"),
            stemcell("s", "621.10", "b"),
            stemcell("s", "6210.1", "a"),
        ];
        reference.choose(&uploaded).map(|chosen| chosen.iter().map(|choice| choice.cid.to_string()).collect())
    }

    #[test]
    fn the_latest_of_all_or_of_those_with_a_prefix_is_chosen_in_every_cloud() {
        let os = || Family::Os("os".into());
        assert_eq!(choose(os(), "latest").unwrap(), ["s-6210.1-a"]);
        assert_eq!(choose(os(), "621.latest").unwrap(), ["s-621.10-a", "s-621.10-b"]);
        assert_eq!(choose(Family::Name("s".into()), "621.9").unwrap(), ["s-621.9-a"]);
        let error = choose(os(), "62.latest").unwrap_err();
        assert!(error.contains("use upload-stemcell") && error.contains("s/621.9 (os)"), "{error}");
    }
}
