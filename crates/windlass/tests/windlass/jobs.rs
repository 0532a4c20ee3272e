//! Jobs on VMs of the embedded cloud, told to the agent as a director tells it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use windlass_agent_client::Outcome;
use windlass_contract::Object;
use windlass_rigs::ordinary_user::is_ordinary_user;
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
fn spec(site: &Site, vm: &Vm, greeting: &str, pre_start: &str) -> Object {
    let files = [("web/monit", MONIT), ("web/bin/ctl", CTL), ("web/config/greeting", greeting)];
    let pre_start = ("web/bin/pre-start", pre_start);
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

const PREPARED: &str = "#!/bin/sh\necho prepared > /var/vcap/data/web/pre-start\n";

/// Brings the job to a VM, as a director does.
fn apply(site: &Site, vm: &Vm, greeting: &str, pre_start: &str) -> Value {
    let spec = spec(site, vm, greeting, pre_start);
    site.runtime.block_on(async {
        vm.agent.prepare(&spec).await.unwrap();
        vm.agent.stop().await.unwrap();
        vm.agent.apply(&spec).await.unwrap();
        assert_eq!(vm.agent.run_script("pre-start", &Object::new()).await.unwrap(), Outcome::Done);
        vm.agent.start().await.unwrap();
    });
    until_running(site, vm)
}

/// A file below `/var/vcap` of a VM.
fn read(site: &Site, vm: &Vm, path: &str) -> String {
    fs::read_to_string(site.root(vm).join("var/vcap").join(path)).unwrap_or_default()
}

/// A job from its archive to its process, changed, over reboots, and stopped.
fn a_job_lives(site: &Site) {
    let vm = site.vm();
    let read = |path: &str| read(site, &vm, path);
    let process = apply(site, &vm, "hello ", PREPARED);
    assert_eq!((&process["name"], &process["state"]), (&json!("web"), &json!("running")));
    assert_eq!(read("data/web/pre-start"), "prepared\n");
    assert_eq!(read("data/sys/run/web/greeting"), "hello world");
    let first = read("data/sys/run/web/pid");

    apply(site, &vm, "goodbye ", PREPARED);
    assert_eq!(read("data/sys/run/web/greeting"), "goodbye world", "other content restarts it");
    assert_ne!(read("data/sys/run/web/pid"), first);

    site.ok("reboot_vm", json!([vm.cid]));
    site.runtime.block_on(vm.agent.wait_until_ready(Duration::from_secs(60))).unwrap();
    until_running(site, &vm);
    assert_eq!(read("data/sys/run/web/greeting"), "goodbye world", "started again after the boot");
    site.runtime.block_on(vm.agent.stop()).unwrap();
    assert_eq!(site.runtime.block_on(vm.agent.get_state(false)).unwrap().job_state, "stopped");
    site.ok("reboot_vm", json!([vm.cid]));
    site.runtime.block_on(vm.agent.wait_until_ready(Duration::from_secs(60))).unwrap();
    assert_eq!(site.runtime.block_on(vm.agent.get_state(false)).unwrap().job_state, "stopped", "and stays stopped");
    assert_eq!(read("data/sys/run/web/pid"), "");
}

#[test]
fn a_job_runs_in_a_container_from_its_archive_to_its_process_and_comes_back_after_a_reboot() {
    if is_own_machine("jobs::a_job_runs_in_a_container_from_its_archive_to_its_process_and_comes_back_after_a_reboot") {
        a_job_lives(&Site::with("container", &[]));
    }
}

/// With the programs of this machine, which its jobs can use and not change.
const HOST: [&str; 2] = ["--userland", "host"];

#[test]
fn a_job_runs_in_a_container_with_the_programs_of_the_machine() {
    if is_own_machine("jobs::a_job_runs_in_a_container_with_the_programs_of_the_machine") {
        let site = Site::with("container", &HOST);
        a_job_lives(&site);
        tries_all_it_can(&site);
    }
}

#[test]
fn a_job_runs_in_a_root_of_its_own_and_nothing_of_the_machine_changes() {
    if is_own_machine("jobs::a_job_runs_in_a_root_of_its_own_and_nothing_of_the_machine_changes") {
        let site = Site::with("process", &HOST);
        a_job_lives(&site);
        tries_all_it_can(&site);
    }
}

#[test]
fn a_job_of_an_ordinary_user_runs_in_a_root_of_its_own_and_nothing_of_the_machine_changes() {
    let name = "jobs::a_job_of_an_ordinary_user_runs_in_a_root_of_its_own_and_nothing_of_the_machine_changes";
    if is_ordinary_user(name) {
        let site = Site::with("process", &HOST);
        a_job_lives(&site);
        tries_all_it_can(&site);
    }
}

/// What it tries is not to succeed; what it compiles is to run.
const TRIES: &str = r#"#!/bin/sh
cd /var/vcap/data/web
for file in /usr/evil /usr/bin/evil /usr/lib/evil /usr/local/evil /etc/alternatives/evil OTHER/evil; do
    echo evil > $file && echo "wrote $file"
done 2> /dev/null > wrote
echo evil > /etc/evil
useradd evil
sysctl -w kernel.panic=77
echo 77 > /proc/sys/kernel/panic
ls -A /usr/local /home/* /root > homes
if [ -x /usr/bin/gcc ]; then
    echo 'int main(void) { return 42; }' > answer.c && gcc -o answer answer.c && ./answer
    echo $? > compiled
fi
[ ! -x /usr/bin/python3 ] || python3 -c 'print(6 * 7)' > python
grep vcap /etc/passwd > accounts
setpriv --reuid vcap --regid vcap --init-groups sh -c 'id -un; cat /var/vcap/jobs/web/config/greeting; echo x > /var/vcap/sys/run/by-vcap' > vcap 2>&1
echo > tried
exit 0
"#;

fn tries_all_it_can(site: &Site) {
    let (other, vm) = (site.vm(), site.vm());
    let folder = site.state().join("vms").join(&other.cid);
    let panic = fs::read_to_string("/proc/sys/kernel/panic").unwrap();
    let accounts = fs::read("/etc/passwd").unwrap();
    apply(site, &vm, "hello ", &TRIES.replace("OTHER", folder.to_str().unwrap()));
    let read = |path: &str| read(site, &vm, &format!("data/web/{path}"));
    assert_eq!(read("tried"), "\n");
    assert_eq!(read("wrote"), "", "nothing of the machine can be written");
    let homes = read("homes");
    assert!(homes.lines().all(|line| line.is_empty() || line.ends_with(':')), "{homes}");
    assert!(read("accounts").starts_with("vcap:x:"));
    if rustix::process::geteuid().is_root() {
        assert_eq!(read("vcap"), "vcap\nhello ", "what is the job's, its user reads");
        assert_eq!(self::read(site, &vm, "data/sys/run/by-vcap"), "x\n");
    }
    if Path::new("/usr/bin/gcc").exists() {
        assert_eq!(read("compiled"), "42\n");
    }
    if Path::new("/usr/bin/python3").exists() {
        assert_eq!(read("python"), "42\n");
    }
    for file in ["/usr/evil", "/usr/bin/evil", "/etc/evil", "/etc/alternatives/evil"] {
        assert!(!Path::new(file).exists(), "{file}");
    }
    assert!(!folder.join("evil").exists());
    assert_eq!(fs::read_to_string("/proc/sys/kernel/panic").unwrap(), panic);
    assert_eq!(fs::read("/etc/passwd").unwrap(), accounts);
    let init = site.root(&vm);
    for vm in [&vm, &other] {
        site.ok("delete_vm", json!([vm.cid]));
    }
    assert!(!init.exists(), "its first process ended, and with it all others");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&vm.cid) && !mounts.contains(&other.cid), "{mounts}");
}
