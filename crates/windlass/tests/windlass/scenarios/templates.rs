//! What templates see, and what is said when they cannot be filled in.

use serde_json::{Value, json};

use super::release::{Job, Package, Release};
use super::stand::{Scene, Stand, group, with};

super::scenarios! {
    "template_evaluation_spec.rb": "can access exposed attributes of an instance" =>
        "id, index, name, deployment, zone, address and bootstrap are those of the instance", attributes;
    "template_evaluation_spec.rb": "gives VMs the same id on `deploy --recreate`" =>
        "the id in the file is the same on another VM", the_id_stays;
    "template_evaluation_spec.rb": "prints all template evaluation errors when there are errors in multiple job deployment templates" =>
        "four errors of two jobs come together, in BOSH's words and with their lines; nothing is made", all_errors;
    "template_evaluation_spec.rb": "validates manifest properties" =>
        "a template may refuse a property itself; the refusal has its words", a_template_refuses;
    "deploy/local_template_properties_spec.rb": "these templates should use the properties defined in their scope" =>
        "two jobs of one group have each its own values", properties_are_the_jobs_own;
    "deploy/local_template_properties_spec.rb": "should update the job when template properties change" =>
        "the one group whose job changed is updated", a_change_updates;
    "deploy/local_template_properties_spec.rb": "should not update the job when template properties are the same" =>
        "nobody is updated", no_change_no_update;
    "deploy/local_template_properties_spec.rb": "should fail even if the properties are defined outside the template scope" =>
        "a property of the neighbour does not help; the refusal names the template and the line", the_neighbours_do_not_help;
    "deploy/local_template_properties_spec.rb": "should not expose the local properties across deployment jobs" =>
        "one job in two groups has each group's values", one_job_in_two_groups;
    "deploy/local_template_properties_spec.rb": "should only complain about non-property satisfied template when missing properties" =>
        "of four only the one that lacks a property is named", only_the_wrong_one_is_named;
    "deploy/template_safety_spec.rb": "does not modify the property for other templates" =>
        "what one template does to a list is not seen in the other", templates_do_not_share;
    "deploy_instance_groups_job_spec.rb": "re-evaluates job with new manifest job properties" =>
        "the file has the new value", a_new_value;
    "deploy_instance_groups_job_spec.rb": "does not redeploy if the order of properties get changed" =>
        "properties in another order update nobody", another_order;
    "cross_release_collocation_spec.rb": "shows correct versions and names in templates" =>
        "two jobs of two releases have each its release's name and version", releases_in_templates;
    "cross_release_collocation_spec.rb": "allows the co-located jobs to share the same package" =>
        "one package of two releases is there once", a_shared_package;
    "cross_release_collocation_spec.rb": "successfully deploys" =>
        "two releases with different packages of one name, which they only compile with, deploy on one VM, each compiled with its own", compiled_each_with_its_own;
    "cross_release_collocation_spec.rb": "refuses to deploy" =>
        "packages of one name and other content are refused, with group, jobs and fingerprint", packages_collide;
    "deploy/encoding_spec.rb": "supports non-ascii multibyte chars in manifests" =>
        "letters beyond ASCII are in the file as in the manifest", every_letter;
    "deploy/dry_run_spec.rb": "prints all template evaluation errors and does not register an event" =>
        "a dry run tells the errors and leaves nothing", a_dry_run_tells_errors;
    "deploy/dry_run_spec.rb": "does not interfere with a successful deployment later" =>
        "a dry run makes nothing, and the deploy after it everything", a_dry_run_makes_nothing;
}

const ATTRIBUTES: &str = "<%= spec.id %> <%= spec.index %> <%= spec.name %> <%= spec.deployment %> <%= spec.az %> <%= spec.ip %> \
    <%= spec.bootstrap %>";
const COLOURS: &str = "\n\n<%= p('smurfs.color') %>\n<%= p('gargamel.color') %>";

fn kit() -> Release {
    let colours = "properties: {smurfs.color: {}, gargamel.color: {}}";
    let bad = |name: &'static str| {
        Job::new(name, "properties: {test_property: {}, wait: {}}")
            .template("bin/ctl", "\n\n\n\n\n\n\n<%= p('test_property') %>")
            .template("bin/drain", "\n\n\n<%= p('wait') %>")
    };
    Release::new("kit", "1")
        .job(Job::new("id_job", "").template("config.yml", ATTRIBUTES))
        .job(bad("bad"))
        .job(bad("bad_2"))
        .job(Job::new("strict", "properties: {word: {}}").template(
            "config.yml",
            "<% raise \"value at `/word` is not a string\" unless p('word').is_a?(String) %>ok",
        ))
        .job(Job::new("one", colours).template("config.yml", COLOURS))
        .job(Job::new("two", colours).template("config.yml", COLOURS))
        .job(
            Job::new("safe", "properties: {list: {default: [a]}}")
                .template("first", "<% p('list') << 'b' %><%= p('list').join(',') %>")
                .template("second", "<%= p('list').join(',') %>"),
        )
        .job(
            Job::new("release", "packages: [shared]")
                .template("config.yml", "<%= spec.release.name %> <%= spec.release.version %>"),
        )
        .package(Package::new("shared", &[], "the same"))
}

fn other(name: &'static str, version: &'static str, content: &'static str) -> Release {
    Release::new(name, version)
        .job(
            Job::new("release_2", "packages: [shared]")
                .template("config.yml", "<%= spec.release.name %> <%= spec.release.version %>"),
        )
        .package(Package::new("shared", &[], content))
}

fn job(name: &str, properties: Value) -> Value {
    json!({"name": name, "release": "kit", "properties": properties})
}

fn colours(name: &str, smurfs: &str, gargamel: &str) -> Value {
    job(name, json!({"smurfs": {"color": smurfs}, "gargamel": {"color": gargamel}}))
}

#[test]
fn what_templates_promise() {
    let stand = Stand::new();
    stand.upload(&kit());
    stand.upload(&other("like", "0+dev.2", "the same"));
    stand.upload(&other("unlike", "1", "something else"));
    stand.play(SCENARIOS);
}

fn config(scene: &Scene<'_>, instance: &str, job: &str) -> String {
    scene.read(instance, &format!("jobs/{job}/config.yml")).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn updated(task: &crate::api::client::Task) -> Vec<String> {
    let updates =
        task.events.iter().filter(|event| event["stage"] == "Updating instance" && event["state"] == "finished");
    updates.map(|event| event["tags"][0].as_str().unwrap().to_owned()).collect()
}

fn attributes(scene: &Scene<'_>) {
    scene.deploy(json!([group("id_job", 2, json!([job("id_job", json!({}))]))]));
    for (name, bootstrap) in [("id_job/0", true), ("id_job/1", false)] {
        let instance = scene.instance(name);
        let (id, index, address) = (instance["id"].as_str().unwrap(), &instance["index"], scene.address(name));
        let expected = format!("{id} {index} id_job {} z1 {address} {bootstrap}", scene.name);
        assert_eq!(config(scene, name, "id_job"), expected);
    }
}

fn the_id_stays(scene: &Scene<'_>) {
    let manifest = scene.manifest(json!([group("id_job", 1, json!([job("id_job", json!({}))]))]));
    scene.deploy_manifest(&manifest);
    let before = (config(scene, "id_job/0", "id_job"), scene.instance("id_job/0")["cid"].clone());
    assert_eq!(scene.try_deploy(&manifest, "?recreate=true").state, "done");
    assert_eq!(config(scene, "id_job/0", "id_job"), before.0);
    assert_ne!(scene.instance("id_job/0")["cid"], before.1);
}

fn bad(scene: &Scene<'_>) -> Value {
    scene.manifest(json!([group("foobar", 1, json!([job("bad", json!({})), job("bad_2", json!({}))]))]))
}

fn all_told(said: &str) {
    for (text, count) in [
        ("Unable to render jobs for instance group 'foobar'. Errors are:", 1),
        ("- Unable to render templates for job 'bad'. Errors are:", 1),
        ("- Unable to render templates for job 'bad_2'. Errors are:", 1),
        ("- Error filling in template 'ctl.erb' (line 8: Can't find property '[\"test_property\"]')", 2),
        ("- Error filling in template 'drain.erb' (line 4: Can't find property '[\"wait\"]')", 2),
    ] {
        assert_eq!(said.matches(text).count(), count, "{text} in {said}");
    }
}

fn all_errors(scene: &Scene<'_>) {
    all_told(&scene.refused_manifest(&bad(scene)));
    assert!(scene.instances().is_empty());
}

fn a_template_refuses(scene: &Scene<'_>) {
    let groups = |word: Value| json!([group("validation", 1, json!([job("strict", json!({"word": word}))]))]);
    scene.deploy(groups(json!("a word")));
    let said = scene.refused(groups(json!(11)));
    assert!(said.contains("value at `/word` is not a string"), "{said}");
    assert_eq!(config(scene, "validation/0", "strict"), "ok");
}

fn properties_are_the_jobs_own(scene: &Scene<'_>) {
    scene.deploy(json!([group("all", 1, json!([colours("one", "red", "black"), colours("two", "blue", "white")]))]));
    assert_eq!(
        (config(scene, "all/0", "one"), config(scene, "all/0", "two")),
        ("red black".into(), "blue white".into())
    );
}

fn workers(first: Value, second: Value) -> Value {
    json!([group("worker_1", 1, json!([first])), group("worker_2", 1, json!([second]))])
}

fn a_change_updates(scene: &Scene<'_>) {
    scene.deploy(workers(colours("one", "red", "black"), colours("one", "red", "black")));
    let task = scene.deploy(workers(colours("one", "red", "black"), colours("one", "red", "green")));
    assert_eq!(updated(&task), ["worker_2"]);
}

fn no_change_no_update(scene: &Scene<'_>) {
    let groups = workers(colours("one", "red", "black"), colours("one", "red", "black"));
    scene.deploy(groups.clone());
    assert_eq!(updated(&scene.deploy(groups)), [""; 0]);
}

fn the_neighbours_do_not_help(scene: &Scene<'_>) {
    let lacking = job("one", json!({"smurfs": {"color": "red"}}));
    let said = scene.refused(json!([group("all", 1, json!([lacking, colours("two", "yellow", "black")]))]));
    assert!(
        said.contains(
            "- Error filling in template 'config.yml.erb' (line 4: Can't find property '[\"gargamel.color\"]')"
        ),
        "{said}"
    );
    assert!(said.contains("job 'one'") && !said.contains("job 'two'"), "{said}");
}

fn one_job_in_two_groups(scene: &Scene<'_>) {
    scene.deploy(workers(colours("one", "pink", "orange"), colours("one", "navy", "red")));
    assert_eq!(config(scene, "worker_1/0", "one"), "pink orange");
    assert_eq!(config(scene, "worker_2/0", "one"), "navy red");
}

fn only_the_wrong_one_is_named(scene: &Scene<'_>) {
    let said = scene.refused(workers(colours("one", "pink", "orange"), job("two", json!({"smurfs": {"color": "x"}}))));
    assert!(said.contains("instance group 'worker_2'") && said.contains("job 'two'"), "{said}");
    assert!(!said.contains("worker_1") && !said.contains("job 'one'"), "{said}");
}

fn templates_do_not_share(scene: &Scene<'_>) {
    scene.deploy(json!([group("all", 1, json!([job("safe", json!({}))]))]));
    assert_eq!(scene.read("all/0", "jobs/safe/first"), "a,b");
    assert_eq!(scene.read("all/0", "jobs/safe/second"), "a");
}

fn a_new_value(scene: &Scene<'_>) {
    for value in ["red", "blue"] {
        scene.deploy(json!([group("all", 1, json!([colours("one", value, "black")]))]));
        assert_eq!(config(scene, "all/0", "one"), format!("{value} black"));
    }
}

fn another_order(scene: &Scene<'_>) {
    scene.deploy(json!([group("all", 1, json!([colours("one", "red", "black")]))]));
    // As a text, because its order counts.
    let manifest = scene.manifest(json!([group("all", 1, json!([colours("one", "red", "black")]))])).to_string();
    let one = r#"{"smurfs":{"color":"red"},"gargamel":{"color":"black"}}"#;
    assert!(manifest.contains(one), "{manifest}");
    let manifest = manifest.replace(one, r#"{"gargamel":{"color":"black"},"smurfs":{"color":"red"}}"#);
    let task = scene.client().task("POST", "/deployments", "text/yaml", manifest);
    assert_eq!((task.state.as_str(), updated(&task)), ("done", Vec::new()));
}

/// A manifest with a job of `kit` and one of another release.
fn of_two_releases(scene: &Scene<'_>, release: &str) -> Value {
    let second = json!({"name": "release_2", "release": release});
    scene.manifest_of(
        &scene.name,
        &["kit", release],
        json!([group("foobar", 1, json!([job("release", json!({})), second]))]),
    )
}

fn releases_in_templates(scene: &Scene<'_>) {
    scene.deploy_manifest(&of_two_releases(scene, "like"));
    let seen = || (config(scene, "foobar/0", "release"), config(scene, "foobar/0", "release_2"));
    assert_eq!(seen(), ("kit 1".into(), "like 0+dev.2".into()));
    scene.changed("*", "state=recreate");
    assert_eq!(seen(), ("kit 1".into(), "like 0+dev.2".into()));
}

fn a_shared_package(scene: &Scene<'_>) {
    scene.deploy_manifest(&of_two_releases(scene, "like"));
    assert_eq!(scene.names("foobar/0", "data/packages"), ["shared"]);
    assert_eq!(scene.names("foobar/0", "data/packages/shared").len(), 1);
}

fn compiled_each_with_its_own(scene: &Scene<'_>) {
    let side = |name: &'static str, job: &'static str, package: &'static str, tool: &'static str| {
        let with_tool = "set -e\ncat ${BOSH_INSTALL_TARGET%/*}/tool/content > $BOSH_INSTALL_TARGET/content\n";
        Release::new(name, "1")
            .job(Job::new(job, &format!("packages: [{package}]")))
            .package(Package::new(package, &["tool"], "").packaging(with_tool))
            .package(Package::new("tool", &[], tool))
    };
    scene.stand.upload(&side("left", "left", "left_app", "tool of the left"));
    scene.stand.upload(&side("right", "right", "right_app", "tool of the right"));
    let jobs = json!([{"name": "left", "release": "left"}, {"name": "right", "release": "right"}]);
    scene.deploy_manifest(&scene.manifest_of(&scene.name, &["left", "right"], json!([group("both", 1, jobs)])));
    assert_eq!(scene.names("both/0", "data/packages"), ["left_app", "right_app"]);
    assert_eq!(scene.read("both/0", "packages/left_app/content"), "tool of the left");
    assert_eq!(scene.read("both/0", "packages/right_app/content"), "tool of the right");
}

fn packages_collide(scene: &Scene<'_>) {
    let said = scene.refused_manifest(&of_two_releases(scene, "unlike"));
    let expected = "Package name collision detected in instance group 'foobar': job 'kit/release' depends on package 'kit/shared' with fingerprint '";
    assert!(said.contains(expected), "{said}");
}

fn every_letter(scene: &Scene<'_>) {
    let groups = |word: &str| json!([group("all", 1, json!([colours("one", word, "black")]))]);
    for word in ["Grüße\u{1F600}", "雪"] {
        scene.deploy(groups(word));
        assert_eq!(config(scene, "all/0", "one"), format!("{word} black"));
    }
}

fn a_dry_run_tells_errors(scene: &Scene<'_>) {
    let task = scene.try_deploy(&bad(scene), "?dry_run=true");
    assert_eq!(task.state, "error");
    all_told(&super::stand::message(&task));
    assert!(scene.instances().is_empty());
}

fn a_dry_run_makes_nothing(scene: &Scene<'_>) {
    let manifest = scene.manifest(json!([group("all", 1, json!([colours("one", "red", "black")]))]));
    let task = scene.try_deploy(&manifest, "?dry_run=true");
    assert_eq!(task.state, "done");
    assert_eq!(scene.vms(), 0);
    scene.deploy_manifest(&with(manifest, json!({})));
    assert_eq!(scene.vms(), 1);
}
