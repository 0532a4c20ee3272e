//! Plans of jobs with links: who gets what from whom, who restarts when that changes, and what is refused.

use std::sync::Arc;

use serde_json::{Value, json};

use super::jobs::{carried_out, told};
use super::*;
use crate::desired::NamesInUse;
use crate::dns::GroupKind;
use crate::links::{LinkProvider, PlannedLinks};
use crate::records::{JobRecord, ReleaseRecord};

pub(super) fn release() -> ReleaseRecord {
    let job = |name: &str, spec: Value| {
        let mut whole = json!({"name": name, "templates": {}, "packages": []});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        JobRecord {
            id: 0,
            name: name.into(),
            version: format!("fp-{name}"),
            fingerprint: format!("fp-{name}"),
            sha1: "00".into(),
            blob: String::new(),
            spec: whole,
        }
    };
    let consumes = |name: &str, optional: bool| {
        job(name, json!({"consumes": [{"name": "db", "type": "sql", "optional": optional}]}))
    };
    let properties = json!({"port": {"default": 5432}, "tls.ca": {}, "secret": {}});
    let provides = json!([{"name": "db", "type": "sql", "properties": ["port", "tls.ca"]}]);
    let wrong = json!([{"name": "db", "type": "sql", "properties": ["nobody"]}]);
    ReleaseRecord {
        id: 1,
        name: "net".into(),
        version: "1".into(),
        commit_hash: String::new(),
        uncommitted_changes: false,
        jobs: vec![
            job("pg", json!({"provides": provides, "properties": properties})),
            job("wrong", json!({"provides": wrong, "properties": properties})),
            consumes("web", false),
            consumes("maybe", true),
            job("writer", json!({"consumes": [{"name": "log", "type": "disk"}]})),
            job("plain", json!({})),
        ],
        packages: Vec::new(),
        deployments: Vec::new(),
    }
}

fn manifest(groups: &[String]) -> Document {
    let text = format!(
        "name: law\nreleases: [{{name: net, version: 1}}]\nstemcells: [{{alias: one, os: os, version: '1'}}]\ninstance_groups:\n{}",
        groups.concat()
    );
    Document::parse(&text).unwrap()
}

fn group(name: &str, instances: usize, job: &str, rest: &str) -> String {
    format!(
        "- {{name: {name}, instances: {instances}, azs: [z1], vm_type: small, stemcell: one, networks: [{{name: n, default: [dns, gateway]}}, {{name: m}}], jobs: [{{name: {job}, release: net{rest}}}]}}\n"
    )
}

fn read_links(groups: &[String], others: &BTreeMap<String, Vec<Arc<LinkProvider>>>) -> (Desired, Findings) {
    read_with(CLOUD, &manifest(groups), &[release()], LinksFrom::Manifest(others))
}

fn linked(groups: &[String]) -> Desired {
    let (desired, findings) = read_links(groups, &BTreeMap::new());
    assert!(findings.is_clean() && findings.warnings().is_empty(), "{findings} {:?}", findings.warnings());
    desired
}

fn refused(groups: &[String]) -> String {
    read_links(groups, &BTreeMap::new()).1.to_string()
}

/// The link `db` of the only job of a group.
fn db(plan: &Plan, group: &str) -> Option<Value> {
    let digest = &plan.instances().find(|instance| instance.group == group)?.spec.as_ref()?.software.as_ref()?.digest;
    let software = plan.software.iter().find(|software| software.digest() == *digest)?;
    software.jobs[0].links.get("db").cloned()
}

fn links(plan: &Plan) -> &PlannedLinks {
    plan.links.as_ref().unwrap()
}

#[test]
fn a_consumer_gets_the_addresses_and_properties_of_the_only_provider_of_its_type() {
    let plan = planned(
        &linked(&[group("front", 1, "web", ""), group("back", 2, "pg", ", properties: {tls: {ca: x}}")]),
        &nothing(),
    );
    let content = db(&plan, "front").unwrap();
    let back: Vec<&InstancePlan> = plan.instances().filter(|instance| instance.group == "back").collect();
    let seen: Vec<_> =
        content["instances"].as_array().unwrap().iter().map(|instance| instance["address"].clone()).collect();
    let planned: Vec<_> = back.iter().map(|instance| json!(instance.spec.as_ref().unwrap().networks["n"].ip)).collect();
    assert_eq!(seen, planned);
    assert_eq!(content["properties"], json!({"port": 5432, "tls": {"ca": "x"}}));
    assert_eq!(content["instances"][0]["bootstrap"], true);
    assert_eq!((&content["group_name"], &content["default_network"]), (&json!("db-sql"), &json!("n")));
    assert_eq!(links(&plan).providers[0].content["networks"], json!(["n", "m"]));
    assert!(db(&plan, "back").is_none());
}

#[test]
fn a_job_is_told_which_links_it_provides_and_their_numbers() {
    let desired = linked(&[group("db", 1, "pg", ", provides: {db: {as: main}}"), group("web", 1, "web", "")]);
    let mut current = nothing();
    current.numbers.groups.insert((desired.deployment.to_string(), GroupKind::Link, "main-sql".to_owned()), 7);
    let provided = |current: &Current| {
        let plan = planned(&desired, current);
        let jobs: Vec<_> = plan.software.iter().flat_map(|software| software.jobs.clone()).collect();
        let links = jobs.iter().flat_map(|job| job.provides.iter().map(move |link| (job.name.clone(), link.clone())));
        links.map(|(job, link)| format!("{job}: {} {} {}", link.name, link.link_type, link.group)).collect::<Vec<_>>()
    };
    assert_eq!(provided(&current), ["pg: main sql 7"]);
    assert_eq!(provided(&nothing()), ["pg: main sql 0"], "a plan gives no numbers");
    let mut after = carried_out(&desired, &current);
    after.numbers = current.numbers;
    assert!(planned(&desired, &after).is_empty());
}

#[test]
fn a_consumer_names_provider_network_and_kind_of_address() {
    let groups = [
        group("a", 1, "pg", ", provides: {db: {as: one}}"),
        group("b", 1, "pg", ", provides: {db: {as: two}}"),
        group("c", 1, "pg", ", provides: {db: nil}"),
        group("front", 1, "web", ", consumes: {db: {from: deployment.two, network: m, ip_addresses: true}}"),
    ];
    let plan = planned(&linked(&groups), &nothing());
    let content = db(&plan, "front").unwrap();
    let b = plan.instances().find(|instance| instance.group == "b").unwrap();
    assert_eq!(content["instances"][0]["id"], b.id.as_str());
    assert_eq!(content["instances"][0]["address"], json!(b.spec.as_ref().unwrap().networks["m"].ip));
    assert_eq!(content["default_network"], "m");
    assert_eq!(links(&plan).links[0].consumer.name, "two");
}

#[test]
fn links_are_optional_blocked_manual_custom_or_of_disks() {
    let none = planned(&linked(&[group("g", 1, "maybe", "")]), &nothing());
    assert!(db(&none, "g").is_none());
    let blocked = [group("g", 1, "maybe", ", consumes: {db: nil}"), group("a", 1, "pg", "")];
    assert!(db(&planned(&linked(&blocked), &nothing()), "g").is_none());

    let manual = ", consumes: {db: {instances: [{name: x, address: 1.2.3.4, properties: {a: 1}}], properties: {port: 1}, address: ext}}";
    let content = db(&planned(&linked(&[group("g", 1, "web", manual)]), &nothing()), "g").unwrap();
    assert_eq!((&content["address"], &content["deployment_name"]), (&json!("ext"), &json!("law")));
    assert_eq!(content["instances"][0]["properties"], json!({"a": 1}));

    let custom = ", custom_provider_definitions: [{name: mine, type: sql}], provides: {mine: {as: own, shared: true}}";
    let plan = planned(&linked(&[group("a", 1, "plain", custom), group("g", 1, "web", "")]), &nothing());
    assert_eq!(db(&plan, "g").unwrap()["properties"], json!({}));
    assert!(links(&plan).providers[0].shared);

    let disk = "- {name: d, instances: 1, azs: [z1], vm_type: small, stemcell: one, networks: [{name: n}], persistent_disks: [{name: log, type: d}], jobs: [{name: writer, release: net}]}\n";
    let plan = planned(&linked(&[disk.to_owned()]), &nothing());
    let [link] = links(&plan).links.as_slice() else { panic!() };
    assert_eq!(
        link.content,
        json!({"deployment_name": "law", "properties": {"name": "log"}, "networks": [], "instances": []})
    );
}

#[test]
fn a_shared_link_comes_from_what_another_deployment_has_on_record() {
    let provider =
        planned(&linked(&[group("back", 1, "pg", ", provides: {db: {as: data, shared: true}}")]), &nothing());
    let mut shared = links(&provider).providers[0].clone();
    (shared.id, shared.deployment) = (7, "other".to_owned());
    let others = BTreeMap::from([("other".to_owned(), vec![Arc::new(shared)])]);
    let front = |consumes: &str| [group("front", 1, "web", &format!(", consumes: {{db: {{{consumes}}}}}"))];
    let (desired, findings) = read_links(&front("from: data, deployment: other"), &others);
    assert!(findings.is_clean(), "{findings}");
    let content = db(&planned(&desired, &nothing()), "front").unwrap();
    assert_eq!(content["instances"][0]["name"], "back");

    let problem = |consumes: &str| read_links(&front(consumes), &others).1.to_string();
    assert_eq!(
        problem("from: data, deployment: nowhere"),
        "instance_groups[0].jobs[0].consumes.db: Link 'data' in job 'web' from instance group 'front' consumes from deployment \
         'nowhere', but the deployment does not exist. (line 5)"
    );
    assert!(problem("from: data, deployment: other, network: far").contains(
        "- Link provider 'db' with alias 'data' from job 'pg' in instance group 'back' in deployment 'other' does not belong to network 'far'"
    ));
}

#[test]
fn everything_wrong_with_links_is_told_at_once_in_boshs_words() {
    let groups = [
        group("a", 1, "pg", ", provides: {db: {name: x}, nobody: {}}"),
        group("b", 1, "pg", ", provides: {db: [1]}"),
        group("c", 1, "wrong", ""),
        group("d", 1, "web", ", consumes: {db: {from: x, instances: [], ip_addresses: 7}}"),
        group("e", 1, "web", ", consumes: {db: {properties: {}}}"),
        group("f", 1, "web", ", consumes: {db: null}"),
        group("g", 1, "plain", ", custom_provider_definitions: [{name: ''}, {name: x, type: y}, {name: x, type: y}]"),
        group("h", 1, "pg", ", custom_provider_definitions: [{name: db, type: sql}]"),
    ];
    let problems = refused(&groups);
    for expected in [
        "instance_groups[0].jobs[0].provides.db: Cannot specify 'name' or 'type' properties in the manifest for link 'db' in job 'pg' in instance group 'a'. Please provide these keys in the release only. (line 5)",
        "instance_groups[1].jobs[0].provides.db: Provider 'db' in job 'pg' in instance group 'b' specified in the manifest should only be a hash or string 'nil' (line 6)",
        "instance_groups[2].jobs[0].name: Link property nobody in template wrong is not defined in release spec (line 7)",
        "Cannot specify both 'instances' and 'from' keys for link 'db' in job 'web' in instance group 'd'. (line 8)",
        "Cannot specify non boolean values for 'ip_addresses' field for link 'db' in job 'web' in instance group 'd'. (line 8)",
        "Cannot specify 'properties' without 'instances' for link 'db' in job 'web' in instance group 'e'. (line 9)",
        "Consumer 'db' in job 'web' in instance group 'f' specified in the manifest should only be a hash or string 'nil' (line 10)",
        "Name for custom link provider definition in manifest in job 'plain' in instance group 'g' must be a valid non-empty string. (line 11)",
        "Type for custom link provider definition in manifest in job 'plain' in instance group 'g' must be a valid non-empty string. (line 11)",
        "Custom provider 'x' in job 'plain' in instance group 'g' is defined multiple times in manifest. (line 11)",
        "Custom provider 'db' in job 'pg' in instance group 'h' is already defined in release 'net' (line 12)",
    ] {
        assert!(problems.contains(expected), "{expected} in:\n{problems}");
    }
    assert_eq!(problems.lines().count(), 11, "one line each:\n{problems}");
    let (_, findings) = read_links(&groups, &BTreeMap::new());
    assert!(findings.warnings().iter().any(|warning| {
        warning.to_string().contains("Job 'pg' does not define link provider 'nobody' in the release spec")
    }));
}

#[test]
fn links_without_exactly_one_provider_are_refused_with_those_that_were_found() {
    let two = [
        group("a", 1, "pg", ""),
        group("b", 1, "pg", ", provides: {db: {as: x}}"),
        group("front", 1, "web", ""),
        group("named", 1, "maybe", ", consumes: {db: {from: y}}"),
    ];
    assert_eq!(
        refused(&two),
        "instance_groups[2].jobs[0].name: Failed to resolve link 'db' with type 'sql' from job 'web' in instance group 'front'. Multiple link providers found:\n    \
         - Link provider 'db' from job 'pg' in instance group 'a' in deployment 'law'\n    \
         - Link provider 'db' with alias 'x' from job 'pg' in instance group 'b' in deployment 'law' (line 7)\n\
         instance_groups[3].jobs[0].consumes.db: Failed to resolve link 'db' with alias 'y' and type 'sql' from job 'maybe' in instance group 'named'. Details below:\n    \
         - No link providers found (line 8)"
    );
    let (desired, _) = read_links(&two, &BTreeMap::new());
    assert!(attempt(&desired, &nothing(), &PlanOptions::default()).is_ok(), "templates do not complain of it again");
    let blocked = refused(&[group("a", 1, "pg", ""), group("front", 1, "web", ", consumes: {db: nil}")]);
    assert!(blocked.contains("- No link providers found"), "{blocked}");
}

#[test]
fn many_providers_are_counted_and_not_all_named() {
    let names: Vec<String> = (0..13).map(|number| format!("p{number}")).collect();
    let mut groups: Vec<String> = names.iter().map(|name| group(name, 1, "pg", "")).collect();
    groups.push(group("front", 1, "web", ""));
    let told = refused(&groups);
    assert!(told.contains("instance group 'p9'") && !told.contains("instance group 'p10'"), "{told}");
    assert!(told.contains("\n    - … and 3 more"), "{told}");
}

#[test]
fn those_who_consume_a_changed_link_restart_and_nobody_else() {
    let groups = |instances, port| {
        linked(&[
            group("front", 1, "web", ""),
            group("aside", 1, "plain", ""),
            group("back", instances, "pg", &format!(", properties: {{port: {port}, secret: 1}}")),
        ])
    };
    let after = carried_out(&groups(1, 1), &nothing());
    assert!(planned(&groups(1, 1), &after).is_empty());
    let scaled = told(&groups(2, 1), &after);
    assert!(scaled.contains(&"stop: link 'db' of job 'web' changes: instances 1 → 2".to_owned()), "{scaled:?}");
    assert!(!scaled.iter().any(|line| line.starts_with("aside/")), "{scaled:?}");
    let restarted = scaled.iter().filter(|line| line.starts_with("stop:")).count();
    assert_eq!(restarted, 1, "the provider that was there goes on: {scaled:?}");
    let changed = told(&groups(1, 2), &after);
    assert!(changed.contains(&"stop: link 'db' of job 'web' changes: property 'port'".to_owned()), "{changed:?}");
}

#[test]
fn without_a_deploy_instances_keep_the_links_that_they_have() {
    let groups = [group("front", 1, "web", ""), group("back", 1, "pg", "")];
    let after = carried_out(&linked(&groups), &nothing());
    // What provides the link is not even looked for.
    let alone = manifest(&groups[..1]);
    let (desired, findings) = read_with(CLOUD, &alone, &[release()], LinksFrom::Records);
    assert!(findings.is_clean(), "{findings}");
    let plan = planned(&desired, &after);
    let front = plan.instances().next().unwrap();
    assert!(front.actions.is_empty(), "{}", plan.describe());
    assert_eq!(db(&plan, "front"), db(&planned(&linked(&groups), &after), "front"));
    assert!(plan.links.is_none(), "nothing is noted about links");
}

#[test]
fn a_link_names_instances_whose_addresses_only_the_cloud_knows() {
    let dynamic =
        group("back", 1, "pg", "").replace("[{name: n, default: [dns, gateway]}, {name: m}]", "[{name: dyn}]");
    let (desired, findings) = read_links(&[group("front", 1, "web", ""), dynamic], &BTreeMap::new());
    assert!(findings.warnings()[0].to_string().contains("has names of instances instead of addresses"));
    let plan = planned(&desired, &nothing());
    let id = &plan.instances().find(|instance| instance.group == "back").unwrap().id;
    assert_eq!(db(&plan, "front").unwrap()["instances"][0]["address"], format!("{id}.back.dyn.law.bosh"));
}

#[test]
fn names_take_the_place_of_addresses_where_they_are_wanted() {
    let mut desired = linked(&[group("back", 1, "pg", ""), group("front", 1, "web", "")]);
    let mut current = nothing();
    current.numbers.azs = BTreeMap::from([("elsewhere".to_owned(), 1), ("z1".to_owned(), 2)]);
    current.numbers.networks = BTreeMap::from([("n".to_owned(), 3), ("other".to_owned(), 4)]);
    for (kind, name, number) in [(GroupKind::InstanceGroup, "back", 5), (GroupKind::Link, "db-sql", 9)] {
        current.numbers.groups.insert((desired.deployment.to_string(), kind, name.to_owned()), number);
    }
    let usual = NamesInUse { served: true, ..NamesInUse::default() };
    let long = NamesInUse { dns_addresses: true, ..usual };
    let short = NamesInUse { short: true, ..long };
    for (names, expected, own) in [
        (usual, "10.0.1.", ""),
        (long, "ID.back.n.law.bosh", "ID.back.n.law.bosh"),
        (short, "q-mNn3s0.q-g5.bosh", "q-mNn3s0.q-g5.bosh"),
        (NamesInUse { links: true, ..short }, "q-mNn3s0.q-g9.bosh", "q-mNn3s0.q-g5.bosh"),
    ] {
        desired.names = names;
        let plan = planned(&desired, &current);
        let back = plan.instances().find(|instance| instance.group == "back").unwrap();
        let number = crate::dns::instance_number(&back.id);
        let filled = |name: &str| name.replace("ID", &back.id).replace("mN", &format!("m{number}"));
        let content = db(&plan, "front").unwrap();
        let address = content["instances"][0]["address"].as_str().unwrap();
        assert!(address.starts_with(&filled(expected)), "{address} is not {expected}");
        assert_eq!(back.spec.as_ref().unwrap().dns_address.clone().unwrap_or_default(), filled(own));
        let numbers = json!({"group": if names.links { 9 } else { 5 }, "networks": {"n": 3}, "azs": {"z1": 2}});
        assert_eq!(content["dns_numbers"], numbers, "zones and networks of others are no business of these jobs");
        let after = Current { numbers: current.numbers.clone(), ..carried_out(&desired, &current) };
        let again = planned(&desired, &after);
        assert!(again.is_empty(), "{}", again.describe());
    }
    desired.names = NamesInUse::default();
    assert_eq!(db(&planned(&desired, &current), "front").unwrap().get("dns_numbers"), None);
}

#[test]
fn aliases_need_a_domain_and_come_with_their_provider() {
    let aliases = |text: &str| format!(", provides: {{db: {{aliases: {text}}}}}");
    let desired = linked(&[
        group("back", 1, "pg", &aliases("[{domain: db.internal, health_filter: smart}]")),
        group("front", 1, "web", ""),
    ]);
    let alias = &desired.links.providers[0].aliases[0];
    assert_eq!((alias.domain.as_str(), alias.health_filter.as_deref()), ("db.internal", Some("smart")));
    for wrong in ["[{health_filter: all}]", "[nothing]", "[{domain: 'a b'}]", "[{domain: ''}]", "{}"] {
        let refused = refused(&[group("back", 1, "pg", &aliases(wrong)), group("front", 1, "web", "")]);
        assert!(refused.contains("needs a 'domain'"), "{wrong}: {refused}");
    }
}
