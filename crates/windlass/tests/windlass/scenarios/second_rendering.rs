//! Templates are rendered for the plan, and once more with the addresses that a VM got. What only the second rendering finds leaves the
//! VM there, and the task says so.

use serde_json::json;

use super::release::{Job, Release};
use super::stand::{Scene, Stand, group, message, with};
use crate::api::client::Client;

const NO_RUBY: &str = "resurrector: {enabled: false}\nruby: none\n";

fn kit() -> Release {
    // Before a VM has an address, templates see this one.
    let late = |name, what: &str| {
        let template = format!("<%= spec.ip == '127.0.0.1' ? 'planned' : {what} %>");
        Job::new(name, "properties: {word: {}}").template("config.yml", &template)
    };
    Release::new("kit", "1").job(late("number", "spec.index.size")).job(late("word", "p('word')")).job(
        Job::new("counted", "").template("config.yml", "<% $renderings = ($renderings || 0) + 1 %><%= $renderings %>"),
    )
}

fn stand(settings: &str) -> Stand {
    let stand = Stand::with_settings(settings);
    let mut config = stand.cloud_config();
    let moving = json!({"name": "moving", "type": "dynamic", "subnets": [{"azs": ["z1", "z2"]}]});
    config["networks"].as_array_mut().unwrap().push(moving);
    stand.configure_cloud(&config);
    stand.upload(&kit());
    stand
}

#[test]
fn what_needs_ruby_only_with_its_address_keeps_the_vm_which_the_next_deploy_uses() {
    let mut stand = stand(NO_RUBY);
    let moving = json!({"networks": [{"name": "moving"}]});
    let groups = json!([with(group("web", 1, json!([{"name": "number", "release": "kit"}])), moving)]);
    let scene = Scene { stand: &stand, name: "late".to_owned() };
    let refused = scene.try_deploy(&scene.manifest(groups.clone()), "");
    assert_eq!(refused.state, "error", "{refused:?}");
    let said = message(&refused);
    let why = "job 'number' cannot be rendered: template 'config.yml.erb' (line 1) needs Ruby for 'size' of Integer";
    assert!(said.contains(why), "{said}");
    assert!(said.ends_with("The VM is kept. Once Ruby can be asked, deploy again."), "{said}");
    let vm = scene.instance("web/0")["cid"].clone();
    assert!(vm.is_string() && scene.vcap("web/0").exists(), "{vm}");

    std::fs::write(stand.site.state_dir().join("director.yml"), "resurrector: {enabled: false}\n").unwrap();
    stand.site.restart_director();
    stand.client = Client::at(&stand.site.state_dir());
    let scene = Scene { stand: &stand, name: "late".to_owned() };
    scene.deploy(groups);
    assert_eq!(scene.instance("web/0")["cid"], vm, "no other VM is made");
    assert_eq!(scene.read("web/0", "jobs/number/config.yml"), "8");
}

#[test]
fn what_is_wrong_only_with_its_address_keeps_the_vm_and_says_what_to_do() {
    let stand = stand(NO_RUBY);
    let scene = Scene { stand: &stand, name: "late".to_owned() };
    let groups = |properties| {
        let moving = json!({"networks": [{"name": "moving"}]});
        json!([with(group("web", 1, json!([{"name": "word", "release": "kit", "properties": properties}])), moving)])
    };
    let said = scene.refused(groups(json!({})));
    assert!(
        said.contains("Error filling in template 'config.yml.erb' (line 1: Can't find property '[\"word\"]')"),
        "{said}"
    );
    assert!(said.ends_with("The VM is kept. Mend what is wrong, and deploy again."), "{said}");
    let vm = scene.instance("web/0")["cid"].clone();
    scene.deploy(groups(json!({"word": "found"})));
    assert_eq!(scene.instance("web/0")["cid"], vm);
    assert_eq!(scene.read("web/0", "jobs/word/config.yml"), "found");
}

/// A global variable lives as long as the process.
#[test]
fn the_instances_of_a_deploy_share_a_ruby_and_no_other_deploy_asks_it() {
    let stand = stand("resurrector: {enabled: false}\n");
    let count = |scene: &Scene<'_>| {
        let numbers = ["web/0", "web/1", "web/2"].map(|name| scene.read(name, "jobs/counted/config.yml"));
        let mut numbers = numbers.map(|number| number.parse::<u32>().unwrap());
        numbers.sort_unstable();
        numbers
    };
    for deployment in ["first", "second"] {
        let scene = Scene { stand: &stand, name: deployment.to_owned() };
        scene.deploy(json!([group("web", 3, json!([{"name": "counted", "release": "kit"}]))]));
        assert_eq!(count(&scene), [1, 2, 3], "{deployment}");
    }
}
