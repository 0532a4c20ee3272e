//! The runtime config: what applies to every deployment, and addons, which a manifest may have as well.

use windlass_contract::Object;
use windlass_manifest::{At, Document};

use super::fields::Fields;
use super::findings::{Findings, Placed};
use super::variables::read_variables;

/// All runtime configs together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuntimeConfig {
    /// For the clouds; a deployment's own tags win.
    pub tags: Object,
    /// With the document that each stands in.
    pub addons: Vec<(String, Addon)>,
}

/// Jobs for instance groups that match.
#[derive(Debug, Clone, PartialEq)]
pub struct Addon {
    /// Its name.
    pub name: Placed<String>,
    /// Whether it has jobs.
    pub has_jobs: bool,
    include: Filter,
    exclude: Filter,
}

/// What an addon looks at in a group.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// The deployment.
    pub deployment: &'a str,
    /// The group.
    pub group: &'a str,
    /// `service` or `errand`.
    pub lifecycle: &'a str,
    /// The operating system of its stemcell.
    pub os: &'a str,
    /// Names of its networks.
    pub networks: Vec<&'a str>,
    /// Names of its zones.
    pub azs: Vec<&'a str>,
}

/// Kinds that are given must all match, each by any of its words.
#[derive(Debug, Clone, Default, PartialEq)]
struct Filter(Vec<(Kind, Vec<String>)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Deployments,
    InstanceGroups,
    Lifecycle,
    Stemcell,
    Networks,
    Azs,
    /// Jobs and teams: nothing of the kind exists here, so nothing matches.
    Nothing,
}

impl Filter {
    fn matches(&self, candidate: &Candidate<'_>) -> bool {
        self.0.iter().all(|(kind, words)| {
            let has = |names: &[&str]| words.iter().any(|word| names.contains(&word.as_str()));
            match kind {
                Kind::Deployments => has(&[candidate.deployment]),
                Kind::InstanceGroups => has(&[candidate.group]),
                Kind::Lifecycle => has(&[candidate.lifecycle]),
                Kind::Stemcell => has(&[candidate.os]),
                Kind::Networks => has(&candidate.networks),
                Kind::Azs => has(&candidate.azs),
                Kind::Nothing => false,
            }
        })
    }
}

impl Addon {
    /// Whether a group gets it.
    pub fn applies_to(&self, candidate: &Candidate<'_>) -> bool {
        self.include.matches(candidate) && (self.exclude.0.is_empty() || !self.exclude.matches(candidate))
    }
}

const KEYS: [&str; 4] = ["releases", "addons", "tags", "variables"];
const ADDON_KEYS: [&str; 5] = ["name", "jobs", "include", "exclude", "properties"];
const FILTER_KEYS: [&str; 8] =
    ["deployments", "instance_groups", "lifecycle", "stemcell", "networks", "azs", "jobs", "teams"];

impl RuntimeConfig {
    /// Reads and adds one config. `document` is its name for messages of later checks.
    pub fn read(&mut self, document_name: &str, document: &Document, findings: &mut Findings) {
        let Some(mut root) = Fields::of(&document.root(), &KEYS, findings) else { return };
        read_releases(&mut root);
        for at in root.list("addons") {
            let addon = read_addon(&at, root.findings());
            self.addons.extend(addon.map(|addon| (document_name.to_owned(), addon)));
        }
        if let Some(at) = root.optional("tags")
            && let Some(tags) = root.check(at.object())
        {
            if !self.tags.is_empty() && !tags.is_empty() {
                root.findings().push(at.problem("another runtime config has 'tags' already; keep them in one"));
            }
            self.tags.extend(tags);
        }
        read_variables(&mut root);
    }
}

/// Without addons, releases in a runtime config have no effect; their shape is checked all the same.
fn read_releases(root: &mut Fields<'_, '_>) {
    for at in root.list("releases") {
        let known = ["name", "version", "url", "sha1", "stemcell", "exported_from"];
        let Some(mut release) = Fields::of(&at, &known, root.findings()) else { continue };
        release.text("name");
        if let Some(version) = release.text("version").filter(|version| version.value.ends_with("latest")) {
            release.findings().push(version.problem("a runtime config needs an exact version"));
        }
    }
}

/// An addon of a manifest or runtime config.
pub(super) fn read_addon(at: &At<'_>, findings: &mut Findings) -> Option<Addon> {
    let mut fields = Fields::of(at, &ADDON_KEYS, findings)?;
    let name = fields.text("name");
    let has_jobs = !fields.list("jobs").is_empty();
    let mut filter = |key: &str| {
        let at = fields.optional(key)?;
        Some(read_filter(&at, fields.findings()))
    };
    let (include, exclude) = (filter("include").unwrap_or_default(), filter("exclude").unwrap_or_default());
    Some(Addon { name: name?, has_jobs, include, exclude })
}

fn read_filter(at: &At<'_>, findings: &mut Findings) -> Filter {
    let mut filter = Filter::default();
    let Some(mut fields) = Fields::of(at, &FILTER_KEYS, findings) else { return filter };
    let named = [
        ("deployments", Kind::Deployments),
        ("instance_groups", Kind::InstanceGroups),
        ("networks", Kind::Networks),
        ("azs", Kind::Azs),
    ];
    for (key, kind) in named {
        if fields.optional(key).is_some() {
            let words = fields.texts(key).into_iter().map(|word| word.value).collect();
            filter.0.push((kind, words));
        }
    }
    if let Some(lifecycle) = fields.optional_text("lifecycle") {
        filter.0.push((Kind::Lifecycle, vec![lifecycle.value]));
    }
    let stemcells = fields.list("stemcell");
    if !stemcells.is_empty() {
        let mut words = Vec::new();
        for at in stemcells {
            let os = Fields::of(&at, &["os"], fields.findings()).and_then(|mut stemcell| stemcell.text("os"));
            words.extend(os.map(|os| os.value));
        }
        filter.0.push((Kind::Stemcell, words));
    }
    for key in ["jobs", "teams"] {
        if !fields.list(key).is_empty() {
            filter.0.push((Kind::Nothing, Vec::new()));
        }
    }
    filter
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> (RuntimeConfig, Findings) {
        let (mut config, mut findings) = (RuntimeConfig::default(), Findings::new());
        config.read("runtime config 'default'", &Document::parse(yaml).unwrap(), &mut findings);
        (config, findings)
    }

    fn candidate<'a>(group: &'a str, os: &'a str) -> Candidate<'a> {
        Candidate { deployment: "d", group, lifecycle: "service", os, networks: vec!["n"], azs: vec!["z1"] }
    }

    #[test]
    fn kinds_must_all_match_and_each_by_any_of_its_words() {
        let (config, findings) = read(
            "addons:\n- name: a\n  jobs: [{name: j, release: r}]\n  include:\n    stemcell: [{os: x}, {os: y}]\n    instance_groups: [web]\n  exclude:\n    azs: [z9]\n- name: all\n- name: teams\n  include: {teams: [t]}\n",
        );
        assert!(findings.is_clean(), "{findings}");
        let [(_, a), (_, all), (_, teams)] = config.addons.as_slice() else { panic!("{config:?}") };
        assert!(a.has_jobs && a.applies_to(&candidate("web", "y")));
        assert!(!a.applies_to(&candidate("web", "z")) && !a.applies_to(&candidate("db", "y")));
        assert!(!all.has_jobs && all.applies_to(&candidate("db", "z")), "no filter lets everything in");
        assert!(!teams.applies_to(&candidate("web", "y")), "there are no teams");
    }

    #[test]
    fn wrong_shapes_are_named() {
        let (_, findings) =
            read("releases: [{name: r, version: latest}]\naddons: [{jobs: []}, 7]\ntags: [a]\nadons: []\n");
        let found = findings.to_string();
        for expected in
            ["releases[0].version: ", "addons[0].name: is required", "addons[1]: expected an object", "tags: "]
        {
            assert!(found.contains(expected), "{expected} in {found}");
        }
        assert!(findings.warnings()[0].to_string().contains("did you mean 'addons'"));
    }
}
