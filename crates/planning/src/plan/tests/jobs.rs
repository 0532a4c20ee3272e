//! Plans of groups with jobs: what is compiled, what restarts and why.

use serde_json::{Value, json};
use windlass_contract::Object;

use super::*;
use crate::records::{JobRecord, PackageRecord, PackageSource};
use crate::software::{JobOfGroup, RenderedAtDeploy, Software, TemplateInstance, Templates, VariableSet};

/// Templates whose files have the properties, the links and the instance's own address in them. A property `fails` cannot be rendered, nor a
/// job `web` without a link.
pub(super) struct Hashed;

impl Templates for Hashed {
    fn rendered_at_deploy(&self, software: &Software) -> Option<RenderedAtDeploy> {
        software.given_values().find_map(|(job, value)| {
            let mut found = None;
            windlass_manifest::placeholders::each(value, &mut |it| found = Some(it.text.to_owned()));
            Some(RenderedAtDeploy { job: job.name.clone(), variable: found?, is_hidden: false })
        })
    }

    fn env_values(&self, env: &Object, _: Option<VariableSet>) -> Result<Option<String>, String> {
        let mut found = None;
        let env = Value::Object(env.clone());
        windlass_manifest::placeholders::each(&env, &mut |it| found = Some(format!("digest of {}", it.text)));
        Ok(found)
    }

    fn configuration_hash(&self, software: &Software, instance: &TemplateInstance<'_>) -> Result<String, String> {
        let links = |job: &JobOfGroup| job.links.values().map(Value::to_string).collect::<String>();
        let properties: Vec<_> = software.jobs.iter().map(|job| format!("{}{}", job.properties, links(job))).collect();
        let addresses: Vec<_> = instance.networks.values().map(|network| &network.ip).collect();
        let lacks = |job: &JobOfGroup| job.name == "web" && job.links.is_empty();
        match properties.iter().any(|properties| properties.contains("fails")) || software.jobs.iter().any(lacks) {
            true => Err(format!("Unable to render jobs for '{}'. Errors are:\n  - x", instance.group)),
            false => Ok(format!("{} {addresses:?}", properties.join(" "))),
        }
    }
}

pub(super) fn release(version: &str) -> ReleaseRecord {
    let package = |name: &str, dependencies: &[&str]| PackageRecord {
        id: 0,
        name: name.into(),
        version: format!("fp-{name}"),
        fingerprint: format!("fp-{name}"),
        source: Some(PackageSource { sha1: "00".into(), blob: format!("blob-{name}") }),
        dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
    };
    let job = |name: &str, packages: &[&str]| JobRecord {
        id: 0,
        name: name.into(),
        version: format!("fp-{name}"),
        fingerprint: format!("fp-{name}"),
        sha1: "00".into(),
        blob: format!("blob-{name}"),
        spec: json!({"name": name, "templates": {}, "packages": packages,
            "properties": {"port": {"default": 80}, "tls.key": {}}}),
    };
    ReleaseRecord {
        id: version.parse().unwrap(),
        name: "web".into(),
        version: version.into(),
        commit_hash: String::new(),
        uncommitted_changes: false,
        jobs: vec![job("app", &["app"]), job("other", &[])],
        packages: vec![package("app", &["base"]), package("base", &[]), package("unused", &[])],
        deployments: Vec::new(),
    }
}

fn document(release: &str, groups: &str) -> Document {
    let text = format!(
        "name: law\nreleases: [{{name: web, version: {release}}}]\nstemcells: [{{alias: one, os: os, version: '1'}}]\ninstance_groups:\n{groups}"
    );
    Document::parse(&text).unwrap()
}

fn group(name: &str, jobs: &str) -> String {
    format!(
        "- {{name: {name}, instances: 1, azs: [z1], vm_type: small, stemcell: one, networks: [{{name: n}}], jobs: {jobs}}}\n"
    )
}

fn app(properties: &str) -> String {
    group("g", &format!("[{{name: app, release: web, properties: {properties}}}]"))
}

fn cloud() -> String {
    format!("{CLOUD}compilation: {{workers: 2, network: n, az: z1, vm_type: small}}\n")
}

fn read_jobs(release: &str, groups: &str) -> (Desired, Findings) {
    read(&cloud(), &document(release, groups))
}

fn with_jobs(release: &str, groups: &str) -> Desired {
    let (desired, findings) = read_jobs(release, groups);
    assert!(findings.is_clean(), "{findings}");
    desired
}

/// What there is once a plan was carried out.
pub(super) fn carried_out(desired: &Desired, current: &Current) -> Current {
    let plan = planned(desired, current);
    let mut after = carry_out(&plan, current, "a");
    for software in &plan.software {
        after.software.insert(software.digest(), software.clone());
    }
    after.compiled.clone_from(&current.compiled);
    after.compiled.extend(plan.compilation.iter().flat_map(|plan| &plan.packages).map(|package| package.key()));
    after
}

pub(super) fn told(desired: &Desired, current: &Current) -> Vec<String> {
    planned(desired, current).describe().lines().skip(1).map(|line| line.trim().to_owned()).collect()
}

/// Readers choose what they plan, and could try values of variables on the hashes of what templates give.
#[test]
fn a_plan_that_is_shown_has_no_hash_of_rendered_files() {
    let desired = with_jobs("1", &format!("{}{}", app("{}"), group("gone", "[{name: app, release: web}]")));
    let current = carried_out(&desired, &nothing());
    let mut plan = planned(&with_jobs("1", &app("{port: 81}")), &current);
    let hashes = |plan: &Plan| -> Vec<String> {
        let specs =
            plan.instances().chain(&plan.removed).filter_map(|instance| instance.spec.as_ref()?.software.as_ref());
        specs.map(|software| software.configuration_hash.clone()).collect()
    };
    assert!(hashes(&plan).iter().any(|hash| !hash.is_empty()));
    plan.hide_hashes();
    assert!(hashes(&plan).iter().all(String::is_empty), "{:?}", hashes(&plan));
}

#[test]
fn packages_are_compiled_once_and_after_what_they_need() {
    let desired = with_jobs("1", &app("{}"));
    let plan = planned(&desired, &nothing());
    let compilation = plan.compilation.as_ref().unwrap();
    let names: Vec<_> = compilation.packages.iter().map(|package| package.package.name.as_str()).collect();
    assert_eq!(names, ["base", "app"], "what no job needs is not compiled");
    assert_eq!(compilation.packages[1].needs, [compilation.packages[0].key()]);
    assert_eq!(compilation.workers.len(), 2);
    let address = |worker: &InstancePlan| worker.spec.as_ref().unwrap().reserved_addresses().next().unwrap().1;
    let instance = &plan.groups[0].instances[0];
    assert!(compilation.workers.iter().all(|worker| address(worker) != address(instance)));
    assert!(compilation.workers.iter().all(|worker| worker.group.starts_with("compilation-")));
    assert!(is_compilation_group("compilation-7b9a1b0c-6c53-4a39-9d0e-8d7f3f6f2a11"));
    assert!(!is_compilation_group("compilation-of-songs"), "a group of an operator is none of ours");
    let after = carried_out(&desired, &nothing());
    assert!(planned(&desired, &after).is_empty(), "{}", planned(&desired, &after).describe());
}

#[test]
fn a_property_restarts_the_jobs_that_have_it_and_nothing_else() {
    let two =
        |port: &str| format!("{}{}", app(&format!("{{port: {port}}}")), group("h", "[{name: other, release: web}]"));
    let after = carried_out(&with_jobs("1", &two("1")), &nothing());
    let told = told(&with_jobs("1", &two("2")), &after);
    assert_eq!(
        told[1..],
        [
            "install packages: property 'port' of job 'app' changes: 1 → 2",
            "stop: property 'port' of job 'app' changes: 1 → 2",
            "start: it was changed",
        ]
    );
}

#[test]
fn a_plan_tells_numbers_of_properties_and_no_texts_or_secrets() {
    let after = carried_out(&with_jobs("1", &app("{port: 1, tls: {key: 1234}}")), &nothing());
    let told = |properties: &str| told(&with_jobs("1", &app(properties)), &after).join("\n");
    let secret = told("{port: 1, tls: {key: 5678}}");
    assert!(secret.contains("property 'tls.key' of job 'app' changes\n"), "{secret}");
    assert!(!secret.contains("5678") && !secret.contains("1234"), "{secret}");
    let text = told("{port: hunter2, tls: {key: 1234}}");
    assert!(text.contains("property 'port' of job 'app' changes\n") && !text.contains("hunter2"), "{text}");
}

#[test]
fn a_release_with_the_same_jobs_changes_nothing() {
    let after = carried_out(&with_jobs("1", &app("{}")), &nothing());
    let desired = with_jobs("latest", &app("{}"));
    assert_eq!(desired.releases, [2]);
    assert!(planned(&desired, &after).is_empty());
}

#[test]
fn jobs_of_an_update_that_did_not_finish_are_stopped_and_started() {
    let desired = with_jobs("1", &app("{}"));
    let mut after = carried_out(&desired, &nothing());
    after.instances[0].record.converged = false;
    let told = told(&desired, &after);
    assert_eq!(
        told[1..].iter().map(|line| line.split(':').next().unwrap()).collect::<Vec<_>>(),
        ["install packages", "stop", "start"]
    );
}

#[test]
fn what_cannot_be_found_rendered_or_compiled_is_refused_with_its_place() {
    let problem = |release: &str, groups: &str| read_jobs(release, groups).1.to_string();
    assert!(
        problem("9", &app("{}"))
            .contains("releases[0].version: the release web/9 was not uploaded (versions of 'web' here: 1, 2)")
    );
    let unknown = group(
        "g",
        "[{name: nobody, release: web}, {name: other, release: elsewhere}, {name: app, release: web, properties: {tls: 1}}]",
    );
    let problems = problem("1", &unknown);
    for expected in [
        "instance_groups[0].jobs[0].name: the release web/1 has no job 'nobody'; it has app, other",
        "instance_groups[0].jobs[1].release: the release 'elsewhere' is not in the manifest's releases",
        "instance_groups[0].jobs[2].name: job 'app': property 'tls.key' expects an object at 'tls', but found a number",
    ] {
        assert!(problems.contains(expected), "{expected} in:\n{problems}");
    }
    let refused = attempt(&with_jobs("1", &app("{port: fails}")), &nothing(), &PlanOptions::default()).unwrap_err();
    assert_eq!(
        refused,
        "Unable to render instance groups for deployment. Errors are:\n  - Unable to render jobs for 'g'. Errors are:\n    - x"
    );
    let (desired, _) = read(CLOUD, &document("1", &app("{}")));
    let refused = attempt(&desired, &nothing(), &PlanOptions::default()).unwrap_err();
    assert!(
        refused.contains("packages have to be compiled (base, app), and the cloud config does not say where"),
        "{refused}"
    );
}

#[test]
fn a_job_with_a_variable_that_has_no_value_yet_is_rendered_at_deploy() {
    let desired = with_jobs("1", &app("{port: '((fails.a))'}"));
    let expected = "job 'app' is rendered at deploy: the variable 'fails.a' has no value yet";
    let mut findings = Findings::new();
    let (current, options) = (nothing(), PlanOptions::default());
    let first = plan(&desired, &current, &options, &Hashed, &mut ids(&current), &mut findings);
    assert!(findings.is_clean() && !first.is_empty(), "{findings}");
    assert_eq!(findings.warnings()[0].to_string(), format!("instance_groups[0]: {expected} (line 5)"));
    let after = carried_out(&with_jobs("1", &app("{port: 1}")), &nothing());
    let told = told(&desired, &after);
    assert_eq!(told[1], format!("install packages: {expected}"));
}
