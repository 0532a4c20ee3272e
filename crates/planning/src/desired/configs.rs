//! All configs together.

use windlass_manifest::{At, Content, Document, Node};

use super::{CloudConfig, CpiConfig, Findings, RuntimeConfig, refuse_misplaced, refuse_misplaced_in_config};
use crate::records::ConfigRecord;

/// What applies beside the manifest.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Configs {
    /// What the clouds offer.
    pub cloud: CloudConfig,
    /// What applies to every deployment.
    pub runtime: RuntimeConfig,
    /// Which CPI serves which zone.
    pub cpis: CpiConfig,
}

/// How many values all configs of a plan may have together: as many as the largest of them, and some more. One of two letters takes some
/// hundred bytes.
const MOST_VALUES: usize = 250_000;

fn values_in(node: &Node) -> usize {
    1 + match &node.content {
        Content::List(elements) => elements.iter().map(values_in).sum(),
        Content::Object(entries) => entries.values().map(values_in).sum(),
        _ => 0,
    }
}

fn name_of(config: &ConfigRecord) -> String {
    format!("{} config '{}'", config.kind, config.name)
}

/// Refuses what brings a VM of a team nearer to the machine below it, or to data of others.
fn refuse_rights(at: &At<'_>, in_cloud_properties: bool, findings: &mut Findings) {
    match &at.node().content {
        Content::Object(_) => {
            for (key, value) in at.entries().unwrap_or_default() {
                let is_right = match key {
                    "nesting" | "privileged" => value.node().content != Content::Boolean(false),
                    "snapshot_cid" | "processes" => true,
                    _ => key.starts_with("security."),
                };
                if in_cloud_properties && is_right {
                    findings.push(value.problem(format!(
                        "'{key}' may not stand in the config of a team, because it reaches beyond the team's own VMs and disks; \
                         an admin who belongs to no team may put it into a config for all"
                    )));
                }
                refuse_rights(&value, in_cloud_properties || key == "cloud_properties", findings);
            }
        }
        Content::List(_) => {
            let entries = at.list().unwrap_or_default();
            entries.iter().for_each(|entry| refuse_rights(entry, in_cloud_properties, findings));
        }
        _ => {}
    }
}

/// Refuses what lets a team onto VMs that compile: what comes from there is used by deployments of all teams.
fn refuse_env_of_compilation(root: &At<'_>, findings: &mut Findings) {
    let compilation = root.optional("compilation").ok().flatten();
    if let Some(env) = compilation.and_then(|compilation| compilation.optional("env").ok().flatten()) {
        findings.push(env.problem(
            "'env' may not stand in the compilation of a team's config, because what is compiled is used by other teams as well; an \
             admin who belongs to no team may put it into a config for all",
        ));
    }
}

impl Configs {
    /// Reads configs of any type; those that are none of ours say nothing.
    pub fn read<'c>(configs: impl IntoIterator<Item = &'c ConfigRecord>, findings: &mut Findings) -> Self {
        Self::read_some(configs, usize::MAX, findings)
    }

    /// The same for a plan, which has all of them in memory: more values than so many together are refused.
    pub fn read_for_plan<'c>(configs: impl IntoIterator<Item = &'c ConfigRecord>, findings: &mut Findings) -> Self {
        Self::read_some(configs, MOST_VALUES, findings)
    }

    fn read_some<'c>(
        configs: impl IntoIterator<Item = &'c ConfigRecord>,
        most: usize,
        findings: &mut Findings,
    ) -> Self {
        let (mut together, mut left) = (Self::default(), most);
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
            let Some(rest) = left.checked_sub(values_in(document.node())) else {
                let why = format!("the configs have more than {most} values together; make them smaller");
                findings.push(document.root().problem(why));
                left = 0;
                continue;
            };
            left = rest;
            if config.team.is_some() {
                refuse_rights(&At::root(document.node()), false, findings);
                refuse_env_of_compilation(&At::root(document.node()), findings);
            }
            match config.kind.as_str() {
                "cloud" => together.cloud.read(&name, &document, findings),
                "runtime" => together.runtime.read(&name, &document, findings),
                "cpi" => together.cpis.read(&document, findings),
                _ => continue,
            }
            match config.kind.as_str() {
                "runtime" => refuse_misplaced(&document, findings),
                kind => refuse_misplaced_in_config(kind, config.team.is_some(), &document, findings),
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
        Self::read_for_plan(others.chain([new]), &mut all);
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
    fn configs_of_teams_reach_nothing_beyond_their_vms_and_disks() {
        for (properties, is_refused) in [
            ("nesting: true", true),
            ("privileged: yes", true),
            ("config: {security.idmap.isolated: false}", true),
            ("nesting: false", false),
            ("memory: 64", false),
        ] {
            let content = format!("vm_types: [{{name: v, cloud_properties: {{{properties}}}}}]\n");
            let of_all = config("cloud", "a", &content);
            assert!(Configs::check(&of_all, &[]).is_clean(), "{properties}");
            let of_team = ConfigRecord { team: Some("shop".into()), ..of_all };
            let findings = Configs::check(&of_team, &[]);
            assert_eq!(!findings.is_clean(), is_refused, "{properties}: {findings}");
        }
        let disk = "disk_types: [{name: d, disk_size: 1, cloud_properties: {snapshot_cid: s}}]\n";
        let of_team = ConfigRecord { team: Some("shop".into()), ..config("cloud", "a", disk) };
        let told = Configs::check(&of_team, &[]).to_string();
        assert!(told.contains("'snapshot_cid' may not stand in the config of a team"), "{told}");
        // With keys of its own it would come onto VMs whose packages all teams get.
        let compilation = "compilation: {workers: 1, network: n, az: z, env: {bosh: {authorized_keys: [k]}}}\n";
        let of_team = ConfigRecord { team: Some("shop".into()), ..config("cloud", "a", compilation) };
        let told = Configs::check(&of_team, &[]).to_string();
        assert!(told.contains("'env' may not stand in the compilation of a team's config"), "{told}");
        assert!(!Configs::check(&config("cloud", "a", compilation), &[]).to_string().contains("may not stand"));
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

    /// Ten configs of four hundred kilobytes, which a team may have, took seven hundred megabytes in each of its plans.
    #[test]
    fn configs_with_very_many_values_are_refused_together() {
        let zones = "z,".repeat(50_000);
        let large = |name: &str| {
            config("cloud", name, &format!("vm_types: [{{name: {name}, cloud_properties: {{a: [{zones}]}}}}]\n"))
        };
        let all: Vec<ConfigRecord> = ["a", "b", "c", "d", "e", "f"].map(large).into();
        let findings = Configs::check(&all[3], &all[..3]);
        assert!(findings.is_clean(), "{findings:.300}");
        let told = Configs::check(&all[5], &all[..5]).to_string();
        assert!(told.contains("more than 250000 values together"), "{told}");
        assert_eq!(Configs::read(&all, &mut Findings::new()).cloud.vm_types.len(), 6, "others read all of them");
    }
}
