//! Jobs on VMs of the embedded cloud, told to the agent as a director tells it.

use std::fs;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use windlass_agent_client::Outcome;
use windlass_contract::Object;
use windlass_rigs::own_machine::is_own_machine;

use crate::data_survives::{Site, Vm};

const CTL: &str = "#!/bin/sh\nrun=/var/vcap/sys/run/web\nmkdir -p $run\ncase $1 in\n\
    start) cp /var/vcap/jobs/web/config/greeting $run/; cat /var/vcap/packages/tool/word >> $run/greeting\n\
    sleep 1000 & echo $! > $run/pid ;;\nstop) kill $(cat $run/pid); rm $run/pid ;;\nesac\n";
const MONIT: &str = "check process web\n  with pidfile /var/vcap/sys/run/web/pid\n\
    start program \"/var/vcap/jobs/web/bin/ctl start\"\n  stop program \"/var/vcap/jobs/web/bin/ctl stop\"\n  group vcap\n";

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// Hands a blob to the agent; gives what a spec says about it.
fn blob(site: &Site, vm: &Vm, id: &str, content: &[u8]) -> Value {
    let path = site.folder.path().join("outgoing");
    fs::write(&path, content).unwrap();
    site.runtime.block_on(vm.agent.put_blob(id, &path)).unwrap();
    let sha1: String = Sha1::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    json!({"blobstore_id": id, "sha1": sha1})
}

/// A spec with one job, whose greeting this is, and one package.
fn spec(site: &Site, vm: &Vm, greeting: &str) -> Object {
    let files = [("web/monit", MONIT), ("web/bin/ctl", CTL), ("web/config/greeting", greeting)];
    let pre_start = ("web/bin/pre-start", "#!/bin/sh\necho prepared > /var/vcap/data/web/pre-start\n");
    let rendered = blob(site, vm, &format!("rendered-{greeting}"), &archive(&[&files[..], &[pre_start]].concat()));
    let mut tool = blob(site, vm, "tool", &archive(&[("word", "world")]));
    tool["name"] = "tool".into();
    tool["version"] = "1".into();
    let spec = json!({"deployment": "d", "name": "web", "id": "i", "index": 0, "configuration_hash": greeting, "networks": {},
        "job": {"name": "web", "templates": [{"name": "web", "version": "1"}]}, "packages": {"tool": tool},
        "rendered_templates_archive": rendered});
    spec.as_object().unwrap().clone()
}

fn until_running(site: &Site, vm: &Vm) -> Value {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let state = site.runtime.block_on(vm.agent.get_state(true));
        if let Ok(state) = &state
            && state.job_state == "running"
            && !state.processes.is_empty()
        {
            return state.processes[0].clone();
        }
        assert!(Instant::now() < deadline, "{state:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_job_runs_in_a_container_from_its_archive_to_its_process_and_comes_back_after_a_reboot() {
    if !is_own_machine("jobs::a_job_runs_in_a_container_from_its_archive_to_its_process_and_comes_back_after_a_reboot")
    {
        return;
    }
    let site = Site::with("container", &[]);
    let vm = site.vm();
    let apply = |greeting: &str| {
        let spec = spec(&site, &vm, greeting);
        site.runtime.block_on(async {
            vm.agent.prepare(&spec).await.unwrap();
            vm.agent.stop().await.unwrap();
            vm.agent.apply(&spec).await.unwrap();
            assert_eq!(vm.agent.run_script("pre-start", &Object::new()).await.unwrap(), Outcome::Done);
            vm.agent.start().await.unwrap();
        });
        until_running(&site, &vm)
    };
    let read = |path: &str| fs::read_to_string(site.root(&vm).join("var/vcap").join(path)).unwrap_or_default();
    let process = apply("hello ");
    assert_eq!((&process["name"], &process["state"]), (&json!("web"), &json!("running")));
    assert_eq!(read("data/web/pre-start"), "prepared\n");
    assert_eq!(read("data/sys/run/web/greeting"), "hello world");
    let first = read("data/sys/run/web/pid");

    apply("goodbye ");
    assert_eq!(read("data/sys/run/web/greeting"), "goodbye world", "other content restarts it");
    assert_ne!(read("data/sys/run/web/pid"), first);

    site.ok("reboot_vm", json!([vm.cid]));
    site.runtime.block_on(vm.agent.wait_until_ready(Duration::from_secs(60))).unwrap();
    until_running(&site, &vm);
    assert_eq!(read("data/sys/run/web/greeting"), "goodbye world", "started again after the boot");
    site.runtime.block_on(vm.agent.stop()).unwrap();
    assert_eq!(site.runtime.block_on(vm.agent.get_state(false)).unwrap().job_state, "stopped");
    site.ok("reboot_vm", json!([vm.cid]));
    site.runtime.block_on(vm.agent.wait_until_ready(Duration::from_secs(60))).unwrap();
    assert_eq!(site.runtime.block_on(vm.agent.get_state(false)).unwrap().job_state, "stopped", "and stays stopped");
    assert_eq!(read("data/sys/run/web/pid"), "");
}
