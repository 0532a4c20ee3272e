//! All configs together.

use windlass_manifest::Document;

use super::{CloudConfig, CpiConfig, Findings, RuntimeConfig, refuse_misplaced, refuse_unfilled};
use crate::records::ConfigRecord;

/// What applies beside the manifest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Configs {
    /// What the clouds offer.
    pub cloud: CloudConfig,
    /// What applies to every deployment.
    pub runtime: RuntimeConfig,
    /// Who serves which zone.
    pub cpis: CpiConfig,
}

fn name_of(config: &ConfigRecord) -> String {
    format!("{} config '{}'", config.kind, config.name)
}

impl Configs {
    /// Reads configs of any type; those that are none of ours say nothing.
    pub fn read<'c>(configs: impl IntoIterator<Item = &'c ConfigRecord>, findings: &mut Findings) -> Self {
        let mut together = Self::default();
        for config in configs {
            let name = name_of(config);
            findings.begin(name.clone());
            let document = match Document::parse(&config.content) {
                Ok(document) => document,
                Err(error) => {
                    findings.say(error.to_string());
                    continue;
                }
            };
            match config.kind.as_str() {
                "cloud" => together.cloud.read(&name, &document, findings),
                "runtime" => together.runtime.read(&name, &document, findings),
                "cpi" => together.cpis.read(&document, findings),
                _ => continue,
            }
            match config.kind.as_str() {
                "runtime" => refuse_misplaced(&document, findings),
                _ => refuse_unfilled(&document, findings),
            }
        }
        together.cloud.check(findings);
        findings.begin("");
        together
    }

    /// What is wrong with a new config, by itself or together with the current ones of its type.
    pub fn check(new: &ConfigRecord, current: &[ConfigRecord]) -> Findings {
        let mut all = Findings::new();
        let others = current.iter().filter(|other| other.kind == new.kind && other.name != new.name);
        Self::read(others.chain([new]), &mut all);
        all.only(&name_of(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(kind: &str, name: &str, content: &str) -> ConfigRecord {
        ConfigRecord { id: 1, kind: kind.into(), name: name.into(), content: content.into(), created_at: 0, team: None }
    }

    #[test]
    fn a_new_config_is_judged_together_with_the_others_and_not_for_their_mistakes() {
        let zones = config("cloud", "zones", "azs: [{name: z1}, {name: z1}]\n");
        let networks = |az: &str| {
            config(
                "cloud",
                "networks",
                &format!("networks: [{{name: n, subnets: [{{range: 10.0.0.0/24, az: {az}}}]}}]\n"),
            )
        };
        assert!(Configs::check(&networks("z1"), std::slice::from_ref(&zones)).is_clean());
        let broken = config("cloud", "networks", "networks: [");
        assert!(Configs::check(&broken, &[networks("z1")]).to_string().starts_with("in the cloud config 'networks': "));
        assert!(!Configs::check(&config("cpi", "default", "cpis: 7"), &[]).is_clean());
    }
}
