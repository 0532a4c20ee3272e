//! Containers whose users are their own: what root of one is on the machine, and whose files are.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::{Value, json};
use windlass_cloud_local::LocalCloud;

use crate::rig::own_machine::{STAYING, is_own_machine, said, system};
use crate::rig::{Rig, read_json, wait_for};

fn container(rig: &Rig, stemcell: &Value, nesting: bool) -> String {
    let mut arguments = rig.container_arguments(stemcell, json!({"default": {"type": "dynamic"}}));
    arguments[2] = json!({"memory": 64, "nesting": nesting});
    let cid = rig.ok("create_vm", arguments)[0].as_str().unwrap().to_owned();
    rig.remember(&cid);
    cid
}

/// Whose the users of a running VM are, as the kernel tells: which id of the machine root has.
fn root_of(rig: &Rig, cid: &str) -> u64 {
    let map = fs::read_to_string(format!("/proc/{}/uid_map", rig.init(cid))).unwrap();
    map.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn recorded(rig: &Rig, cid: &str) -> Value {
    read_json(&rig.vm_folder(cid).join("vm.json"))["container"]["users"].clone()
}

fn details(rig: &Rig, cid: &str) -> String {
    let status = LocalCloud::in_folder(&rig.state()).unwrap().status().unwrap();
    status.resources.iter().find(|resource| resource.cid == cid).unwrap().details.clone()
}

/// What a command in a container can do to a folder of the machine that it got hold of, as its descriptor 9.
fn in_leaked(rig: &Rig, cid: &str, command: &str) -> String {
    let script = "exec 9< \"$0\"; exec nsenter --target \"$1\" --all /bin/sh -c \"$2\"";
    let output = Command::new("/bin/sh")
        .args(["-c", script])
        .arg(rig.path("machine"))
        .args([&rig.init(cid).to_string(), command])
        .output()
        .unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn root_of_a_container_is_nobody_on_the_machine() {
    if !is_own_machine("users::root_of_a_container_is_nobody_on_the_machine") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let (cid, other, nesting) =
        (container(&rig, &stemcell, false), container(&rig, &stemcell, false), container(&rig, &stemcell, true));
    let root = root_of(&rig, &cid);
    assert_eq!(recorded(&rig, &cid), json!({"own": root}));
    assert!(root >= 0x7000_0000 && root_of(&rig, &other) != root, "no two VMs have the same users");
    assert_eq!((recorded(&rig, &nesting), root_of(&rig, &nesting)), (json!("of_machine"), 0));
    assert!(details(&rig, &cid).contains("users of its own"), "{}", details(&rig, &cid));
    assert!(!details(&rig, &nesting).contains("users"), "{}", details(&rig, &nesting));

    let folder = rig.path("machine");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("secret"), "of the machine").unwrap();
    fs::set_permissions(folder.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let command = "cd /proc/self/fd/9; cat secret; echo changed > secret; touch new";
    let tried = in_leaked(&rig, &cid, command);
    assert!(!tried.contains("of the machine") && tried.contains("ermission denied"), "{tried}");
    assert_eq!(fs::read_to_string(folder.join("secret")).unwrap(), "of the machine");
    assert!(!folder.join("new").exists(), "{tried}");
    assert!(in_leaked(&rig, &nesting, command).contains("of the machine"), "as root of the machine could");

    // Inside, all is as ever.
    assert_eq!(rig.inside(&cid, "stat -c '%u:%g' / /bin/busybox /var/vcap/data /var/vcap/pid"), "0:0\n".repeat(4));
    assert_eq!(rig.inside(&cid, "touch /x && busybox chown 1000:1000 /x && stat -c %u /x").trim(), "1000");
    assert_eq!(rig.inside(&cid, "echo > /dev/null; hostname").trim(), cid);
    let limits = |process: u32| {
        let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        files.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let files = limits(rig.init(&cid));
    assert_eq!(rig.inside(&cid, &format!("ulimit -n {files} && ulimit -n")).trim(), files.to_string());
    if setrlimit(Resource::Nofile, Rlimit { current: Some(4096), maximum: Some(1 << 20) }).is_ok() {
        assert_eq!(files, 1 << 20, "jobs raise their limits, as they always could");
    }
    // As BOSH's agent does, which ends if it cannot.
    let remount =
        "mkdir /var/log; mount -o bind /var/log /var/log && mount -o remount,nodev,nosuid /var/log && echo done";
    assert_eq!(rig.inside(&cid, remount).trim(), "done");
    // What is hidden of the stemcell stays so.
    assert_eq!(rig.inside(&cid, "busybox rm -r /mnt /bin/dd && busybox mkdir /mnt && echo done").trim(), "done");
    assert!(!rig.inside(&cid, "ls /run").contains("windlass-vm"));
    // What the supervisor mounts, the machine does not see.
    assert_eq!(fs::read_dir("/run/windlass-vm").unwrap().count(), 0);
    rig.ok("reboot_vm", json!([cid]));
    assert_eq!(root_of(&rig, &cid), root);
    assert_eq!(rig.inside(&cid, "stat -c %u /x").trim(), "1000");
    assert_eq!(rig.inside(&cid, "ls /mnt; ls /bin").matches("dd").count(), 0);
    for cid in [cid, other, nesting] {
        rig.ok("delete_vm", json!([cid]));
    }
    assert_eq!(rig.traces(), Vec::<String>::new());
}

/// Root in a VM without users of its own can become root of the machine: a stemcell that cannot have them does not choose that.
#[test]
fn a_stemcell_that_stands_in_the_way_of_users_of_its_own_gets_no_vm_where_others_do() {
    if !is_own_machine("users::a_stemcell_that_stands_in_the_way_of_users_of_its_own_gets_no_vm_where_others_do") {
        return;
    }
    let rig = Rig::of_containers();
    let (good, odd) = (rig.system_stemcell(), rig.system_stemcell());
    // Where disks appear, behind a folder that root of the VM may not enter.
    let files = rig.state().join("stemcells").join(odd.as_str().unwrap()).join("root");
    fs::create_dir_all(files.join("x/y")).unwrap();
    std::os::unix::fs::symlink("/x/y", files.join("warden-cpi-dev")).unwrap();
    std::os::unix::fs::chown(files.join("x"), Some(70_000), Some(70_000)).unwrap();
    fs::set_permissions(files.join("x"), fs::Permissions::from_mode(0o700)).unwrap();
    let cid = container(&rig, &good, false);
    assert_eq!(fs::read(rig.state().join("own-users")).unwrap(), rustix::system::uname().release().to_bytes());
    let arguments = rig.container_arguments(&odd, json!({"default": {"type": "dynamic"}}));
    let error = rig.refused("create_vm", arguments);
    assert!(error.contains("cannot make the container"), "{error}");
    rig.ok("delete_vm", json!([cid]));
    assert_eq!(rig.traces(), Vec::<String>::new());
}

/// One VM took all of the 128 that root of the machine has together with all VMs: no service that watches files started any more.
#[test]
fn files_that_a_vm_watches_count_for_nobody_else() {
    if !is_own_machine("users::files_that_a_vm_watches_count_for_nobody_else") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let (cid, other) = (container(&rig, &stemcell, false), container(&rig, &stemcell, false));
    let most: u32 = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap().trim().parse().unwrap();
    if most > 1000 {
        return eprintln!("this machine has {most} for everybody, and this did not run");
    }
    const WATCHER: &str = "import ctypes, sys
libc = ctypes.CDLL(None)
print(sum(libc.inotify_init() >= 0 for _ in range(int(sys.argv[1]))), flush=True)
sys.stdin.read()";
    // A program of the machine, as root of the VM.
    let watch = |cid: &str, wanted: u32| {
        let mut process = Command::new("nsenter")
            .args(["--target", &rig.init(cid).to_string(), "--user", "--setuid", "0", "--setgid", "0"])
            .args(["/usr/bin/python3", "-c", WATCHER, &wanted.to_string()])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut got = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut got).unwrap();
        (got.trim().parse::<u32>().unwrap(), process)
    };
    let (got, mut greedy) = watch(&cid, most + 50);
    assert_eq!(got, most, "it has all that it can have");
    let (got, mut modest) = watch(&other, 2);
    assert_eq!(got, 2);
    assert_eq!(rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).map(|_| ()), Ok(()));
    for process in [&mut greedy, &mut modest] {
        drop(process.stdin.take());
        process.wait().unwrap();
    }
    for cid in [cid, other] {
        rig.ok("delete_vm", json!([cid]));
    }
    assert_eq!(rig.traces(), Vec::<String>::new());
}

/// On a disk and in a stemcell, files are whose they were before there were such VMs.
#[test]
fn files_on_disks_and_in_stemcells_keep_their_owners() {
    if !is_own_machine("users::files_on_disks_and_in_stemcells_keep_their_owners") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let (own, nesting) = (container(&rig, &stemcell, false), container(&rig, &stemcell, true));
    let disk = rig.ok("create_disk", json!([32, {}, own]));
    let hint = format!("/warden-cpi-dev/{}", disk.as_str().unwrap());
    let list = format!("cd {hint} && stat -c '%n %u:%g' *");
    rig.ok("attach_disk", json!([own, disk]));
    assert_eq!(
        rig.inside(&own, &format!("cd {hint} && touch a b && busybox chown 1000:1000 b && echo ok")).trim(),
        "ok"
    );
    let expected = "a 0:0\nb 1000:1000\nlost+found 0:0\n";
    assert_eq!(rig.inside(&own, &list), expected);
    rig.ok("reboot_vm", json!([own]));
    assert_eq!(rig.inside(&own, &list), expected);
    rig.ok("snapshot_disk", json!([disk, {}]));
    let grown = rig.ask("resize_disk", json!([disk, 64]))["error"]["message"].clone();
    assert!(grown.is_null() || grown.as_str().unwrap().contains("CAP_SYS_RESOURCE"), "{grown}");
    let mount = format!("mount -o bind {hint} /mnt && touch /mnt/c && stat -c %u /mnt/c");
    assert_eq!(rig.inside(&own, &mount).trim(), "0");
    rig.ok("detach_disk", json!([own, disk]));
    assert_eq!(rig.inside(&own, "ls /mnt /warden-cpi-dev").matches("lost").count(), 0);

    rig.ok("attach_disk", json!([nesting, disk]));
    assert_eq!(rig.inside(&nesting, &list), "a 0:0\nb 1000:1000\nc 0:0\nlost+found 0:0\n", "as on the disk");
    rig.ok("detach_disk", json!([nesting, disk]));
    let root = rig.state().join("stemcells").join(stemcell.as_str().unwrap()).join("root");
    rig.inside(&own, "busybox chown 1000 /bin/busybox /etc");
    assert_eq!(fs::metadata(root.join("etc")).unwrap().uid(), 0);
    assert_eq!(fs::metadata(root.join("bin/busybox")).unwrap().uid(), 0);
}

#[test]
fn a_container_that_was_made_with_the_machines_users_keeps_them() {
    if !is_own_machine("users::a_container_that_was_made_with_the_machines_users_keeps_them") {
        return;
    }
    let rig = Rig::of_containers();
    let cid = container(&rig, &rig.system_stemcell(), true);
    rig.inside(&cid, "echo kept > /etc/motd");
    let path = rig.vm_folder(&cid).join("vm.json");
    let mut record = read_json(&path);
    let container = record["container"].as_object_mut().unwrap();
    container.remove("users");
    container.insert("confinement".to_owned(), json!("filtered"));
    fs::write(&path, record.to_string()).unwrap();
    let disk = rig.ok("create_disk", json!([32, {}, cid]));
    rig.ok("attach_disk", json!([cid, disk]));
    rig.ok("reboot_vm", json!([cid]));
    assert_eq!(root_of(&rig, &cid), 0);
    assert_eq!(rig.inside(&cid, "cat /etc/motd; stat -c %u /etc/motd /warden-cpi-dev/*"), "kept\n0\n0\n");
}

/// A machine that hides parts of `/proc` or `/sys`, as a container does, lets nobody mount those in a user namespace.
#[test]
fn a_machine_that_cannot_says_so_and_makes_containers_with_its_own_users() {
    if !is_own_machine("users::a_machine_that_cannot_says_so_and_makes_containers_with_its_own_users") {
        return;
    }
    for folder in ["/proc/sys", "/sys/kernel"] {
        said("mount", &["-t", "tmpfs", "-o", "ro", "none", folder]);
    }
    let rig = Rig::of_containers();
    let image = system(&rig, STAYING, &[]);
    let stemcell = rig.ok("create_stemcell", json!([image, {}]));
    let cid = container(&rig, &stemcell, false);
    assert_eq!(root_of(&rig, &cid), 0);
    let why = recorded(&rig, &cid)["refused"].as_str().unwrap().to_owned();
    assert!(details(&rig, &cid).contains(&format!("no users of its own ({why})")), "{}", details(&rig, &cid));
    assert!(!why.is_empty());
    wait_for(|| fs::read_to_string(rig.file(&cid, "var/vcap/pid")).ok());
    rig.ok("reboot_vm", json!([cid]));
    assert_eq!(root_of(&rig, &cid), 0);
    rig.ok("delete_vm", json!([cid]));
    assert_eq!(rig.traces(), Vec::<String>::new());
}
