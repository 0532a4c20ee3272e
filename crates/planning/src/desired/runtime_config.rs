//! The runtime config: what applies to every deployment.

use windlass_contract::Object;
use windlass_manifest::Document;

use super::addons::{Addon, Level, read_addon};
use super::fields::Fields;
use super::findings::Findings;
use super::jobs::{ReleaseReference, read_release};
use super::variables::{VariableDefinition, read_variables};

/// All runtime configs together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuntimeConfig {
    /// For the clouds; a deployment's own tags win.
    pub tags: Object,
    /// With the document that each stands in.
    pub addons: Vec<(String, Addon)>,
    /// With the document that each stands in; of use to addons of the same document.
    pub releases: Vec<(String, ReleaseReference)>,
    /// For every deployment by itself, where their names are relative.
    pub variables: Vec<VariableDefinition>,
}

const KEYS: [&str; 4] = ["releases", "addons", "tags", "variables"];

impl RuntimeConfig {
    /// Reads and adds one config. `document` is its name for messages of later checks.
    pub fn read(&mut self, document_name: &str, document: &Document, findings: &mut Findings) {
        let Some(mut root) = Fields::of(&document.root(), &KEYS, findings) else { return };
        let listed = root.list("releases");
        let releases: Vec<_> = listed.iter().filter_map(|at| read_release(at, root.findings())).collect();
        for release in releases.iter().filter(|release| release.version.value.ends_with("latest")) {
            root.findings().push(release.version.problem(format!(
                "Runtime manifest contains the release '{}' with version as '{}'. Please specify the actual version string.",
                release.name.value, release.version.value
            )));
        }
        let known = (releases.len() == listed.len()).then_some(releases.as_slice());
        for at in root.list("addons") {
            let addon = read_addon(&at, Level::Runtime(document_name), known, root.findings());
            self.addons.extend(addon.map(|addon| (document_name.to_owned(), addon)));
        }
        self.releases.extend(releases.into_iter().map(|release| (document_name.to_owned(), release)));
        if let Some(at) = root.optional("tags")
            && let Some(tags) = root.check(at.object())
        {
            if !self.tags.is_empty() && !tags.is_empty() {
                let message = "Runtime config 'tags' key cannot be defined in multiple runtime configs.";
                root.findings().push(at.problem(message));
            }
            self.tags.extend(tags);
        }
        self.variables.extend(read_variables(&mut root));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> (RuntimeConfig, Findings) {
        let (mut config, mut findings) = (RuntimeConfig::default(), Findings::new());
        config.read("runtime config 'default'", &Document::parse(yaml).unwrap(), &mut findings);
        (config, findings)
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
