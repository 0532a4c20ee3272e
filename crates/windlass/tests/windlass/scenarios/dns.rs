//! Names of instances: who is told them, and when templates see them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::release::{Job, Release};
use super::stand::{Scene, Stand, group, with};

super::scenarios! {
    "local_dns_spec.rb": "sends sync_dns action agent and updates /etc/hosts" =>
        "after a deploy the one instance has its own name in records and hosts file, with all thirteen keys", one_instance_knows_itself;
    "local_dns_spec.rb": "sends records for vms that have not yet been created" =>
        "a pre-start script of the first of two instances, which are updated one after the other, finds both names", scripts_find_all_names;
    "local_dns_spec.rb": "sends sync_dns action to all agents and updates agent dns config" =>
        "after scaling from one to four, every instance has the names of all four, in a newer version than before", names_grow;
    "local_dns_spec.rb": "deploys and downgrades with max_in_flight" =>
        "from four to two to three: the names that are gone are gone everywhere, and the version rises each time", names_shrink_and_grow;
    "local_dns_spec.rb": "updates /etc/hosts with the new info for an instance hostname" =>
        "after a recreate every instance has the agents of the new VMs", a_recreate_is_told;
    "local_dns_spec.rb": "uses an IP address by default (use_dns_addresses director flag is false by default)" =>
        "`spec.address` is an address", addresses_are_usual;
    "local_dns_spec.rb": "uses DNS address (when flag at deployment level is true)" =>
        "`spec.address` is the instance's long name";
    "local_dns_spec.rb": "renders with the same value (when instance is recreated)" =>
        "and the same after a recreate", templates_see_names;
    "local_dns_spec.rb": "uses DNS address (when deployment also specifies use_short_dns_addresses)" =>
        "`spec.address` is a short name, which the records know";
    "local_dns_spec.rb": "renders with short addresses still (when instance is recreated)" =>
        "and the same after a recreate", templates_see_short_names;
    "local_dns_spec.rb": "uses an IP address by default (when flag at deployment level is false)" =>
        "`spec.address` is an address where the manifest says so", addresses_are_asked_for;
    "links_local_dns_spec.rb": "outputs DNS address when accessing instance.address of the link" =>
        "a link's instances have names where the manifest wants them", links_have_names;
    "links_local_dns_spec.rb": "outputs ip addresses when accessing instance.address of the link" =>
        "and addresses for a consumer that asks for them with ip_addresses", a_consumer_asks_for_addresses;
    "links_local_dns_spec.rb": "outputs dns address when accessing instance.address of the link (ip_addresses explicitly FALSE)" =>
        "a consumer that wants no addresses has names", a_consumer_asks_for_names;
    "links_local_dns_spec.rb": "returns a query string for az and healthiness" =>
        "`link.address` has the numbers of the zones that are asked for, and the health", addresses_of_links_have_zones;
    "links_local_dns_spec.rb": "uses a short DNS name if manifest so indicates" =>
        "`link.address` is short, with the numbers of network and group that the records have", addresses_of_links_are_short;
    "links_local_dns_spec.rb": "uses a link DNS name if manifest so indicates" =>
        "`link.address` has the number of the link";
    "links_local_dns_spec.rb": "instances use a link DNS name if manifest so indicates" =>
        "and so has the address of each of its instances", addresses_are_of_links;
    "links_local_dns_spec.rb": "respects address provided in a manual link" =>
        "`link.address` is what the manifest says", a_given_address_stays;
    "links/dns_alias_spec.rb": "provides both aliases" =>
        "records have the aliases of two groups, both where they share a domain", aliases_are_told;
    "links/dns_alias_spec.rb": "provides the alias" =>
        "a custom link has a number that only the records of its group have", custom_links_have_numbers;
    "local_dns_spec.rb": "deploys and downgrades with max_in_flight (ordering of tombstone deletion)" =>
        "a deployment that is deleted raises the version for all others, which lose its names", a_deletion_is_told;
}

const OWN: &str = "<%= spec.address %>";
const LINK: &str = "<%= link('db').instances.map { |i| i.address }.join(' ') %>\n<%= link('db').address %>\n<%= link('db').address(azs: ['z1'], status: 'healthy') %>\n";
const WRITTEN: &str = "<%= link('db').address %>";

fn release() -> Release {
    Release::new("kit", "1")
        .job(Job::new("own", "").template("config.yml", OWN))
        .job(Job::new("looks", "").template(
            "bin/pre-start",
            "#!/bin/sh\nbase=${0%/jobs/*}\ncp \"$base/instance/dns/records.json\" \"$base/records-at-prestart.json\"\n",
        ))
        .job(Job::new("database", "provides: [{name: db, type: db}]").template("config.yml", OWN))
        .job(Job::new("api", "consumes: [{name: db, type: db}]").template("config.yml", LINK))
        .job(Job::new("given", "consumes: [{name: db, type: db}]").template("config.yml", WRITTEN))
}

#[test]
fn what_names_promise() {
    let stand = Stand::with_settings("resurrector: {enabled: false}\nlocal_dns: {enabled: true}\n");
    stand.upload(&release());
    stand.play(SCENARIOS);
}

fn job(name: &str) -> Value {
    json!([{"name": name, "release": "kit"}])
}

fn records(scene: &Scene<'_>, instance: &str) -> Value {
    serde_json::from_str(&scene.read(instance, "instance/dns/records.json")).unwrap_or_default()
}

/// The rows of this scenario's deployment, by key.
fn infos(scene: &Scene<'_>, records: &Value) -> Vec<Value> {
    let keys: Vec<&str> = records["record_keys"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let named = |row: &Value| -> Value {
        keys.iter().zip(row.as_array().unwrap()).map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
    };
    let rows = records["record_infos"].as_array().cloned().unwrap_or_default();
    rows.iter().map(named).filter(|row| row["deployment"] == scene.name.as_str()).collect()
}

/// The address and name of each instance, as the director tells them.
fn expected(scene: &Scene<'_>) -> Vec<String> {
    let name = |instance: &Value| {
        let part = |key: &str| instance[key].as_str().unwrap().to_owned();
        format!("{} {}.{}.default.{}.bosh", instance["ips"][0].as_str().unwrap(), part("id"), part("job"), scene.name)
    };
    let mut names: Vec<String> = scene.instances().iter().map(name).collect();
    names.sort();
    names
}

/// What one instance knows of this scenario's deployment: the long names of its hosts file.
fn known(scene: &Scene<'_>, instance: &str) -> Vec<String> {
    let hosts = scene.read(instance, "bosh/etc_hosts");
    let is_own = |line: &&str| line.ends_with(&format!(".{}.bosh", scene.name)) && !line.contains(" q-");
    let mut names: Vec<String> = hosts.lines().filter(is_own).map(str::to_owned).collect();
    names.sort();
    names
}

/// The same in its records, which an agent writes last.
fn recorded(scene: &Scene<'_>, instance: &str) -> Vec<String> {
    let records = records(scene, instance);
    let pairs = records["records"].as_array().into_iter().flatten();
    let line = |pair: &Value| format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
    let mut names: Vec<String> =
        pairs.map(line).filter(|line| line.ends_with(&format!(".{}.bosh", scene.name))).collect();
    names.sort();
    names
}

/// Agents that a task does not wait for are told beside it.
fn soon(what: &str, is_true: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn everybody_knows_everybody(scene: &Scene<'_>) {
    for instance in scene.instances() {
        let name = format!("{}/{}", instance["job"].as_str().unwrap(), instance["index"]);
        let wanted = expected(scene);
        soon(&format!("{name} does not have the names"), || {
            known(scene, &name) == wanted && recorded(scene, &name) == wanted
        });
    }
}

fn version(scene: &Scene<'_>, instance: &str) -> u64 {
    records(scene, instance)["version"].as_u64().unwrap_or_default()
}

fn config(scene: &Scene<'_>, instance: &str, job: &str) -> String {
    scene.read(instance, &format!("jobs/{job}/config.yml")).trim().to_owned()
}

fn with_features(scene: &Scene<'_>, groups: Value, features: Value) -> Value {
    with(scene.manifest(groups), json!({"features": features}))
}

fn id(scene: &Scene<'_>, instance: &str) -> String {
    scene.instance(instance)["id"].as_str().unwrap().to_owned()
}

fn one_instance_knows_itself(scene: &Scene<'_>) {
    scene.deploy(json!([group("web", 1, job("own"))]));
    everybody_knows_everybody(scene);
    let records = records(scene, "web/0");
    let row = &infos(scene, &records)[0];
    assert_eq!(row.as_object().unwrap().len(), 13);
    let address = scene.address("web/0");
    for (key, value) in
        [("instance_group", json!("web")), ("ip", json!(address)), ("az", json!("z1")), ("instance_index", json!(0))]
    {
        assert_eq!(row[key], value, "{row}");
    }
    assert_eq!(row["agent_id"], scene.instance("web/0")["agent_id"]);
    let queries = scene.read("web/0", "bosh/etc_hosts");
    assert!(queries.contains(&format!("{address} q-s0.web.default.{}.bosh\n", scene.name)), "{queries}");
}

fn scripts_find_all_names(scene: &Scene<'_>) {
    let web = with(group("web", 2, job("looks")), json!({"update": {"max_in_flight": 1}}));
    scene.deploy(json!([web]));
    for instance in ["web/0", "web/1"] {
        let found: Value = serde_json::from_str(&scene.read(instance, "records-at-prestart.json")).unwrap();
        assert_eq!(infos(scene, &found).len(), 2, "{found}");
    }
}

fn names_grow(scene: &Scene<'_>) {
    scene.deploy(json!([group("web", 1, job("own"))]));
    everybody_knows_everybody(scene);
    let before = version(scene, "web/0");
    scene.deploy(json!([group("web", 4, job("own"))]));
    everybody_knows_everybody(scene);
    let newest = version(scene, "web/0");
    assert!(newest > before);
    soon("not all have the newest version", || (1..4).all(|at| version(scene, &format!("web/{at}")) == newest));
    let rows = infos(scene, &records(scene, "web/3"));
    let numbers: std::collections::BTreeSet<String> = rows.iter().map(|row| row["num_id"].to_string()).collect();
    assert_eq!((rows.len(), numbers.len()), (4, 4));
}

fn names_shrink_and_grow(scene: &Scene<'_>) {
    let mut before = 0;
    for instances in [4, 2, 3] {
        scene.deploy(json!([group("web", instances, job("own"))]));
        everybody_knows_everybody(scene);
        assert_eq!(known(scene, "web/0").len(), instances);
        assert!(version(scene, "web/0") > before);
        before = version(scene, "web/0");
    }
}

fn a_recreate_is_told(scene: &Scene<'_>) {
    scene.deploy(json!([group("web", 3, job("own"))]));
    everybody_knows_everybody(scene);
    let before = version(scene, "web/0");
    let task = scene.try_deploy(&scene.manifest(json!([group("web", 3, job("own"))])), "?recreate=true");
    assert_eq!(task.state, "done");
    let agents = || {
        let mut agents: Vec<Value> = scene.instances().iter().map(|instance| instance["agent_id"].clone()).collect();
        agents.sort_by_key(Value::to_string);
        agents
    };
    let told = |instance: &str| {
        let rows = infos(scene, &records(scene, instance));
        let mut agents: Vec<Value> = rows.iter().map(|row| row["agent_id"].clone()).collect();
        agents.sort_by_key(Value::to_string);
        agents
    };
    for instance in ["web/0", "web/1", "web/2"] {
        soon(&format!("{instance} has old agents"), || told(instance) == agents());
        assert!(version(scene, instance) > before);
    }
    everybody_knows_everybody(scene);
}

fn addresses_are_usual(scene: &Scene<'_>) {
    scene.deploy(json!([group("web", 1, job("own"))]));
    assert_eq!(config(scene, "web/0", "own"), scene.address("web/0"));
}

fn templates_see_names(scene: &Scene<'_>) {
    scene.deploy_manifest(&with_features(
        scene,
        json!([group("my_web", 1, job("own"))]),
        json!({"use_dns_addresses": true}),
    ));
    let name = format!("{}.my-web.default.{}.bosh", id(scene, "my_web/0"), scene.name);
    assert_eq!(config(scene, "my_web/0", "own"), name);
    scene.changed("my_web/0", "state=recreate");
    assert_eq!(config(scene, "my_web/0", "own"), name);
}

fn is_short(name: &str) -> bool {
    let letters: String = name.chars().filter(|letter| !letter.is_ascii_digit()).collect();
    letters == "q-mns.q-g.bosh"
}

fn templates_see_short_names(scene: &Scene<'_>) {
    let features = json!({"use_dns_addresses": true, "use_short_dns_addresses": true});
    scene.deploy_manifest(&with_features(scene, json!([group("web", 1, job("own"))]), features));
    let name = config(scene, "web/0", "own");
    assert!(is_short(&name), "{name}");
    let row = &infos(scene, &records(scene, "web/0"))[0];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (number, network, of_group) = (text(&row["num_id"]), text(&row["network_id"]), text(&row["group_ids"][0]));
    assert_eq!(name, format!("q-m{number}n{network}s0.q-g{of_group}.bosh"));
    let hosts = scene.read("web/0", "bosh/etc_hosts");
    assert!(hosts.contains(&format!("{} {name}\n", scene.address("web/0"))), "{hosts}");
    scene.changed("web/0", "state=recreate");
    assert_eq!(config(scene, "web/0", "own"), name);
}

fn addresses_are_asked_for(scene: &Scene<'_>) {
    scene.deploy_manifest(&with_features(
        scene,
        json!([group("web", 1, job("own"))]),
        json!({"use_dns_addresses": false}),
    ));
    assert_eq!(config(scene, "web/0", "own"), scene.address("web/0"));
}

fn linked(consumes: Value) -> Value {
    let api = json!([{"name": "api", "release": "kit", "consumes": {"db": consumes}}]);
    json!([group("mysql", 1, job("database")), group("api", 1, api)])
}

/// What the consumer sees: addresses of instances, the group's address, and that in a zone of those that are healthy.
fn seen(scene: &Scene<'_>) -> Vec<String> {
    config(scene, "api/0", "api").lines().map(str::to_owned).collect()
}

fn long_name(scene: &Scene<'_>) -> String {
    format!("{}.mysql.default.{}.bosh", id(scene, "mysql/0"), scene.name)
}

fn links_have_names(scene: &Scene<'_>) {
    scene.deploy_manifest(&with_features(scene, linked(json!({"from": "db"})), json!({"use_dns_addresses": true})));
    assert_eq!(seen(scene)[0], long_name(scene));
}

fn a_consumer_asks_for_addresses(scene: &Scene<'_>) {
    let groups = linked(json!({"from": "db", "ip_addresses": true}));
    scene.deploy_manifest(&with_features(scene, groups, json!({"use_dns_addresses": true})));
    assert_eq!(seen(scene)[0], scene.address("mysql/0"));
}

fn a_consumer_asks_for_names(scene: &Scene<'_>) {
    scene.deploy(linked(json!({"from": "db", "ip_addresses": false})));
    assert_eq!(seen(scene)[0], long_name(scene));
}

fn addresses_of_links_have_zones(scene: &Scene<'_>) {
    scene.deploy(linked(json!({"from": "db"})));
    let az = infos(scene, &records(scene, "api/0"))[0]["az_id"].as_str().unwrap().to_owned();
    let long = format!("mysql.default.{}.bosh", scene.name);
    assert_eq!(seen(scene)[1..], [format!("q-s0.{long}"), format!("q-a{az}s3.{long}")]);
    let hosts = scene.read("api/0", "bosh/etc_hosts");
    for name in &seen(scene)[1..] {
        assert!(hosts.contains(&format!("{} {name}\n", scene.address("mysql/0"))), "{name} is not in {hosts}");
    }
}

/// Numbers of the provider's record: zone, network, its group, and the link.
fn numbers(scene: &Scene<'_>) -> [String; 4] {
    let rows = infos(scene, &records(scene, "api/0"));
    let row = rows.iter().find(|row| row["instance_group"] == "mysql").unwrap();
    [&row["az_id"], &row["network_id"], &row["group_ids"][0], &row["group_ids"][1]]
        .map(|number| number.as_str().unwrap().to_owned())
}

fn addresses_of_links_are_short(scene: &Scene<'_>) {
    scene.deploy_manifest(&with_features(
        scene,
        linked(json!({"from": "db"})),
        json!({"use_short_dns_addresses": true}),
    ));
    let [az, network, of_group, _] = numbers(scene);
    assert_eq!(seen(scene)[0], scene.address("mysql/0"));
    assert_eq!(
        seen(scene)[1..],
        [format!("q-n{network}s0.q-g{of_group}.bosh"), format!("q-a{az}n{network}s3.q-g{of_group}.bosh")]
    );
}

fn addresses_are_of_links(scene: &Scene<'_>) {
    scene.deploy_manifest(&with_features(scene, linked(json!({"from": "db"})), json!({"use_link_dns_names": true})));
    let [_, network, _, of_link] = numbers(scene);
    let seen = seen(scene);
    assert!(is_short(&seen[0]) && seen[0].ends_with(&format!("n{network}s0.q-g{of_link}.bosh")), "{seen:?}");
    assert_eq!(seen[1], format!("q-n{network}s0.q-g{of_link}.bosh"));
    let hosts = scene.read("api/0", "bosh/etc_hosts");
    for name in &seen {
        assert!(hosts.contains(&format!("{} {name}\n", scene.address("mysql/0"))), "{name} is not in {hosts}");
    }
}

fn a_given_address_stays(scene: &Scene<'_>) {
    let given = json!({"address": "broker.external-db.com", "instances": [], "properties": {"foo": "bar"}});
    let jobs = json!([{"name": "given", "release": "kit", "consumes": {"db": given}}]);
    scene.deploy(json!([group("api", 1, jobs)]));
    assert_eq!(config(scene, "api/0", "given"), "broker.external-db.com");
}

fn provider(name: &str, provides: Value) -> Value {
    group(name, 1, json!([{"name": "database", "release": "kit", "provides": provides}]))
}

fn own_group(scene: &Scene<'_>, instance: &str, link: &str) -> String {
    let links: Value = serde_json::from_str(&scene.read(instance, "jobs/database/.bosh/links.json")).unwrap();
    let found = links.as_array().unwrap().iter().find(|found| found["name"] == link).unwrap();
    found["group"].as_str().map_or_else(|| found["group"].to_string(), str::to_owned)
}

fn aliases_are_told(scene: &Scene<'_>) {
    let shared = format!("my-service.{}", scene.name);
    let first = json!({"db": {"aliases": [{"domain": shared, "health_filter": "all", "initial_health_check": "synchronous",
        "placeholder_type": "uuid"}]}});
    let texas = format!("texas.{}", scene.name);
    let second =
        json!({"db": {"as": "mydb", "aliases": [{"domain": texas, "health_filter": "all"}, {"domain": shared}]}});
    scene.deploy(json!([provider("mysql", first), provider("yoursql", second)]));
    let (one, two) = (own_group(scene, "mysql/0", "db"), own_group(scene, "yoursql/0", "mydb"));
    let target = |group: &str, filter: Value, check: Value, placeholder: Value| {
        json!({"root_domain": "bosh", "group_id": group, "health_filter": filter, "initial_health_check": check,
            "placeholder_type": placeholder})
    };
    let aliases = records(scene, "mysql/0")["aliases"].clone();
    let plain = target(&two, json!(null), json!(null), json!(null));
    assert_eq!(aliases[&shared], json!([target(&one, json!("all"), json!("synchronous"), json!("uuid")), plain]));
    assert_eq!(aliases[&texas], json!([target(&two, json!("all"), json!(null), json!(null))]));
    let hosts = scene.read("mysql/0", "bosh/etc_hosts");
    assert!(hosts.contains(&format!("{} {texas}\n", scene.address("yoursql/0"))), "{hosts}");
    let wrong = json!([provider("mysql", json!({"db": {"aliases": [{"health_filter": "all"}]}}))]);
    assert!(scene.refused(wrong).contains("needs a 'domain'"));
}

fn custom_links_have_numbers(scene: &Scene<'_>) {
    let domain = format!("custom.{}", scene.name);
    let jobs = json!([{"name": "database", "release": "kit",
        "custom_provider_definitions": [{"name": "my-custom-link", "type": "my-custom-link-type"}],
        "provides": {"my-custom-link": {"aliases": [{"domain": domain}]}}}]);
    scene.deploy(json!([group("mysql", 1, jobs), provider("yoursql", json!({"db": {"as": "mydb"}}))]));
    let number = own_group(scene, "mysql/0", "my-custom-link");
    let records = records(scene, "mysql/0");
    let of = |group: &str| {
        let row = infos(scene, &records).into_iter().find(|row| row["instance_group"] == group).unwrap();
        row["group_ids"].as_array().unwrap().contains(&json!(number))
    };
    assert!(of("mysql") && !of("yoursql"), "{records}");
    assert_eq!(records["aliases"][&domain][0]["group_id"], json!(number));
}

fn a_deletion_is_told(scene: &Scene<'_>) {
    scene.deploy(json!([group("web", 1, job("own"))]));
    let other = scene.other("gone");
    scene.deploy_manifest(&scene.manifest_of(&other, &["kit"], json!([group("web", 1, job("own"))])));
    let has_other = || scene.read("web/0", "bosh/etc_hosts").contains(&format!(".{other}.bosh\n"));
    soon("the other deployment is not known", has_other);
    let before = version(scene, "web/0");
    let task = scene.client().task("DELETE", &format!("/deployments/{other}"), "", "");
    assert_eq!(task.state, "done");
    soon("what is deleted is still known", || !has_other() && version(scene, "web/0") > before);
}
