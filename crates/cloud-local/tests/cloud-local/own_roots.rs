//! VMs that are processes and have a root file system of their own, for the jobs of releases.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use windlass_rigs::ordinary_user::is_ordinary_user;

use crate::kill_points::{FEWEST_POINTS, sweep};
use crate::rig::{Rig, kill_hard, read_json, request, runs, unique, wait_for};

/// Tells what it sees, tries what it must not be able to do, and stays.
const CURIOUS: &str = r#"#!/bin/sh
cd /var/vcap
echo "$*" > arguments
ls / > root
ls -A /usr/local /home /root > hidden
id -u > user
echo evil > /etc/evil; echo evil > /usr/evil; mount -o remount,rw /usr; echo evil > /usr/evil
echo 77 > /proc/sys/kernel/panic; umount -l /proc/sys; echo 77 > /proc/sys/kernel/panic
useradd evil
echo evil > OTHER/evil
kill -9 OUTSIDER
chmod 777 /dev/null /proc/keys /proc/1/exe /var/vcap/bosh/bin/bosh-agent
echo '# evil' >> /var/vcap/bosh/bin/bosh-agent
GROUPS=$(unshare --cgroup --mount sh -c 'mount -t cgroup2 none /mnt && mkdir /mnt/evil && rmdir /mnt/evil && echo made' 2>&1)
echo "$GROUPS" > groups
grep Seccomp: /proc/self/status > filter
ls -d OTHER > other 2>&1
echo done > done
exec sleep 1000
"#;

/// Says that it runs, leaves an orphan in a session of its own, and stays.
const STAYING: &str = "#!/bin/sh\nsetsid sleep 1000 &\necho $$ > /var/vcap/pid\nexec sleep 1000\n";

impl Rig {
    /// A stemcell with the programs of this machine.
    fn host_stemcell(&self, agent: &str) -> Value {
        let path = self.path("image");
        let mut tar = tar::Builder::new(GzEncoder::new(fs::File::create(&path).unwrap(), Compression::fast()));
        let accounts = "root:x:0:0:root:/root:/bin/sh\nvcap:x:1000:1000:vcap:/home/vcap:/bin/sh\n";
        for (name, text) in [
            ("etc/passwd", accounts),
            ("etc/group", "root:x:0:\nvcap:x:1000:\n"),
            ("var/vcap/bosh/bin/bosh-agent", agent),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o755);
            header.set_uid(0);
            header.set_gid(0);
            tar.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
        self.ok("create_stemcell", json!([path, {"name": "test", "userland": "host"}]))
    }

    fn process(&self, cid: &str, name: &str) -> u32 {
        let record = read_json(&self.vm_folder(cid).join("supervisor.json"));
        u32::try_from(record[name]["pid"].as_u64().unwrap()).unwrap()
    }

    /// A file that a VM wrote, once it is there.
    fn written(&self, cid: &str, name: &str) -> String {
        let path = self.vm_folder(cid).join("base").join(name);
        wait_for(|| fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n')))
    }

    /// The processes of VMs with roots of their own, in this rig.
    fn left(&self) -> Vec<String> {
        let mark = self.path("").display().to_string();
        let mut left = Vec::new();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            let said = String::from_utf8_lossy(&command).replace('\0', " ");
            if (said.contains("vm-r") && said.contains(&mark))
                || String::from_utf8_lossy(&environment).contains(&format!("WINDLASS_VM={mark}"))
            {
                left.push(said);
            }
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        left.extend(mounts.lines().filter(|line| line.contains(&mark)).map(str::to_owned));
        left
    }
}

/// What a VM sees at an absolute path.
fn inside(init: u32, path: &Path) -> PathBuf {
    Path::new("/proc").join(init.to_string()).join("root").join(path.strip_prefix("/").unwrap())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode()
}

/// Everything in a folder that could have been changed, by name and content.
fn listing(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(&path).unwrap_or_default()))
        .filter(|(path, _)| !path.ends_with("console.log"))
        .collect();
    found.sort();
    found
}

fn nothing_of_the_machine_changes() {
    let rig = Rig::new();
    let other = rig.vm(&rig.host_stemcell(STAYING));
    rig.written(&other, "pid");
    let other_folder = rig.vm_folder(&other);
    let mut outsider = Command::new("sleep").arg("1000").spawn().unwrap();
    let agent =
        CURIOUS.replace("OTHER", other_folder.to_str().unwrap()).replace("OUTSIDER", &outsider.id().to_string());
    let panic = fs::read_to_string("/proc/sys/kernel/panic").unwrap();
    let accounts = fs::read("/etc/passwd").unwrap();
    let others = listing(&other_folder);
    let of_machine = || [mode(Path::new("/dev/null")), mode(Path::new(env!("CARGO_BIN_EXE_local-cpi")))];
    let modes = of_machine();
    let stemcell = rig.host_stemcell(&agent);
    let program =
        rig.state().join("stemcells").join(stemcell.as_str().unwrap()).join("root/var/vcap/bosh/bin/bosh-agent");
    assert_eq!(fs::read_to_string(&program).unwrap(), agent);
    let cid = rig.vm(&stemcell);
    assert_eq!(rig.written(&cid, "done"), "done\n");
    assert_eq!(rig.written(&cid, "arguments"), "-P directory -C /var/vcap/bosh/agent.json -b /var/vcap\n");
    assert_eq!(rig.written(&cid, "user"), "0\n");
    let root = rig.written(&cid, "root");
    assert!(root.contains("usr") && root.contains("etc") && !root.contains("lost+found"), "{root}");
    let hidden = fs::read_to_string(rig.vm_folder(&cid).join("base/hidden")).unwrap();
    assert!(hidden.lines().all(|line| line.is_empty() || line.ends_with(':') || line == "vcap"), "{hidden}");
    assert!(rig.written(&cid, "other").contains("No such file"), "VMs do not see each other");

    assert!(!Path::new("/etc/evil").exists() && !Path::new("/usr/evil").exists());
    assert_eq!(fs::read_to_string("/proc/sys/kernel/panic").unwrap(), panic);
    assert_eq!(fs::read("/etc/passwd").unwrap(), accounts);
    assert_eq!(listing(&other_folder), others);
    assert_eq!(of_machine(), modes, "devices and programs are the machine's");
    assert_eq!(fs::read_to_string(&program).unwrap(), agent, "agents are those of all VMs");
    assert_eq!(rig.written(&cid, "filter"), "Seccomp:\t2\n", "keyrings belong to the user who runs the cloud");
    let groups = rig.written(&cid, "groups");
    assert!(!groups.contains("made"), "control groups are the machine's: {groups}");
    assert!(outsider.try_wait().unwrap().is_none(), "processes outside are nobody's inside");
    outsider.kill().unwrap();
    outsider.wait().unwrap();
    let console = fs::read_to_string(rig.vm_folder(&cid).join("console.log")).unwrap();
    assert_eq!(console.contains("'vcap' another name of it"), !rustix::process::geteuid().is_root(), "{console}");
    for cid in [cid, other] {
        rig.ok("delete_vm", json!([cid]));
    }
    assert_eq!(rig.left(), Vec::<String>::new());
    assert!(rig.list("vms").is_empty());
}

#[test]
fn a_vm_in_a_root_of_its_own_changes_nothing_of_the_machine() {
    nothing_of_the_machine_changes();
}

#[test]
fn a_vm_of_an_ordinary_user_in_a_root_of_its_own_changes_nothing_of_the_machine() {
    if is_ordinary_user("own_roots::a_vm_of_an_ordinary_user_in_a_root_of_its_own_changes_nothing_of_the_machine") {
        nothing_of_the_machine_changes();
    }
}

/// Puts links to OUTSIDE in the place of what is in its folder, and stays.
const PLANTING: &str = r#"#!/bin/sh
cd /var/vcap
[ ! -e planted ] || exec sleep 1000
for name in NAMES; do
    mkdir -p "$(dirname $name)"
    mv "$name" "$name.before"
    ln -s "OUTSIDE/$(basename $name)" "$name"
done
echo planted > planted
exec sleep 1000
"#;

fn links_lead_nowhere() {
    let rig = Rig::new();
    let outside = rig.path("outside");
    fs::create_dir(&outside).unwrap();
    for folder in ["root_log", "root_tmp", "data", "bosh"] {
        fs::create_dir(outside.join(folder)).unwrap();
        fs::set_permissions(outside.join(folder), fs::Permissions::from_mode(0o750)).unwrap();
    }
    fs::write(outside.join("agent.json"), "precious").unwrap();
    let found = || {
        let mut found = listing(&outside);
        for folder in ["data", "bosh", "root_log", "root_tmp"] {
            assert_eq!(mode(&outside.join(folder)) & 0o7777, 0o750, "{folder}");
            found.extend(listing(&outside.join(folder)));
        }
        found
    };
    let before = found();
    for names in [
        "data/root_log",
        "data/root_tmp",
        "bosh/agent.json bosh/warden-cpi-agent-env.json bosh/etc_hosts",
        "data",
        "bosh",
    ] {
        let agent = PLANTING.replace("OUTSIDE", outside.to_str().unwrap()).replace("NAMES", names);
        let cid = rig.vm(&rig.host_stemcell(&agent));
        rig.written(&cid, "planted");
        let answer = rig.ask("reboot_vm", json!([cid]));
        assert_eq!(found(), before, "{names}: {answer}");
        let base = rig.vm_folder(&cid).join("base");
        match answer["error"]["message"].as_str() {
            Some(why) => assert!(why.contains("is a link that leads nowhere"), "{why}"),
            // What is written at each start takes the place of the link.
            None => {
                assert!(!base.join("bosh/agent.json").is_symlink() && base.join("bosh/etc_hosts").is_file(), "{names}")
            }
        }
        rig.ok("delete_vm", json!([cid]));
    }
    assert_eq!(found(), before);
}

#[test]
fn links_that_a_vm_puts_in_its_folder_lead_nowhere_at_its_next_start() {
    links_lead_nowhere();
}

#[test]
fn links_of_a_vm_of_an_ordinary_user_lead_nowhere_at_its_next_start() {
    if is_ordinary_user("own_roots::links_of_a_vm_of_an_ordinary_user_lead_nowhere_at_its_next_start") {
        links_lead_nowhere();
    }
}

fn disks_come_and_go() {
    let rig = Rig::new();
    let stemcell = rig.host_stemcell(STAYING);
    let (vm, neighbour) = (rig.vm(&stemcell), rig.vm(&stemcell));
    let [first, second] = [(); 2].map(|()| rig.ok("create_disk", json!([1, {}, null])));
    let attach =
        |vm: &str, disk: &Value| PathBuf::from(rig.ok("attach_disk", json!([vm, disk]))["path"].as_str().unwrap());
    let place = attach(&vm, &first);
    let foreign = attach(&neighbour, &second);
    fs::write(place.join("data"), "precious").unwrap();
    let init = rig.process(&vm, "init");
    assert_eq!(fs::read(inside(init, &place).join("data")).unwrap(), b"precious");
    fs::write(inside(init, &place).join("more"), "from inside").unwrap();
    assert_eq!(fs::read(place.join("more")).unwrap(), b"from inside");
    assert!(!inside(init, &foreign).exists(), "a disk of another VM is not there");

    rig.ok("reboot_vm", json!([vm]));
    let init = rig.process(&vm, "init");
    assert_eq!(fs::read(inside(init, &place).join("data")).unwrap(), b"precious", "shown again by a boot");
    // A process that is in the folder does not keep the disk.
    let _user = fs::File::open(inside(init, &place)).unwrap();
    rig.ok("detach_disk", json!([vm, first]));
    assert!(!inside(init, &place).exists() && place.join("data").exists());
    assert_eq!(attach(&neighbour, &first), place);
    assert!(inside(rig.process(&neighbour, "init"), &place).join("data").exists());
    rig.ok("delete_vm", json!([neighbour]));
    rig.ok("delete_disk", json!([first]));
}

#[test]
fn disks_come_and_go_in_a_root_of_its_own_without_a_restart() {
    disks_come_and_go();
}

#[test]
fn disks_of_an_ordinary_user_come_and_go_in_a_root_of_its_own() {
    if is_ordinary_user("own_roots::disks_of_an_ordinary_user_come_and_go_in_a_root_of_its_own") {
        disks_come_and_go();
    }
}

#[test]
fn create_vm_killed_anywhere_makes_one_vm_with_a_root_of_its_own() {
    let rig = Rig::new();
    let stemcell = rig.host_stemcell(STAYING);
    sweep(
        &rig,
        |rig| request("create_vm", rig.vm_arguments(&stemcell, json!({"default": {"type": "dynamic"}})), &unique()),
        |rig, _, created| {
            let cid = created[0].as_str().unwrap();
            assert_eq!(rig.list("vms"), [cid]);
            rig.written(cid, "pid");
            let init = rig.process(cid, "init");
            assert!(runs(init));
            rig.ok("delete_vm", json!([cid]));
            assert!(rig.list("vms").is_empty() && !runs(init));
            assert_eq!(rig.left(), Vec::<String>::new());
        },
    );
}

#[test]
fn delete_vm_killed_anywhere_leaves_nothing_of_a_root_of_its_own() {
    let rig = Rig::new();
    let stemcell = rig.host_stemcell(STAYING);
    for is_supervised in [true, false] {
        sweep(
            &rig,
            |rig| {
                let vm = rig.vm(&stemcell);
                let disk = rig.ok("create_disk", json!([1, {}, vm]));
                rig.ok("attach_disk", json!([vm, disk]));
                if !is_supervised {
                    kill_hard(rig.process(&vm, "process"));
                }
                request("delete_vm", json!([vm, disk]), &unique())
            },
            |rig, asked, _| {
                assert!(rig.list("vms").is_empty());
                assert_eq!(rig.left(), Vec::<String>::new());
                rig.ok("delete_disk", json!([asked["arguments"][1]]));
            },
        );
    }
}

#[test]
fn disks_attached_and_detached_by_calls_killed_anywhere_are_seen_as_recorded_in_a_root() {
    let rig = Rig::new();
    let vm = rig.vm(&rig.host_stemcell(STAYING));
    let init = rig.process(&vm, "init");
    let disk = rig.ok("create_disk", json!([1, {}, null]));
    let place = rig.state().join("disks").join(disk.as_str().unwrap()).join("data");
    for method in ["attach_disk", "detach_disk"] {
        let before = if method == "attach_disk" { "detach_disk" } else { "attach_disk" };
        sweep(
            &rig,
            |rig| {
                rig.ok(before, json!([vm, disk]));
                request(method, json!([vm, disk]), &unique())
            },
            |_, _, _| assert_eq!(inside(init, &place).exists(), method == "attach_disk"),
        );
    }
}

#[test]
fn reboot_vm_killed_anywhere_ends_with_a_vm_in_a_root_of_its_own() {
    let rig = Rig::new();
    let vm = rig.vm(&rig.host_stemcell(STAYING));
    for is_supervised in [true, false] {
        sweep(
            &rig,
            |rig| {
                if !is_supervised {
                    kill_hard(rig.process(&vm, "process"));
                }
                request("reboot_vm", json!([vm]), &unique())
            },
            |rig, _, _| assert!(runs(rig.process(&vm, "init"))),
        );
    }
}

/// The supervisor killed at each step of its start, in place of the CPI.
#[test]
fn a_supervisor_killed_anywhere_leaves_nothing_of_a_root_of_its_own() {
    let rig = Rig::new();
    let stemcell = rig.host_stemcell(STAYING);
    let script = rig.path("windlass");
    for point in 1.. {
        let text = format!("#!/bin/sh\nWINDLASS_KILL_AT={point} exec {} \"$@\"\n", env!("CARGO_BIN_EXE_local-cpi"));
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        rig.configure(json!({"state_dir": rig.state(), "isolation": "process", "windlass": script}));
        let answer = rig.ask("create_vm", rig.vm_arguments(&stemcell, json!({"default": {"type": "dynamic"}})));
        if answer["error"].is_null() {
            assert!(point > FEWEST_POINTS);
            assert!(
                read_json(&rig.vm_folder(answer["result"][0].as_str().unwrap()).join("vm.json"))["own_root"]
                    .is_object()
            );
            rig.ok("delete_vm", json!([answer["result"][0]]));
            assert_eq!(rig.left(), Vec::<String>::new());
            return;
        }
        assert_eq!(answer["error"]["type"], "Bosh::Clouds::VMCreationFailed");
        assert!(answer["error"]["message"].as_str().unwrap().contains("killed at point"), "{answer}");
        assert!(rig.list("vms").is_empty(), "killed at point {point}");
        assert_eq!(rig.left(), Vec::<String>::new(), "killed at point {point}");
    }
}

#[test]
fn an_agent_that_ends_is_started_again_in_its_root_and_one_that_powers_off_is_not() {
    let rig = Rig::new();
    let agent = "#!/bin/sh\necho x >> /var/vcap/starts\n[ $(grep -c x /var/vcap/starts) -lt 3 ] || exec sleep 1000\n";
    let vm = rig.vm(&rig.host_stemcell(agent));
    wait_for(|| (rig.written(&vm, "starts").lines().count() == 3).then_some(()));
    rig.ok("delete_vm", json!([vm]));
    let ending = rig.vm(&rig.host_stemcell("#!/bin/sh\nexit 86\n"));
    wait_for(|| (!rig.vm_folder(&ending).join("supervisor.json").exists()).then_some(()));
    rig.ok("delete_vm", json!([ending]));
    let broken = rig.host_stemcell("#!/bin/missing\n");
    let error = rig.refused("create_vm", rig.vm_arguments(&broken, json!({"default": {"type": "dynamic"}})));
    assert!(error.contains("cannot run /var/vcap/bosh/bin/bosh-agent"), "{error}");
    assert!(rig.list("vms").is_empty() && rig.left().is_empty(), "{:?}", rig.left());
}

#[test]
fn where_user_namespaces_are_forbidden_vms_run_without_jobs_and_info_says_why() {
    let rig = Rig::new();
    let stemcell = rig.host_stemcell("#!/bin/sh\necho \"$*\" > \"$6/arguments\"\nexec sleep 1000\n");
    let asked = |request: Value| -> Value {
        let path = rig.path("request");
        fs::write(&path, request.to_string()).unwrap();
        // What is forbidden in a user namespace is so for all below it.
        let output = Command::new("unshare")
            .args([
                "--user",
                "--map-root-user",
                "sh",
                "-c",
                "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"",
            ])
            .args(["sh", env!("CARGO_BIN_EXE_local-cpi"), "cpi"])
            .arg(rig.config())
            .stdin(fs::File::open(path).unwrap())
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let info = asked(request("info", json!([]), "cpi-1"))["result"]["windlass"].clone();
    assert_eq!((&info["jobs"], &info["replay"]), (&json!(false), &json!(true)));
    let reason = info["jobs_reason"].as_str().unwrap();
    assert!(reason.contains("sysctl user.max_user_namespaces"), "{reason}");
    let networks = json!({"default": {"type": "dynamic"}});
    let created = asked(request("create_vm", rig.vm_arguments(&stemcell, networks), &unique()));
    let cid = created["result"][0].as_str().unwrap_or_else(|| panic!("{created}")).to_owned();
    assert!(rig.written(&cid, "arguments").contains(rig.vm_folder(&cid).join("base").to_str().unwrap()));
    rig.ok("delete_vm", json!([cid]));
    let elsewhere = rig.ok("info", json!([]))["windlass"].clone();
    assert_eq!(
        (&elsewhere["jobs"], &elsewhere["jobs_os"]),
        (&json!(null), &json!("windlass-host")),
        "elsewhere jobs run"
    );
}
