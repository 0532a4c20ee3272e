//! Which names in DNS are not for a team. All VMs of all teams get one document of names, in which an alias goes before everything
//! else, and names of deployments are compared without dots, underscores and case. So a deployment of a team would take the traffic
//! of others by calling itself, or an alias, as they do.

use std::collections::{BTreeMap, BTreeSet};

use windlass_planning::desired::{Desired, Findings};
use windlass_planning::dns::canonical;
use windlass_planning::links::{LinkProvider, ProviderKind};
use windlass_planning::names::DeploymentName;

use crate::Director;
use crate::store::StoreError;

/// What aliases of teams end with: nothing that VMs could mean by it is outside of the director's networks.
const PRIVATE: &str = ".internal";
/// How many aliases a deployment of a team may have: every VM of every team gets them.
const MOST_ALIASES: usize = 200;

/// Refuses names that are not for a deployment of these teams; who belongs to no team may choose any. What is there already keeps its
/// name.
pub(crate) async fn refuse_those_of_others(
    director: &Director,
    (deployment, providers): (&DeploymentName, &[LinkProvider]),
    teams: &[String],
    is_there: bool,
    findings: &mut Findings,
) -> Result<(), StoreError> {
    if teams.is_empty() || !director.dns.is_enabled() {
        return Ok(());
    }
    if !is_there {
        let own = canonical(deployment);
        for other in director.store.deployment_names().await? {
            if other != *deployment && canonical(&other) == own && is_of_others(director, &other, teams).await? {
                findings.say(format!(
                    "the name '{deployment}' means the same in DNS as that of a deployment of other teams; choose another"
                ));
                break;
            }
        }
    }
    let aliases = providers.iter().flat_map(|provider| &provider.aliases);
    let domains: Vec<String> = aliases.map(|alias| alias.domain.to_lowercase()).collect();
    if domains.len() > MOST_ALIASES {
        let number = domains.len();
        findings.say(format!("'{deployment}' has {number} aliases in DNS; {MOST_ALIASES} are the most for a team"));
        return Ok(());
    }
    if domains.is_empty() {
        return Ok(());
    }
    let taken = director.store.aliases_beside(deployment).await?;
    let mut known = BTreeMap::new();
    for domain in domains {
        if !domain.ends_with(PRIVATE) {
            findings.say(format!(
                "the alias '{domain}' must end with {PRIVATE}, because all VMs of all teams would know it; choose another"
            ));
            continue;
        }
        for (owner, _) in taken.iter().filter(|(_, theirs)| overlap(&domain, &theirs.to_lowercase())) {
            let is_foreign = match known.get(owner) {
                Some(is_foreign) => *is_foreign,
                None => is_of_others(director, owner, teams).await?,
            };
            known.insert(owner, is_foreign);
            if is_foreign {
                findings.say(format!("the alias '{domain}' is one of a deployment of other teams; choose another"));
                break;
            }
        }
    }
    Ok(())
}

/// What all VMs of all teams get to know of each instance: a row for each network, with a number for each link and as much beside that as
/// this many numbers. A group of a team may have so many of both together.
const ROW: usize = 50;
const MOST_NUMBERS: usize = 2000;

/// Refuses groups that would make the document of names very large; who belongs to no team may have them.
pub(crate) fn refuse_very_many(director: &Director, desired: &Desired, teams: &[String], findings: &mut Findings) {
    if teams.is_empty() || !director.dns.is_enabled() {
        return;
    }
    let mut links: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for provider in desired.links.providers.iter().filter(|provider| provider.kind == ProviderKind::Job) {
        links.entry(&provider.group).or_default().insert(provider.group_name());
    }
    for group in &desired.groups {
        let (links, networks) = (links.get(group.name.as_str()).map_or(0, BTreeSet::len), group.networks.len());
        if networks * (ROW + links) > MOST_NUMBERS {
            findings.push(group.place.problem(format!(
                "'{}' has {networks} networks and provides {links} links, which all VMs would know for each instance; have fewer of both",
                group.name
            )));
        }
    }
}

async fn is_of_others(director: &Director, deployment: &DeploymentName, teams: &[String]) -> Result<bool, StoreError> {
    let others = director.store.teams_of(deployment).await?;
    Ok(others.is_some_and(|others| !others.iter().any(|team| teams.contains(team))))
}

/// Whether there is a name that both stand for; a first `_` or `*` stands for any one.
fn overlap(one: &str, other: &str) -> bool {
    fn parts(domain: &str) -> (&str, &str) {
        domain.split_once('.').unwrap_or((domain, ""))
    }
    let ((first, rest), (other_first, other_rest)) = (parts(one), parts(other));
    let is_any = |label: &str| label.contains(['_', '*']);
    rest == other_rest && (first == other_first || is_any(first) || is_any(other_first))
}

#[cfg(test)]
mod tests {
    use windlass_planning::links::{LinkAlias, PlannedLinks, ProviderKind};

    use super::*;
    use crate::testing::TestDirector;

    fn provider(deployment: &str, domains: &[&str]) -> LinkProvider {
        let alias = |domain: &&str| LinkAlias {
            domain: (*domain).to_owned(),
            health_filter: None,
            initial_health_check: None,
            placeholder_type: None,
        };
        LinkProvider {
            id: 0,
            deployment: deployment.into(),
            group: "db".into(),
            owner: "pg".into(),
            kind: ProviderKind::Job,
            original_name: "db".into(),
            link_type: "sql".into(),
            name: "db".into(),
            shared: false,
            consumable: true,
            content: serde_json::json!({}),
            aliases: domains.iter().map(alias).collect(),
        }
    }

    async fn told(test: &TestDirector, deployment: &str, domains: &[&str], team: &str) -> Vec<String> {
        let providers = [provider(deployment, domains)];
        let mut findings = Findings::new();
        let teams: Vec<String> = (!team.is_empty()).then(|| team.to_owned()).into_iter().collect();
        let names = (&deployment.into(), providers.as_slice());
        refuse_those_of_others(&test.director, names, &teams, false, &mut findings).await.unwrap();
        findings.problems().iter().map(|problem| problem.describe(false)).collect()
    }

    /// A team would get the passwords that VMs of others send to their databases.
    #[tokio::test]
    async fn a_team_takes_no_name_of_others() {
        let test = TestDirector::with(|settings| settings.local_dns.enabled = true).await;
        let store = &test.director.store;
        for (name, team) in [("my-bank", "bank"), ("market", "shop")] {
            store.add_deployment(&name.into(), &[team.to_owned()]).await.unwrap();
            let domains = format!("{name}.internal");
            let providers = vec![provider(name, &[&domains, &format!("_.{domains}")])];
            store.note_links(&name.into(), &PlannedLinks { providers, ..PlannedLinks::default() }).await.unwrap();
        }
        for (deployment, domain) in [
            ("My_Bank", "own.internal"),
            ("stall", "my-bank.internal"),
            ("stall", "MY-BANK.internal"),
            ("stall", "master.my-bank.internal"),
            ("stall", "_.my-bank.internal"),
            ("stall", "www.example.com"),
            ("stall", "q-s0.db.default.my-bank.bosh"),
        ] {
            let said = told(&test, deployment, &[domain], "shop").await;
            assert!(said.len() == 1 && said[0].contains("choose another"), "{deployment} {domain}: {said:?}");
            assert!(told(&test, deployment, &[domain], "").await.is_empty(), "{deployment} {domain}");
        }
        let own = ["stall.internal", "market.internal", "a.b.my-bank.internal"];
        assert_eq!(told(&test, "stall", &own, "shop").await, Vec::<String>::new());
        let many: Vec<String> = (0..=MOST_ALIASES).map(|number| format!("a{number}.internal")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(told(&test, "stall", &many, "shop").await[0].contains("201 aliases"));
    }

    /// Five thousand instances with forty thousand links, or a thousand networks, took gigabytes in what all VMs are told.
    #[tokio::test]
    async fn a_group_of_a_team_has_only_so_many_networks_and_links_together() {
        use windlass_contract::StemcellCid;
        use windlass_manifest::Document;
        use windlass_planning::desired::{Configs, DeploymentManifest, LinksFrom, NamesInUse, Wanted, resolve};
        use windlass_planning::names::CpiName;
        use windlass_planning::records::{ConfigRecord, StemcellRecord};

        let test = TestDirector::with(|settings| settings.local_dns.enabled = true).await;
        let (kind, name, number) = ("cloud".to_owned(), "default".to_owned(), 0..=40);
        let networks: String = number.map(|it| format!("{{name: n{it}, type: dynamic}}, ")).collect();
        let content = format!("vm_types: [{{name: v}}]\nnetworks: [{networks}]\n");
        let config = ConfigRecord { id: 1, kind, name, content, created_at: 0, team: None };
        let stemcell = StemcellRecord {
            id: 1,
            name: "s".into(),
            version: "1".into(),
            operating_system: "os".into(),
            cpi: CpiName::Default,
            cid: StemcellCid::new("s-1").unwrap(),
            api_version: None,
            deployments: Vec::new(),
        };
        for (count, refused) in [(40, false), (41, true)] {
            let others: String = (1..count).map(|it| format!(", {{name: n{it}}}")).collect();
            let text = format!(
                "name: shop\nstemcells: [{{alias: s, os: os, version: 1}}]\ninstance_groups: [{{name: g, instances: 1, vm_type: v, \
                 stemcell: s, networks: [{{name: n0, default: [dns, gateway]}}{others}]}}]\n"
            );
            let mut findings = Findings::new();
            let manifest = DeploymentManifest::read(&Document::parse(&text).unwrap(), &mut findings);
            let Configs { cloud, runtime, cpis } = Configs::read([&config], &mut findings);
            let (stemcells, compiled, elsewhere) = (vec![stemcell.clone()], BTreeSet::new(), BTreeMap::new());
            let wanted = Wanted {
                manifest: &manifest,
                cloud: &cloud,
                runtime: &runtime,
                cpis: &cpis,
                stemcells: &stemcells,
                releases: &[],
                compiled: &compiled,
                teams: &[],
                links: LinksFrom::Manifest(&elsewhere),
                names: NamesInUse::default(),
            };
            let desired = resolve(wanted, &mut findings);
            assert!(findings.is_clean() && desired.groups.len() == 1, "{findings}");
            refuse_very_many(&test.director, &desired, &[], &mut findings);
            assert!(findings.is_clean(), "others may have them: {findings}");
            refuse_very_many(&test.director, &desired, &["shop".to_owned()], &mut findings);
            assert_eq!(findings.to_string().contains("has 41 networks and provides 0 links"), refused, "{findings}");
        }
    }
}
