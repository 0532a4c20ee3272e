//! Stemcells from systems that somebody made.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tar::EntryType;
use windlass_contract::explain;
use windlass_stemcell::{Base, BuildOptions, RootFsError, build};

use crate::building;
use crate::rig::{Folder, Found, Tarball, image_of};

fn options(folder: &Folder, base: PathBuf) -> BuildOptions {
    BuildOptions { base: Base::RootFs(base), ..building::options(folder, "stemcell.tgz") }
}

const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/:/usr/sbin/nologin\n";

/// A small system, as a folder.
fn system(folder: &Folder) -> PathBuf {
    let root = folder.path("system");
    for path in ["etc/ssh", "usr/bin", "usr/sbin", "var/vcap/bosh/bin", "var/log", "tmp"] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    symlink("usr/bin", root.join("bin")).unwrap();
    fs::write(root.join("etc/passwd"), PASSWD).unwrap();
    fs::write(root.join("etc/group"), "root:x:0:\nshadow:x:42:\n").unwrap();
    fs::write(root.join("etc/machine-id"), "one of its kind").unwrap();
    fs::write(root.join("etc/resolv.conf"), "nameserver 192.0.2.1").unwrap();
    fs::write(root.join("etc/ssh/ssh_host_rsa_key"), "a secret").unwrap();
    fs::write(root.join("usr/bin/bash"), "a shell").unwrap();
    fs::set_permissions(root.join("usr/bin/bash"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("bash", root.join("usr/bin/sh")).unwrap();
    fs::hard_link(root.join("usr/bin/bash"), root.join("usr/bin/rbash")).unwrap();
    fs::write(root.join("var/vcap/bosh/bin/sync-time"), "its own").unwrap();
    fs::write(root.join("var/vcap/bosh/bin/bosh-agent"), "an older agent").unwrap();
    fs::write(root.join("var/log").join("a".repeat(150)), "a long name").unwrap();
    root
}

/// The same as a tar, by the tar that everybody has.
fn packed(folder: &Folder, root: &Path) -> PathBuf {
    let tar = folder.path("system.tar.gz");
    let status = std::process::Command::new("tar")
        .args(["--owner=0", "--group=0", "-czf"])
        .arg(&tar)
        .arg("-C")
        .arg(root)
        .arg(".")
        .status();
    assert!(status.unwrap().success());
    tar
}

#[test]
fn a_system_becomes_a_stemcell_from_a_folder_and_from_a_tar() {
    let folder = Folder::new();
    let root = system(&folder);
    let tar = packed(&folder, &root);
    for base in [root, tar] {
        let options = options(&folder, base);
        build(&options, |_, _| {}).unwrap();
        let image = image_of(&options.output);
        // What the system had.
        assert_eq!((image["bin"].kind, image["bin"].link.as_path()), (EntryType::Symlink, Path::new("usr/bin")));
        assert_eq!(image[&format!("var/log/{}", "a".repeat(150))].text(), "a long name");
        // Two names of one file: which one comes first is tar's to say.
        let shells = ["usr/bin/bash", "usr/bin/rbash"].map(|path| (path, &image[path]));
        let (name, file) = shells.iter().find(|(_, found)| found.kind.is_file()).unwrap();
        assert_eq!((file.text(), file.mode), ("a shell", 0o755));
        assert!(shells.iter().any(|(_, found)| found.kind == EntryType::Link && found.link.ends_with(name)));
        assert_eq!(image["var/vcap/bosh/bin/sync-time"].text(), "its own");
        // What it got.
        assert_eq!(image["var/vcap/bosh/bin/bosh-agent"].content, fs::read(&options.agent).unwrap());
        assert_eq!(image["etc/passwd"].text(), format!("{PASSWD}vcap:x:1000:1000:vcap:/home/vcap:/bin/bash\n"));
        assert!(image["etc/group"].text().contains("shadow:x:42:\nvcap:x:1000:\n"));
        assert!(image.contains_key("var/vcap/bosh/agent.json") && image.contains_key("warden-cpi-dev"));
        assert!(image["var/vcap/bosh/bin/bosh-agent-rc"].text().starts_with("#!/bin/sh\n"));
        // What tells one machine from another.
        assert!(!image.contains_key("etc/machine-id") && !image.contains_key("etc/ssh/ssh_host_rsa_key"));
        assert_eq!(image["etc/resolv.conf"].text(), "");
        assert!(image.values().all(|found| found.mtime == 0));
    }
}

#[test]
fn the_same_system_gives_the_same_bytes() {
    let folder = Folder::new();
    let root = system(&folder);
    let options = options(&folder, root.clone());
    build(&options, |_, _| {}).unwrap();
    let first = fs::read(&options.output).unwrap();
    // Times do not count, neither of files nor of folders.
    let file = File::options().append(true).open(root.join("usr/bin/bash")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    fs::write(root.join("etc/new"), "").unwrap();
    fs::remove_file(root.join("etc/new")).unwrap();
    build(&options, |_, _| {}).unwrap();
    assert!(fs::read(&options.output).unwrap() == first, "the bytes differ");
}

#[test]
fn a_resolver_of_the_systems_own_stays() {
    let folder = Folder::new();
    let root = system(&folder);
    fs::remove_file(root.join("etc/resolv.conf")).unwrap();
    symlink("../run/systemd/resolve/stub-resolv.conf", root.join("etc/resolv.conf")).unwrap();
    let options = options(&folder, root);
    build(&options, |_, _| {}).unwrap();
    assert!(image_of(&options.output)["etc/resolv.conf"].kind.is_symlink());
}

#[test]
fn the_agent_is_started_by_the_systems_own_init() {
    let folder = Folder::new();
    let root = system(&folder);
    let options = options(&folder, root.clone());
    symlink("/lib/systemd/systemd", root.join("usr/sbin/init")).unwrap();
    build(&options, |_, _| {}).unwrap();
    let image = image_of(&options.output);
    let unit = image["etc/systemd/system/bosh-agent.service"].text();
    assert!(unit.contains("agent.json -M dummy\n") && unit.contains("\nStartLimitIntervalSec=0\n"), "{unit}");
    assert!(image["etc/systemd/system/multi-user.target.wants/bosh-agent.service"].kind.is_symlink());
    // Without monit there is nothing that it would have to start, and not every system has its resolver.
    let service_manager = r#""ServiceManager": "systemd""#;
    assert!(!image["var/vcap/bosh/agent.json"].text().contains(service_manager));
    // Ours runs jobs without monit.
    let agent = fs::read(&options.agent).unwrap();
    fs::write(&options.agent, [&agent[..], b"windlass-agent 1.0.0"].concat()).unwrap();
    build(&options, |_, _| {}).unwrap();
    assert!(image_of(&options.output)["etc/systemd/system/bosh-agent.service"].text().contains("agent.json\n"));
    fs::write(&options.agent, agent).unwrap();
    fs::write(root.join("var/vcap/bosh/bin/monit"), "").unwrap();
    build(&options, |_, _| {}).unwrap();
    let image = image_of(&options.output);
    assert!(image["var/vcap/bosh/agent.json"].text().contains(service_manager));
    assert!(
        image["var/vcap/bosh/bin/sv"].text().ends_with("exec systemctl \"$@\"\n"),
        "for agents that know no systemd"
    );
    fs::write(root.join("usr/sbin/runsvdir-start"), "").unwrap();
    build(&options, |_, _| {}).unwrap();
    let image = image_of(&options.output);
    assert_eq!(image["etc/sv/agent/run"].mode, 0o755);
    assert!(image["etc/sv/agent/run"].text().ends_with("bosh-agent -P ubuntu -C /var/vcap/bosh/agent.json\n"));
    assert_eq!(image["etc/service/agent"].link, Path::new("/etc/sv/agent"));
    assert!(
        !image.contains_key("etc/systemd/system/bosh-agent.service") && !image.contains_key("var/vcap/bosh/bin/sv")
    );
}

/// As in Debian, whose folder of services is one of several; LXD writes nothing through a link.
#[test]
fn what_a_stemcell_gets_is_put_where_the_links_of_its_folders_lead() {
    let folder = Folder::new();
    let root = system(&folder);
    fs::create_dir_all(root.join("etc/runit/runsvdir/default")).unwrap();
    symlink("runit/runsvdir/current", root.join("etc/service")).unwrap();
    symlink("/etc/runit/../runit/runsvdir/default", root.join("etc/runit/runsvdir/current")).unwrap();
    fs::write(root.join("usr/sbin/runsvdir-start"), "").unwrap();
    let options = options(&folder, root.clone());
    build(&options, |_, _| {}).unwrap();
    let image = image_of(&options.output);
    assert_eq!(image["etc/runit/runsvdir/default/agent"].link, Path::new("/etc/sv/agent"));
    assert!(image["etc/service"].kind.is_symlink() && !image.contains_key("etc/service/agent"));

    fs::remove_file(root.join("etc/service")).unwrap();
    symlink("service", root.join("etc/service")).unwrap();
    let error = explain(&build(&options, |_, _| {}).unwrap_err());
    assert!(error.contains("'etc/service' must be a folder"), "{error}");
}

/// The original agent ends at its start without these.
#[test]
fn a_system_gets_what_agents_expect_of_a_stemcell_and_keeps_its_own() {
    let folder = Folder::new();
    let root = system(&folder);
    let options = options(&folder, root.clone());
    build(&options, |_, _| {}).unwrap();
    let image = image_of(&options.output);
    let script = |image: &BTreeMap<String, Found>, name: &str| {
        let found = &image[&format!("var/vcap/bosh/bin/{name}")];
        assert_eq!(found.mode, 0o755, "{name}");
        found.text().to_owned()
    };
    for name in ["bosh-start-logging-and-auditing", "restart_networking", "sv"] {
        assert!(script(&image, name).starts_with("#!/bin/sh\n"), "{name}");
    }
    for group in ["admin", "bosh_sshers", "bosh_sudoers", "syslog", "utmp"] {
        assert!(image["etc/group"].text().contains(&format!("\n{group}:x:")), "{group}");
    }
    assert!(image["etc/resolvconf/resolv.conf.d"].kind.is_dir());
    assert_eq!(script(&image, "bosh-agent-rc"), "#!/bin/sh\nresolvconf -u\n");
    assert!(!image.contains_key("etc/sudoers.d/bosh_sudoers"));

    // Names are resolved by what the agent wrote, between what others put there.
    let (from, to) = (folder.path("from"), folder.path("to"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("head"), "search example\n").unwrap();
    fs::write(from.join("base"), "nameserver 192.0.2.7\n").unwrap();
    let resolvconf = script(&image, "resolvconf");
    let resolvconf = resolvconf.replace("/etc/resolvconf/resolv.conf.d", from.to_str().unwrap());
    let resolvconf = resolvconf.replace("/run/resolvconf", to.to_str().unwrap());
    let file = folder.path("resolv.conf");
    let resolvconf = resolvconf.replace("/etc/resolv.conf", file.to_str().unwrap());
    assert!(!resolvconf.contains("/etc/") && !resolvconf.contains("/run/"));
    let update = || assert!(std::process::Command::new("sh").args(["-c", &resolvconf]).status().unwrap().success());
    update();
    assert_eq!(fs::read_to_string(to.join("resolv.conf")).unwrap(), "search example\nnameserver 192.0.2.7\n");
    // Programs read it, and jobs, which do not look beside the agent, find the program.
    assert_eq!(fs::read_link(&file).unwrap(), to.join("resolv.conf"));
    assert_eq!(image["usr/sbin/resolvconf"].link, Path::new("/var/vcap/bosh/bin/resolvconf"));
    // What a cloud wrote before anybody asked counts on, under what a job puts before it.
    fs::remove_file(from.join("base")).unwrap();
    fs::remove_file(&file).unwrap();
    fs::write(&file, "nameserver 192.0.2.9\n").unwrap();
    update();
    fs::write(from.join("head"), "nameserver 169.254.0.2\n").unwrap();
    update();
    assert_eq!(fs::read_to_string(&file).unwrap(), "nameserver 169.254.0.2\nnameserver 192.0.2.9\n");

    // A system that has programs of its own keeps them; one that lets people in gets keys, a server and rights for them.
    fs::write(root.join("var/vcap/bosh/bin/monit"), "").unwrap();
    for program in ["usr/sbin/resolvconf", "usr/bin/ssh-keygen", "usr/sbin/sshd", "usr/bin/sudo"] {
        fs::write(root.join(program), "").unwrap();
    }
    build(&options, |_, _| {}).unwrap();
    let image = image_of(&options.output);
    assert!(!image.contains_key("var/vcap/bosh/bin/resolvconf") && !image.contains_key("var/vcap/bosh/bin/sv"));
    let start = script(&image, "bosh-agent-rc");
    assert!(start.contains("ssh-keygen -A\n") && start.contains("/usr/sbin/sshd") && !start.contains("resolvconf"));
    assert_eq!(image["etc/sudoers.d/bosh_sudoers"].mode, 0o440);
}

#[test]
fn capabilities_and_devices_survive() {
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let folder = Folder::new();
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_pax_extensions([("SCHILY.xattr.security.capability", &capability[..])]).unwrap();
    let mut ping = tar::Header::new_ustar();
    ping.set_mode(0o755);
    ping.set_size(4);
    ping.set_uid(7);
    tar.append_data(&mut ping, "./usr/bin/ping", &b"ping"[..]).unwrap();
    let mut null = tar::Header::new_gnu();
    null.set_entry_type(EntryType::Char);
    null.set_mode(0o666);
    null.set_size(0);
    null.set_device_major(1).unwrap();
    null.set_device_minor(3).unwrap();
    tar.append_data(&mut null, "dev/null", std::io::empty()).unwrap();
    fs::write(folder.path("system.tar"), tar.into_inner().unwrap()).unwrap();
    let options = options(&folder, folder.path("system.tar"));
    build(&options, |_, _| {}).unwrap();
    let image = image_of(&options.output);
    let Found { attributes, owner, .. } = &image["usr/bin/ping"];
    assert_eq!(owner.0, 7);
    assert_eq!(attributes[..], [("SCHILY.xattr.security.capability".to_owned(), capability.to_vec())]);
    assert_eq!((image["dev/null"].kind, image["dev/null"].mode), (EntryType::Char, 0o666));
}

#[test]
fn an_agent_with_libraries_leaves_those_of_the_system_alone() {
    let folder = Folder::new();
    let root = system(&folder);
    let agent = std::env::current_exe().unwrap();
    let options = BuildOptions { agent: agent.clone(), ..options(&folder, root) };
    build(&options, |_, _| {}).unwrap();
    let image = image_of(&options.output);
    assert!(image["var/vcap/bosh/bin/bosh-agent"].text().starts_with("#!/bin/sh\n"));
    assert_eq!(image["var/vcap/bosh/lib/bosh-agent"].content, fs::read(&agent).unwrap());
    assert!(image.contains_key("var/vcap/bosh/lib/ld.so") && image.contains_key("var/vcap/bosh/lib/libc.so.6"));
    assert!(image.keys().filter(|path| path.contains(".so")).all(|path| path.starts_with("var/vcap/bosh/lib/")));
}

fn refusal(tarball: &[u8]) -> String {
    let folder = Folder::new();
    fs::write(folder.path("system.tar"), tarball).unwrap();
    let options = options(&folder, folder.path("system.tar"));
    let error = build(&options, |_, _| {}).unwrap_err();
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 2, "only the agent and the system are there");
    explain(&error)
}

#[test]
fn what_is_no_root_file_system_is_refused_and_nothing_is_left() {
    assert!(refusal(b"").ends_with("it is empty"));
    assert!(refusal(&b"hello, world\n".repeat(100)).contains("it is not a tar, or it is damaged"));
    assert!(refusal(b"\xfd7zXZ\0and more").contains("it is compressed with xz; decompress it first"));
    let hosts = || Tarball::new().file("etc/hosts", &[7; 5000]);
    assert!(refusal(&hosts().file("../escaped", b"x").bytes()).contains("'../escaped' leads out of it"));
    assert!(refusal(&hosts().link(EntryType::Link, "hard", "../../etc/shadow").bytes()).contains("leads out of it"));
    let passwd = hosts().file("etc/passwd", b"root:x:0:0::/:/bin/sh\n");
    let linked = passwd.link(EntryType::Link, "etc/passwd-", "etc/passwd");
    assert!(refusal(&linked.bytes()).contains("'etc/passwd-' is a hard link to 'etc/passwd'"));
    let elsewhere = hosts().link(EntryType::Symlink, "var", "/srv/var");
    assert!(refusal(&elsewhere.bytes()).contains("'var' must be a folder"));
    let taken = hosts().file("etc/passwd", b"debian:x:1000:1000::/:/bin/sh\n");
    assert!(refusal(&taken.bytes()).contains("gives the number 1000 to 'debian'"));
    let whole = hosts().gzip();
    assert!(refusal(&whole[..whole.len() - 4]).contains("damaged"));
    let plain = hosts().bytes();
    assert!(refusal(&plain[..2000]).contains("it ends inside 'etc/hosts'"));
}

#[test]
fn a_folder_that_cannot_be_read_is_named() {
    let folder = Folder::new();
    let missing = options(&folder, folder.path("missing"));
    assert!(explain(&build(&missing, |_, _| {}).unwrap_err()).contains("missing' cannot become a stemcell"));
    let root = system(&folder);
    fs::remove_file(root.join("etc/passwd")).unwrap();
    symlink("/etc/passwd", root.join("etc/passwd")).unwrap();
    let error = build(&options(&folder, root), |_, _| {}).unwrap_err();
    let windlass_stemcell::BuildError::RootFs { source: RootFsError::File { path, .. }, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(path, Path::new("etc/passwd"), "this machine's users are none of the stemcell's business");
}

#[test]
fn what_an_ordinary_user_unpacked_is_roots_in_the_vm() {
    let folder = Folder::new();
    let root = system(&folder);
    let builder = fs::metadata(&root).unwrap().uid();
    let options = options(&folder, root);
    build(&options, |_, _| {}).unwrap();
    assert_eq!(image_of(&options.output)["usr/bin/bash"].owner, (0, 0), "the builder is {builder}");
}
