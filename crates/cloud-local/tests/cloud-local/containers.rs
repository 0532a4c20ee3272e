//! VMs as containers, on a machine of their own each: what a director, an operator and the machine's owner can rely on.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::container_networks::manual;
use crate::rig::own_machine::{STAYING, answers, is_own_machine, said, system};
use crate::rig::{Rig, kill_hard, read_json, request, runs, wait_for};
use serde_json::{Value, json};
use sha2::Digest;
use windlass_cloud_local::LocalCloud;

#[test]
fn a_container_has_a_root_processes_and_limits_of_its_own() {
    if !is_own_machine("containers::a_container_has_a_root_processes_and_limits_of_its_own") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let mut arguments = rig.container_arguments(&stemcell, json!({"default": {"type": "dynamic"}}));
    arguments[2] = json!({"memory": 48, "cpus": 0.5});
    let created = rig.ok("create_vm", arguments);
    let cid = created[0].as_str().unwrap();
    let other = rig.container(&stemcell, json!({"default": {"type": "dynamic"}}));

    assert_eq!(rig.inside(cid, "hostname").trim(), cid);
    // BOSH's agent would make it for root alone.
    let data = fs::metadata(rig.file(cid, "var/vcap/data")).unwrap().permissions().mode();
    assert_eq!(data & 0o777, 0o755, "jobs that run as vcap have everything below it");
    rig.inside(cid, "echo mine > /etc/motd");
    assert!(!rig.file(&other, "etc/motd").exists(), "what one VM writes no other sees");
    let root = rig.state().join("stemcells").join(stemcell.as_str().unwrap()).join("root");
    assert!(!root.join("etc/motd").exists(), "nor does the stemcell");
    let pid: u32 = wait_for(|| fs::read_to_string(rig.file(cid, "var/vcap/pid")).ok()?.trim().parse().ok());
    assert!(pid < 20, "processes are counted anew: {pid}");
    assert!(!rig.inside(cid, "cat /proc/mounts").contains(rig.path("").join("cpi.json").to_str().unwrap()));
    let group = group("memory", cid);
    let limit =
        ["memory.limit_in_bytes", "memory.max"].iter().find_map(|file| fs::read_to_string(group.join(file)).ok());
    assert_eq!(limit.unwrap().trim(), (48 << 20).to_string());
    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap();
    assert!(members.lines().any(|pid| pid == rig.init(cid).to_string()), "{members}");
    for command in ["echo 1 > /proc/sysrq-trigger", "echo 1 > /proc/sys/vm/drop_caches"] {
        let refused = rig.inside(cid, &format!("({command}) && echo did it"));
        assert!(!refused.contains("did it"), "{command}");
    }
    // What of the kernel's settings is not a network's is the machine's.
    let mounts = rig.inside(cid, "cat /proc/self/mountinfo");
    for setting in
        fs::read_dir("/proc/sys").unwrap().map(|entry| entry.unwrap().path()).filter(|it| !it.ends_with("net"))
    {
        assert!(mounts.contains(&format!(" {} ro,", setting.display())), "{}: {mounts}", setting.display());
    }
    let status = fs::read_to_string(format!("/proc/{}/status", rig.init(cid))).unwrap();
    let bounds = status.lines().find_map(|line| line.strip_prefix("CapBnd:")).unwrap();
    let bounds = u64::from_str_radix(bounds.trim(), 16).unwrap();
    for (name, number) in
        [("load modules", 16), ("look into processes", 19), ("set the clock", 25), ("make devices", 27)]
    {
        assert_eq!(bounds & 1 << number, 0, "nothing in a VM may {name}");
    }
}

#[test]
fn a_container_that_starts_more_and_more_processes_comes_to_an_end() {
    if !is_own_machine("containers::a_container_that_starts_more_and_more_processes_comes_to_an_end") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let usual = rig.container(&stemcell, json!({"default": {"type": "dynamic"}}));
    let mut arguments = rig.container_arguments(&stemcell, json!({"default": {"type": "dynamic"}}));
    arguments[2] = json!({"processes": 40});
    let created = rig.ok("create_vm", arguments);
    let cid = created[0].as_str().unwrap();
    rig.remember(cid);

    let limited = group("pids", cid);
    if !fs::exists(limited.join("pids.max")).unwrap() {
        assert!(!fs::exists("/sys/fs/cgroup/pids").unwrap());
        eprintln!("control groups of this machine do not count processes");
        return;
    }
    assert_eq!(fs::read_to_string(group("pids", &usual).join("pids.max")).unwrap().trim(), "8192");
    let storm = "echo $$ > $0/cgroup.procs && for i in $(seq 100); do sleep 60 > /dev/null 2>&1 & done";
    let output = Command::new("/bin/sh").args(["-c", storm]).arg(&limited).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).to_lowercase().contains("fork"), "{output:?}");
    rig.ok("delete_vm", json!([cid]));
    assert!(!fs::exists(&limited).unwrap(), "whatever is in a VM's group ends with it");
}

/// The control group of a VM, in either version.
fn group(controller: &str, cid: &str) -> PathBuf {
    let name = format!("windlass-{cid}");
    let v1 = Path::new("/sys/fs/cgroup").join(controller).join(&name);
    if v1.exists() { v1 } else { Path::new("/sys/fs/cgroup").join(name) }
}

#[test]
fn version_2_of_control_groups_will_do() {
    if !is_own_machine("containers::version_2_of_control_groups_will_do") {
        return;
    }
    said("mount", &["-t", "cgroup2", "none", "/sys/fs/cgroup"]);
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    // Without limits: what version 1 has of this machine's resources, version 2 cannot have.
    let mut arguments = rig.vm_arguments(&stemcell, manual("10.77.0.5"));
    arguments[2] = json!({});
    let created = rig.ok("create_vm", arguments);
    let cid = created[0].as_str().unwrap();
    rig.remember(cid);
    let members = fs::read_to_string(format!("/sys/fs/cgroup/windlass-{cid}/cgroup.procs")).unwrap();
    assert!(members.lines().any(|pid| pid == rig.init(cid).to_string()), "{members}");
    kill_hard(rig.supervisor(cid));
    rig.ok("reboot_vm", json!([cid]));
    assert!(answers("10.77.0.5"));
    rig.ok("delete_vm", json!([cid]));
    assert_eq!(rig.traces(), Vec::<String>::new());

    // The group itself must be free of processes where containers in the VM have limits.
    let mut arguments = rig.vm_arguments(&stemcell, manual("10.77.0.5"));
    arguments[2] = json!({"nesting": true});
    let created = rig.ok("create_vm", arguments);
    let cid = created[0].as_str().unwrap();
    rig.remember(cid);
    let group = |file: &str| fs::read_to_string(format!("/sys/fs/cgroup/windlass-{cid}/{file}")).unwrap();
    assert_eq!(group("cgroup.procs"), "");
    assert!(group("init/cgroup.procs").lines().any(|pid| pid == rig.init(cid).to_string()));
    assert_eq!(group("cgroup.subtree_control"), group("cgroup.controllers"));
    rig.ok("reboot_vm", json!([cid]));
    rig.ok("delete_vm", json!([cid]));
    assert_eq!(rig.traces(), Vec::<String>::new());
}

#[test]
fn a_deleted_container_leaves_no_trace_and_its_bridge_goes_with_the_last() {
    if !is_own_machine("containers::a_deleted_container_leaves_no_trace_and_its_bridge_goes_with_the_last") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let mut networks = manual("10.77.0.5");
    networks["vip"] = json!({"type": "vip", "ip": "192.0.2.9"});
    let (one, other) = (rig.container(&stemcell, networks), rig.container(&stemcell, manual("10.77.0.6")));
    assert!(rig.inside(&one, "ping -c 1 -W 2 10.77.0.6").contains("1 packets received"), "neighbours see each other");
    assert_eq!(said("ip", &["-o", "link"]).matches(": wl-").count(), 1);
    rig.ok("delete_vm", json!([one]));
    assert!(answers("10.77.0.6") && !answers("192.0.2.9"));
    rig.ok("delete_vm", json!([other]));
    assert_eq!(rig.traces(), Vec::<String>::new());
    assert!(rig.list("vms").is_empty());
    rig.ok("delete_vm", json!([other]));
}

#[test]
fn an_agent_that_ends_starts_again_among_its_mounts() {
    if !is_own_machine("containers::an_agent_that_ends_starts_again_among_its_mounts") {
        return;
    }
    let rig = Rig::of_containers();
    let agent = "#!/bin/sh\n[ -e /mnt/here ] || mount -t tmpfs none /mnt\ntouch /mnt/here\necho $$ >> /var/vcap/pids\n\
                 exec sleep 1000\n";
    let stemcell = rig.ok("create_stemcell", json!([system(&rig, agent, &[]), {}]));
    let cid = rig.container(&stemcell, json!({"default": {"type": "dynamic"}}));
    let init = rig.init(&cid);
    let starts = || {
        let text = fs::read_to_string(rig.file(&cid, "var/vcap/pids")).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let first = wait_for(|| starts().first().cloned());
    rig.inside(&cid, &format!("kill -9 {first}"));
    wait_for(|| (starts().len() > 1).then_some(()));
    assert_eq!(rig.init(&cid), init);
    assert_eq!(rig.inside(&cid, "cat /proc/mounts").matches(" /mnt ").count(), 1);
    let console = fs::read_to_string(rig.vm_folder(&cid).join("console.log")).unwrap();
    assert!(console.contains("the agent ended with signal 9"), "{console}");
    // The agent's log says the same.
    let log = fs::read_to_string(rig.file(&cid, "var/vcap/bosh/log/current")).unwrap();
    assert!(log.contains("the agent ended with signal 9"), "{log}");
}

#[test]
fn an_agent_finds_the_programs_beside_it() {
    if !is_own_machine("containers::an_agent_finds_the_programs_beside_it") {
        return;
    }
    let rig = Rig::of_containers();
    let agent = "#!/bin/sh\nbosh-agent-rc > /var/vcap/said 2>&1\nexec sleep 1000\n";
    let beside = [("var/vcap/bosh/bin/bosh-agent-rc", "#!/bin/sh\necho called\n")];
    let stemcell = rig.ok("create_stemcell", json!([system(&rig, agent, &beside), {}]));
    let cid = rig.container(&stemcell, json!({"default": {"type": "dynamic"}}));
    let said =
        wait_for(|| fs::read_to_string(rig.file(&cid, "var/vcap/said")).ok().filter(|text| text.ends_with('\n')));
    assert_eq!(said, "called\n", "the original agent does not boot without it");
}

#[test]
fn each_kind_of_init_runs_first() {
    if !is_own_machine("containers::each_kind_of_init_runs_first") {
        return;
    }
    let rig = Rig::of_containers();
    let init = "#!/bin/sh\necho $0 is $$ > /tmp/init\ntrap 'exit 0' HUP INT\nwhile true; do sleep 1; done\n";
    let runit = system(&rig, STAYING, &[("usr/sbin/runsvdir-start", init)]);
    let runit = rig.ok("create_stemcell", json!([runit, {}]));
    let systemd = [("sbin/init", init), ("lib/systemd/system/bosh-agent.service", "")];
    let systemd = rig.ok("create_stemcell", json!([system(&rig, STAYING, &systemd), {}]));
    for (stemcell, program) in [(runit, "/usr/sbin/runsvdir-start"), (systemd, "/sbin/init")] {
        let cid = rig.container(&stemcell, json!({"default": {"type": "dynamic"}}));
        let said = wait_for(|| fs::read_to_string(rig.file(&cid, "tmp/init")).ok().filter(|text| text.ends_with('\n')));
        assert_eq!(said, format!("{program} is 1\n"));
        // Else an init that makes groups would make them among the machine's own.
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", rig.init(&cid))).unwrap();
        assert!(groups.lines().all(|line| line.ends_with(&format!(":/windlass-{cid}"))), "{groups}");
        rig.ok("delete_vm", json!([cid]));
    }
    assert_eq!(rig.traces(), Vec::<String>::new());
}

#[test]
fn a_container_comes_back_after_the_machine_lost_everything_but_its_files() {
    if !is_own_machine("containers::a_container_comes_back_after_the_machine_lost_everything_but_its_files") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let cid = rig.container(&stemcell, manual("10.77.0.5"));
    let (supervisor, init) = (rig.supervisor(&cid), rig.init(&cid));
    rig.inside(&cid, "echo kept > /etc/motd");
    kill_hard(supervisor);
    wait_for(|| (!runs(init)).then_some(()));
    assert_eq!(rig.ok("has_vm", json!([cid])), json!(true), "a VM that is off exists");
    let bridge =
        read_json(&rig.vm_folder(&cid).join("vm.json"))["container"]["wiring"]["interfaces"][0]["bridge"].clone();
    said("ip", &["link", "del", bridge.as_str().unwrap()]);
    said("umount", &[rig.vm_folder(&cid).join("disks").to_str().unwrap()]);
    rig.ok("reboot_vm", json!([cid]));
    assert!(answers("10.77.0.5"));
    assert_eq!(fs::read_to_string(rig.file(&cid, "etc/motd")).unwrap(), "kept\n");
    let init = rig.init(&cid);
    rig.ok("reboot_vm", json!([cid]));
    assert!(!runs(init) && answers("10.77.0.5"));
    rig.ok("delete_vm", json!([cid]));
    assert_eq!(rig.traces(), Vec::<String>::new());
    assert!(rig.refused("reboot_vm", json!([cid])).starts_with("Bosh::Clouds::VMNotFound"));
}

#[test]
fn auto_takes_what_the_machine_allows() {
    if !is_own_machine("containers::auto_takes_what_the_machine_allows") {
        return;
    }
    let rig = Rig::new();
    rig.configure(json!({"state_dir": rig.state()}));
    let stemcell = rig.system_stemcell();
    let isolation = |cid: &Value| read_json(&rig.vm_folder(cid.as_str().unwrap()).join("vm.json"))["isolation"].clone();
    let container = rig.ok("create_vm", rig.container_arguments(&stemcell, json!({"a": {"type": "dynamic"}})));
    assert_eq!(isolation(&container[0]), "container");
    let loopback = json!({"a": {"type": "manual", "ip": crate::rig::address()}});
    let process = rig.ok("create_vm", rig.vm_arguments(&rig.stemcell(), loopback));
    assert_eq!(isolation(&process[0]), "process");

    // Root in name only.
    let powerless = ["--bounding-set", "-all", "--inh-caps", "-all"];
    let weak = |isolation: &str| {
        rig.configure(json!({"state_dir": rig.path("weak"), "isolation": isolation}));
        let asked = crate::rig::request("create_network", json!([{"type": "manual", "netmask_bits": 24}]), "cpi-1");
        let request = rig.path("request");
        fs::write(&request, asked.to_string()).unwrap();
        let output = Command::new("setpriv")
            .args(powerless)
            .args([env!("CARGO_BIN_EXE_local-cpi"), "cpi"])
            .arg(rig.path("cpi.json"))
            .stdin(fs::File::open(request).unwrap())
            .output()
            .unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let range = weak("auto")["result"][1]["range"].as_str().unwrap().to_owned();
    assert!(range.starts_with("127."), "{range}");
    let error = weak("container")["error"]["message"].as_str().unwrap().to_owned();
    assert!(error.contains("no containers") && error.contains("'process'"), "{error}");
    rig.configure(json!({"state_dir": rig.state()}));
}

#[test]
fn what_cannot_be_a_container_is_refused_and_leaves_nothing() {
    if !is_own_machine("containers::what_cannot_be_a_container_is_refused_and_leaves_nothing") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let dynamic = json!({"a": {"type": "dynamic"}});
    let refused = |stemcell: &Value, properties: Value, networks: &Value| {
        let mut arguments = rig.vm_arguments(stemcell, networks.clone());
        arguments[2] = properties;
        rig.refused("create_vm", arguments)
    };
    for (properties, words) in [
        (json!({"memory": 1}), "at least 16 MiB"),
        (json!({"memory": -5}), "above zero"),
        (json!({"cpus": "all"}), "above zero"),
        (json!({"ephemeral_disk": 1u64 << 38}), "NoDiskSpace"),
    ] {
        let error = refused(&stemcell, properties, &dynamic);
        assert!(error.contains(words), "{error}");
    }
    let loopback =
        refused(&stemcell, json!({}), &json!({"a": {"type": "manual", "ip": "127.0.0.9", "netmask": "255.0.0.0"}}));
    assert!(loopback.contains("process isolation"), "{loopback}");
    let elsewhere =
        json!({"Infrastructure": {"Settings": {"Sources": [{"Type": "CDROM", "FileName": "env"}]}}}).to_string();
    let image = system(&rig, STAYING, &[("var/vcap/bosh/agent.json", &elsewhere)]);
    let vsphere = rig.ok("create_stemcell", json!([image, {}]));
    assert!(refused(&vsphere, json!({}), &dynamic).contains("use a stemcell for containers"));
    // As the original's stemcells for containers have it, also those from before version 2.
    let warden = json!({"Infrastructure": {"Settings": {"Sources": [{"Type": "File", "SettingsPath": "/env.json"}]}}});
    let image = system(&rig, STAYING, &[("var/vcap/bosh/agent.json", &warden.to_string())]);
    let warden = rig.ok("create_stemcell", json!([image, {}]));
    let mut old = request("create_vm", rig.container_arguments(&warden, dynamic.clone()), "cpi-1");
    old["context"]["vm"]["stemcell"]["api_version"] = json!(1);
    old["context"]["registry"] = json!({"endpoint": "http://127.0.0.1:1", "user": "writer", "password": "s3cret"});
    let error = rig.send(&old, None).unwrap()["error"].to_string();
    assert!(error.contains("never asks a registry"), "it would wait for its settings for ever: {error}");
    let broken = rig.ok("create_stemcell", json!([system(&rig, "#!/bin/missing\n", &[]), {}]));
    let error = refused(&broken, json!({}), &dynamic);
    assert!(error.starts_with("Bosh::Clouds::VMCreationFailed") && error.contains("cannot run"), "{error}");
    assert!(rig.list("vms").is_empty() && rig.traces().is_empty(), "{:?} {:?}", rig.list("vms"), rig.traces());
}

#[test]
fn light_stemcells_are_used_where_they_are_and_windows_is_refused() {
    if !is_own_machine("containers::light_stemcells_are_used_where_they_are_and_windows_is_refused") {
        return;
    }
    let rig = Rig::of_containers();
    let images = rig.path("images");
    let folder = images.join("root");
    fs::create_dir_all(&folder).unwrap();
    said("tar", &["xzf", system(&rig, STAYING, &[]).to_str().unwrap(), "-C", folder.to_str().unwrap()]);
    let empty = rig.path("empty");
    fs::write(&empty, "").unwrap();
    let layout = oci_layout(&images, &system(&rig, STAYING, &[]));
    rig.configure(json!({"state_dir": rig.state(), "isolation": "container", "image_folders": [images]}));
    let by_folder = [folder.to_str().unwrap().to_owned(), format!("dir:{}", folder.display())];
    for reference in by_folder.into_iter().chain([format!("oci:{layout}"), format!("oci:{layout}:latest")]) {
        let stemcell = rig.ok("create_stemcell", json!([empty, {"image_reference": reference}]));
        let cid = rig.container(&stemcell, manual("10.77.0.5"));
        assert!(answers("10.77.0.5"));
        rig.inside(&cid, "echo x > /etc/written");
        rig.ok("delete_vm", json!([cid]));
        rig.ok("delete_stemcell", json!([stemcell]));
    }
    assert!(folder.join("bin/busybox").exists() && !folder.join("etc/written").exists());
    let fetched = rig.refused("create_stemcell", json!([empty, {"image_reference": "cf/stemcell:1.2"}]));
    assert!(fetched.contains("nothing is fetched"), "{fetched}");
    std::os::unix::fs::symlink(rig.state(), images.join("state")).unwrap();
    for elsewhere in [rig.state(), rig.path("not there"), images.join("state"), images.join("../state"), "/etc".into()]
    {
        let elsewhere = elsewhere.display();
        for reference in [format!("dir:{elsewhere}"), format!("oci:{elsewhere}:latest")] {
            let refused = rig.refused("create_stemcell", json!([empty, {"image_reference": reference}]));
            assert!(refused.contains("'image_folders'"), "{reference}: {refused}");
        }
    }
    rig.configure(json!({"state_dir": rig.state(), "isolation": "container"}));
    let unnamed =
        rig.refused("create_stemcell", json!([empty, {"image_reference": format!("dir:{}", folder.display())}]));
    assert!(unnamed.contains("'image_folders'"), "{unnamed}");
    let windows = rig.refused("create_stemcell", json!([system(&rig, STAYING, &[]), {"os_type": "windows"}]));
    assert!(windows.starts_with("Bosh::Clouds::NotSupported") && windows.contains("Windows"), "{windows}");
    assert!(rig.list("stemcells").is_empty());
}

/// An OCI layout whose one image has one layer.
fn oci_layout(images: &Path, layer: &Path) -> String {
    let layout = images.join("layout");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let store = |kind: &str, content: &[u8]| {
        let digest: String = sha2::Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(blobs.join(&digest), content).unwrap();
        json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": format!("sha256:{digest}"),
            "size": content.len()})
    };
    let layer = store("layer.v1.tar+gzip", &fs::read(layer).unwrap());
    let config = store("config.v1+json", b"{}");
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
    let mut manifest = store("manifest.v1+json", manifest.to_string().as_bytes());
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": "latest"});
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
    fs::write(layout.join("index.json"), json!({"schemaVersion": 2, "manifests": [manifest]}).to_string()).unwrap();
    layout.to_str().unwrap().to_owned()
}

/// Tries what programs in a container may want, and stays; in a VM that nests, with a container of its own, as it were.
const TRYING: &str = r#"#!/bin/sh
try() { name=$1; shift; if "$@" > /dev/null 2>&1; then echo "$name: done"; else echo "$name: refused"; fi; }
group() { mkdir "$1/nested" && echo $$ > "$1/nested/cgroup.procs"; }
{
    try mount mount -t tmpfs none /mnt
    try log busybox dmesg
    try namespaces busybox unshare -m -u -i -n -p -f true
    for hierarchy in /sys/fs/cgroup/memory /sys/fs/cgroup; do
        [ ! -e $hierarchy/cgroup.procs ] || break
    done
    try group group $hierarchy
    busybox grep -E 'Seccomp:|NoNewPrivs' /proc/self/status
} > /var/vcap/trying
busybox mv /var/vcap/trying /var/vcap/tried
busybox unshare -m -p -f sleep 1000 &
exec sleep 1000
"#;

#[test]
fn programs_in_a_container_make_another_one_only_with_nesting() {
    if !is_own_machine("containers::programs_in_a_container_make_another_one_only_with_nesting") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.ok("create_stemcell", json!([system(&rig, TRYING, &[]), {}]));
    let create = |nesting: Value| {
        let mut arguments = rig.container_arguments(&stemcell, json!({"default": {"type": "dynamic"}}));
        arguments[2] = json!({"memory": 64, "nesting": nesting});
        arguments
    };
    let tried = |cid: &str| wait_for(|| fs::read_to_string(rig.file(cid, "var/vcap/tried")).ok());
    let error = rig.refused("create_vm", create(json!("yes")));
    assert!(error.contains("'nesting' is \"yes\"; it must be true or false"), "{error}");
    assert!(rig.list("vms").is_empty());

    for (nesting, containers) in [(false, "refused"), (true, "done")] {
        let created = rig.ok("create_vm", create(json!(nesting)));
        let cid = created[0].as_str().unwrap();
        rig.remember(cid);
        let expected = format!(
            "mount: done\nlog: refused\nnamespaces: {containers}\ngroup: {containers}\nNoNewPrivs:\t0\nSeccomp:\t2\n"
        );
        assert_eq!(tried(cid), expected, "nesting: {nesting}");
        let status = LocalCloud::in_folder(&rig.state()).unwrap().status().unwrap();
        let vm = status.resources.iter().find(|resource| resource.cid == cid).unwrap();
        assert_eq!(vm.details.contains("nesting"), nesting, "{}", vm.details);
        rig.ok("delete_vm", json!([cid]));
        assert_eq!(rig.traces(), Vec::<String>::new(), "nesting: {nesting}");
    }
}

#[test]
fn a_container_that_was_made_before_there_was_a_filter_stays_as_it_was() {
    if !is_own_machine("containers::a_container_that_was_made_before_there_was_a_filter_stays_as_it_was") {
        return;
    }
    let rig = Rig::of_containers();
    let cid = rig.container(&rig.system_stemcell(), json!({"default": {"type": "dynamic"}}));
    let filters = || {
        let status = fs::read_to_string(format!("/proc/{}/status", rig.init(&cid))).unwrap();
        status.lines().find_map(|line| line.strip_prefix("Seccomp:")).unwrap().trim().to_owned()
    };
    assert_eq!(filters(), "2");
    let path = rig.vm_folder(&cid).join("vm.json");
    let mut record = read_json(&path);
    assert_eq!(record["container"].as_object_mut().unwrap().remove("confinement"), Some(json!("filtered")));
    fs::write(&path, record.to_string()).unwrap();
    rig.ok("reboot_vm", json!([cid]));
    assert_eq!(filters(), "0");
}
