//! What real directors said to the original's agents about jobs, said to this one and, if the variable names it, to the original.
//! `tests/data/README.md` tells what was left out.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::software::{archive, machines, sha1};

/// A message about jobs.
#[derive(Debug, Clone, Deserialize)]
struct Recorded {
    scenario: String,
    method: String,
    arguments: Value,
    task: bool,
    reply: Value,
}

/// A recorded life, whose blobs were not recorded: the test makes ones of which the recorded answers follow.
struct Life(Vec<Recorded>);

impl Life {
    /// Whether the director sent this blob inside of a message.
    fn has(&self, blob: &str) -> bool {
        self.0.iter().any(|message| message.method == "upload_blob" && message.arguments[0]["blob_id"] == blob)
    }

    /// Whether the first pre-start after the apply of these templates fails.
    fn fails_to_start(&self, templates: &str) -> bool {
        let applied = |message: &Recorded| {
            message.method == "apply" && message.arguments[0]["rendered_templates_archive"]["blobstore_id"] == templates
        };
        let is_pre_start = |message: &&Recorded| message.method == "run_script" && message.arguments[0] == "pre-start";
        let after = self.0.iter().skip_while(|message| !applied(message));
        after.skip(1).find(is_pre_start).is_some_and(|message| message.reply.get("exception").is_some())
    }

    fn templates(&self, spec: &Value) -> Vec<u8> {
        let id = spec["rendered_templates_archive"]["blobstore_id"].as_str().unwrap();
        let pre_start = format!("#!/bin/sh\nexit {}\n", u8::from(self.fails_to_start(id)));
        let errand = self.0.iter().find(|message| message.method == "run_errand");
        let errand = errand.map(|message| &message.reply["value"]).map_or(String::new(), |said| {
            let quoted = |stream: &str| said[stream].as_str().unwrap().replace('\'', "");
            let (stdout, stderr) = (quoted("stdout"), quoted("stderr"));
            format!("#!/bin/sh\nprintf '{stdout}'; printf '{stderr}' >&2; exit {}\n", said["exit_code"])
        });
        let names = spec["job"]["templates"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap());
        let files: Vec<(String, &str)> = names
            .flat_map(|name| {
                [("monit", "# nothing"), ("bin/pre-start", pre_start.as_str()), ("bin/run", errand.as_str())]
                    .map(|(file, text)| (format!("./{name}/{file}"), text))
            })
            .collect();
        let files: Vec<(&str, u32, &str)> = files.iter().map(|(name, text)| (name.as_str(), 0o644, *text)).collect();
        archive(&files)
    }
}

async fn put(machine: &Machine, id: &Value, content: &[u8]) -> Value {
    let path = format!("/blobs/ab/{}", id.as_str().unwrap());
    assert_eq!(machine.request("PUT", &path, content).await.status, 201);
    sha1(content).into()
}

/// A package whose content is its name.
async fn put_package(machine: &Machine, package: &mut Value) {
    let content = archive(&[("name", 0o644, package["name"].as_str().unwrap())]);
    package["sha1"] = put(machine, &package["blobstore_id"], &content).await;
}

/// Makes the blobs that a spec names, and says so in it.
async fn supply(machine: &Machine, life: &Life, spec: &mut Value) {
    let id = spec["rendered_templates_archive"]["blobstore_id"].clone();
    if id.is_string() && !life.has(id.as_str().unwrap()) {
        let content = life.templates(spec);
        spec["rendered_templates_archive"]["sha1"] = put(machine, &id, &content).await;
    }
    for package in spec["packages"].as_object_mut().into_iter().flat_map(|packages| packages.values_mut()) {
        put_package(machine, package).await;
    }
}

/// Fails unless the reply is the recorded one, or as like it as the message allows.
fn compare(message: &Recorded, reply: &Value) {
    let (value, recorded) = (&reply["value"], &message.reply["value"]);
    match message.method.as_str() {
        "compile_package" | "fetch_logs" => {
            let (value, recorded) = match message.method.as_str() {
                "compile_package" => (&value["result"], &recorded["result"]),
                _ => (value, recorded),
            };
            for key in ["blobstore_id", "sha1"] {
                let length = |value: &Value| value[key].as_str().map(str::len);
                assert_eq!(length(value), length(recorded), "{message:?} {reply}");
            }
        }
        _ => match message.reply["exception"]["message"].as_str() {
            Some(words) => {
                let said = reply["exception"]["message"].as_str().unwrap_or_default();
                assert!(said.ends_with(&format!(" result: {words}")), "{message:?} {reply}");
            }
            None => assert_eq!(value, recorded, "{message:?} {reply}"),
        },
    }
}

async fn live(machine: &Machine, life: &Life) {
    for message in &life.0 {
        let mut arguments = message.arguments.clone();
        match message.method.as_str() {
            "prepare" | "apply" => supply(machine, life, &mut arguments[0]).await,
            "compile_package" => {
                let packaging = "cp packaging $BOSH_INSTALL_TARGET/\n";
                arguments[1] = put(machine, &arguments[0], &archive(&[("packaging", 0o644, packaging)])).await;
                for package in arguments[4].as_object_mut().unwrap().values_mut() {
                    put_package(machine, package).await;
                }
            }
            _ => {}
        }
        let sent =
            json!({"method": message.method, "arguments": arguments, "protocol": 3, "reply_to": "director.x.y.z"});
        let reply = if message.task { machine.task(sent).await } else { machine.message(sent).await };
        compare(message, &reply);
    }
}

#[tokio::test]
async fn recorded_directors_get_the_answers_that_the_original_gave_about_jobs() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/jobs");
    let mut scenarios = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let recorded = std::fs::read_to_string(&path).unwrap();
        let life = Life(recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect());
        for machine in machines().await {
            live(&machine, &life).await;
        }
        scenarios.extend(life.0.into_iter().map(|message| message.scenario));
    }
    let expected = [
        "deploy-fails-pre-start",
        "deploy-first",
        "deploy-misc-nats-templates",
        "restart-instance",
        "run-errand",
        "run-errand-fails",
        "start-after-hard",
        "start-instance",
        "start-no-converge",
        "stop-hard",
        "stop-instance",
        "stop-no-converge",
    ];
    assert_eq!(scenarios.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}
