//! Scripts that hang, in tasks that are cancelled: both end, with all that the script started.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::release::{Job, Release};
use super::stand::{Scene, Stand, group};

/// It would take hours otherwise.
const SOON: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(60);

/// It hangs, and so does what it started, in a session of its own. Each says once that it is there.
const HANGS: &str = "#!/bin/sh\n\
    [ -e <%= p('pids') %>.hang ] || { echo 0; exit 0; }\n\
    setsid sh -c 'echo $$ >> <%= p(\"pids\") %>; while :; do sleep 0.1; done' &\n\
    echo $$ >> <%= p('pids') %>\n\
    while :; do sleep 0.1; done\n";

fn pids(file: &str) -> Vec<u32> {
    fs::read_to_string(file).unwrap_or_default().lines().map(|line| line.parse().unwrap()).collect()
}

fn wait_for(what: &str, patience: Duration, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends what a test that fails left.
struct Hanging(String);

impl Drop for Hanging {
    fn drop(&mut self) {
        for pid in pids(&self.0) {
            let _ = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
    }
}

fn is_running(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// A drain may take hours, and nobody else can work on the deployment meanwhile.
#[test]
fn a_script_that_hangs_ends_with_its_task() {
    let stand = Stand::new();
    let properties = "properties: {pids: {}}";
    let scripts = ["pre-start", "pre-stop", "drain", "post-deploy"];
    let mut release = Release::new("kit", "1");
    for script in scripts {
        release = release.job(Job::new(script, properties).template(&format!("bin/{script}"), HANGS));
    }
    stand.upload(&release);
    for script in scripts {
        let scene = Scene { stand: &stand, name: script.to_owned() };
        let file = scene.log();
        let job = json!({"name": script, "release": "kit", "properties": {"pids": file}});
        let manifest = scene.manifest(json!([group("web", 1, json!([job]))]));
        let starts = ["pre-start", "post-deploy"].contains(&script);
        if !starts {
            scene.deploy_manifest(&manifest);
        }
        fs::write(format!("{file}.hang"), "").unwrap();
        let hanging = Hanging(file);
        let answer = match starts {
            true => scene.client().send("POST", "/deployments", "text/yaml", manifest.to_string()),
            false => {
                let path = format!("/deployments/{}/jobs/web?state=stopped", scene.name);
                scene.client().send("PUT", &path, "text/yaml", "")
            }
        };
        let task = answer.headers["location"].to_str().unwrap().to_owned();
        wait_for(&format!("{script} does not hang"), PATIENCE, || pids(&hanging.0).len() == 2);
        let cancelled = Instant::now();
        let cancellation = scene.client().send("DELETE", &task.replace("/tasks/", "/task/"), "", "");
        assert!(cancellation.status.is_success(), "{}", cancellation.text());
        let ended = scene.client().finish(&task);
        assert_eq!(ended.state, "cancelled", "{script}: {ended:?}");
        assert!(cancelled.elapsed() < SOON, "{script}: {:?}", cancelled.elapsed());
        for pid in pids(&hanging.0) {
            wait_for(&format!("{script} goes on"), PATIENCE, || !is_running(pid));
        }
        // And nothing stays locked or broken.
        fs::remove_file(format!("{}.hang", hanging.0)).unwrap();
        fs::remove_file(&hanging.0).unwrap();
        scene.deploy_manifest(&manifest);
        scene.changed("web", "state=stopped");
    }
}
