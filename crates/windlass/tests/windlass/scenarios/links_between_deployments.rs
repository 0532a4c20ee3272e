//! Links from one deployment to another, each recorded under a name of its own.

use serde_json::{Value, json};

use super::release::{Job, Release};
use super::stand::{Scene, Stand, group, message, with};

super::scenarios! {
    "links/cross_deployment_spec.rb": "should successfully use the shared link" =>
        "a deployment that consumes a shared link has the other's instance", a_shared_link_is_used;
    "links/cross_deployment_spec.rb": "allows access to bootstrap node" =>
        "each instance of the consumer sees the same bootstrap instance of the provider", the_bootstrap_instance_is_seen;
    "links/cross_deployment_spec.rb": "should preserve the old link information (stopped and started)" =>
        "a consumer keeps its file over a hard stop and a start, after its provider ceased to share", a_stop_keeps_the_link;
    "links/cross_deployment_spec.rb": "should fail to resolve the link" =>
        "a deploy of the consumer is refused once the provider does not share any more", not_shared_any_more;
    "links/cross_deployment_spec.rb": "causes the consumer to fail gracefully" =>
        "a provider that was never deployed is none, and the refusal says so", a_provider_that_failed;
    "links/cross_deployment_spec.rb": "should use user specified network from provider job" =>
        "the network that a consumer names is that of the other deployment's provider", a_network_of_the_other;
    "links/cross_deployment_spec.rb": "raises an error" =>
        "a network that the other deployment's provider does not have is refused, with the provider's place", a_wrong_network_of_the_other;
    "links/cross_deployment_spec.rb": "should raise an error" =>
        "a link that is not shared is no provider for others", not_shared;
    "links/cross_deployment_spec.rb": "should create a new links which use new network addresses" =>
        "when both move to other networks, the consumer gets another link with another address", networks_change;
    "links/consuming_and_providing_spec.rb": "should fail to create the link (shared from another deployment)" =>
        "a shared link of another type is no provider", a_shared_type_must_fit;
    "links_api_spec.rb": "should become an orphaned link (with no provider) (when the shared provider deployment is removed)" =>
        "the consumer's link stays and has no provider", the_provider_is_deleted;
    "links_api_spec.rb": "should become an orphaned link (with no provider) (when the shared provider is removed)" =>
        "the consumer's link stays and has no provider when the job goes", the_providing_job_goes;
    "links_api_spec.rb": "should remove the link" =>
        "a consumer that goes takes its link along", the_consumer_goes;
}

const NODE: &str =
    "<% link('node').instances.each do |i| %><%= i.address %> <%= i.bootstrap %> <%= i.index %>\n<% end %>";

fn release() -> Release {
    Release::new("kit", "1")
        .job(Job::new("node", "provides: [{name: node, type: node}]"))
        .job(Job::new("stranger", "provides: [{name: node, type: stranger}]"))
        .job(Job::new("reader", "consumes: [{name: node, type: node}]").template("config.yml", NODE))
        .job(Job::new("idle", ""))
}

fn job(name: &str) -> Value {
    json!({"name": name, "release": "kit"})
}

#[test]
fn what_links_between_deployments_promise() {
    let stand = Stand::new();
    stand.upload(&release());
    stand.play(SCENARIOS);
}

/// The manifest of the deployment that provides.
fn provider(scene: &Scene<'_>, provides: Value) -> Value {
    let node = with(job("node"), json!({"provides": provides}));
    scene.manifest_of(&scene.other("first"), &["kit"], json!([group("node", 1, json!([node]))]))
}

fn shared(scene: &Scene<'_>) -> Value {
    provider(scene, json!({"node": {"shared": true}}))
}

/// The groups of the deployment that consumes, with something more about the link.
fn consumers(scene: &Scene<'_>, instances: usize, more: Value) -> Value {
    let link = with(json!({"from": "node", "deployment": scene.other("first")}), more);
    json!([group("reader", instances, json!([with(job("reader"), json!({"consumes": {"node": link}}))]))])
}

fn config(scene: &Scene<'_>, instance: &str) -> String {
    scene.read(instance, "jobs/reader/config.yml").trim().to_owned()
}

fn both(scene: &Scene<'_>) -> String {
    scene.deploy_manifest(&shared(scene));
    scene.deploy(consumers(scene, 1, json!({})));
    let expected = format!("{} true 0", scene.address_of(&scene.other("first"), "node/0"));
    assert_eq!(config(scene, "reader/0"), expected);
    expected
}

fn a_shared_link_is_used(scene: &Scene<'_>) {
    both(scene);
}

fn the_bootstrap_instance_is_seen(scene: &Scene<'_>) {
    let mut manifest = shared(scene);
    manifest["instance_groups"][0]["instances"] = json!(2);
    scene.deploy_manifest(&manifest);
    scene.deploy(consumers(scene, 2, json!({})));
    let bootstrap = format!("{} true", scene.address_of(&scene.other("first"), "node/0"));
    for instance in ["reader/0", "reader/1"] {
        let seen = config(scene, instance);
        assert!(seen.contains(&bootstrap) && seen.matches("true").count() == 1, "{seen}");
    }
}

fn a_stop_keeps_the_link(scene: &Scene<'_>) {
    let before = both(scene);
    scene.deploy_manifest(&provider(scene, json!({"node": {"shared": false}})));
    scene.changed("*", "state=detached");
    scene.changed("*", "state=started");
    assert_eq!(config(scene, "reader/0"), before);
}

fn not_shared_any_more(scene: &Scene<'_>) {
    both(scene);
    scene.deploy_manifest(&provider(scene, json!({"node": {"shared": false}})));
    let said = scene.refused(consumers(scene, 1, json!({})));
    let expected =
        "Failed to resolve link 'node' with type 'node' from job 'reader' in instance group 'reader'. Details below:";
    assert!(said.contains(expected) && said.contains("- No link providers found"), "{said}");
}

fn a_provider_that_failed(scene: &Scene<'_>) {
    let mut manifest = shared(scene);
    manifest["instance_groups"][0]["azs"] = json!(["unknown_az"]);
    assert_eq!(scene.try_deploy(&manifest, "").state, "error");
    let said = scene.refused(consumers(scene, 1, json!({"network": "default"})));
    assert!(said.contains("Failed to resolve link 'node' with type 'node' from job 'reader'"), "{said}");
    assert!(scene.instances().is_empty());
}

fn in_two_networks(scene: &Scene<'_>) -> Value {
    let mut manifest = shared(scene);
    manifest["instance_groups"][0]["networks"] =
        json!([{"name": "default", "default": ["dns", "gateway"]}, {"name": "other"}]);
    manifest
}

fn a_network_of_the_other(scene: &Scene<'_>) {
    scene.deploy_manifest(&in_two_networks(scene));
    scene.deploy(consumers(scene, 1, json!({"network": "other"})));
    let address = config(scene, "reader/0").split(' ').next().unwrap().to_owned();
    assert!(address.rsplit('.').next().unwrap().parse::<u8>().unwrap() > 128, "{address}");
    scene.deploy(consumers(scene, 1, json!({})));
    assert_ne!(config(scene, "reader/0").split(' ').next().unwrap(), address);
}

fn a_wrong_network_of_the_other(scene: &Scene<'_>) {
    scene.deploy_manifest(&shared(scene));
    let said = scene.refused(consumers(scene, 1, json!({"network": "invalid-network"})));
    let expected = format!(
        "- Link provider 'node' from job 'node' in instance group 'node' in deployment '{}' does not belong to network 'invalid-network'",
        scene.other("first")
    );
    assert!(said.contains(&expected), "{said}");
}

fn not_shared(scene: &Scene<'_>) {
    scene.deploy_manifest(&provider(scene, json!({})));
    let said = scene.refused(consumers(scene, 1, json!({})));
    assert!(said.contains("- No link providers found"), "{said}");
}

fn networks_change(scene: &Scene<'_>) {
    let before = both(scene);
    let links = || scene.client().get(&format!("/links?deployment={}", scene.name));
    let link = links()[0]["id"].clone();
    let mut manifest = shared(scene);
    manifest["instance_groups"][0]["networks"] = json!([{"name": "other"}]);
    scene.deploy_manifest(&manifest);
    let mut groups = consumers(scene, 1, json!({}));
    groups[0]["networks"] = json!([{"name": "other"}]);
    scene.deploy(groups);
    assert_ne!(config(scene, "reader/0"), before);
    let now = links();
    assert_eq!(now.as_array().unwrap().len(), 1, "{now}");
    assert_ne!(now[0]["id"], link);
}

fn a_shared_type_must_fit(scene: &Scene<'_>) {
    let stranger = with(job("stranger"), json!({"provides": {"node": {"shared": true}}}));
    let groups = json!([group("node", 1, json!([stranger]))]);
    scene.deploy_manifest(&scene.manifest_of(&scene.other("first"), &["kit"], groups));
    let said = scene.refused(consumers(scene, 1, json!({})));
    assert!(said.contains("- No link providers found"), "{said}");
}

fn orphaned(scene: &Scene<'_>) {
    let links = scene.client().get(&format!("/links?deployment={}", scene.name));
    assert_eq!(links.as_array().unwrap().len(), 1, "{links}");
    assert_eq!(links[0]["link_provider_id"], Value::Null, "{links}");
}

fn the_provider_is_deleted(scene: &Scene<'_>) {
    both(scene);
    let task = scene.client().task("DELETE", &format!("/deployments/{}", scene.other("first")), "", "");
    assert_eq!(task.state, "done", "{}", message(&task));
    orphaned(scene);
}

fn the_providing_job_goes(scene: &Scene<'_>) {
    both(scene);
    let groups = json!([group("node", 1, json!([job("idle")]))]);
    scene.deploy_manifest(&scene.manifest_of(&scene.other("first"), &["kit"], groups));
    orphaned(scene);
}

fn the_consumer_goes(scene: &Scene<'_>) {
    both(scene);
    scene.deploy(json!([group("reader", 1, json!([job("idle")]))]));
    assert_eq!(scene.client().get(&format!("/links?deployment={}", scene.name)), json!([]));
    assert_eq!(scene.client().get(&format!("/link_consumers?deployment={}", scene.name)), json!([]));
}
