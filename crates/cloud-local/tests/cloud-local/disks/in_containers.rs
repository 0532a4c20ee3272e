//! Disks of containers: what the VM sees of them, and what it cannot keep.

use std::fs;

use serde_json::json;

use super::site::{Form, Site, loops, mount_points, run};
use crate::rig::own_machine::is_own_machine;
use crate::rig::{kill_hard, runs};

/// Where a container finds a disk.
fn hint(disk: &str) -> String {
    format!("/warden-cpi-dev/{disk}")
}

#[test]
fn a_container_gets_and_loses_disks_while_it_runs() {
    if !is_own_machine("disks::in_containers::a_container_gets_and_loses_disks_while_it_runs") {
        return;
    }
    let site = Site::new(Form::Container);
    let (vm, other_vm) = (site.new_vm(), site.new_vm());
    let (first, second) = (site.new_disk(32), site.new_disk(32));
    let init = site.init(&vm);
    assert_eq!(site.ok("attach_disk", json!([vm, first])), json!(hint(&first)));
    assert_eq!(site.ok("attach_disk", json!([vm, second])), json!(hint(&second)));
    // As an agent does with a preformatted disk.
    let mounted = format!("mount -o bind {} /mnt && echo of the VM > /mnt/file && echo done", hint(&first));
    assert_eq!(site.inside(&vm, &mounted).trim(), "done");
    site.inside(&vm, &format!("echo stays > {}/file", hint(&second)));
    assert_eq!(fs::read_to_string(site.vm_folder(&vm).join("disks").join(&first).join("file")).unwrap(), "of the VM\n");
    let past = site.inside(&vm, "touch /warden-cpi-dev/x && echo written");
    assert!(!past.contains("written"), "nothing is written past a disk: {past}");
    assert_eq!(site.inside(&other_vm, "ls /warden-cpi-dev").trim(), "", "no other VM sees it");

    site.detach(&vm, &first);
    assert!(runs(init) && site.init(&vm) == init, "the VM was not restarted");
    assert_eq!(site.inside(&vm, "ls /mnt /warden-cpi-dev").matches(&first).count(), 0);
    assert!(!site.inside(&vm, "cat /mnt/file").contains("of the VM"), "what the VM mounted of it is gone, too");
    assert_eq!(site.inside(&vm, &format!("cat {}/file", hint(&second))).trim(), "stays");
    assert!(loops(&site.image(&first)).is_empty());
    site.ok("attach_disk", json!([other_vm, first]));
    assert_eq!(site.inside(&other_vm, &format!("cat {}/file", hint(&first))).trim(), "of the VM");
    assert_eq!(site.unexplained(), Vec::<String>::new());
}

/// The agent is dead and something in the VM has a file open: mounting the disk elsewhere now would spoil it.
#[test]
fn a_container_that_holds_a_file_keeps_its_disk_until_it_lets_go_or_goes() {
    if !is_own_machine("disks::in_containers::a_container_that_holds_a_file_keeps_its_disk_until_it_lets_go_or_goes") {
        return;
    }
    let site = Site::new(Form::Container);
    let (vm, other_vm, disk) = (site.new_vm(), site.new_vm(), site.new_disk(32));
    site.ok("attach_disk", json!([vm, disk]));
    let script =
        format!("mount -o bind {} /mnt; sleep 1000 > /mnt/held 2> /dev/null < /dev/null & echo started", hint(&disk));
    assert!(site.inside(&vm, &script).contains("started"));
    let error = site.refused("detach_disk", json!([vm, disk]));
    assert!(error.contains("/mnt") && error.contains("(sleep)"), "{error}");
    let error = site.refused("attach_disk", json!([other_vm, disk]));
    assert!(error.contains(&vm), "{error}");
    assert_eq!(site.ok("get_disks", json!([vm])), json!([disk]));
    assert_eq!(loops(&site.image(&disk)).len(), 1);
    site.ok("delete_vm", json!([vm]));
    assert!(loops(&site.image(&disk)).is_empty());
    site.ok("attach_disk", json!([other_vm, disk]));
    assert!(site.inside(&other_vm, &format!("ls {}", hint(&disk))).contains("held"));
    assert_eq!(site.unexplained(), Vec::<String>::new());
}

/// With longer paths, a few hundred mounts of one VM took gigabytes and minutes of whoever detached a disk of another.
#[test]
fn a_vm_with_endless_mounts_keeps_nobody_elses_disk() {
    if !is_own_machine("disks::in_containers::a_vm_with_endless_mounts_keeps_nobody_elses_disk") {
        return;
    }
    let site = Site::new(Form::Container);
    let (vm, disk) = (site.new_vm(), site.new_disk(32));
    let (hostile, kept) = (site.new_vm(), site.new_disk(32));
    site.ok("attach_disk", json!([vm, disk]));
    site.ok("attach_disk", json!([hostile, kept]));
    let folder = format!("/mnt{}", format!("/{}", "x".repeat(250)).repeat(15));
    let script = format!(
        "mount -t tmpfs tmpfs /mnt && mkdir -p {folder} && cd {folder} && i=0 && \
         while [ $i -lt 1200 ]; do mount -o bind {folder} {folder} || break; i=$((i+1)); done; echo $i"
    );
    assert_eq!(site.inside(&hostile, &script).trim(), "1200");
    site.detach(&vm, &disk);
    assert!(loops(&site.image(&disk)).is_empty());
    let error = site.refused("detach_disk", json!([hostile, kept]));
    assert!(error.contains("longer than 8 MiB") && error.contains("end that, or the VM"), "{error}");
    site.ok("delete_vm", json!([hostile]));
    site.ok("attach_disk", json!([vm, kept]));
    assert_eq!(site.unexplained(), Vec::<String>::new());
}

#[test]
fn a_container_has_its_disks_again_after_a_restart_of_the_machine() {
    if !is_own_machine("disks::in_containers::a_container_has_its_disks_again_after_a_restart_of_the_machine") {
        return;
    }
    let site = Site::new(Form::Container);
    let (vm, disk) = (site.new_vm(), site.new_disk(32));
    site.ok("attach_disk", json!([vm, disk]));
    site.inside(&vm, &format!("echo there > {}/file", hint(&disk)));
    kill_hard(site.supervisor(&vm));
    let state = site.state().canonicalize().unwrap();
    let mut mounted = mount_points();
    mounted.retain(|point| point.starts_with(&state));
    for point in mounted.iter().rev() {
        run("umount", &[point.to_str().unwrap()]);
    }
    site.ok("reboot_vm", json!([vm]));
    assert_eq!(site.inside(&vm, &format!("cat {}/file", hint(&disk))).trim(), "there");
    site.inside(&vm, &format!("echo written > {}/file", hint(&disk)));
    site.detach(&vm, &disk);
    assert_eq!(site.unexplained(), Vec::<String>::new());
}

/// Agents of BOSH do not mount a folder at a boot, and note the disk that they mounted last. Ours has notes of its own.
#[test]
fn a_reboot_puts_the_disk_on_the_store_of_an_agent_that_would_not() {
    if !is_own_machine("disks::in_containers::a_reboot_puts_the_disk_on_the_store_of_an_agent_that_would_not") {
        return;
    }
    let site = Site::new(Form::Container);
    let (vm, disk) = (site.new_vm(), site.new_disk(32));
    site.ok("attach_disk", json!([vm, disk]));
    let mounted = format!(
        "mkdir -p /var/vcap/store /var/vcap/bosh; mount -o bind {} /var/vcap/store; echo precious > /var/vcap/store/file; \
         echo -n {disk} > /var/vcap/bosh/managed_disk_settings.json; echo done",
        hint(&disk)
    );
    assert_eq!(site.inside(&vm, &mounted).trim(), "done");
    for is_orderly in [true, false] {
        if !is_orderly {
            kill_hard(site.supervisor(&vm));
        }
        site.ok("reboot_vm", json!([vm]));
        assert_eq!(site.inside(&vm, "cat /var/vcap/store/file").trim(), "precious");
    }
    // What the VM mounts on its disk stays in the VM.
    site.inside(&vm, "mkdir -p /var/vcap/store/inner && mount -t tmpfs tmpfs /var/vcap/store/inner");
    assert!(!mount_points().iter().any(|point| point.ends_with("inner")));
    site.inside(&vm, "umount /var/vcap/store/inner");
    site.detach(&vm, &disk);
    assert!(!site.inside(&vm, "cat /var/vcap/store/file").contains("precious"), "nothing of it is left in the VM");
    assert!(loops(&site.image(&disk)).is_empty());
    site.ok("reboot_vm", json!([vm]));
    site.ok("attach_disk", json!([vm, disk]));
    site.inside(&vm, "echo {} > /var/vcap/bosh/disk_places.json");
    site.ok("reboot_vm", json!([vm]));
    assert!(!site.inside(&vm, "cat /var/vcap/store/file").contains("precious"), "our agent mounts it itself");
    assert_eq!(site.unexplained(), Vec::<String>::new());
}

/// An agent of BOSH moves a disk by the source that `mount` names.
#[test]
fn an_agent_that_asks_for_mounts_finds_a_disk_by_its_folder_and_can_move_it() {
    if !is_own_machine("disks::in_containers::an_agent_that_asks_for_mounts_finds_a_disk_by_its_folder_and_can_move_it")
    {
        return;
    }
    let site = Site::new(Form::Container);
    let (vm, first, second) = (site.new_vm(), site.new_disk(32), site.new_disk(32));
    for disk in [&first, &second] {
        site.ok("attach_disk", json!([vm, disk]));
    }
    let program = "/var/vcap/bosh/bin/mount";
    let script = format!(
        "mkdir -p /mnt/one /mnt/two && {program} {} /mnt/one -o bind && {program} {} /mnt/two -o bind && {program}",
        hint(&first),
        hint(&second)
    );
    let listed = site.inside(&vm, &script);
    let source = |point: &str| {
        let line = listed.lines().find(|line| line.split(' ').nth(2) == Some(point));
        line.unwrap_or_else(|| panic!("{point} is not in\n{listed}")).split(' ').next().unwrap().to_owned()
    };
    assert_eq!([source("/mnt/one"), source("/mnt/two")], [hint(&first), hint(&second)]);
    for disk in [&first, &second] {
        assert_eq!(listed.lines().filter(|line| line.contains(&hint(disk))).count(), 1, "{listed}");
    }
    assert!(source("/") == "overlay" || listed.lines().any(|line| line.contains(" on / type overlay ")), "{listed}");
    // It names the disk, and means where it mounted it: what it was given stays.
    site.inside(&vm, &format!("echo data > {}/kept", hint(&second)));
    let take_it = format!("/var/vcap/bosh/bin/umount {} && ls /mnt/two && cat {}/kept", hint(&second), hint(&second));
    assert_eq!(site.inside(&vm, &take_it).trim(), "data");
    let put_it = format!("{program} {} /mnt -o bind && cat /mnt/kept", hint(&second));
    assert_eq!(site.inside(&vm, &put_it).trim(), "data");
    assert_eq!(site.unexplained(), Vec::<String>::new());
}

/// Jobs ran on an empty folder after a detachment that something in the VM had kept from its end, and a larger disk was made of nothing.
#[test]
fn a_disk_that_the_vm_alone_has_lost_is_there_again_when_it_is_attached_again() {
    if !is_own_machine(
        "disks::in_containers::a_disk_that_the_vm_alone_has_lost_is_there_again_when_it_is_attached_again",
    ) {
        return;
    }
    let site = Site::new(Form::Container);
    let (vm, disk) = (site.new_vm(), site.new_disk(32));
    site.ok("attach_disk", json!([vm, disk]));
    let kept = format!("cat {}/kept", hint(&disk));
    site.inside(&vm, &format!("echo data > {}/kept; mount -o bind {} /mnt", hint(&disk), hint(&disk)));
    // In mounts of its own, as programs of jobs have them.
    let held = "unshare -m sh -c 'sleep 1000 > /mnt/held 2> /dev/null < /dev/null & echo $!'";
    let holder = site.inside(&vm, held);
    let error = site.refused("detach_disk", json!([vm, disk]));
    assert!(error.contains("(sleep)"), "{error}");
    assert_eq!(site.inside(&vm, "cat /mnt/kept").trim(), "data", "what is refused changes nothing in the VM");
    site.ok("attach_disk", json!([vm, disk]));
    assert_eq!(site.inside(&vm, &kept).trim(), "data");
    site.inside(&vm, &format!("kill -9 {}", holder.trim()));

    let lost = format!("umount /mnt; umount {}; ls {}", hint(&disk), hint(&disk));
    assert!(!site.inside(&vm, &lost).contains("kept"));
    site.ok("attach_disk", json!([vm, disk]));
    assert_eq!(site.inside(&vm, &kept).trim(), "data");
    // What the VM mounts there is its own: on this machine it would keep the disk for ever.
    let below = format!("mkdir {0}/below && mount -t tmpfs none {0}/below && echo mounted", hint(&disk));
    assert_eq!(site.inside(&vm, &below).trim(), "mounted");
    assert!(!mount_points().iter().any(|point| point.ends_with("below")));
    site.inside(&vm, &format!("umount {}/below", hint(&disk)));
    site.detach(&vm, &disk);
    assert!(loops(&site.image(&disk)).is_empty() && !site.inside(&vm, &kept).contains("data"));
    assert_eq!(site.unexplained(), Vec::<String>::new());
}
