//! A process that crashes leaves nothing of what it had in its memory.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::scenarios::release::{Job, Release};
use crate::site::Site;

const MARK: &str = "marked-value-of-a-variable";

/// The soft limit of a process in bytes, as the kernel writes it.
fn limit(pid: u32) -> Option<String> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size"))?;
    line.split_whitespace().next().map(str::to_owned)
}

/// Files below a folder that have the mark.
fn with_mark(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            with_mark(&entry.path(), found);
        } else if kind.is_file()
            && fs::read(entry.path()).is_ok_and(|bytes| bytes.windows(MARK.len()).any(|part| part == MARK.as_bytes()))
        {
            found.push(entry.path().display().to_string());
        }
    }
}

/// Passwords would lie in files that nobody protects, and that people send to those who look for defects.
#[test]
fn a_process_that_crashes_leaves_no_values_behind() {
    // From here on everything that this test starts would leave core files.
    let limits = getrlimit(Resource::Core);
    setrlimit(Resource::Core, Rlimit { current: limits.maximum, ..limits }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let crashed = Command::new("sh").args(["-c", "kill -ABRT $$"]).current_dir(folder.path()).status().unwrap();
    let leaves_cores = crashed.core_dumped();
    if !leaves_cores {
        println!("this machine makes no core files; limits alone are compared");
    }

    let mut site = Site::ready_with_own_programs("");
    let release = Release::new("kit", "1")
        .job(Job::new("show", "properties: {password: {}}").template("config", "<%= p('password') %>\n"));
    fs::write(site.file("kit.tgz"), release.tarball()).unwrap();
    site.ok(&["upload-release", site.file("kit.tgz").to_str().unwrap()]);
    fs::write(site.file("vars.yml"), format!("/password: {MARK}\n")).unwrap();
    site.ok(&["-n", "-d", "example", "import-variables", site.file("vars.yml").to_str().unwrap()]);
    fs::remove_file(site.file("vars.yml")).unwrap();
    site.write_documents(1);
    let manifest = fs::read_to_string(site.manifest()).unwrap().replace("windlass-minimal", "windlass-host");
    let manifest = format!(
        "{manifest}  jobs: [{{name: show, release: kit, properties: {{password: ((/password))}}}}]\n\
         releases: [{{name: kit, version: latest}}]\n"
    );
    fs::write(site.manifest(), manifest).unwrap();
    site.deploy();

    // The director, what runs the VM, and the agent.
    let agents: Vec<u32> = site.vm_processes().into_iter().map(|pid| pid.try_into().unwrap()).collect();
    assert!(agents.len() >= 2, "{agents:?}");
    for pid in agents.iter().copied().chain([site.director_pid()]) {
        assert_eq!(
            limit(pid).as_deref(),
            Some("1"),
            "of {}",
            fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap()
        );
    }
    // Developers who look for a defect can have one.
    let most = limits.maximum.map_or("unlimited".to_owned(), |most| most.to_string());
    let words = ["--pid", &site.director_pid().to_string(), &format!("--core={most}:")];
    assert!(Command::new("prlimit").args(words).status().unwrap().success());
    assert_eq!(limit(site.director_pid()), Some(most));
    let words = ["--pid", &site.director_pid().to_string(), "--core=1:"];
    assert!(Command::new("prlimit").args(words).status().unwrap().success());

    for pid in agents {
        let _ = Command::new("kill").args(["-ABRT", &pid.to_string()]).status();
    }
    let ended = site.abort_director();
    assert_eq!((ended.signal(), ended.core_dumped()), (Some(6), false));
    // The VM's own files have the value, as they should; the rest does not, and neither do the folders that programs were started in.
    let mut found = Vec::new();
    with_mark(&site.file(""), &mut found);
    found.retain(|path| !path.contains("/cloud/vms/") || path.contains("core"));
    assert!(found.is_empty(), "{found:?}");
    let here = fs::read_dir(".").unwrap().flatten().map(|entry| entry.file_name());
    let cores: Vec<_> = here.filter(|name| name.to_string_lossy().starts_with("core")).collect();
    assert!(cores.is_empty(), "{cores:?}");
}
