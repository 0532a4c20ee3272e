//! What a short document may become when its parts are copied for every group, job and instance: refused before it takes all memory.

use std::sync::Arc;

use serde_json::json;
use windlass_contract::Object;

use super::*;
use crate::links::{LinkProvider, ProviderKind};
use crate::records::PackageRecord;
use crate::software::{RenderedAtDeploy, TemplateInstance, Templates, VariableSet};

const GROUP: &str = "azs: [z1], vm_type: small, stemcell: one, networks: [{name: dyn}]";

fn read_text(groups: &str, rest: &str) -> (Desired, Findings) {
    let text = format!(
        "name: law\nreleases: [{{name: net, version: 1}}]\nstemcells: [{{alias: one, os: os, version: '1'}}]\n{rest}\ninstance_groups:\n{groups}"
    );
    let (document, others) = (Document::parse(&text).unwrap(), BTreeMap::new());
    read_with(CLOUD, &document, &[links::release()], LinksFrom::Manifest(&others))
}

fn groups(count: usize, rest: &str) -> String {
    (0..count).map(|number| format!("- {{name: g{number}, instances: 1, {GROUP}{rest}}}\n")).collect()
}

fn is_refused(told: &str) -> bool {
    told.contains(" MiB; make those smaller, or deploy in smaller parts")
}

/// What is only pointed out leaves nothing out: a plan without a group would delete it.
#[test]
fn very_many_warnings_leave_out_no_group() {
    let unknown: String = (0..900).map(|number| format!(", key-{number}-{}: 1", "k".repeat(400))).collect();
    let (desired, findings) = read_text(&groups(5, &unknown), "");
    assert!(findings.is_clean(), "{findings}");
    assert_eq!(desired.groups.len(), 5);
    assert!((100..4500).contains(&findings.warnings().len()), "{}", findings.warnings().len());
}

#[test]
fn an_env_of_many_instances_is_refused() {
    let env = "e".repeat(300_000);
    for (instances, refused) in [(100, false), (300, true)] {
        let (desired, findings) =
            read_text(&format!("- {{name: g, instances: {instances}, {GROUP}, env: {{a: {env}}}}}\n"), "");
        assert!(findings.is_clean(), "{findings}");
        let planned = attempt(&desired, &nothing(), &PlanOptions::default()).map(drop);
        assert_eq!(planned.is_err_and(|told| is_refused(&told)), refused, "{instances}");
    }
}

/// Nobody asks for ids of instances that there is no room for.
#[test]
fn very_many_instances_are_refused_before_they_have_places() {
    let (desired, findings) = read_text(&format!("- {{name: g, instances: 100000, {GROUP}}}\n"), "");
    assert!(findings.is_clean(), "{findings}");
    let (mut findings, mut ids) = (Findings::new(), 0);
    let mut new_id = || {
        ids += 1;
        format!("id-{ids}").into()
    };
    let options = PlanOptions::default();
    let plan = plan(&desired, &nothing(), &options, &jobs::Hashed, &mut new_id, &mut findings);
    assert!(is_refused(&findings.to_string()) && findings.to_string().contains("100000 instances"), "{findings}");
    assert_eq!((ids, plan.groups.len()), (0, 0));
}

#[test]
fn tags_of_many_groups_are_refused() {
    let tags = format!("tags: {{a: {}}}", "t".repeat(300_000));
    for (count, refused) in [(50, false), (300, true)] {
        let (_, findings) = read_text(&groups(count, ""), &tags);
        assert_eq!(is_refused(&findings.to_string()), refused, "{count}: {findings}");
    }
}

#[test]
fn properties_that_many_jobs_have_are_refused() {
    let properties = format!("properties: {{secret: {}}}", "p".repeat(300_000));
    for (count, refused) in [(50, false), (300, true)] {
        let (desired, findings) = read_text(&groups(count, ", jobs: [{name: pg, release: net}]"), &properties);
        assert_eq!(is_refused(&findings.to_string()), refused, "{count}: {findings}");
        // Once, and nothing of it stays in memory: each of thousands would bind all properties once more.
        assert_eq!(findings.to_string().matches("smaller parts").count(), usize::from(refused));
        assert_eq!((desired.is_too_large, desired.groups.is_empty()), (refused, refused));
    }
}

/// Each consumer of a link knows all instances of its provider.
#[test]
fn links_of_many_consumers_to_many_instances_are_refused() {
    let provider = format!("- {{name: db, instances: 2000, {GROUP}, jobs: [{{name: pg, release: net}}]}}\n");
    for (count, refused) in [(1, false), (200, true)] {
        let consumers = groups(count, ", jobs: [{name: web, release: net}]");
        let (desired, findings) = read_text(&format!("{provider}{consumers}"), "");
        assert!(findings.is_clean(), "{findings}");
        let planned = attempt(&desired, &nothing(), &PlanOptions::default()).map(drop);
        assert_eq!(planned.is_err_and(|told| is_refused(&told)), refused, "{count}");
    }
}

/// A manifest of a megabyte that has a release's job provide the same properties under ten thousand names took ten gigabytes.
#[test]
fn properties_that_many_links_have_are_refused() {
    for (count, refused) in [(50, false), (300, true)] {
        let custom: String =
            (0..count).map(|it| format!("{{name: own-{it}, type: t, properties: [port]}}, ")).collect();
        let job = format!(
            "{{name: pg, release: net, properties: {{port: {}}}, custom_provider_definitions: [{custom}]}}",
            "p".repeat(300_000)
        );
        let (desired, findings) = read_text(&groups(1, &format!(", jobs: [{job}]")), "");
        assert_eq!(is_refused(&findings.to_string()), refused, "{count}: {findings:.300}");
        assert_eq!(findings.to_string().matches("smaller parts").count(), usize::from(refused));
        assert_eq!((desired.is_too_large, desired.groups.is_empty()), (refused, refused));
    }
}

/// Each provider that others may consume has all instances of its group.
#[test]
fn many_shared_links_of_many_instances_are_refused() {
    for (count, refused) in [(5, false), (200, true)] {
        let custom: String = (0..count).map(|it| format!("{{name: own-{it}, type: t}}, ")).collect();
        let provides: String = (0..count).map(|it| format!("own-{it}: {{shared: true}}, ")).collect();
        let job =
            format!("{{name: pg, release: net, custom_provider_definitions: [{custom}], provides: {{{provides}}}}}");
        let (desired, findings) = read_text(&format!("- {{name: db, instances: 2000, {GROUP}, jobs: [{job}]}}\n"), "");
        assert!(findings.is_clean(), "{findings}");
        let planned = attempt(&desired, &nothing(), &PlanOptions::default()).map(drop);
        assert_eq!(planned.is_err_and(|told| is_refused(&told)), refused, "{count}");
    }
}

/// What an addon says of a link belongs to each group, of which a manifest has thousands.
#[test]
fn links_of_an_addon_that_many_groups_have_are_refused() {
    let link = format!("{{instances: [{{address: a}}], properties: {{port: {}}}}}", "p".repeat(300_000));
    let addon = format!("addons: [{{name: a, jobs: [{{name: web, release: net, consumes: {{db: {link}}}}}]}}]");
    for (count, refused) in [(50, false), (300, true)] {
        let (_, findings) = read_text(&groups(count, ""), &addon);
        assert_eq!(is_refused(&findings.to_string()), refused, "{count}: {findings:.300}");
    }
}

/// Properties of an addon are those of each of its jobs, which once had a copy each: 3 GB here.
#[test]
fn properties_of_an_addon_are_not_copied_for_its_jobs() {
    let jobs: String = (0..9_000).map(|number| format!("  - {{name: j{number}, release: net}}\n")).collect();
    let addon = format!("addons:\n- name: a\n  properties: {{x: {}}}\n  jobs:\n{jobs}", "p".repeat(300_000));
    let text = format!("name: law\nreleases: [{{name: net, version: 1}}]\n{addon}");
    let mut findings = Findings::new();
    let manifest = DeploymentManifest::read(&Document::parse(&text).unwrap(), &mut findings);
    let properties: Vec<_> = manifest.addons[0].jobs.iter().map(|job| job.properties.clone().unwrap()).collect();
    assert_eq!(properties.len(), 9_000);
    assert!(properties.iter().all(|each| std::sync::Arc::ptr_eq(each, &properties[0])));
}

/// A group only shares the jobs of addons, but thousands of groups share thousands: a megabyte of both took a gigabyte.
#[test]
fn many_jobs_of_addons_in_many_groups_are_refused() {
    for (count, refused) in [(40, false), (1000, true)] {
        let jobs: String = (0..count).map(|number| format!("{{name: j{number}, release: net}}, ")).collect();
        let addons = format!("addons: [{{name: everywhere, jobs: [{jobs}]}}]");
        let (desired, findings) = read_text(&groups(1000, ""), &addons);
        assert_eq!(is_refused(&findings.to_string()), refused, "{count}: {findings:.300}");
        assert_eq!((desired.is_too_large, desired.groups.is_empty()), (refused, true), "the jobs are in no release");
    }
}

/// A range of twenty letters has an address for each of a hundred thousand instances, in each network.
#[test]
fn static_ips_of_very_many_instances_are_refused() {
    let subnet = "{range: 10.64.0.0/12, static: [10.64.0.10 - 10.65.255.254]}";
    let names: Vec<String> = (0..9).map(|number| format!("s{number}")).collect();
    let networks: String = names.iter().map(|name| format!("- {{name: {name}, subnets: [{subnet}]}}\n")).collect();
    let cloud = format!("vm_types: [{{name: small}}]\nnetworks:\n{networks}");
    for (count, refused) in [(1, false), (9, true)] {
        let listed = names.iter().take(count).enumerate().map(|(at, name)| {
            let default = if at == 0 && count > 1 { ", default: [dns, gateway]" } else { "" };
            format!("{{name: {name}, static_ips: [10.64.0.10 - 10.64.117.57]{default}}}, ")
        });
        let networks: String = listed.collect();
        let text = format!(
            "name: law\nreleases: []\nstemcells: [{{alias: one, os: os, version: '1'}}]\ninstance_groups:\n\
             - {{name: g, instances: 30000, vm_type: small, stemcell: one, networks: [{networks}]}}\n"
        );
        let (document, others) = (Document::parse(&text).unwrap(), BTreeMap::new());
        let (desired, findings) = read_with(&cloud, &document, &[], LinksFrom::Manifest(&others));
        assert_eq!((is_refused(&findings.to_string()), desired.is_too_large), (refused, refused), "{findings:.300}");
    }
}

/// Templates of ten thousand groups may fail, each with sixteen thousand letters.
#[test]
fn errors_of_the_templates_of_very_many_groups_have_an_end() {
    struct Failing;
    impl Templates for Failing {
        fn rendered_at_deploy(&self, _: &Software) -> Option<RenderedAtDeploy> {
            None
        }

        fn env_values(&self, _: &Object, _: Option<VariableSet>) -> Result<Option<String>, String> {
            Ok(None)
        }

        fn configuration_hash(&self, _: &Software, _: &TemplateInstance<'_>) -> Result<String, String> {
            Err("e".repeat(16 << 10))
        }
    }
    let (desired, findings) = read_text(&groups(100, ", jobs: [{name: plain, release: net}]"), "");
    assert!(findings.is_clean(), "{findings}");
    let (current, mut findings) = (nothing(), Findings::new());
    plan(&desired, &current, &PlanOptions::default(), &Failing, &mut ids(&current), &mut findings);
    let told = findings.to_string();
    assert!(told.len() < 200 << 10, "{}", told.len());
    assert!(told.ends_with("\n  - 91 more groups; mend these first"), "{}", &told[told.len() - 100..]);
}

/// Templates see the zones of their own deployment with each link of another one.
#[test]
fn zones_that_come_with_many_links_of_other_deployments_are_refused() {
    let names: Vec<String> = (0..2000).map(|number| format!("zone-{number}")).collect();
    let azs: String = names.iter().map(|name| format!("{{name: {name}}}, ")).collect();
    let cloud = format!("azs: [{azs}]\nvm_types: [{{name: small}}]\nnetworks: [{{name: dyn, type: dynamic}}]\n");
    let content = json!({"instances": [], "networks": ["dyn"], "default_network": "dyn", "dns_numbers": {"azs": {}}});
    let shared = LinkProvider {
        id: 7,
        deployment: "other".into(),
        group: "db".into(),
        owner: "pg".into(),
        kind: ProviderKind::Job,
        original_name: "db".into(),
        link_type: "sql".into(),
        name: "data".into(),
        shared: true,
        consumable: true,
        content,
        aliases: Vec::new(),
    };
    let others = BTreeMap::from([("other".to_owned(), vec![Arc::new(shared)])]);
    for (count, refused) in [(10, false), (400, true)] {
        let consumers: String = (0..count)
            .map(|number| {
                format!(
                    "- {{name: g{number}, instances: 1, azs: [zone-0], vm_type: small, stemcell: one, networks: [{{name: dyn}}], \
                     jobs: [{{name: web, release: net, consumes: {{db: {{from: data, deployment: other}}}}}}]}}\n"
                )
            })
            .collect();
        let text = format!(
            "name: law\nreleases: [{{name: net, version: 1}}]\nstemcells: [{{alias: one, os: os, version: '1'}}]\ninstance_groups:\n\
             - {{name: all, instances: 0, azs: [{}], vm_type: small, stemcell: one, networks: [{{name: dyn}}]}}\n{consumers}",
            names.join(", ")
        );
        let document = Document::parse(&text).unwrap();
        let (desired, findings) = read_with(&cloud, &document, &[links::release()], LinksFrom::Manifest(&others));
        assert!(findings.is_clean(), "{findings:.300}");
        let mut current = nothing();
        let (azs, networks) = desired.named_places();
        current.numbers.foresee(&azs, &networks);
        let planned = attempt(&desired, &current, &PlanOptions::default()).map(drop);
        assert_eq!(planned.is_err_and(|told| is_refused(&told)), refused, "{count}");
    }
}

/// A release of two megabytes may have two hundred thousand dependencies, of which each group and stemcell has a copy.
#[test]
fn packages_with_very_many_dependencies_are_refused() {
    for (count, refused) in [(50, false), (250, true)] {
        let mut release = jobs::release("1");
        let mut package = release.packages[0].clone();
        let leaves: Vec<String> = (0..2000).map(|number| format!("l{number}")).collect();
        package.dependencies.clear();
        let mut listed: Vec<_> =
            leaves.iter().map(|name| PackageRecord { name: name.clone(), ..package.clone() }).collect();
        package.dependencies = leaves;
        let names: Vec<String> = (0..count).map(|number| format!("p{number}")).collect();
        listed.extend(names.iter().map(|name| PackageRecord { name: name.clone(), ..package.clone() }));
        (release.packages, release.jobs[0].spec["packages"]) = (listed, json!(names));
        let job = release.jobs[0].name.clone();
        let text = format!(
            "name: law\nreleases: [{{name: {}, version: 1}}]\nstemcells: [{{alias: one, os: os, version: '1'}}]\ninstance_groups:\n{}",
            release.name,
            groups(1, &format!(", jobs: [{{name: {job}, release: {}}}]", release.name))
        );
        let (document, others) = (Document::parse(&text).unwrap(), BTreeMap::new());
        let (desired, findings) = read_with(CLOUD, &document, &[release], LinksFrom::Manifest(&others));
        assert_eq!((is_refused(&findings.to_string()), desired.is_too_large), (refused, refused), "{findings:.300}");
    }
}
