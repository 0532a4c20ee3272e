//! What the API tells of links, and links that others ask for.

use serde_json::{Value, json};

use super::release::{Job, Release};
use super::stand::{Scene, Stand, group, with};

super::scenarios! {
    "links_api_spec.rb": "should return the correct number of providers" =>
        "a provider has its name, definition, owner and deployment", a_provider_is_listed;
    "links_api_spec.rb": "should set the `shared` key to true" =>
        "a shared provider is shown as shared, under its alias", a_shared_provider_is_listed;
    "links_api_spec.rb": "should return the original provider with updated information" =>
        "a provider with a new alias keeps its id", a_provider_keeps_its_id;
    "links_api_spec.rb": "should create a provider" =>
        "a custom provider definition is a provider of its job", a_custom_provider_is_listed;
    "links_api_spec.rb": "should return the disk providers" =>
        "each disk with a name provides a link of the type disk", disks_are_providers;
    "links_api_spec.rb": "should return all providers" =>
        "providers of one name in two groups are two", providers_of_one_name;
    "links_api_spec.rb": "should return an empty list of providers" =>
        "a deployment without links has no providers, consumers and links", nothing_is_an_empty_list;
    "links_api_spec.rb": "should raise an error (deployment is not specified)" =>
        "without a deployment the answer says that one is required", a_deployment_is_required;
    "links_api_spec.rb": "should still create a consumer" =>
        "an optional consumer is listed as optional", an_optional_consumer_is_listed;
    "links_api_spec.rb": "should reuse the same consumers" =>
        "a consumer keeps its id when its provider is another one", a_consumer_keeps_its_id;
    "links_api_spec.rb": "should return the correct number of links" =>
        "provider and consumer of one group have one link with both ids", a_link_has_both_ids;
    "links_api_spec.rb": "should create a link" =>
        "a custom provider satisfies a consumer", a_custom_provider_is_consumed;
    "links_api_spec.rb": "should have one link for each disk being consumed" =>
        "a job that consumes two disks has two links", disks_are_consumed;
    "links_api_spec.rb": "should not create a new link (redeploying no changes)" =>
        "provider, consumer and link are the same after another deploy and after a recreate", nothing_changes;
    "links_api_spec.rb": "should reuse the old links" =>
        "another alias of the same content keeps the link's id", another_alias_keeps_the_link;
    "links_api_spec.rb": "should remove the old link and make a new one" =>
        "more instances of the provider make another link", more_instances_make_another_link;
    "links_api_spec.rb": "provide link json output" =>
        "a link that somebody outside asks for has the provider's own name and its id", a_link_is_asked_for;
    "links_api_spec.rb": "create consumer_intent" =>
        "it has a consumer of the type external", it_has_a_consumer;
    "links_api_spec.rb": "keeps the consumer and link after redeploy" =>
        "both are there after a deploy", it_outlives_a_deploy;
    "links_api_spec.rb": "should NOT create new link" =>
        "asked again, it is the same; with another network it is another", asked_twice;
    "links_api_spec.rb": "should returns error" =>
        "a provider that is not shared is refused with BOSH's code and words", a_private_provider_is_refused;
    "links_api_spec.rb": "returns error" =>
        "an unknown provider, none at all, and a consumer without a name are each refused in BOSH's words", wrong_requests_are_refused;
    "links_api_spec.rb": "return error" =>
        "a network that the provider does not have is refused with the provider and the consumer", a_wrong_network_is_refused;
    "links_api_spec.rb": "performs a successful delete when link exists" =>
        "a link that was asked for is deleted with 204", it_is_deleted;
    "links_api_spec.rb": "raises error if link does not exist" =>
        "the second time it is 404 with BOSH's code and words", it_is_deleted_once;
    "links_api_spec.rb": "should raise an error (requesting for unknown link id)" =>
        "the address of an unknown link is 404", the_address_of_nothing;
    "links_api_spec.rb": "provides the address of the manual link" =>
        "the address that the manifest gives is answered", the_address_of_a_manual_link;
}

fn release() -> Release {
    let provides = |name: &str| {
        format!("properties: {{a: {{default: 1}}}}\nprovides: [{{name: {name}, type: {name}, properties: [a]}}]")
    };
    let disks = "consumes: [{name: disk_provider, type: disk}, {name: backup_disk_provider, type: disk}]";
    Release::new("kit", "1")
        .job(Job::new("provider", &provides("provider")))
        .job(Job::new("mongo_db", &provides("read_only_db")))
        .job(
            Job::new("consumer", "consumes: [{name: provider, type: provider}]")
                .template("config.yml", "<%= link('provider').instances.length %>"),
        )
        .job(
            Job::new("optional", "consumes: [{name: db, type: db, optional: true}]")
                .template("config.yml", "<% if_link('db') do |db| %><%= db.instances.length %><% end %>"),
        )
        .job(Job::new("disk_consumer", disks).template(
            "config.yml",
            "<%= link('disk_provider').p('name') %> <%= link('backup_disk_provider').p('name') %>",
        ))
        .job(Job::new("idle", ""))
}

fn job(name: &str) -> Value {
    json!({"name": name, "release": "kit"})
}

#[test]
fn what_the_api_of_links_promises() {
    let stand = Stand::new();
    stand.upload(&release());
    stand.play(SCENARIOS);
}

fn deploy(scene: &Scene<'_>, jobs: Value) {
    scene.deploy(json!([group("foobar", 1, jobs)]));
}

fn list(scene: &Scene<'_>, kind: &str) -> Vec<Value> {
    scene.client().get(&format!("/{kind}?deployment={}", scene.name)).as_array().unwrap().clone()
}

fn id(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}

/// An answer without its id, which must be a text.
fn without_id(mut value: Value) -> Value {
    id(&value);
    value.as_object_mut().unwrap().remove("id");
    value
}

fn provider(scene: &Scene<'_>, name: &str, definition: &str, owner: &str) -> Value {
    json!({
        "name": name, "shared": false, "deployment": scene.name,
        "link_provider_definition": {"name": definition, "type": definition},
        "owner_object": {"name": owner, "type": "job", "info": {"instance_group": "foobar"}},
    })
}

fn a_provider_is_listed(scene: &Scene<'_>) {
    deploy(scene, json!([job("provider")]));
    let expected = provider(scene, "provider", "provider", "provider");
    assert_eq!(list(scene, "link_providers").into_iter().map(without_id).collect::<Vec<_>>(), [expected]);
}

fn aliased(alias: &str, shared: bool) -> Value {
    with(job("provider"), json!({"provides": {"provider": {"as": alias, "shared": shared}}}))
}

fn from(alias: &str) -> Value {
    with(job("consumer"), json!({"consumes": {"provider": {"from": alias}}}))
}

fn a_shared_provider_is_listed(scene: &Scene<'_>) {
    deploy(scene, json!([aliased("foo", true)]));
    let expected = with(provider(scene, "foo", "provider", "provider"), json!({"shared": true}));
    assert_eq!(without_id(list(scene, "link_providers")[0].clone()), expected);
}

fn a_provider_keeps_its_id(scene: &Scene<'_>) {
    deploy(scene, json!([aliased("foo", false)]));
    let before = list(scene, "link_providers");
    deploy(scene, json!([aliased("bar", false)]));
    assert_eq!(list(scene, "link_providers"), [with(before[0].clone(), json!({"name": "bar"}))]);
}

fn custom(provides: Value, kind: &str) -> Value {
    let definitions = json!([{"name": "smurf", "type": kind}]);
    with(job("optional"), json!({"provides": provides, "custom_provider_definitions": definitions}))
}

fn a_custom_provider_is_listed(scene: &Scene<'_>) {
    deploy(scene, json!([custom(json!({"smurf": {"shared": true}}), "gargamel")]));
    let mut expected = with(provider(scene, "smurf", "smurf", "optional"), json!({"shared": true}));
    expected["link_provider_definition"]["type"] = json!("gargamel");
    assert_eq!(without_id(list(scene, "link_providers")[0].clone()), expected);
}

fn with_disks(jobs: Value) -> Value {
    let disks = json!([{"name": "low", "type": "disk"}, {"name": "high", "type": "larger"}]);
    json!([with(group("foobar", 1, jobs), json!({"persistent_disks": disks}))])
}

fn disks_are_providers(scene: &Scene<'_>) {
    scene.deploy(with_disks(json!([job("idle")])));
    let mut listed: Vec<Value> = list(scene, "link_providers").into_iter().map(without_id).collect();
    listed.sort_by_key(|provider| provider["name"].to_string());
    let expected = |name: &str| {
        let mut expected = provider(scene, name, name, "foobar");
        expected["link_provider_definition"]["type"] = json!("disk");
        expected["owner_object"]["type"] = json!("disk");
        expected
    };
    assert_eq!(listed, [expected("high"), expected("low")]);
}

fn providers_of_one_name(scene: &Scene<'_>) {
    scene.deploy(json!([group("foobar", 1, json!([job("provider")])), group("more", 1, json!([job("provider")]))]));
    let mut groups: Vec<String> = list(scene, "link_providers")
        .iter()
        .map(|it| it["owner_object"]["info"]["instance_group"].to_string())
        .collect();
    groups.sort();
    assert_eq!(groups, ["\"foobar\"", "\"more\""]);
}

fn nothing_is_an_empty_list(scene: &Scene<'_>) {
    deploy(scene, json!([job("idle")]));
    for kind in ["link_providers", "link_consumers", "links"] {
        assert!(list(scene, kind).is_empty(), "{kind}");
    }
}

fn a_deployment_is_required(scene: &Scene<'_>) {
    for kind in ["link_providers", "link_consumers", "links"] {
        let answer = scene.client().send("GET", &format!("/{kind}"), "", "");
        assert_eq!(answer.json()["description"], "Deployment name is required", "{kind}: {}", answer.text());
        assert_eq!(answer.json()["code"], 190024, "{kind}: {}", answer.text());
    }
}

fn an_optional_consumer_is_listed(scene: &Scene<'_>) {
    deploy(scene, json!([job("optional")]));
    let consumer = without_id(list(scene, "link_consumers")[0].clone());
    let expected = json!({
        "name": "db", "optional": true, "deployment": scene.name,
        "owner_object": {"name": "optional", "type": "job", "info": {"instance_group": "foobar"}},
        "link_consumer_definition": {"name": "db", "type": "db"},
    });
    assert_eq!(consumer, expected);
}

fn a_consumer_keeps_its_id(scene: &Scene<'_>) {
    deploy(scene, json!([aliased("foo", false), from("foo")]));
    let before = list(scene, "link_consumers");
    let other = group("more", 1, json!([aliased("bar", false)]));
    scene.deploy(json!([group("foobar", 1, json!([from("bar")])), other]));
    assert_eq!(id(&list(scene, "link_consumers")[0]), id(&before[0]));
}

fn a_link_has_both_ids(scene: &Scene<'_>) {
    for jobs in [json!([job("provider"), job("consumer")]), json!([aliased("foo", false), from("foo")])] {
        deploy(scene, jobs);
        let links = list(scene, "links");
        assert_eq!(links.len(), 1);
        assert_eq!(links[0]["name"], "provider");
        assert_eq!(links[0]["link_provider_id"], list(scene, "link_providers")[0]["id"]);
        assert_eq!(links[0]["link_consumer_id"], list(scene, "link_consumers")[0]["id"]);
        assert!(links[0]["created_at"].is_string(), "{links:?}");
    }
}

fn a_custom_provider_is_consumed(scene: &Scene<'_>) {
    deploy(scene, json!([custom(json!({}), "db")]));
    let links = list(scene, "links");
    assert_eq!((links.len(), &links[0]["name"]), (1, &json!("db")));
    assert_eq!(scene.read("foobar/0", "jobs/optional/config.yml").trim(), "1");
}

fn disks_are_consumed(scene: &Scene<'_>) {
    let consumes = json!({"disk_provider": {"from": "low"}, "backup_disk_provider": {"from": "high"}});
    scene.deploy(with_disks(json!([with(job("disk_consumer"), json!({"consumes": consumes}))])));
    let mut names: Vec<String> = list(scene, "links").iter().map(|link| link["name"].to_string()).collect();
    names.sort();
    assert_eq!(names, ["\"backup_disk_provider\"", "\"disk_provider\""]);
    assert_eq!(scene.read("foobar/0", "jobs/disk_consumer/config.yml").trim(), "low high");
}

fn nothing_changes(scene: &Scene<'_>) {
    let all = || ["link_providers", "link_consumers", "links"].map(|kind| list(scene, kind));
    let jobs = json!([aliased("foo", false), from("foo")]);
    deploy(scene, jobs.clone());
    let before = all();
    deploy(scene, jobs);
    assert_eq!(all(), before);
    scene.changed("*", "state=recreate");
    assert_eq!(all(), before);
}

fn another_alias_keeps_the_link(scene: &Scene<'_>) {
    deploy(scene, json!([aliased("foo", false), from("foo")]));
    let before = list(scene, "links");
    deploy(scene, json!([aliased("bar", false), from("bar")]));
    assert_eq!(list(scene, "links"), before);
}

fn more_instances_make_another_link(scene: &Scene<'_>) {
    let groups = |count: usize| json!([group("foobar", count, json!([aliased("foo", false), from("foo")]))]);
    scene.deploy(groups(1));
    let before = list(scene, "links");
    scene.deploy(groups(2));
    let after = list(scene, "links");
    assert_eq!(after.len(), 1, "{after:?}");
    assert_ne!(after[0]["id"], before[0]["id"]);
    assert_eq!(scene.read("foobar/0", "jobs/consumer/config.yml").trim(), "2");
}

fn ask(scene: &Scene<'_>, provider: &str, consumer: &str, network: Option<&str>) -> (u16, Value) {
    let mut body = json!({
        "link_provider_id": provider,
        "link_consumer": {"owner_object": {"name": consumer, "type": "external"}},
    });
    if let Some(network) = network {
        body["network"] = json!(network);
    }
    let answer = scene.client().send("POST", "/links", "application/json", body.to_string());
    (answer.status.as_u16(), answer.json())
}

/// A deployment with one provider; gives the provider's id.
fn mongo(scene: &Scene<'_>, shared: bool) -> String {
    let provides = json!({"read_only_db": {"as": "foo", "shared": shared}});
    let networks = json!([{"name": "default", "default": ["dns", "gateway"]}, {"name": "other"}]);
    let jobs = json!([with(job("mongo_db"), json!({"provides": provides}))]);
    scene.deploy(json!([with(group("foobar", 1, jobs), json!({"networks": networks}))]));
    id(&list(scene, "link_providers")[0])
}

fn a_link_is_asked_for(scene: &Scene<'_>) {
    let provider = mongo(scene, true);
    let (status, link) = ask(scene, &provider, "external_consumer_1", None);
    assert_eq!(status, 200, "{link}");
    assert_eq!((&link["name"], &link["link_provider_id"]), (&json!("read_only_db"), &json!(provider)));
}

fn it_has_a_consumer(scene: &Scene<'_>) {
    let provider = mongo(scene, true);
    ask(scene, &provider, "external_consumer_1", None);
    let consumer = list(scene, "link_consumers")[0].clone();
    assert_eq!(consumer["name"], "foo", "{consumer}");
    assert_eq!(consumer["deployment"], scene.name.as_str());
    assert_eq!(consumer["owner_object"]["type"], "external");
    assert_eq!(consumer["owner_object"]["info"], Value::Null);
    assert_eq!(consumer["link_consumer_definition"]["name"], "read_only_db");
}

fn it_outlives_a_deploy(scene: &Scene<'_>) {
    let provider = mongo(scene, true);
    ask(scene, &provider, "external_consumer_1", None);
    let before = (list(scene, "link_consumers"), list(scene, "links"));
    mongo(scene, true);
    assert_eq!((list(scene, "link_consumers"), list(scene, "links")), before);
}

fn asked_twice(scene: &Scene<'_>) {
    let provider = mongo(scene, true);
    let first = ask(scene, &provider, "external_consumer_1", None);
    assert_eq!(ask(scene, &provider, "external_consumer_1", None), first);
    let (status, other) = ask(scene, &provider, "external_consumer_1", Some("other"));
    assert_eq!(status, 200, "{other}");
    assert_ne!(other["id"], first.1["id"]);
}

fn a_private_provider_is_refused(scene: &Scene<'_>) {
    let provider = mongo(scene, false);
    let (_, said) = ask(scene, &provider, "external_consumer_1", None);
    assert_eq!((&said["code"], &said["description"]), (&json!(810009), &json!("Provider not `shared`")), "{said}");
}

fn wrong_requests_are_refused(scene: &Scene<'_>) {
    let provider = mongo(scene, true);
    let says = |provider: &str, consumer: &str| ask(scene, provider, consumer, None).1["description"].clone();
    assert_eq!(says("4200", "external_consumer_1"), "Invalid link_provider_id: 4200");
    assert_eq!(says("", "external_consumer_1"), "Invalid request: `link_provider_id` must be provided");
    assert_eq!(says(&provider, ""), "Invalid request: `link_consumer.owner_object.name` must not be empty");
}

fn a_wrong_network_is_refused(scene: &Scene<'_>) {
    let provider = mongo(scene, true);
    let (_, said) = ask(scene, &provider, "external_consumer_1", Some("invalid-network-name"));
    let expected =
        format!("Can't resolve network: `invalid-network-name` in provider id: {provider} for `external_consumer_1`");
    assert_eq!((&said["code"], &said["description"]), (&json!(810003), &json!(expected)), "{said}");
}

fn delete(scene: &Scene<'_>, link: &str) -> crate::api::client::Answer {
    scene.client().send("DELETE", &format!("/links/{link}"), "", "")
}

fn it_is_deleted(scene: &Scene<'_>) {
    let provider = mongo(scene, true);
    let (_, link) = ask(scene, &provider, "external_consumer_1", Some("default"));
    let answer = delete(scene, &id(&link));
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (204, ""));
    assert!(list(scene, "links").is_empty());
}

fn it_is_deleted_once(scene: &Scene<'_>) {
    let provider = mongo(scene, true);
    let (_, link) = ask(scene, &provider, "external_consumer_1", Some("default"));
    delete(scene, &id(&link));
    let answer = delete(scene, &id(&link));
    assert_eq!(answer.status.as_u16(), 404);
    let expected = format!("Invalid link id: {}", id(&link));
    assert_eq!((&answer.json()["code"], &answer.json()["description"]), (&json!(810000), &json!(expected)));
}

fn the_address_of_nothing(scene: &Scene<'_>) {
    assert_eq!(scene.client().send("GET", "/link_address?link_id=9999", "", "").status.as_u16(), 404);
}

fn the_address_of_a_manual_link(scene: &Scene<'_>) {
    let link = json!({
        "address": "192.168.1.254", "instances": [{"address": "a.example"}], "properties": {"a": "bar"},
    });
    deploy(scene, json!([with(job("consumer"), json!({"consumes": {"provider": link}}))]));
    let link = id(&list(scene, "links")[0]);
    assert_eq!(scene.client().get(&format!("/link_address?link_id={link}")), json!({"address": "192.168.1.254"}));
}
