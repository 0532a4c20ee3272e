//! Links within a deployment.

use serde_json::{Value, json};

use super::release::{Job, Release};
use super::stand::{Scene, Stand, group, with};

super::scenarios! {
    "links/aliased_links_spec.rb": "renders link data in job template" =>
        "a consumer's file has id, name, index and address of the instance behind an alias", an_alias_is_followed;
    "links/aliased_links_spec.rb": "each job should get the correct link (same name, provided by a different job on the same instance group)" =>
        "two jobs of one group, which consume links of one name, each have the properties of their own provider", jobs_have_links_of_their_own;
    "links/aliased_links_spec.rb": "each job should get the correct link (two links of the same type, provided by the same job on different instance groups)" =>
        "one job has the properties of two groups with one provider each", one_job_has_two_links;
    "links/aliased_links_spec.rb": "throws an error before deploying vms" =>
        "a link that is consumed by a name that its provider changed is refused, and there is no instance", an_old_name_is_refused;
    "links/broken_links_spec.rb": "should raise an error listing all issues before updating vms" =>
        "two ambiguous links are told together, each with its two providers, and there is no instance", all_ambiguities_are_told;
    "links/broken_links_spec.rb": "performing a restart uses the last known successfully deployed links" =>
        "after a deploy that was refused, a restart succeeds and the consumer's file is as before", a_restart_keeps_links;
    "links/consuming_and_providing_spec.rb": "should NOT be able to reach the links from the co-located job" =>
        "a job that consumes nothing cannot render a link of its neighbour: line and link are named", neighbours_links_are_not_seen;
    "links/consuming_and_providing_spec.rb": "should deploy successfully with correct link selection" =>
        "a template that wants two instances of its provider renders with two, fails with three, and renders with two again", a_template_counts_instances;
    "links/consuming_and_providing_spec.rb": "should deploy and run errand (when provider jobs is removed, with an optional link)" =>
        "an errand sees its optional link, and another one once the provider is gone, also after a recreate", an_optional_link_goes;
    "links/consuming_and_providing_spec.rb": "should fail to create the link" =>
        "an alias of another type is no provider", a_type_must_fit;
    "links/consuming_and_providing_spec.rb": "can resolve the links" =>
        "of two providers the one that is not set to nil is taken", a_provider_that_is_nil_is_none;
    "links/errand_links_spec.rb": "should deploy successfully" =>
        "a group with the life cycle errand may have a job that provides a link which nobody consumes", an_errand_may_provide;
    "links/link_parse_validation_spec.rb": "should warn the about the rogue consumer" =>
        "a link in the manifest that the job does not consume is told as a warning that names job and link", a_rogue_consumer_is_told;
    "links/link_parse_validation_spec.rb": "should warn the about the rogue provider" =>
        "a link in the manifest that the job does not provide is told as a warning that names job and link", a_rogue_provider_is_told;
    "links/link_properties_spec.rb": "should not raise an error when consuming links without properties" =>
        "properties of a provider without value or default are no error for consumers", properties_may_be_missing;
    "links/link_properties_spec.rb": "should not raise an error when a deployment template property is not defined in the release properties" =>
        "a property that the job does not have is ignored", properties_may_be_unknown;
    "links/link_properties_spec.rb": "should be able to resolve a manual configuration in a consumes link" =>
        "a link that is written out in the manifest gives its properties and instances", a_link_is_written_out;
    "links/network_resolution_spec.rb": "overrides the default network" =>
        "a consumer that names a network has the provider's address in it", a_network_is_chosen;
    "links/network_resolution_spec.rb": "raises an error if network name specified is not one of the networks on the link but redeploy is successful" =>
        "a network that the provider does not have is refused with the provider's place; without it the deploy succeeds", a_network_must_be_the_providers;
    "links/network_resolution_spec.rb": "uses the default network when multiple networks are available from link" =>
        "without a choice the address is that of the network with the gateway", the_default_network_is_taken;
    "links/network_resolution_spec.rb": "uses the default `addressable`" =>
        "a network that is the default for addresses is taken", addressable_is_taken;
    "links/optional_links_spec.rb": "throws an error if the optional link was not found" =>
        "an optional link that the manifest names must be there", an_optional_link_that_is_named_must_be_there;
    "links/optional_links_spec.rb": "should not throw an error if the optional link was not found" =>
        "an optional link that nobody provides and nobody names is left out", an_optional_link_may_be_missing;
    "links/optional_links_spec.rb": "should not render link data in job template (transitions from implicit to blocked)" =>
        "an optional link that becomes nil disappears from the file", an_optional_link_is_blocked;
    "links/optional_links_spec.rb": "should not render link data in job template (transitions from implicit to not consumable)" =>
        "an optional link whose provider becomes nil disappears from the file", an_optional_provider_is_blocked;
    "links/optional_links_spec.rb": "should throw an error" =>
        "a link that is not optional cannot be nil", a_needed_link_is_not_nil;
    "links/optional_links_spec.rb": "should respect their behavior" =>
        "`if_link` has the link, `else_if_link` and `else` what comes otherwise", if_link_and_else;
    "links/optional_links_spec.rb": "should throw a legitimate error if link was not found" =>
        "an optional link that is used without `if_link` is an error with template, line and link", a_missing_link_has_a_line;
    "links/optional_links_spec.rb": "fails when the consumed optional link `from` key is not explicitly set in the deployment manifest" =>
        "also an optional link may not be ambiguous", an_optional_link_is_not_ambiguous;
    "links/optional_links_spec.rb": "should fail when uploading the release" =>
        "a release whose job provides a link with the key `optional` is refused", no_optional_providers;
    "links_migrated_from_spec.rb": "deploys migrated_from jobs" =>
        "a consumer has the instances of a provider whose group was renamed, with the same ids", a_renamed_provider_is_found;
}

const MAIN: &str =
    "<% link('db').instances.each do |i| %><%= i.id %> <%= i.name %> <%= i.index %> <%= i.address %>\n<% end %>";
const BOTH: &str = "<%= link('db').p('foo') %> <%= link('backup_db').p('foo') %>";
const OPTIONAL: &str = "<% if_link('db') do |db| %>db <%= db.p('foo', 'no foo') %> <%= db.instances.length %><% end.else do %>none<% end %>";
const ELSE_IF: &str = "<% if_link('backup_db') do |db| %>backup <%= db.instances[0].name %><% end.else_if_link('db') do |db| %>main \
    <%= db.instances[0].name %><% end.else do %>nothing<% end %>";
const PROXY: &str = "<%= link('proxied_http_endpoint').p('listen_port') %>";
const ERRAND: &str = "#!/bin/sh\n<% if_link('provider') do |it| %>echo provider <%= it.instances[0].address %>\n<% end.else_if_link('db') do |it| %>\
    echo db <%= it.instances[0].address %>\n<% end %>";
const TWO: &str = "<%\nraise 'Expected exactly two instances of db in current deployment' unless link('db').instances.length == 2 %>ok";
const WRITTEN: &str = "<%= link('provider').p('a') %> <%= link('provider').p('nested.one') %> <%= link('provider').instances[0].address %>";

fn release() -> Release {
    let provides = |name: &str| {
        format!("properties: {{foo: {{default: usual}}}}\nprovides: [{{name: {name}, type: db, properties: [foo]}}]")
    };
    let endpoint = "properties: {listen_port: {default: 80}}\nprovides: [{name: http_endpoint, type: http_endpoint, properties: [listen_port]}]";
    let proxied = "consumes: [{name: proxied_http_endpoint, type: http_endpoint}]";
    Release::new("kit", "1")
        .job(Job::new("database", &provides("db")))
        .job(Job::new("backup_database", &provides("backup_db")))
        .job(Job::new("api", "consumes: [{name: db, type: db}]").template("config.yml", MAIN))
        .job(Job::new("api_of_two", "consumes: [{name: db, type: db}, {name: backup_db, type: db}]").template("config.yml", BOTH))
        .job(Job::new("optional", "consumes: [{name: db, type: db, optional: true}]").template("config.yml", OPTIONAL))
        .job(
            Job::new("else_if", "consumes: [{name: db, type: db, optional: true}, {name: backup_db, type: other, optional: true}]")
                .template("config.yml", ELSE_IF),
        )
        .job(Job::new("careless", "consumes: [{name: nowhere, type: nowhere, optional: true}]").template("config.yml", "\n\n<%= link('nowhere').p('x') %>"))
        .job(Job::new("api_server_2_instances", "consumes: [{name: db, type: db}]").template("config.yml", TWO))
        .job(Job::new("provider", "properties: {a: {default: 1}, b: {}, nested.one: {default: x}}\nprovides: [{name: provider, type: provider, properties: [a, b, nested.one]}]"))
        .job(Job::new("consumer", "consumes: [{name: provider, type: provider}]").template("config.yml", WRITTEN))
        .job(Job::new("app_server", "").template("config.yml", "\n<%= link('provider').p('a') %>"))
        .job(Job::new("http_server", endpoint))
        .job(Job::new("tcp_server", endpoint))
        .job(Job::new("http_proxy", proxied).template("config.yml", PROXY))
        .job(Job::new("tcp_proxy", proxied).template("config.yml", PROXY))
        .job(
            Job::new("errand", "consumes: [{name: provider, type: provider, optional: true}, {name: db, type: db, optional: true}]")
                .template("bin/run", ERRAND),
        )
}

fn job(name: &str) -> Value {
    json!({"name": name, "release": "kit"})
}

fn consuming(name: &str, links: Value) -> Value {
    with(job(name), json!({"consumes": links}))
}

fn providing(name: &str, links: Value) -> Value {
    with(job(name), json!({"provides": links}))
}

fn of_two_networks(group: Value, default_of_the_second: Value) -> Value {
    let first = if default_of_the_second == json!(["addressable"]) { json!(["dns", "gateway"]) } else { json!([]) };
    let mut networks = vec![json!({"name": "default"}), json!({"name": "other", "default": default_of_the_second})];
    if first != json!([]) {
        networks[0]["default"] = first;
    }
    with(group, json!({"networks": networks}))
}

#[test]
fn what_links_promise() {
    let stand = Stand::new();
    stand.upload(&release());
    stand.play(SCENARIOS);
}

const CONFIG: &str = "config.yml";

fn config(scene: &Scene<'_>, instance: &str, job: &str) -> String {
    scene.read(instance, &format!("jobs/{job}/{CONFIG}")).trim().to_owned()
}

fn an_alias_is_followed(scene: &Scene<'_>) {
    scene.deploy(json!([
        group("api", 1, json!([consuming("api", json!({"db": {"from": "link_alias"}}))])),
        group("postgres", 1, json!([providing("backup_database", json!({"backup_db": {"as": "link_alias"}}))])),
        group("mysql", 1, json!([job("database")])),
    ]));
    let instance = scene.instance("postgres/0");
    let expected = format!("{} postgres 0 {}", instance["id"].as_str().unwrap(), scene.address("postgres/0"));
    assert_eq!(config(scene, "api/0", "api"), expected);
}

fn jobs_have_links_of_their_own(scene: &Scene<'_>) {
    let server = |name: &str, port: u16, alias: &str| {
        with(providing(name, json!({"http_endpoint": {"as": alias}})), json!({"properties": {"listen_port": port}}))
    };
    let proxy = |name: &str, alias: &str| consuming(name, json!({"proxied_http_endpoint": {"from": alias}}));
    scene.deploy(json!([
        group("servers", 1, json!([server("http_server", 11111, "of_http"), server("tcp_server", 7777, "of_tcp")])),
        group("proxies", 1, json!([proxy("http_proxy", "of_http"), proxy("tcp_proxy", "of_tcp")])),
    ]));
    assert_eq!(config(scene, "proxies/0", "http_proxy"), "11111");
    assert_eq!(config(scene, "proxies/0", "tcp_proxy"), "7777");
}

fn one_job_has_two_links(scene: &Scene<'_>) {
    let provider = |name: &str, value: &str, alias: &str| {
        let job = providing("backup_database", json!({"backup_db": {"as": alias}}));
        group(name, 1, json!([with(job, json!({"properties": {"foo": value}}))]))
    };
    let consumer = consuming("api_of_two", json!({"db": {"from": "one"}, "backup_db": {"from": "two"}}));
    scene.deploy(json!([
        provider("first", "wow", "one"),
        provider("second", "omg", "two"),
        group("api", 1, json!([consumer]))
    ]));
    assert_eq!(config(scene, "api/0", "api_of_two"), "wow omg");
}

fn an_old_name_is_refused(scene: &Scene<'_>) {
    let said = scene.refused(json!([
        group("api", 1, json!([consuming("api", json!({"db": {"from": "backup_db"}}))])),
        group("postgres", 1, json!([providing("backup_database", json!({"backup_db": {"as": "link_alias"}}))])),
    ]));
    let expected = "Failed to resolve link 'db' with alias 'backup_db' and type 'db' from job 'api' in instance group 'api'. Details below:";
    assert!(said.contains(expected) && said.contains("- No link providers found"), "{said}");
    assert!(scene.instances().is_empty());
}

fn all_ambiguities_are_told(scene: &Scene<'_>) {
    let provider = |name: &str| group(name, 1, json!([providing("provider", json!({"provider": {"as": "alias1"}}))]));
    let said = scene.refused(json!([
        group("first_consumer", 1, json!([consuming("consumer", json!({"provider": {"from": "alias1"}}))])),
        group("second_consumer", 1, json!([job("consumer")])),
        provider("first_provider"),
        provider("second_provider"),
    ]));
    for (link, group) in [("'provider' with alias 'alias1'", "first_consumer"), ("'provider'", "second_consumer")] {
        let expected = format!(
            "Failed to resolve link {link} and type 'provider' from job 'consumer' in instance group '{group}'. Multiple link providers found:"
        );
        let expected = if link.contains("alias") { expected } else { expected.replace(" and type", " with type") };
        assert!(said.contains(&expected), "{said}");
    }
    for group in ["first_provider", "second_provider"] {
        let expected = format!(
            "- Link provider 'provider' with alias 'alias1' from job 'provider' in instance group '{group}' in deployment '{}'",
            scene.name
        );
        assert_eq!(said.matches(&expected).count(), 2, "{said}");
    }
    assert!(scene.instances().is_empty());
}

fn a_restart_keeps_links(scene: &Scene<'_>) {
    let groups = json!([group("api", 1, json!([job("api")])), group("db", 1, json!([job("database")]))]);
    scene.deploy(groups.clone());
    let before = config(scene, "api/0", "api");
    let mut broken = groups;
    broken[1]["azs"] = json!(["z4"]);
    assert!(scene.refused(broken).contains("z4"));
    scene.changed("*", "state=restart");
    assert_eq!(config(scene, "api/0", "api"), before);
    assert!(before.contains(&scene.address("db/0")));
}

fn neighbours_links_are_not_seen(scene: &Scene<'_>) {
    for jobs in
        [json!([job("provider"), job("app_server")]), json!([job("provider"), job("consumer"), job("app_server")])]
    {
        let said = scene.refused(json!([group("servers", 1, jobs)]));
        for part in [
            "Unable to render jobs for instance group 'servers'. Errors are:",
            "- Unable to render templates for job 'app_server'. Errors are:",
            "- Error filling in template 'config.yml.erb' (line 2: Can't find link 'provider')",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }
}

fn a_template_counts_instances(scene: &Scene<'_>) {
    let groups = |count: usize| json!([group("both", count, json!([job("api_server_2_instances"), job("database")]))]);
    scene.deploy(groups(2));
    let said = scene.refused(groups(3));
    assert!(said.contains("Error filling in template 'config.yml.erb' (line 2: Expected exactly two instances of db in current deployment)"), "{said}");
    scene.deploy(groups(2));
    assert_eq!(config(scene, "both/1", "api_server_2_instances"), "ok");
}

fn an_optional_link_goes(scene: &Scene<'_>) {
    let says = |word: &str| {
        let (_, results) = scene.errand("errand", json!({}));
        let expected = format!("{word} {}\n", scene.address("all/0"));
        assert_eq!(results[0]["stdout"], expected.as_str(), "{results:?}");
    };
    scene.deploy(json!([group("all", 1, json!([job("database"), job("errand"), job("provider")]))]));
    says("provider");
    scene.deploy(json!([group("all", 1, json!([job("database"), job("errand")]))]));
    says("db");
    scene.changed("all/0", "state=recreate");
    says("db");
}

fn a_type_must_fit(scene: &Scene<'_>) {
    let said = scene.refused(json!([
        group("api", 1, json!([consuming("api", json!({"db": {"from": "bar"}}))])),
        group("provider", 1, json!([providing("provider", json!({"provider": {"as": "bar"}}))])),
    ]));
    let expected = "Failed to resolve link 'db' with alias 'bar' and type 'db' from job 'api' in instance group 'api'. Details below:";
    assert!(said.contains(expected) && said.contains("- No link providers found"), "{said}");
}

fn a_provider_that_is_nil_is_none(scene: &Scene<'_>) {
    scene.deploy(json!([
        group("api", 1, json!([job("api")])),
        group("mysql", 1, json!([providing("database", json!({"db": "nil"}))])),
        group("postgres", 1, json!([job("backup_database")])),
    ]));
    assert!(config(scene, "api/0", "api").ends_with(&scene.address("postgres/0")));
}

fn an_errand_may_provide(scene: &Scene<'_>) {
    scene.deploy(json!([with(group("once", 1, json!([job("provider")])), json!({"lifecycle": "errand"}))]));
    assert_eq!(scene.vms(), 0);
}

fn warnings(task: &crate::api::client::Task) -> String {
    let warned = task.events.iter().filter(|event| event["type"] == "warning");
    warned.map(|event| event["message"].as_str().unwrap_or_default().to_owned() + "\n").collect()
}

fn a_rogue_consumer_is_told(scene: &Scene<'_>) {
    let groups = json!([group("one", 1, json!([consuming("optional", json!({"link_that_does_not_exist": {}}))]))]);
    let said = warnings(&scene.deploy(groups));
    assert!(
        said.contains("Job 'optional' does not define link consumer 'link_that_does_not_exist' in the release spec"),
        "{said}"
    );
}

fn a_rogue_provider_is_told(scene: &Scene<'_>) {
    let groups = json!([group("one", 1, json!([providing("provider", json!({"link_that_does_not_exist": {}}))]))]);
    let said = warnings(&scene.deploy(groups));
    assert!(
        said.contains("Job 'provider' does not define link provider 'link_that_does_not_exist' in the release spec"),
        "{said}"
    );
}

fn properties_may_be_missing(scene: &Scene<'_>) {
    let provider = with(job("provider"), json!({"properties": {"a": "deployment_a"}}));
    scene.deploy(json!([group("both", 1, json!([provider, job("consumer")]))]));
    assert_eq!(config(scene, "both/0", "consumer"), format!("deployment_a x {}", scene.address("both/0")));
}

fn properties_may_be_unknown(scene: &Scene<'_>) {
    let provider = with(job("provider"), json!({"properties": {"doesntExist": "someValue"}}));
    scene.deploy(json!([group("jobby", 1, json!([provider]))]));
}

fn a_link_is_written_out(scene: &Scene<'_>) {
    let link = json!({
        "properties": {"a": 2, "b": 3, "nested": {"one": "three"}},
        "instances": [{"name": "external_db", "address": "192.168.15.4"}],
    });
    scene.deploy(json!([group("property_job", 1, json!([consuming("consumer", json!({"provider": link}))]))]));
    assert_eq!(config(scene, "property_job/0", "consumer"), "2 three 192.168.15.4");
}

fn addresses_in_both(scene: &Scene<'_>, instance: &str) -> (String, String) {
    let ips: Vec<String> =
        scene.instance(instance)["ips"].as_array().unwrap().iter().map(|ip| ip.as_str().unwrap().to_owned()).collect();
    let in_other = |ip: &String| ip.rsplit('.').next().unwrap().parse::<u8>().unwrap() > 128;
    let find = |other: bool| ips.iter().find(|ip| in_other(ip) == other).cloned().unwrap_or_default();
    (find(false), find(true))
}

fn a_network_is_chosen(scene: &Scene<'_>) {
    for (network, second) in [("default", false), ("other", true)] {
        let link = json!({"db": {"from": "db", "network": network}});
        scene.deploy(json!([
            group("api", 1, json!([consuming("api", link)])),
            of_two_networks(group("mysql", 1, json!([job("database")])), json!(["dns", "gateway"])),
        ]));
        let (in_default, in_other) = addresses_in_both(scene, "mysql/0");
        let expected = if second { in_other } else { in_default };
        assert!(config(scene, "api/0", "api").ends_with(&expected), "{network}: {}", config(scene, "api/0", "api"));
    }
}

fn a_network_must_be_the_providers(scene: &Scene<'_>) {
    let groups = |link: Value| {
        json!([
            group("api", 1, json!([consuming("api", json!({"db": link}))])),
            group("mysql", 1, json!([job("database")]))
        ])
    };
    // One that nobody has, and one that only the provider does not have.
    for network in ["invalid_network", "other"] {
        let said = scene.refused(groups(json!({"from": "db", "network": network})));
        let link = "Failed to resolve link 'db' with type 'db' from job 'api' in instance group 'api'. Details below:";
        let detail = format!(
            "- Link provider 'db' from job 'database' in instance group 'mysql' in deployment '{}' does not belong to network '{network}'",
            scene.name
        );
        assert!(said.contains(link) && said.contains(&detail), "{said}");
    }
    scene.deploy(groups(json!({"from": "db"})));
}

fn the_default_network_is_taken(scene: &Scene<'_>) {
    scene.deploy(json!([
        group("api", 1, json!([job("api")])),
        of_two_networks(group("mysql", 1, json!([job("database")])), json!(["dns", "gateway"])),
    ]));
    assert!(config(scene, "api/0", "api").ends_with(&addresses_in_both(scene, "mysql/0").1));
}

fn addressable_is_taken(scene: &Scene<'_>) {
    scene.deploy(json!([
        group("api", 1, json!([job("api")])),
        of_two_networks(group("mysql", 1, json!([job("database")])), json!(["addressable"])),
    ]));
    assert!(config(scene, "api/0", "api").ends_with(&addresses_in_both(scene, "mysql/0").1));
}

fn an_optional_link_that_is_named_must_be_there(scene: &Scene<'_>) {
    let said = scene.refused(json!([group(
        "my_api",
        1,
        json!([consuming("optional", json!({"db": {"from": "backup_db"}}))])
    )]));
    let expected = "Failed to resolve link 'db' with alias 'backup_db' and type 'db' from job 'optional' in instance group 'my_api'. Details below:";
    assert!(said.contains(expected) && said.contains("- No link providers found"), "{said}");
}

fn an_optional_link_may_be_missing(scene: &Scene<'_>) {
    scene.deploy(json!([group("my_api", 1, json!([job("optional")]))]));
    assert_eq!(config(scene, "my_api/0", "optional"), "none");
}

fn an_optional_link_is_blocked(scene: &Scene<'_>) {
    let groups = |link: Value| {
        json!([group("my_api", 1, json!([consuming("optional", link)])), group("mysql", 1, json!([job("database")]))])
    };
    for link in [json!({}), json!({"db": {"from": "db"}})] {
        scene.deploy(groups(link));
        assert_eq!(config(scene, "my_api/0", "optional"), "db usual 1");
        scene.deploy(groups(json!({"db": "nil"})));
        assert_eq!(config(scene, "my_api/0", "optional"), "none");
    }
}

fn an_optional_provider_is_blocked(scene: &Scene<'_>) {
    let groups = |provided: Value| {
        json!([
            group("my_api", 1, json!([job("optional")])),
            group("mysql", 1, json!([providing("database", provided)]))
        ])
    };
    scene.deploy(groups(json!({})));
    assert_eq!(config(scene, "my_api/0", "optional"), "db usual 1");
    scene.deploy(groups(json!({"db": "nil"})));
    assert_eq!(config(scene, "my_api/0", "optional"), "none");
}

fn a_needed_link_is_not_nil(scene: &Scene<'_>) {
    let said = scene.refused(json!([
        group("my_api", 1, json!([consuming("api", json!({"db": "nil"}))])),
        group("mysql", 1, json!([job("database")])),
    ]));
    let expected =
        "Failed to resolve link 'db' with type 'db' from job 'api' in instance group 'my_api'. Details below:";
    assert!(said.contains(expected) && said.contains("- No link providers found"), "{said}");
}

fn if_link_and_else(scene: &Scene<'_>) {
    let api = group("my_api", 1, json!([job("else_if")]));
    scene.deploy(json!([api]));
    assert_eq!(config(scene, "my_api/0", "else_if"), "nothing");
    scene.deploy(json!([api, group("mysql", 1, json!([job("database")]))]));
    assert_eq!(config(scene, "my_api/0", "else_if"), "main mysql");
}

fn a_missing_link_has_a_line(scene: &Scene<'_>) {
    let said = scene.refused(json!([group("my_api", 1, json!([job("careless")]))]));
    assert!(
        said.contains("- Error filling in template 'config.yml.erb' (line 3: Can't find link 'nowhere')"),
        "{said}"
    );
}

fn an_optional_link_is_not_ambiguous(scene: &Scene<'_>) {
    let said = scene.refused(json!([
        group("optional_db", 1, json!([job("optional")])),
        group("mysql", 1, json!([job("database")])),
        group("postgres", 1, json!([job("backup_database")])),
    ]));
    let expected = "Failed to resolve link 'db' with type 'db' from job 'optional' in instance group 'optional_db'. Multiple link providers found:";
    assert!(said.contains(expected), "{said}");
    assert!(
        said.contains(
            "- Link provider 'backup_db' from job 'backup_database' in instance group 'postgres' in deployment"
        ),
        "{said}"
    );
}

fn no_optional_providers(scene: &Scene<'_>) {
    let wrong =
        Release::new("wrong", "1").job(Job::new("node", "provides: [{name: node1, type: node1, optional: true}]"));
    let task = scene.stand.try_upload(wrong.tarball(), "");
    assert_eq!(task.state, "error");
    let said = super::stand::message(&task);
    assert!(
        said.contains("Link 'node1' of type 'node1' is a provides link, not allowed to have 'optional' key"),
        "{said}"
    );
}

fn a_renamed_provider_is_found(scene: &Scene<'_>) {
    let api = group("api", 1, json!([job("api")]));
    scene.deploy(json!([api, group("old_db", 2, json!([job("database")]))]));
    let before = config(scene, "api/0", "api");
    let new = with(group("new_db", 2, json!([job("database")])), json!({"migrated_from": [{"name": "old_db"}]}));
    scene.deploy(json!([api, new]));
    assert_eq!(config(scene, "api/0", "api"), before.replace("old_db", "new_db"));
}
