//! Variables: values that a config server holds, who makes them, and who sees which version.

mod making;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use making::{ca, password};

use super::release::{Job, Release};
use super::stand::{Scene, Stand, group, message, with};

super::scenarios! {
    "config_server/config_server_spec.rb": "raises an error, even if a property has a default value in the job spec" =>
        "a variable without a value is named with its absolute name, in BOSH's words; nothing is made", no_value;
    "config_server/config_server_spec.rb": "does not log interpolated properties in the task debug logs and deploy output" =>
        "neither the task's events nor its debug log has the value", no_value_in_logs;
    "config_server/config_server_spec.rb": "replaces variables in the manifest when config server has value for placeholders" =>
        "the file has the value, and a change of it comes with the next deploy", a_value_reaches_the_file;
    "config_server/config_server_spec.rb": "does not add namespace to keys starting with slash" =>
        "an absolute name is looked up as it is written", an_absolute_name;
    "config_server/config_server_spec.rb": "replaces the variables in the manifest" =>
        "text and numbers stand within text", within_text;
    "config_server/config_server_spec.rb": "errors" =>
        "a map within text is refused, in BOSH's words and without its value", no_map_within_text;
    "config_server/config_server_spec.rb": "replaces nested variables in the manifest" =>
        "dots lead to a part of the value", a_part;
    "config_server/config_server_spec.rb": "errors if all parts of nested variable is not found" =>
        "the part that is missing is named", a_missing_part;
    "config_server/config_server_spec.rb": "returns original raw manifest (with no changes)" =>
        "the manifest that is stored has the placeholder", the_manifest_keeps_placeholders;
    "config_server/config_server_spec.rb": "strips the exclamation mark when getting value from config server" =>
        "`((!name))` is `((name))`", an_exclamation_mark;
    "config_server/config_server_variables_generation_spec.rb": "should generate the variables and record them in events" =>
        "passwords, keys and certificates are made at deploy, with an event each that has name and id", making::made_at_deploy;
    "config_server/config_server_variables_generation_spec.rb": "should generate a CA or reference a generated CA" =>
        "a leaf has the certificate of its CA", making::signed_by_its_ca;
    "config_server/config_server_variables_generation_spec.rb": "should throw an error" =>
        "a CA that is not there is named", making::no_such_ca;
    "config_server/config_server_variables_generation_spec.rb": "regenerates variables" =>
        "with converge_variables, another length makes another password, and the job has it", making::converged;
    "config_server/config_server_variables_generation_spec.rb": "does NOT re-generate it" =>
        "a value that is there stays", making::not_made_twice;
    "config_server/config_server_variables_generation_spec.rb": "always regenerates the credential" =>
        "with update_mode converge the one whose options change is made again, and the other stays", making::update_mode;
    "config_server/config_server_variables_generation_spec.rb": "throws an error" =>
        "an unknown type is named", making::an_unknown_type;
    "config_server/config_server_variables_generation_spec.rb": "should use the variable generated value" =>
        "the file has the password that was made", making::the_made_value_is_used;
    "config_server/config_server_variables_generation_spec.rb": "should not regenerate values when calling restart/stop/start/recreate" =>
        "after each of them the file has what it had", making::states_keep_values;
    "config_server/config_server_variables_generation_spec.rb": "should deploy successfully" =>
        "an addon of the manifest uses a variable that is made", making::an_addon;
    "config_server/config_server_variables_generation_spec.rb": "only updates variables when a stemcell update being deployed" =>
        "with on-stemcell-change, a newer value waits for force_latest_variables or other stemcells", making::waits_for_stemcells;
    "config_server/config_server_sequenced_deploys_scenarios_spec.rb": "updates necessary jobs, picking up new config server values, on bosh redeploy" =>
        "of two groups the one with the variable is updated", only_who_uses_it_is_updated;
    "config_server/config_server_sequenced_deploys_scenarios_spec.rb": "does NOT update jobs (does NOT pick up new config server values) on 'bosh start' after 'bosh stop --hard'" =>
        "an instance that gets its VM back has the old value";
    "config_server/config_server_sequenced_deploys_scenarios_spec.rb": "does NOT update jobs (does NOT pick up new config server values) on 'bosh recreate'" =>
        "another VM has the old value";
    "config_server/config_server_sequenced_deploys_scenarios_spec.rb": "DOES update jobs on 'stop' then 'deploy' then 'start'" =>
        "after a deploy in between, the start brings the new value", old_values_until_a_deploy;
    "config_server/config_server_sequenced_deploys_scenarios_spec.rb": "should use previous variables set for failing instance" =>
        "a deploy that cannot be rendered leaves the old value to who recreates", a_failed_deploy_changes_nothing;
    "config_server/config_server_links_spec.rb": "replaces the placeholder values of properties consumed through links" =>
        "the consumer of a link has the value", through_a_link;
    "config_server/config_server_links_spec.rb": "should successfully use the shared links" =>
        "a consumer in another deployment has the value of the provider's variable";
    "config_server/config_server_links_spec.rb": "the consumer deployment picks up the variables of the last successful provider deployment" =>
        "a value that the provider was not deployed with is not seen by the consumer";
    "config_server/config_server_links_spec.rb": "the consumer deployment is still rendered with the variable versions it was deployed with" =>
        "a recreated consumer has the old value", through_a_shared_link;
    "config_server/config_server_certificate_link_spec.rb": "generates the certificate with the dns record as an alternative name" =>
        "the leaf has the name of the link's group, and with wildcard that of all of its instances", names_of_links;
    "config_server/env_spec.rb": "should interpolate them correctly" =>
        "the agent has the value in its env, a recreated VM the one that was deployed, and a newer one comes with a deploy, which replaces the VM";
    "config_server/env_spec.rb": "should not log interpolated env values in the debug logs and deploy output" =>
        "neither the task's events nor its debug log has the value", in_an_env;
    "config_server/config_server_errand_spec.rb": "interpolates errands variables at deploy time, NOT at runtime" =>
        "an errand prints the value that was deployed", an_errand;
    "config_server/config_server_runtime_config_spec.rb": "interpolates variables in the addons and updates jobs on deploy" =>
        "an addon of a runtime config has the value, and its variable is listed";
    "deployed_variables_spec.rb": "can list deployed_variables" =>
        "each deployment with the version of a variable that it was deployed with", who_uses_it;
    "config_server/config_server_certificate_expiry_spec.rb": "records the expiry of all generated certificates" =>
        "name, id, date and days of each certificate, and of nothing else", expiries;
    "cli_variables_spec.rb": "should return list of variables for the runtime_config" =>
        "a variable that a runtime config defines is made for the deployment", a_runtime_config;
    "cli_variables_spec.rb": "should return list of variables" =>
        "every variable that is used or defined is listed with id and absolute name", listed;
    "cli_variables_spec.rb": "should only have the versions of the variables used by the deployment" =>
        "after a deploy that uses it no more, a variable is not listed", not_listed_any_more;
}

fn kit() -> Release {
    let properties = "properties: {password: {default: usual}, other: {}}";
    Release::new("kit", "1")
        .job(Job::new("show", properties).template("config.yml", "<%= p('password') %> <%= p('other', '') %>"))
        .job(Job::new("idle", ""))
        .job(Job::new("errand", properties).template("bin/run", "#!/bin/sh\necho \"<%= p('password') %>\"\n"))
        .job(Job::new(
            "provider",
            "properties: {password: {}}\nprovides: [{name: secret, type: secret, properties: [password]}]",
        ))
        .job(
            Job::new("consumer", "consumes: [{name: secret, type: secret}]")
                .template("config.yml", "<%= link('secret').p('password') %>"),
        )
}

#[test]
fn what_variables_promise() {
    let stand = Stand::new();
    stand.upload(&kit());
    stand.play(SCENARIOS);
    // All values that scenarios set begin so.
    let found = files_with(&stand.site.state_dir(), &stand.site.cloud().join("vms"), b"marked-");
    assert!(found.is_empty(), "values at rest: {found:?}");
    let log = stand.site.log();
    assert!(log.contains("create_vm") && !log.contains("marked-"), "values in the director's log");
}

/// The cloud would get placeholders, or the director's records, logs and plans would have secrets.
#[test]
fn configs_have_variables_whose_values_only_clouds_get() {
    let stand = Stand::new();
    stand.upload(&kit());
    let scene = Scene { stand: &stand, name: "configs".to_owned() };
    for name in ["zone", "size", "net", "disk", "tag"] {
        scene.put(&format!("/cloud/{name}"), json!(format!("marked-{name}-one")));
    }
    let mut config = stand.cloud_config();
    config["azs"][0]["cloud_properties"] = json!({"place": "((/cloud/zone))"});
    config["vm_types"][0]["cloud_properties"] = json!({"kind": "((/cloud/size))"});
    config["networks"][0]["subnets"][0]["cloud_properties"] = json!({"wire": "x-((/cloud/net))"});
    config["disk_types"][0]["cloud_properties"] = json!({"platter": "((/cloud/disk))"});
    let relative =
        with(config.clone(), json!({"vm_types": [{"name": "small", "cloud_properties": {"kind": "((size))"}}]}));
    let refused = stand.configure("cloud", "default", &relative);
    assert!(
        refused.status.is_client_error() && refused.text().contains("Relative paths are not allowed"),
        "{}",
        refused.text()
    );
    stand.configure_cloud(&config);
    let tagged = |groups: Value| with(scene.manifest(groups), json!({"tags": {"owner": "((/cloud/tag))"}}));
    let idle = json!({"name": "idle", "release": "kit"});
    let web = with(group("web", 1, json!([idle])), json!({"persistent_disk_type": "disk", "azs": ["z1"]}));
    let manifest = tagged(json!([web]));
    let task = scene.deploy_manifest(&manifest);
    let in_cloud = |value: &str| !files_with(&stand.site.cloud(), Path::new(""), value.as_bytes()).is_empty();
    for value in ["marked-zone-one", "marked-size-one", "x-marked-net-one", "marked-disk-one", "marked-tag-one"] {
        assert!(in_cloud(value), "the cloud did not get {value}");
    }
    let cid = || scene.instance("web/0")["cid"].clone();
    let first = cid();
    scene.deploy_manifest(&manifest);
    assert_eq!(cid(), first, "nothing changed");
    // A newer value comes with a deploy, and what is recreated before keeps the old one.
    scene.put("/cloud/size", json!("marked-size-two"));
    scene.changed("web", "state=recreate");
    let second = cid();
    assert!(second != first && !in_cloud("marked-size-two"));
    let planned = scene.client().send("POST", "/windlass/plan", "text/yaml", manifest.to_string()).text();
    assert!(planned.contains("values of variables in its env or cloud_properties change"), "{planned}");
    scene.deploy_manifest(&manifest);
    assert!(cid() != second && in_cloud("marked-size-two"));

    let everything =
        [planned, format!("{task:?}"), stand.site.log(), scene.client().get("/cloud_configs?limit=9").to_string()];
    assert!(everything.iter().all(|text| !text.contains("marked-")), "values are shown");
    let newest = scene.client().get("/tasks?limit=20&verbose=2");
    for task in newest.as_array().unwrap() {
        for output in ["debug", "event", "cpi", "result"] {
            let path = format!("/tasks/{}/output?type={output}", task["id"]);
            let text = scene.client().send("GET", &path, "", "").text();
            assert!(!text.contains("marked-"), "{path}: {text}");
        }
    }
    let found = files_with(&stand.site.state_dir(), &stand.site.cloud(), b"marked-");
    assert!(found.is_empty(), "values at rest: {found:?}");
}

/// The files below a folder, but for one, that have these bytes.
fn files_with(folder: &Path, but: &Path, bytes: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let Ok(kind) = fs::symlink_metadata(&path) else { continue };
        if path == but {
            continue;
        } else if kind.is_dir() {
            found.extend(files_with(&path, but, bytes));
        } else if kind.is_file() {
            let content = fs::read(&path).unwrap_or_default();
            found.extend(content.windows(bytes.len()).any(|window| window == bytes).then_some(path));
        }
    }
    found
}

impl Scene<'_> {
    /// The absolute name of a variable of this scenario.
    fn absolute(&self, name: &str) -> String {
        self.absolute_of(&self.name, name)
    }

    fn absolute_of(&self, deployment: &str, name: &str) -> String {
        let director = self.client().get("/info")["name"].as_str().unwrap().to_owned();
        format!("/{director}/{deployment}/{name}")
    }

    fn put(&self, name: &str, value: Value) {
        let name = if name.starts_with('/') { name.to_owned() } else { self.absolute(name) };
        let body = json!({"name": name, "value": value}).to_string();
        let answer = self.client().send("PUT", "/v1/data", "application/json", body);
        assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
    }

    /// The versions of a variable, newest first.
    fn versions(&self, name: &str) -> Vec<Value> {
        let answer = self.client().get(&format!("/v1/data?name={}", self.absolute(name)));
        answer["data"].as_array().cloned().unwrap_or_default()
    }

    fn value(&self, name: &str) -> Value {
        self.versions(name)[0]["value"].clone()
    }

    fn listed(&self) -> Vec<(String, String)> {
        let listed = self.client().get(&format!("/deployments/{}/variables", self.name));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        listed.as_array().unwrap().iter().map(|it| (text(&it["name"]), text(&it["id"]))).collect()
    }

    fn shown(&self, instance: &str) -> String {
        self.read(instance, "jobs/show/config.yml").trim().to_owned()
    }
}

fn show(properties: Value) -> Value {
    json!({"name": "show", "release": "kit", "properties": properties})
}

fn web(properties: Value) -> Value {
    json!([group("web", 1, json!([show(properties)]))])
}

fn with_variables(scene: &Scene<'_>, properties: Value, variables: Value) -> Value {
    with(scene.manifest(web(properties)), json!({"variables": variables}))
}

fn no_value(scene: &Scene<'_>) {
    let said = scene.refused(web(json!({"password": "((nothing))", "other": "((/no/thing))"})));
    let name = scene.absolute("nothing");
    for expected in [
        "Unable to render jobs for instance group 'web'. Errors are:".to_owned(),
        "- Unable to render templates for job 'show'. Errors are:".to_owned(),
        format!(
            "- Failed to find variable '{name}' from config server: HTTP Code '404', Error: 'Name '{name}' not found'"
        ),
        "- Failed to find variable '/no/thing' from config server".to_owned(),
    ] {
        assert!(said.contains(&expected), "{expected} in {said}");
    }
    assert!(scene.instances().is_empty());
}

fn no_value_in_logs(scene: &Scene<'_>) {
    scene.put("password", json!("marked-in-logs"));
    let task = scene.deploy(web(json!({"password": "((password))"})));
    assert!(!format!("{task:?}").contains("marked-in-logs"));
    let newest = scene.client().get(&format!("/tasks?deployment={}&limit=1", scene.name))[0]["id"].clone();
    let debug = scene.client().send("GET", &format!("/tasks/{newest}/output?type=debug"), "", "").text();
    assert!(!debug.is_empty() && !debug.contains("marked-in-logs"), "{debug}");
    let events = scene.client().send("GET", "/events", "", "").text();
    assert!(!events.contains("marked-in-logs"));
}

fn a_value_reaches_the_file(scene: &Scene<'_>) {
    scene.put("password", json!("marked-one"));
    let groups = web(json!({"password": "((password))"}));
    scene.deploy(groups.clone());
    assert_eq!(scene.shown("web/0"), "marked-one");
    scene.put("password", json!("marked-two"));
    scene.deploy(groups);
    assert_eq!(scene.shown("web/0"), "marked-two");
}

fn an_absolute_name(scene: &Scene<'_>) {
    scene.put("/shared/word", json!("marked-absolute"));
    scene.deploy(web(json!({"password": "((/shared/word))"})));
    assert_eq!(scene.shown("web/0"), "marked-absolute");
    assert_eq!(scene.listed()[0].0, "/shared/word");
}

fn within_text(scene: &Scene<'_>) {
    scene.put("word", json!("marked-word"));
    scene.put("number", json!(8));
    scene.deploy(web(json!({"password": "x-((word))-((number))", "other": "((number))"})));
    assert_eq!(scene.shown("web/0"), "x-marked-word-8 8");
}

fn no_map_within_text(scene: &Scene<'_>) {
    scene.put("map", json!({"a": "marked-map"}));
    let said = scene.refused(web(json!({"password": "x-((map))"})));
    let expected = "Failed to substitute variable: Can not replace '((map))'";
    assert!(said.contains(expected) && said.contains("The value should be a String or an Integer."), "{said}");
    assert!(!said.contains("marked-map"), "{said}");
}

fn a_part(scene: &Scene<'_>) {
    scene.put("map", json!({"a": {"b": "marked-part"}, "list": ["marked-zero"]}));
    scene.deploy(web(json!({"password": "((map.a.b))", "other": "((map.list.0))"})));
    assert_eq!(scene.shown("web/0"), "marked-part marked-zero");
}

fn a_missing_part(scene: &Scene<'_>) {
    scene.put("map", json!({"a": {"b": "marked-part"}}));
    let said = scene.refused(web(json!({"password": "((map.a.c))"})));
    let expected = format!("Failed to fetch variable '{}' from config server: Expected parent", scene.absolute("map"));
    assert!(said.contains(&expected) && said.contains("hash to have key 'c'"), "{said}");
    assert!(!said.contains("marked-part"), "{said}");
}

fn the_manifest_keeps_placeholders(scene: &Scene<'_>) {
    scene.put("password", json!("marked-manifest"));
    scene.deploy(web(json!({"password": "((password))"})));
    let manifest = scene.client().get(&format!("/deployments/{}", scene.name))["manifest"].to_string();
    assert!(manifest.contains("((password))") && !manifest.contains("marked-manifest"), "{manifest}");
}

fn an_exclamation_mark(scene: &Scene<'_>) {
    scene.put("password", json!("marked-exclamation"));
    scene.deploy(web(json!({"password": "((!password))"})));
    assert_eq!(scene.shown("web/0"), "marked-exclamation");
}

fn updated(task: &crate::api::client::Task) -> Vec<String> {
    let updates =
        task.events.iter().filter(|event| event["stage"] == "Updating instance" && event["state"] == "finished");
    updates.map(|event| event["tags"][0].as_str().unwrap().to_owned()).collect()
}

fn only_who_uses_it_is_updated(scene: &Scene<'_>) {
    scene.put("p", json!("marked-one"));
    let groups = json!([
        group("user", 1, json!([show(json!({"password": "((p))"}))])),
        group("other", 1, json!([show(json!({"password": "plain"}))])),
    ]);
    scene.deploy(groups.clone());
    assert_eq!(updated(&scene.deploy(groups.clone())), [""; 0], "nothing changed");
    scene.put("p", json!("marked-two"));
    assert_eq!(updated(&scene.deploy(groups)), ["user"]);
}

fn old_values_until_a_deploy(scene: &Scene<'_>) {
    scene.put("p", json!("marked-old"));
    let groups = web(json!({"password": "((p))"}));
    scene.deploy(groups.clone());
    scene.put("p", json!("marked-new"));
    for queries in [&["state=detached", "state=started"][..], &["state=recreate"], &["state=restart"]] {
        for query in queries {
            scene.changed("web", query);
        }
        assert_eq!(scene.shown("web/0"), "marked-old", "{queries:?}");
    }
    scene.changed("web", "state=stopped");
    scene.deploy(groups);
    scene.changed("web", "state=started");
    assert_eq!(scene.shown("web/0"), "marked-new");
}

fn a_failed_deploy_changes_nothing(scene: &Scene<'_>) {
    scene.put("p", json!("marked-old"));
    scene.deploy(web(json!({"password": "((p))"})));
    scene.put("p", json!("marked-new"));
    scene.refused(web(json!({"password": "((p))", "other": "((nothing))"})));
    scene.changed("web", "state=recreate");
    assert_eq!(scene.shown("web/0"), "marked-old");
}

fn provider(shared: bool) -> Value {
    json!({"name": "provider", "release": "kit", "properties": {"password": "((p))"}, "provides": {"secret": {"shared": shared}}})
}

fn through_a_link(scene: &Scene<'_>) {
    scene.put("p", json!("marked-link"));
    let consumer = json!({"name": "consumer", "release": "kit"});
    scene.deploy(json!([group("giver", 1, json!([provider(false)])), group("taker", 1, json!([consumer]))]));
    assert_eq!(scene.read("taker/0", "jobs/consumer/config.yml").trim(), "marked-link");
}

fn through_a_shared_link(scene: &Scene<'_>) {
    let giver = scene.other("giver");
    let name = scene.absolute_of(&giver, "p");
    scene.put(&name, json!("marked-first"));
    let given = scene.manifest_of(&giver, &["kit"], json!([group("giver", 1, json!([provider(true)]))]));
    scene.deploy_manifest(&given);
    let link = json!({"secret": {"from": "secret", "deployment": giver}});
    let taken = json!([group("taker", 1, json!([{"name": "consumer", "release": "kit", "consumes": link}]))]);
    let seen = || scene.read("taker/0", "jobs/consumer/config.yml").trim().to_owned();
    scene.deploy(taken.clone());
    assert_eq!(seen(), "marked-first");
    scene.put(&name, json!("marked-second"));
    scene.deploy_manifest(&given);
    scene.put(&name, json!("marked-third"));
    scene.changed("taker", "state=recreate");
    assert_eq!(seen(), "marked-first");
    scene.deploy(taken);
    assert_eq!(seen(), "marked-second");
}

fn names_of_links(scene: &Scene<'_>) {
    scene.put("p", json!("marked-provided"));
    let leaf = |name: &str, link: Value| {
        json!({"name": name, "type": "certificate", "options": {"ca": "ca", "common_name": "leaf", "key_length": 2048},
            "consumes": {"alternative_name": link}})
    };
    let variables = json!([
        ca(),
        leaf("plain", json!({"from": "secret"})),
        leaf("wild", json!({"from": "secret", "link_type": "secret", "properties": {"wildcard": true}})),
    ]);
    let groups = json!([group("giver", 1, json!([provider(false)]))]);
    scene.deploy_manifest(&with(scene.manifest(groups.clone()), json!({"variables": variables})));
    // The name is in the clear in the certificate's DER.
    let has = |variable: &str, name: &str| {
        let pem = scene.value(variable)["certificate"].as_str().unwrap().to_owned();
        let der: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let der = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, der).unwrap();
        der.windows(name.len()).any(|window| window == name.as_bytes())
    };
    assert!(has("plain", &format!("q-s0.giver.default.{}.bosh", scene.name)));
    assert!(has("wild", &format!("*.giver.default.{}.bosh", scene.name)));
    let variables = json!([ca(), leaf("other", json!({"from": "nobody"}))]);
    let said = scene.refused_manifest(&with(scene.manifest(groups), json!({"variables": variables})));
    assert!(said.contains("no job of the deployment provides the link 'nobody'"), "{said}");
}

fn in_an_env(scene: &Scene<'_>) {
    scene.put("p", json!("marked-env-one"));
    let idle = json!({"name": "idle", "release": "kit"});
    let groups = |name: &str| {
        json!([with(group("web", 1, json!([idle])), json!({"env": {"bosh": {"password": format!("(({name}))")}}}))])
    };
    let has = |value: &str| {
        let vm = scene.vcap("web/0").parent().unwrap().to_owned();
        !files_with(&vm, Path::new(""), value.as_bytes()).is_empty()
    };
    let task = scene.deploy(groups("p"));
    assert!(has("marked-env-one") && !format!("{task:?}").contains("marked-env"));
    let cid = || scene.instance("web/0")["cid"].clone();
    let first = cid();
    scene.put("p", json!("marked-env-two"));
    scene.changed("web", "state=recreate");
    assert!(has("marked-env-one") && cid() != first, "what was deployed");
    let second = cid();
    scene.deploy(groups("p"));
    assert!(has("marked-env-two") && cid() != second);
    let third = cid();
    scene.deploy(groups("p"));
    assert_eq!(cid(), third, "nothing changed");
    let said = scene.refused(groups("nothing"));
    assert!(said.contains(&format!("Failed to find variable '{}'", scene.absolute("nothing"))), "{said}");
    let newest = scene.client().get(&format!("/tasks?deployment={}&limit=1", scene.name))[0]["id"].clone();
    let debug = scene.client().send("GET", &format!("/tasks/{newest}/output?type=debug"), "", "").text();
    assert!(!debug.contains("marked-env"), "{debug}");
}

fn an_errand(scene: &Scene<'_>) {
    scene.put("p", json!("told-deployed"));
    let job = json!({"name": "errand", "release": "kit", "properties": {"password": "((p))"}});
    scene.deploy(json!([with(group("once", 1, json!([job])), json!({"lifecycle": "errand"}))]));
    scene.put("p", json!("told-later"));
    let (task, results) = scene.errand("once", json!({}));
    assert_eq!(task.state, "done", "{}", message(&task));
    assert_eq!(results[0]["stdout"].as_str().unwrap().trim(), "told-deployed");
}

fn a_runtime_config(scene: &Scene<'_>) {
    let config = json!({
        "releases": [{"name": "kit", "version": "1"}], "variables": [{"name": "made", "type": "password"}],
        "addons": [{"name": "a", "jobs": [show(json!({"password": "((made))"}))], "include": {"deployments": [scene.name]}}],
    });
    let mut manifest = scene.manifest(json!([group("web", 1, json!([{"name": "idle", "release": "kit"}]))]));
    manifest["releases"][0]["version"] = json!("1");
    scene.stand.configure_runtime("default", &config);
    let task = scene.try_deploy(&manifest, "");
    scene.stand.forget_runtime_config("default");
    assert_eq!(task.state, "done", "{}", message(&task));
    assert_eq!(scene.shown("web/0"), scene.value("made").as_str().unwrap());
    assert_eq!(scene.listed()[0].0, scene.absolute("made"));
}

fn who_uses_it(scene: &Scene<'_>) {
    let other = scene.other("second");
    for (deployment, value) in [(&scene.name, "marked-level-one"), (&other, "marked-level-two")] {
        scene.put("/happiness_level", json!(value));
        scene.deploy_manifest(&scene.manifest_of(
            deployment,
            &["kit"],
            web(json!({"password": "((/happiness_level))"})),
        ));
    }
    let users = scene.client().get("/deployed_variables/%2Fhappiness_level");
    let versions = scene.client().get("/v1/data?name=/happiness_level");
    let expected = json!({"deployments": [
        {"name": scene.name, "version": versions["data"][1]["id"]}, {"name": other, "version": versions["data"][0]["id"]},
    ]});
    assert_eq!(users, expected);
}

fn expiries(scene: &Scene<'_>) {
    let leaf = json!({"name": "leaf", "type": "certificate", "options": {"ca": "ca", "common_name": "leaf", "key_length": 2048, "duration": 10}});
    let variables = json!([ca(), leaf, password(20)]);
    scene.deploy_manifest(&with_variables(scene, json!({"password": "((p))"}), variables));
    let found = scene.client().get(&format!("/deployments/{}/certificate_expiry", scene.name));
    let found = found.as_array().unwrap();
    let brief: Vec<_> =
        found.iter().map(|it| (it["name"].as_str().unwrap().to_owned(), it["days_left"].as_i64().unwrap())).collect();
    assert_eq!(brief, [(scene.absolute("ca"), 364), (scene.absolute("leaf"), 9)]);
    assert_eq!(found[1]["id"], scene.versions("leaf")[0]["id"]);
    assert!(found[1]["expiry_date"].as_str().unwrap().ends_with('Z'), "{found:?}");
}

fn listed(scene: &Scene<'_>) {
    scene.put("/a/b", json!("marked-b"));
    let manifest = with_variables(scene, json!({"password": "((p))", "other": "((/a/b))"}), json!([password(20)]));
    scene.deploy_manifest(&manifest);
    let id = scene.versions("p")[0]["id"].as_str().unwrap().to_owned();
    let listed = scene.listed();
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(listed.contains(&(scene.absolute("p"), id)), "{listed:?}");
    assert!(listed.iter().any(|(name, _)| name == "/a/b"), "{listed:?}");
}

fn not_listed_any_more(scene: &Scene<'_>) {
    scene.put("p", json!("marked-one"));
    scene.deploy(web(json!({"password": "((p))"})));
    let before = scene.listed();
    scene.put("p", json!("marked-two"));
    scene.deploy(web(json!({"password": "((p))"})));
    let after = scene.listed();
    assert!(before.len() == 1 && after.len() == 1 && before != after, "{before:?} {after:?}");
    scene.deploy(web(json!({"password": "plain"})));
    assert_eq!(scene.listed(), []);
}
