//! Packages: which are compiled, and which reach a VM.

use serde_json::{Value, json};

use super::release::{Job, Package, Release};
use super::stand::{Scene, Stand, group, message};

super::scenarios! {
    "cli_package_compilation_spec.rb": "includes only immediate dependencies of the instance groups's jobs in the apply_spec" =>
        "a VM has the packages that its jobs name, and not what those need to be compiled", only_what_jobs_need;
    "cli_package_compilation_spec.rb": "returns truncated output" =>
        "a failed script shows the end of both outputs and not their beginning; no worker is left", the_end_of_the_output;
    "cli_package_compilation_spec.rb": "fails deploy" =>
        "without an address for a worker the deploy is refused, and there is no VM", no_address_for_workers;
    "package_dependencies_spec.rb": "recompiles packages when a transitive dependency changes" =>
        "all three are compiled again when the last of the chain changes, and none when nothing does", a_chain_is_compiled_again;
    "package_dependencies_spec.rb": "survives removal of a transitive dependency" =>
        "the next version without the last of the chain deploys", a_chain_gets_shorter;
    "global_networking/compilation_spec.rb": "releases its IP for next deploy (when compilation fails)" =>
        "with one address for workers, a deploy after one whose compilation failed compiles", an_address_is_free_again;
    "deploy/orphan_compilation_workers_spec.rb": "deletes compilation vms" =>
        "no worker is left after a deploy, and another deployment compiles nothing again", workers_go;
}

fn chain(version: &'static str, last: &'static str) -> Release {
    let needs = |package: &str| {
        format!("set -e\ncat ${{BOSH_INSTALL_TARGET%/*}}/{package}/content content > $BOSH_INSTALL_TARGET/content\n")
    };
    Release::new("chain", version)
        .job(Job::new("transitive", "packages: [a]"))
        .package(Package::new("a", &["b"], "a").packaging(&needs("b")))
        .package(Package::new("b", &["c"], "b").packaging(&needs("c")))
        .package(Package::new("c", &[], last))
}

fn kit() -> Release {
    let much =
        "yes a | head -c 20000\nyes b | head -c 20000\nyes n | head -c 20000 >&2\nyes z | head -c 20000 >&2\nexit 1\n";
    Release::new("kit", "1")
        .job(Job::new("foobar", "packages: [foo]"))
        .job(Job::new("goobaz", "packages: [bar, baz]"))
        .job(Job::new("fails", "packages: [fails]"))
        .job(Job::new("lone", "packages: [lone]"))
        .package(Package::new("base", &[], "base"))
        .package(Package::new("foo", &["base"], "foo"))
        .package(Package::new("bar", &["base"], "bar"))
        .package(Package::new("baz", &[], "baz"))
        .package(Package::new("fails", &[], "").packaging(much))
        .package(Package::new("lone", &[], "lone"))
}

fn job(release: &str, name: &str) -> Value {
    json!({"name": name, "release": release})
}

#[test]
fn what_compilation_promises() {
    let stand = Stand::new();
    stand.upload(&kit());
    stand.upload(&chain("1", "c"));
    stand.play(SCENARIOS);
}

/// Names of the packages that a task compiled.
fn compiled(task: &crate::api::client::Task) -> Vec<String> {
    let compiling =
        task.events.iter().filter(|event| event["stage"] == "Compiling packages" && event["state"] == "finished");
    let mut names: Vec<String> =
        compiling.map(|event| event["task"].as_str().unwrap().split('/').next().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn only_what_jobs_need(scene: &Scene<'_>) {
    let task = scene.deploy(json!([group("both", 1, json!([job("kit", "foobar"), job("kit", "goobaz")]))]));
    assert_eq!(compiled(&task), ["bar", "base", "baz", "foo"]);
    assert_eq!(scene.names("both/0", "data/packages"), ["bar", "baz", "foo"]);
    assert_eq!(scene.read("both/0", "packages/foo/content"), "foo");
}

fn the_end_of_the_output(scene: &Scene<'_>) {
    let said = scene.refused(json!([group("fails", 1, json!([job("kit", "fails")]))]));
    for part in ["Truncated stdout: ", "Truncated stderr: ", "b\nb\n", "z\nz\n"] {
        assert!(said.contains(part), "{part:?} in {}", &said[..500]);
    }
    assert!(!said.contains("a\na\n") && !said.contains("n\nn\n"), "{}", &said[..500]);
    assert_eq!(scene.vms(), 0);
    assert!(scene.instances().iter().all(|instance| instance["job"] == "fails"), "{:?}", scene.instances());
}

/// A network with one address, in which workers are made; it may be for others.
fn narrow(scene: &Scene<'_>, statics: Value) -> Value {
    let mut config = scene.stand.cloud_config();
    let prefix = &scene.stand.site.prefix;
    config["networks"][1]["subnets"][0] = json!({
        "range": format!("{prefix}.128/30"), "gateway": format!("{prefix}.129"), "static": statics, "azs": ["z1"],
    });
    config["compilation"]["network"] = json!("other");
    config["compilation"]["workers"] = json!(1);
    config
}

fn no_address_for_workers(scene: &Scene<'_>) {
    let original = scene.stand.cloud_config();
    let prefix = &scene.stand.site.prefix;
    scene.stand.configure_cloud(&narrow(scene, json!([format!("{prefix}.130")])));
    let mut one = group("one", 1, json!([job("kit", "lone")]));
    one["networks"] = json!([{"name": "other", "static_ips": [format!("{prefix}.130")]}]);
    let said = scene.refused(json!([one]));
    scene.stand.configure_cloud(&original);
    assert!(said.contains("packages cannot be compiled: network 'other' has no free address"), "{said}");
    assert_eq!(scene.vms(), 0);
}

fn chained(scene: &Scene<'_>) -> Value {
    scene.manifest_of(&scene.name, &["chain"], json!([group("deps", 1, json!([job("chain", "transitive")]))]))
}

fn a_chain_is_compiled_again(scene: &Scene<'_>) {
    assert_eq!(compiled(&scene.deploy_manifest(&chained(scene))), ["a", "b", "c"]);
    assert_eq!(scene.read("deps/0", "packages/a/content"), "cba");
    assert_eq!(compiled(&scene.deploy_manifest(&chained(scene))), [""; 0]);
    scene.stand.upload(&chain("2", "C"));
    assert_eq!(compiled(&scene.deploy_manifest(&chained(scene))), ["a", "b", "c"]);
    assert_eq!(scene.read("deps/0", "packages/a/content"), "Cba");
}

fn a_chain_gets_shorter(scene: &Scene<'_>) {
    scene.deploy_manifest(&chained(scene));
    let needs = "set -e\ncat ${BOSH_INSTALL_TARGET%/*}/b/content content > $BOSH_INSTALL_TARGET/content\n";
    let shorter = Release::new("chain", "3")
        .job(Job::new("transitive", "packages: [a]"))
        .package(Package::new("a", &["b"], "a").packaging(needs))
        .package(Package::new("b", &[], "B"));
    scene.stand.upload(&shorter);
    let task = scene.deploy_manifest(&chained(scene));
    assert_eq!(compiled(&task), ["a", "b"], "{}", message(&task));
    assert_eq!(scene.read("deps/0", "packages/a/content"), "Ba");
}

fn an_address_is_free_again(scene: &Scene<'_>) {
    scene.stand.configure_cloud(&narrow(scene, json!([])));
    let said = scene.refused(json!([group("one", 1, json!([job("kit", "fails")]))]));
    assert!(said.contains("Compiling package fails"), "{said}");
    let task = scene.deploy(json!([group("one", 1, json!([job("kit", "lone")]))]));
    scene.stand.configure_cloud(&scene.stand.cloud_config());
    assert_eq!(compiled(&task), ["lone"]);
}

fn workers_go(scene: &Scene<'_>) {
    let single = Release::new("single", "1").job(Job::new("single", "packages: [single]")).package(Package::new(
        "single",
        &[],
        "one",
    ));
    scene.stand.upload(&single);
    let before = scene.stand.site.in_cloud("vms").len();
    let groups = || json!([group("one", 1, json!([job("single", "single")]))]);
    let task = scene.deploy_manifest(&scene.manifest_of(&scene.name, &["single"], groups()));
    assert_eq!(compiled(&task), ["single"]);
    assert_eq!(scene.stand.site.in_cloud("vms").len(), before + 1);
    assert!(scene.instances().iter().all(|instance| instance["job"] == "one"));
    let other = scene.manifest_of(&scene.other("b"), &["single"], groups());
    assert_eq!(compiled(&scene.deploy_manifest(&other)), [""; 0]);
}
