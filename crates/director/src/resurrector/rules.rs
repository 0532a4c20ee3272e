//! The resurrection config: which instances are resurrected at all.
//!
//! Each rule turns it on or off for what it includes and does not exclude; an instance group is resurrected unless a rule
//! that applies to it says no.

use serde::Deserialize;
use windlass_manifest::Document;
use windlass_planning::names::DeploymentName;
use windlass_planning::records::ConfigRecord;

use crate::tasks::Suspects;

/// All rules of all resurrection configs.
#[derive(Debug, Default)]
pub(super) struct Rules(Vec<Rule>);

#[derive(Debug, Deserialize)]
struct Config {
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    enabled: bool,
    #[serde(default)]
    include: Option<Filter>,
    #[serde(default)]
    exclude: Option<Filter>,
}

#[derive(Debug, Deserialize)]
struct Filter {
    #[serde(default)]
    deployments: Option<Vec<String>>,
    #[serde(default)]
    instance_groups: Option<Vec<String>>,
}

impl Filter {
    fn matches(&self, deployment: &DeploymentName, group: &str) -> bool {
        let has = |names: &Option<Vec<String>>, name: &str| {
            names.as_ref().is_none_or(|names| names.iter().any(|it| it == name))
        };
        has(&self.deployments, deployment) && has(&self.instance_groups, group)
    }
}

impl Rules {
    /// Of these configs. One that cannot be understood turns nothing off, and is complained about in the log.
    pub(super) fn of(configs: &[ConfigRecord]) -> Self {
        let mut rules = Vec::new();
        for config in configs {
            let read = Document::parse(&config.content).map_err(|error| error.to_string());
            match read.and_then(|document| document.root().decode::<Config>().map_err(|problem| problem.to_string())) {
                Ok(config) => rules.extend(config.rules),
                Err(error) => {
                    tracing::warn!(
                        config = config.name,
                        error,
                        "a resurrection config cannot be understood and has no effect"
                    );
                }
            }
        }
        Self(rules)
    }

    /// Those that are resurrected.
    pub(super) fn allowed(&self, deployment: &DeploymentName, mut suspects: Suspects) -> Suspects {
        suspects.retain(|group, _| {
            let applies = |rule: &&Rule| {
                let included = rule.include.as_ref().is_none_or(|filter| filter.matches(deployment, group));
                let excluded = rule.exclude.as_ref().is_some_and(|filter| filter.matches(deployment, group));
                included && !excluded
            };
            self.0.iter().filter(applies).all(|rule| rule.enabled)
        });
        suspects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(content: &str) -> Rules {
        let (kind, name, content) = ("resurrection".into(), "default".into(), content.to_owned());
        Rules::of(&[ConfigRecord { id: 1, kind, name, content, created_at: 0, team: None }])
    }

    #[test]
    fn a_group_is_left_alone_where_a_rule_says_so() {
        let suspects = || Suspects::from([("web".to_owned(), vec!["1".into()]), ("db".to_owned(), vec!["2".into()])]);
        let allowed =
            |content: &str| rules(content).allowed(&"shop".into(), suspects()).into_keys().collect::<Vec<_>>();
        assert_eq!(allowed("rules: []"), ["db", "web"]);
        assert_eq!(allowed("rules: [{enabled: false}]"), [""; 0]);
        assert_eq!(allowed("rules: [{enabled: false, include: {instance_groups: [db]}}]"), ["web"]);
        assert_eq!(allowed("rules: [{enabled: false, include: {deployments: [other]}}]"), ["db", "web"]);
        assert_eq!(allowed("rules: [{enabled: false, exclude: {instance_groups: [db]}}]"), ["db"]);
        assert_eq!(allowed("rules: [{enabled: true}, {enabled: false, include: {deployments: [shop]}}]"), [""; 0]);
        assert_eq!(allowed("rules: nonsense"), ["db", "web"], "what cannot be understood turns nothing off");
    }
}
