//! Addons of manifests and runtime configs: which groups get their jobs, and what is refused.

use super::links::release;
use super::*;

const GROUPS: &str = "\
- {name: web, instances: 1, azs: [z1], vm_type: small, stemcell: one, networks: [{name: n}], jobs: [{name: plain, release: net}]}
- {name: task, instances: 1, azs: [z2], vm_type: small, stemcell: one, lifecycle: errand, networks: [{name: m}]}
";

fn manifest(rest: &str) -> Document {
    let text = format!(
        "name: law\nreleases: [{{name: net, version: 1}}]\nstemcells: [{{alias: one, os: os, version: '1'}}]\ninstance_groups:\n{GROUPS}{rest}"
    );
    Document::parse(&text).unwrap()
}

fn with_runtime(manifest: &Document, configs: &[&str]) -> (Desired, Findings) {
    let mut all = vec![config("cloud", "c", CLOUD)];
    all.extend(configs.iter().enumerate().map(|(index, content)| config("runtime", &format!("r{index}"), content)));
    read_configs(&all, manifest, &[release()], LinksFrom::Manifest(&BTreeMap::new()))
}

fn runtime(addons: &str) -> String {
    format!("releases: [{{name: net, version: 1}}]\naddons: {addons}\n")
}

/// Jobs by group.
fn jobs(desired: &Desired) -> Vec<(&str, Vec<&str>)> {
    desired
        .groups
        .iter()
        .map(|group| {
            let jobs = group.software.iter().flat_map(|software| &software.jobs).map(|job| job.name.as_str()).collect();
            (group.name.as_str(), jobs)
        })
        .collect()
}

#[test]
fn an_addon_goes_to_the_groups_that_its_filters_mean() {
    for (filters, groups) in [
        ("", &["web", "task"][..]),
        (", include: {instance_groups: [web, other]}", &["web"]),
        (", include: {deployments: [law]}", &["web", "task"]),
        (", include: {deployments: [other]}", &[]),
        (", include: {lifecycle: errand}", &["task"]),
        (", include: {azs: [z1, z3]}", &["web"]),
        (", include: {networks: [m]}", &["task"]),
        (", include: {stemcell: [{os: os}, {os: windows}]}", &["web", "task"]),
        (", include: {stemcell: [{os: windows}]}", &[]),
        (", include: {jobs: [{name: plain, release: net}]}", &["web"]),
        (", include: {jobs: [{name: plain, release: other}]}", &[]),
        (", include: {teams: [a]}", &[]),
        (", include: {teams: [a, t]}", &["web", "task"]),
        (", exclude: {teams: [t]}", &[]),
        (", include: {azs: [z1], lifecycle: errand}", &[]),
        (", include: {azs: []}", &["web", "task"]),
        (", exclude: {azs: [z1]}", &["task"]),
        (", exclude: {}", &["web", "task"]),
        (", exclude: {azs: [z1], lifecycle: errand}", &["web", "task"]),
        (", include: {networks: [n, m]}, exclude: {jobs: [{name: plain, release: net}]}", &["task"]),
    ] {
        let addon = format!("[{{name: a, jobs: [{{name: maybe, release: net}}]{filters}}}]");
        let (desired, findings) = with_runtime(&manifest(""), &[&runtime(&addon)]);
        assert!(findings.is_clean(), "{filters}: {findings}");
        let got: Vec<_> = jobs(&desired).into_iter().filter(|(_, jobs)| jobs.contains(&"maybe")).collect();
        assert_eq!(got.iter().map(|(group, _)| *group).collect::<Vec<_>>(), groups, "{filters}");
    }
}

#[test]
fn addons_of_the_manifest_come_first_and_later_ones_see_their_jobs() {
    let own = "addons: [{name: own, jobs: [{name: pg, release: net, properties: {port: 1}}], include: {instance_groups: [web], teams: [x]}}]\n";
    let sees = runtime(
        "[{name: b, jobs: [{name: web, release: net}], properties: {a: 1}, include: {jobs: [{name: pg, release: net}]}}]",
    );
    let later =
        runtime("[{name: c, jobs: [{name: maybe, release: net}], include: {jobs: [{name: web, release: net}]}}]");
    let (desired, findings) = with_runtime(&manifest(own), &[&sees, &later]);
    assert!(findings.is_clean(), "{findings}");
    assert_eq!(jobs(&desired), [("web", vec!["plain", "pg", "web", "maybe"]), ("task", vec![])]);
    assert!(
        findings
            .warnings()
            .iter()
            .any(|warning| warning.to_string().contains("Top level 'properties' in addons are deprecated."))
    );
    let plan = planned(&desired, &nothing());
    let software = &plan.software.iter().find(|software| software.jobs.len() == 4).unwrap();
    assert_eq!(software.jobs[2].links["db"]["properties"]["port"], 1, "addons have links");
}

#[test]
fn a_release_of_a_runtime_config_counts_where_its_addon_applies() {
    let other = "releases: [{name: far, version: 9}]\naddons: [{name: a, jobs: [{name: j, release: far}], include: {deployments: [elsewhere]}}]\n";
    assert!(with_runtime(&manifest(""), &[other]).1.is_clean(), "what nobody needs need not be there");
    let here = other.replace("elsewhere", "law");
    let refused = with_runtime(&manifest(""), &[&here]).1.to_string();
    assert!(
        refused.starts_with("in the runtime config 'r0': releases[0].version: the release far/9 was not uploaded"),
        "{refused}"
    );
    let conflict = "releases: [{name: net, version: 2}]\naddons: [{name: a, jobs: [{name: maybe, release: net}]}]\n";
    assert!(with_runtime(&manifest(""), &[conflict]).1.to_string().contains(
        "Runtime manifest specifies release 'net' with version as '2'. This conflicts with version '1' specified in the deployment manifest."
    ));
}

#[test]
fn everything_wrong_with_addons_is_told_with_its_document_and_line() {
    let own = "addons:\n- {name: own, jobs: [{name: plain, release: net}], include: {deployments: [law]}}\n- {name: far, jobs: [{name: j, release: far}]}\n";
    let first = "releases: [{name: net, version: latest}]\ntags: {a: 1}\naddons:\n- {name: a, jobs: [{name: maybe, release: net}, {name: plain, release: net}], include: {jobs: [{name: x}], stemcell: [{version: 1}]}}\n- {name: b, jobs: [{name: j, release: far}]}\n";
    let (_, findings) = with_runtime(&manifest(own), &[first, "tags: {b: 1}\n"]);
    let problems = findings.to_string();
    for expected in [
        "addons[0].include.deployments: Deployment filter is not allowed for deployment level addons. (line 8)",
        "addons[0].jobs[0].name: Colocated job 'plain' is already added to the instance group 'web'. (line 8)",
        "addons[1].jobs[0].release: Manifest specifies job 'j' which is defined in 'far', but 'far' is not listed in the deployment releases section. (line 9)",
        "in the runtime config 'r0': releases[0].version: Runtime manifest contains the release 'net' with version as 'latest'. Please specify the actual version string. (line 1)",
        "in the runtime config 'r0': addons[0].include.jobs[0]: Job {\"name\":\"x\"} in runtime config's include section must have both name and release. (line 4)",
        "in the runtime config 'r0': addons[0].include.stemcell[0]: Stemcell {\"version\":1} in runtime config's include section must have an os name. (line 4)",
        "in the runtime config 'r0': addons[1].jobs[0].release: Manifest specifies job 'j' which is defined in 'far', but 'far' is not listed in the runtime releases section. (line 5)",
        "in the runtime config 'r1': tags: Runtime config 'tags' key cannot be defined in multiple runtime configs. (line 1)",
    ] {
        assert!(problems.contains(expected), "{expected} in:\n{problems}");
    }
}

#[test]
fn jobs_are_kept_in_memory_where_the_manifest_says_so_and_the_group_does_not_say_otherwise() {
    let own = GROUPS.replace("name: task,", "name: task, env: {bosh: {job_dir: {tmpfs: false}, swap_size: 1}},");
    let text = format!(
        "name: law\nfeatures: {{use_tmpfs_config: true}}\nreleases: [{{name: net, version: 1}}]\nstemcells: [{{alias: one, os: os, version: '1'}}]\ninstance_groups:\n{own}"
    );
    let (desired, findings) = with_runtime(&Document::parse(&text).unwrap(), &[]);
    assert!(findings.is_clean() && findings.warnings().is_empty(), "{findings}");
    let envs: Vec<_> = desired.groups.iter().map(|group| serde_json::Value::Object(group.env.clone())).collect();
    assert_eq!(
        envs,
        [
            serde_json::json!({"bosh": {"job_dir": {"tmpfs": true}, "agent": {"settings": {"tmpfs": true}}}}),
            serde_json::json!({"bosh": {"job_dir": {"tmpfs": false}, "swap_size": 1, "agent": {"settings": {"tmpfs": true}}}}),
        ]
    );
    let refused = text.replace("use_tmpfs_config: true", "use_link_dns_names: true, use_dns_addresses: false");
    let refused = with_runtime(&Document::parse(&refused).unwrap(), &[]).1.to_string();
    assert!(
        refused.contains("features.use_dns_addresses: cannot be false where 'use_link_dns_names' is true"),
        "{refused}"
    );
}
