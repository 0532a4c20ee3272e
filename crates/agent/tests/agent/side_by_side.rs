//! Our agent beside BOSH's, where `WINDLASS_ORIGINAL_AGENT` names it: the same calls, the same answers, the same files.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::software::{SoftwareBlobs, archive, machines};

/// What is otherwise here, and why. A path that ends with a slash is everything below it.
const OTHERWISE: &[(&str, &str)] = &[
    ("bosh/", "what an agent notes for itself; ours lets nobody else read it"),
    ("data/blobs/", "ours drops blobs that were installed"),
    ("data/sensitive_blobs/", "the same"),
    ("data/tmp", "BOSH's makes it at a boot of a machine of its own"),
    ("monit", "the same"),
    ("instance", "the same"),
    ("instance/disks", "the same"),
    ("instance/dns", "the same"),
    ("instance/health.json", "BOSH's writes it with its first heartbeat"),
    ("data", "for root alone where the machine is another's; on one of its own as BOSH's: `linux::bosh_cases`"),
    ("data/sys", "the same"),
    ("data/sys/log", "the same"),
    ("data/jobs/db", "BOSH's leaves the empty folder of what is gone"),
    ("data/packages/tool", "the same"),
    ("data/packages/app", "the same"),
];

/// Mode, owner and group of every path below the base directory; links with their target.
fn tree(base: &Path) -> BTreeMap<String, String> {
    fn walk(base: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(base).unwrap().to_str().unwrap().to_owned();
            let owner = format!("{}:{}", metadata.uid(), metadata.gid());
            let what = match metadata.is_symlink() {
                true => {
                    std::fs::read_link(&path).unwrap().display().to_string().replace(base.to_str().unwrap(), "BASE")
                }
                false => format!("{:o} {owner}", metadata.permissions().mode() & 0o7777),
            };
            found.insert(name, what);
            if metadata.is_dir() {
                walk(base, &path, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(base, base, &mut found);
    found
}

fn is_listed(path: &str) -> bool {
    OTHERWISE.iter().any(|(listed, _)| match listed.strip_suffix('/') {
        Some(folder) => path == folder || path.starts_with(listed),
        None => path == *listed,
    })
}

/// What is different, path by path.
fn differences(ours: &Machine, theirs: &Machine) -> (usize, Vec<String>) {
    let (ours, theirs) = (tree(&ours.base()), tree(&theirs.base()));
    let paths: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let said = |found: Option<&String>| found.cloned().unwrap_or_else(|| "not there".to_owned());
    let different = paths.iter().filter(|path| !is_listed(path) && ours.get(**path) != theirs.get(**path));
    let told = different.map(|path| format!("{path}: {}, BOSH: {}", said(ours.get(*path)), said(theirs.get(*path))));
    (paths.len(), told.collect())
}

/// An answer without what differs from run to run.
fn comparable(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if let Some(result) = answer.pointer_mut("/value/result").and_then(Value::as_object_mut) {
        result.remove("blobstore_id");
        // Archives have the time at which they were made in them.
        result.remove("sha1");
    }
    if let Some(Value::String(message)) = answer.pointer_mut("/exception/message") {
        // The task's id; and of a script's words BOSH's agent tells the end alone.
        let what = message.split_once(" result: ").map_or(message.as_str(), |(_, what)| what);
        *message = what.split("; Stdout:").next().unwrap_or_default().to_owned();
    }
    answer
}

/// The answer to a message, or the end of the task that it begins.
async fn answer(machine: &Machine, message: &Value) -> Value {
    let said = machine.message(message.clone()).await;
    match said.pointer("/value/agent_task_id") {
        Some(task) => comparable(&machine.task_end(task.clone()).await),
        None => comparable(&said),
    }
}

fn job(name: &str, hash: &str) -> Vec<(String, u32, String)> {
    let script = |name: &str| format!("#!/bin/sh\necho {name} $BOSH_VM_NEXT_STATE\n");
    [
        ("monit", String::new()),
        ("bin/pre-start", script("pre-start")),
        ("bin/post-start", script("post-start")),
        ("bin/pre-stop", script("pre-stop")),
        ("bin/run", "#!/bin/sh\necho out; echo err >&2; exit 3\n".to_owned()),
        ("config/deep/a.yml", hash.to_owned()),
    ]
    .into_iter()
    .map(|(file, content)| (format!("./{name}/{file}"), 0o600, content))
    .collect()
}

fn spec(blobs: &mut SoftwareBlobs, hash: &str, jobs: &[&str], packages: &[Value]) -> Value {
    let files: Vec<_> = jobs.iter().flat_map(|name| job(name, hash)).collect();
    let files: Vec<_> = files.iter().map(|(name, mode, content)| (name.as_str(), *mode, content.as_str())).collect();
    let mut spec = blobs.spec(hash, jobs, packages);
    spec["rendered_templates_archive"] = blobs.add(&format!("rendered-{hash}"), archive(&files));
    spec
}

#[tokio::test]
async fn the_same_calls_have_the_same_answers_and_leave_the_same_files_as_with_boshs_agent() {
    let Ok([ours, theirs]) = <[Machine; 2]>::try_from(machines().await) else {
        return eprintln!("not compared: WINDLASS_ORIGINAL_AGENT names no agent");
    };
    let mut blobs = SoftwareBlobs::default();
    let tool = blobs.package("tool", "1", &[("./bin/tool", 0o755, "tool 1"), ("./share/data", 0o600, "x")]);
    let newer = blobs.package("tool", "2", &[("bin/tool", 0o755, "tool 2")]);
    let source =
        blobs.package("app", "f", &[("packaging", 0o644, "cp -r . $BOSH_INSTALL_TARGET"), ("a/b", 0o640, "x")]);
    let failing = blobs.package("bad", "f", &[("packaging", 0o644, "echo no; exit 7")]);
    let first = spec(&mut blobs, "hash1", &["web", "db"], std::slice::from_ref(&tool));
    let second = spec(&mut blobs, "hash2", &["web"], &[newer]);
    let stopped = json!({"env": {"BOSH_VM_NEXT_STATE": "keep"}});
    let compile = |package: &Value, needs: Value| {
        json!([package["blobstore_id"], package["sha1"], package["name"], "1.1", needs])
    };
    let steps = [
        ("prepare", json!([first])),
        ("apply", json!([first])),
        ("run_script", json!(["pre-start", {}])),
        ("start", json!([])),
        ("run_script", json!(["post-start", {}])),
        ("run_errand", json!(["web"])),
        ("run_errand", json!(["nobody"])),
        ("prepare", json!([second])),
        ("run_script", json!(["pre-stop", stopped])),
        ("drain", json!(["update", second])),
        ("stop", json!([])),
        ("apply", json!([second])),
        ("start", json!([])),
        ("drain", json!(["shutdown"])),
        ("stop", json!([])),
        ("compile_package", compile(&source, json!({"tool": tool}))),
        ("compile_package", compile(&failing, json!({}))),
        ("apply", json!([{"deployment": "d", "job": {"name": "web"}, "index": 0, "networks": {}}])),
    ];
    let mut wrong = Vec::new();
    for (method, arguments) in steps {
        for machine in [&ours, &theirs] {
            blobs.hand_over(machine).await;
        }
        let message = json!({"method": method, "arguments": arguments, "protocol": 3});
        let answers = [answer(&ours, &message).await, answer(&theirs, &message).await];
        let (count, different) = differences(&ours, &theirs);
        let same = if answers[0] == answers[1] { "the same answer" } else { "ANOTHER ANSWER" };
        println!("{method:<16} {same}, {count} paths, {} of them otherwise", different.len());
        if answers[0] != answers[1] {
            wrong.push(format!("{method}: {}\n  BOSH: {}", answers[0], answers[1]));
        }
        wrong.extend(different.into_iter().map(|it| format!("{method}: {it}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
