//! Addons, of runtime configs and of manifests: who gets them, and who does not.

use serde_json::{Value, json};

use super::release::{Job, Release};
use super::stand::{Scene, Stand, group, with};

super::scenarios! {
    "addons/basic_spec.rb": "allows addons to be added to specific jobs" =>
        "groups with the job have the addon and its properties, others do not", for_a_job;
    "addons/basic_spec.rb": "allows addons to be excluded from specific jobs" =>
        "groups with the job do not have it", not_for_a_job;
    "addons/basic_spec.rb": "allows addons to be added to and excluded from specific deployments" =>
        "one deployment has it, the excluded one does not", not_for_a_deployment;
    "addons/basic_spec.rb": "allows addons to be added to specific instance groups" =>
        "the group that is named has it", for_a_group;
    "addons/basic_spec.rb": "allows addons to be excluded from specific instance groups" =>
        "the group that is named does not have it", not_for_a_group;
    "addons/basic_spec.rb": "allows addons to be added for specific stemcell operating systems" =>
        "groups on the system have it, and an addon for another system goes nowhere", for_a_system;
    "addons/basic_spec.rb": "allows addons to be added for specific networks" =>
        "groups in the network have it", for_a_network;
    "addons/basic_spec.rb": "allows addons to be excluded for specific lifecycle type" =>
        "the VM of an errand does not have it, the service does", not_for_errands;
    "addons/basic_spec.rb": "allows addon to be added and ensures that addon job properties are properly assigned" =>
        "an addon of the manifest has the properties that stand there", of_the_manifest;
    "addons/basic_spec.rb": "allows to apply exclude rules" =>
        "an addon of the manifest leaves out the group that it excludes", excluded_in_the_manifest;
    "addons/basic_spec.rb": "applies rules from both deployment manifest and from runtime config" =>
        "a group has the addons of both", of_both;
    "addons/basic_spec.rb": "does not cause updates if job ordering within instance group changes" =>
        "a deploy after the addons changed places updates nobody", another_order;
    "addons/named_runtime_configs_spec.rb": "merges the releases & addons for a deploy" =>
        "the addons of three runtime configs are all there", several_configs;
    "addons/named_runtime_configs_spec.rb": "picks up the latest named runtime config when deploying" =>
        "of two versions of one config the newer counts", the_newest_version;
    "addons/named_runtime_configs_spec.rb": "merges the tags key for a deploy" =>
        "the cloud is told the tags of the runtime config with each VM", tags;
    "addons/named_runtime_configs_spec.rb": "fails when deploying" =>
        "tags in two runtime configs are refused, here when the second comes", tags_twice;
    "addons/runtime_config_spec.rb": "raises an error if the addon job has the same name as an existing job in an instance group" =>
        "refused with the job and the group", a_job_twice;
    "addons/runtime_config_spec.rb": "succeeds when deployment and runtime config both have the same release with the same version" =>
        "one release in both is one", one_release_in_both;
    "addons/runtime_config_spec.rb": "deploys it after comparing both versions as a string" =>
        "version 1 and version '1' are the same", a_version_as_a_number;
    "addons/runtime_config_spec.rb": "allows addons to be added to the runtime config" =>
        "groups in the zone have it, those in the excluded zone do not", for_a_zone;
    "addons/runtime_config_spec.rb": "should not associate unused release with the current deployment" =>
        "a deployment that no addon is for does not have the addon's release", no_unused_release;
    "cli_runtime_config_spec.rb": "gives an error when release version is 'latest'" =>
        "refused, with the release's name", latest_is_refused;
    "cli_runtime_config_spec.rb": "gives an error when release for addon does not exist in releases section" =>
        "a deploy is refused with addon and release", an_unlisted_release;
    "links/multiple_release_versions_spec.rb": "should ONLY use the release version specified in manifest" =>
        "an addon whose release has two versions runs the one that its config names", the_version_that_is_named;
}

fn release(name: &'static str, version: &'static str) -> Release {
    let job = |name: &'static str| {
        Job::new(name, "properties: {echo: {default: usual}}")
            .template("config", &format!("{version} <%= p('echo') %>"))
    };
    Release::new(name, version)
        .job(job("foobar"))
        .job(job("plain"))
        .job(Job::new("errand", "").template("bin/run", "#!/bin/sh\n"))
}

fn extra(version: &'static str) -> Release {
    let job = |name: &'static str| {
        Job::new(name, "properties: {echo: {default: usual}}")
            .template("config", &format!("{version} <%= p('echo') %>"))
    };
    Release::new("extra", version).job(job("addon")).job(job("second")).job(job("third")).job(job("foobar"))
}

fn job(name: &str) -> Value {
    json!({"name": name, "release": "kit"})
}

#[test]
fn what_addons_promise() {
    let stand = Stand::new();
    stand.upload(&release("kit", "1"));
    stand.upload(&extra("1"));
    stand.upload(&extra("2"));
    stand.play(SCENARIOS);
}

/// An addon with one job of the release `extra`, and rules.
fn addon(job: &str, rules: Value) -> Value {
    let job = json!({"name": job, "release": "extra", "properties": {"echo": "told"}});
    with(json!({"name": format!("with-{}", job["name"].as_str().unwrap()), "jobs": [job]}), rules)
}

fn config(addons: Value) -> Value {
    json!({"releases": [{"name": "extra", "version": "1"}], "addons": addons})
}

/// Does something while there are runtime configs.
fn under(scene: &Scene<'_>, configs: &[(&str, Value)], run: impl FnOnce()) {
    for (name, config) in configs {
        scene.stand.configure_runtime(name, config);
    }
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    for (name, _) in configs {
        scene.stand.forget_runtime_config(name);
    }
    if let Err(error) = ran {
        std::panic::resume_unwind(error);
    }
}

/// The same with one addon.
fn under_addon(scene: &Scene<'_>, rules: Value, run: impl FnOnce()) {
    under(scene, &[("default", config(json!([addon("addon", rules)])))], run);
}

fn two() -> Value {
    json!([group("one", 1, json!([job("foobar")])), group("two", 1, json!([job("plain")]))])
}

/// Whether the two groups have the addon.
fn have(scene: &Scene<'_>) -> (bool, bool) {
    (scene.has_job("one/0", "addon"), scene.has_job("two/0", "addon"))
}

fn for_a_job(scene: &Scene<'_>) {
    under_addon(scene, json!({"include": {"jobs": [{"name": "foobar", "release": "kit"}]}}), || {
        scene.deploy(two());
    });
    assert_eq!(have(scene), (true, false));
    assert_eq!(scene.read("one/0", "jobs/addon/config"), "1 told");
}

fn not_for_a_job(scene: &Scene<'_>) {
    under_addon(scene, json!({"exclude": {"jobs": [{"name": "plain", "release": "kit"}]}}), || {
        scene.deploy(two());
    });
    assert_eq!(have(scene), (true, false));
}

fn not_for_a_deployment(scene: &Scene<'_>) {
    let other = scene.other("b");
    under_addon(scene, json!({"exclude": {"deployments": [other]}}), || {
        scene.deploy(two());
        scene.deploy_manifest(&scene.manifest_of(&other, &["kit"], two()));
    });
    assert_eq!(have(scene), (true, true));
    assert!(!scene.vcap_of(&other, "one/0").join("jobs/addon").exists());
    assert!(scene.vcap_of(&other, "one/0").join("jobs/foobar").exists());
}

fn for_a_group(scene: &Scene<'_>) {
    under_addon(scene, json!({"include": {"instance_groups": ["one"]}}), || {
        scene.deploy(two());
    });
    assert_eq!(have(scene), (true, false));
}

fn not_for_a_group(scene: &Scene<'_>) {
    under_addon(scene, json!({"exclude": {"instance_groups": ["two"]}}), || {
        scene.deploy(two());
    });
    assert_eq!(have(scene), (true, false));
}

fn for_a_system(scene: &Scene<'_>) {
    let rules = |os: &str| json!({"include": {"stemcell": [{"os": os}]}});
    let config = config(json!([addon("addon", rules("windlass-minimal")), addon("second", rules("toronto-os"))]));
    under(scene, &[("default", config)], || {
        scene.deploy(two());
    });
    assert_eq!(have(scene), (true, true));
    assert!(!scene.has_job("one/0", "second"));
}

fn for_a_network(scene: &Scene<'_>) {
    under_addon(scene, json!({"include": {"networks": ["other"]}}), || {
        let mut groups = two();
        groups[0]["networks"] = json!([{"name": "other"}]);
        scene.deploy(groups);
    });
    assert_eq!(have(scene), (true, false));
}

fn not_for_errands(scene: &Scene<'_>) {
    under_addon(scene, json!({"exclude": {"lifecycle": "errand"}}), || {
        let once = with(group("two", 1, json!([job("errand")])), json!({"lifecycle": "errand"}));
        scene.deploy(json!([group("one", 1, json!([job("foobar")])), once]));
        scene.errand("errand", json!({"keep-alive": true}));
    });
    assert_eq!(have(scene), (true, false));
}

/// A manifest with addons of its own.
fn with_addons(scene: &Scene<'_>, addons: Value) -> Value {
    let mut manifest = with(scene.manifest(two()), json!({"addons": addons}));
    manifest["releases"].as_array_mut().unwrap().push(json!({"name": "extra", "version": "1"}));
    manifest
}

fn of_the_manifest(scene: &Scene<'_>) {
    scene.deploy_manifest(&with_addons(scene, json!([addon("addon", json!({}))])));
    assert_eq!(have(scene), (true, true));
    assert_eq!(scene.read("two/0", "jobs/addon/config"), "1 told");
}

fn excluded_in_the_manifest(scene: &Scene<'_>) {
    let rules = json!({"exclude": {"jobs": [{"name": "plain", "release": "kit"}]}});
    scene.deploy_manifest(&with_addons(scene, json!([addon("addon", rules)])));
    assert_eq!(have(scene), (true, false));
}

fn of_both(scene: &Scene<'_>) {
    let runtime = config(json!([addon("second", json!({"include": {"instance_groups": ["one"]}}))]));
    under(scene, &[("default", runtime)], || {
        let rules = json!({"exclude": {"instance_groups": ["two"]}});
        scene.deploy_manifest(&with_addons(scene, json!([addon("addon", rules)])));
    });
    assert_eq!(have(scene), (true, false));
    assert_eq!((scene.has_job("one/0", "second"), scene.has_job("two/0", "second")), (true, false));
}

fn another_order(scene: &Scene<'_>) {
    let both = [addon("addon", json!({})), addon("second", json!({}))];
    under(scene, &[("default", config(json!(both)))], || {
        scene.deploy(two());
    });
    let [first, second] = both;
    under(scene, &[("default", config(json!([second, first])))], || {
        let task = scene.deploy(two());
        let updates = task.events.iter().filter(|event| event["stage"] == "Updating instance").count();
        assert_eq!(updates, 0, "{:?}", task.events);
    });
}

fn several_configs(scene: &Scene<'_>) {
    let configs = ["addon", "second", "third"].map(|job| (job, config(json!([addon(job, json!({}))]))));
    under(scene, &configs, || {
        scene.deploy(two());
    });
    for job in ["addon", "second", "third", "foobar"] {
        assert!(scene.has_job("one/0", job), "{job}");
    }
}

fn the_newest_version(scene: &Scene<'_>) {
    let configs = ["addon", "third"].map(|job| ("named", config(json!([addon(job, json!({}))]))));
    scene.stand.configure_runtime("named", &configs[0].1);
    under(scene, &configs[1..], || {
        scene.deploy(two());
    });
    assert_eq!((have(scene), scene.has_job("one/0", "third")), ((false, false), true));
}

/// What the cloud knows of an instance's VM.
fn metadata(scene: &Scene<'_>, name: &str) -> Value {
    let record = scene.vcap(name).parent().unwrap().join("vm.json");
    serde_json::from_slice::<Value>(&std::fs::read(record).unwrap()).unwrap()["metadata"].clone()
}

fn tags(scene: &Scene<'_>) {
    under(scene, &[("default", json!({"tags": {"foo": "smurfs", "bar": "gargamel"}}))], || {
        scene.deploy(two());
    });
    for instance in ["one/0", "two/0"] {
        let told = metadata(scene, instance);
        assert_eq!((&told["foo"], &told["bar"]), (&json!("smurfs"), &json!("gargamel")), "{told}");
    }
}

fn tags_twice(scene: &Scene<'_>) {
    under(scene, &[("one", json!({"tags": {"foo": "a"}}))], || {
        let refused = scene.stand.configure("runtime", "two", &json!({"tags": {"foo": "b"}}));
        let expected = "Runtime config 'tags' key cannot be defined in multiple runtime configs.";
        assert!(refused.text().contains(expected), "{}", refused.text());
    });
}

fn a_job_twice(scene: &Scene<'_>) {
    under(scene, &[("default", config(json!([addon("foobar", json!({}))])))], || {
        let said = scene.refused(two());
        assert!(said.contains("Colocated job 'foobar' is already added to the instance group 'one'"), "{said}");
    });
}

fn one_release_in_both(scene: &Scene<'_>) {
    under_addon(scene, json!({}), || {
        scene.deploy_manifest(&with_addons(scene, json!([])));
    });
    let deployments = scene.client().get("/deployments");
    let ours = deployments.as_array().unwrap().iter().find(|it| it["name"] == scene.name.as_str()).unwrap();
    assert_eq!(ours["releases"].as_array().unwrap().len(), 2, "{ours}");
}

fn a_version_as_a_number(scene: &Scene<'_>) {
    let mut runtime = config(json!([addon("addon", json!({}))]));
    runtime["releases"][0]["version"] = json!(1);
    under(scene, &[("default", runtime)], || {
        scene.deploy_manifest(&with_addons(scene, json!([])));
    });
    assert_eq!(have(scene), (true, true));
}

fn for_a_zone(scene: &Scene<'_>) {
    let mut groups = two();
    groups[1]["azs"] = json!(["z2"]);
    under_addon(scene, json!({"include": {"azs": ["z1"]}, "exclude": {"azs": ["z2"]}}), || {
        scene.deploy(groups);
    });
    assert_eq!(have(scene), (true, false));
}

fn no_unused_release(scene: &Scene<'_>) {
    under_addon(scene, json!({"exclude": {"deployments": [scene.name]}}), || {
        scene.deploy(two());
    });
    let deployments = scene.client().get("/deployments");
    let ours = deployments.as_array().unwrap().iter().find(|it| it["name"] == scene.name.as_str()).unwrap();
    assert!(!ours["releases"].to_string().contains("extra"), "{ours}");
}

fn latest_is_refused(scene: &Scene<'_>) {
    let runtime = json!({"releases": [{"name": "extra", "version": "latest"}]});
    let answer = scene.stand.configure("runtime", "default", &runtime);
    let refused = if answer.status.is_success() {
        let said = scene.refused(two());
        scene.stand.forget_runtime_config("default");
        said
    } else {
        answer.text()
    };
    assert!(refused.contains("extra") && refused.contains("latest"), "{refused}");
}

fn an_unlisted_release(scene: &Scene<'_>) {
    let runtime = json!({"addons": [addon("addon", json!({}))]});
    let answer = scene.stand.configure("runtime", "default", &runtime);
    let refused = if answer.status.is_success() {
        let said = scene.refused(two());
        scene.stand.forget_runtime_config("default");
        said
    } else {
        answer.text()
    };
    assert!(refused.contains("extra"), "{refused}");
}

fn the_version_that_is_named(scene: &Scene<'_>) {
    for version in ["1", "2"] {
        let mut runtime = config(json!([addon("addon", json!({}))]));
        runtime["releases"][0]["version"] = json!(version);
        under(scene, &[("default", runtime)], || {
            scene.deploy(two());
        });
        assert_eq!(scene.read("one/0", "jobs/addon/config"), format!("{version} told"));
    }
}
