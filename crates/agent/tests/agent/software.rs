//! Jobs and packages: installed, put in use, replaced, compiled; also by an agent that is killed at each of its steps.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use windlass_durable::sweep::Points;

use crate::kills;
use crate::machine::{Machine, exception};

mod running;

/// An archive of files, each with its mode.
pub(crate) fn archive(files: &[(&str, u32, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, mode, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(*mode);
        builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

pub(crate) fn sha1(content: &[u8]) -> String {
    Sha1::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a director has: blobs, and specs that name them.
#[derive(Default)]
pub(crate) struct SoftwareBlobs {
    blobs: BTreeMap<String, Vec<u8>>,
}

impl SoftwareBlobs {
    pub(crate) fn add(&mut self, id: &str, content: Vec<u8>) -> Value {
        let reference = json!({"blobstore_id": id, "sha1": sha1(&content)});
        self.blobs.insert(id.to_owned(), content);
        reference
    }

    pub(crate) fn package(&mut self, name: &str, version: &str, files: &[(&str, u32, &str)]) -> Value {
        let mut package = self.add(&format!("{name}-{version}"), archive(files));
        package["name"] = name.into();
        package["version"] = version.into();
        package
    }

    /// A spec with these jobs, each with a monit file and a script, and these packages.
    pub(crate) fn spec(&mut self, hash: &str, jobs: &[&str], packages: &[Value]) -> Value {
        let files: Vec<(String, u32, &str)> = jobs
            .iter()
            .flat_map(|job| {
                [("monit", "# nothing"), ("bin/pre-start", "#!/bin/sh\n"), ("config/a.yml", hash)]
                    .map(|(file, content)| (format!("./{job}/{file}"), 0o644, content))
            })
            .collect();
        let files: Vec<(&str, u32, &str)> =
            files.iter().map(|(name, mode, text)| (name.as_str(), *mode, *text)).collect();
        let rendered = self.add(&format!("rendered-{hash}"), archive(&files));
        let templates: Vec<Value> = jobs.iter().map(|job| json!({"name": job, "version": "v1"})).collect();
        let packages: BTreeMap<&str, &Value> =
            packages.iter().map(|package| (package["name"].as_str().unwrap(), package)).collect();
        json!({"deployment": "d", "name": "web", "index": 0, "id": "i", "configuration_hash": hash, "packages": packages,
            "job": {"name": "web", "templates": templates}, "rendered_templates_archive": rendered, "networks": {}})
    }

    /// Puts the blobs into the agent's store, as a director does before each call.
    pub(crate) async fn hand_over(&self, machine: &Machine) {
        for (id, content) in &self.blobs {
            let path = machine.folder.path().join("outgoing");
            std::fs::write(&path, content).unwrap();
            // An agent that is killed meanwhile gets it with the next try.
            let _ = machine.director().put_blob(id, &path).await;
        }
    }
}

async fn call(machine: &Machine, method: &str, arguments: Value) -> Value {
    machine.task(json!({"method": method, "arguments": arguments})).await
}

/// Every path below a folder with its mode; links with their target.
fn tree(folder: &Path) -> BTreeMap<String, String> {
    fn walk(base: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(base).unwrap().to_str().unwrap().to_owned();
            if metadata.is_symlink() {
                found.insert(name, std::fs::read_link(&path).unwrap().to_str().unwrap().to_owned());
            } else {
                found.insert(name, format!("{:o}", metadata.permissions().mode() & 0o7777));
                if metadata.is_dir() {
                    walk(base, &path, found);
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, folder, &mut found);
    found
}

/// A VM that keeps jobs without running them.
fn machine() -> Machine {
    let mut machine = Machine::new();
    machine.kind = ["-P", "directory", "-M", "dummy"];
    machine.settings["env"]["bosh"]["mbus"]["require_client_cert"] = json!(false);
    machine
}

/// One for our agent and, if the variable names its executable, one for BOSH's: what is true for both.
pub(crate) async fn machines() -> Vec<Machine> {
    let mut machines = vec![machine()];
    if let Some(program) = std::env::var_os("WINDLASS_ORIGINAL_AGENT") {
        let mut original = machine();
        original.program = program.into();
        original.kind = ["-P", "dummy", "-M", "dummy"];
        machines.push(original);
    }
    for machine in &mut machines {
        machine.start().await;
    }
    machines
}

#[tokio::test]
async fn jobs_and_packages_are_installed_by_prepare_and_in_use_after_apply() {
    for machine in machines().await {
        installed_and_in_use(&machine).await;
    }
}

async fn installed_and_in_use(machine: &Machine) {
    let mut blobs = SoftwareBlobs::default();
    let tool = blobs.package("tool", "1", &[("./bin/tool", 0o755, "tool 1"), ("./share/data", 0o600, "x")]);
    let first = blobs.spec("hash1", &["web", "db"], &[tool]);
    blobs.hand_over(machine).await;
    assert_eq!(call(machine, "prepare", json!([first])).await["value"], "prepared");
    let base = machine.base();
    assert!(!base.join("jobs/web").exists() && !base.join("packages/tool").exists(), "nothing is in use");
    assert!(!base.join("data/blobs/rendered-hash1").exists(), "the archive holds secrets");
    // Without a blob to fetch: everything is there.
    assert_eq!(call(machine, "apply", json!([first])).await["value"], "applied");

    let archive = first["rendered_templates_archive"]["sha1"].as_str().unwrap();
    let job = sha1(format!("v1-{archive}").as_bytes());
    let package = sha1(format!("1-{}", first["packages"]["tool"]["sha1"].as_str().unwrap()).as_bytes());
    let link = |path: &str| std::fs::read_link(base.join(path)).unwrap();
    assert_eq!(link("jobs/web"), base.join("data/jobs/web").join(&job));
    assert_eq!(link("packages/tool"), base.join("data/packages/tool").join(&package));
    assert_eq!(link("jobs/db/packages/tool"), base.join("data/packages/tool").join(&package));
    let jobs = tree(&base.join("data/jobs/web").join(&job));
    let modes = |name: &str| jobs[name].as_str();
    assert_eq!(
        (modes("bin"), modes("bin/pre-start"), modes("monit"), modes("config/a.yml")),
        ("750", "750", "640", "640")
    );
    let packages = tree(&base.join("data/packages/tool").join(&package));
    assert_eq!((packages["bin/tool"].as_str(), packages["share/data"].as_str()), ("755", "600"));
    for folder in ["sys/log/web", "sys/run/web", "data/web"] {
        assert_eq!(base.join(folder).metadata().unwrap().permissions().mode() & 0o777, 0o770, "{folder}");
    }

    let newer = blobs.package("tool", "2", &[("bin/tool", 0o755, "tool 2")]);
    let second = blobs.spec("hash2", &["web"], &[newer]);
    blobs.hand_over(machine).await;
    assert_eq!(call(machine, "prepare", json!([second])).await["value"], "prepared");
    assert_eq!(std::fs::read_to_string(base.join("packages/tool/bin/tool")).unwrap(), "tool 1", "still in use");
    assert_eq!(call(machine, "apply", json!([second])).await["value"], "applied");
    assert_eq!(std::fs::read_to_string(base.join("jobs/web/config/a.yml")).unwrap(), "hash2");
    assert_eq!(std::fs::read_to_string(base.join("jobs/web/packages/tool/bin/tool")).unwrap(), "tool 2");
    assert!(!base.join("jobs/db").exists() && versions(&base, "jobs/db") == 0, "what is not wanted goes");
    for name in ["jobs/web", "packages/tool"] {
        assert_eq!(versions(&base, name), 1, "{name}");
    }
}

/// How many versions of a job or package are installed.
fn versions(base: &Path, name: &str) -> usize {
    std::fs::read_dir(base.join("data").join(name)).map_or(0, Iterator::count)
}

#[tokio::test]
async fn what_cannot_be_installed_is_refused_and_leaves_what_is_in_use() {
    let mut machine = machine();
    machine.start().await;
    let mut blobs = SoftwareBlobs::default();
    let tool = blobs.package("tool", "1", &[("bin/tool", 0o755, "tool 1")]);
    let first = blobs.spec("hash1", &["web"], std::slice::from_ref(&tool));
    blobs.hand_over(&machine).await;
    call(&machine, "apply", json!([first])).await;
    let before = tree(&machine.base().join("packages"));

    let mut fifo = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Fifo);
    header.set_size(0);
    fifo.append_data(&mut header, "pipe", std::io::empty()).unwrap();
    let mut climbing = archive(&[]);
    let mut header = tar::Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..9].copy_from_slice(b"../escape");
    header.set_size(1);
    header.set_mode(0o644);
    header.set_cksum();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append(&header, &b"x"[..]).unwrap();
    climbing.clear();
    climbing.extend(builder.into_inner().unwrap());
    let broken = |blobs: &mut SoftwareBlobs, id: &str, content: Vec<u8>| {
        let mut package = blobs.add(id, content);
        package["name"] = "tool".into();
        package["version"] = id.into();
        package
    };
    let mut wrong_digest = tool.clone();
    wrong_digest["sha1"] = "00".repeat(20).into();
    wrong_digest["blobstore_id"] = "tool-again".into();
    blobs.add("tool-again", archive(&[("bin/tool", 0o755, "another")]));
    let cases = [
        (broken(&mut blobs, "fifo", fifo.into_inner().unwrap()), "is a device or a pipe"),
        (broken(&mut blobs, "climbing", climbing), "leads out of it"),
        (broken(&mut blobs, "garbage", b"not a tar at all".repeat(100)), "damaged"),
        (broken(&mut blobs, "xz", [b"\xfd7zXZ\0".as_slice(), &[0; 600]].concat()), "neither tar nor gzip"),
        (wrong_digest, "Expected stream to have digest"),
        (json!({"name": "../tool", "version": "1", "sha1": "00", "blobstore_id": "b"}), "cannot name a package"),
        (json!({"name": "tool", "version": "", "sha1": "00", "blobstore_id": "b"}), "has no version"),
        (json!({"name": "tool", "version": "9", "sha1": "00", "blobstore_id": "nowhere"}), "there is no such blob"),
    ];
    for (package, words) in cases {
        let spec = blobs.spec("hash2", &["web"], &[package]);
        blobs.hand_over(&machine).await;
        for method in ["prepare", "apply"] {
            let reply = call(&machine, method, json!([spec])).await;
            assert!(exception(&reply).contains(words), "{words}: {reply}");
        }
        assert_eq!(tree(&machine.base().join("packages")), before, "{words}");
        let installed = std::fs::read_dir(machine.base().join("data/packages/tool")).unwrap().count();
        assert_eq!(installed, 1, "{words}: nothing half-installed stays");
    }
    let spec = blobs.spec("hash3", &["web"], &[tool]);
    let mut without = spec.clone();
    without["job"]["templates"] = json!([{"name": "absent", "version": "v1"}]);
    blobs.hand_over(&machine).await;
    let reply = call(&machine, "prepare", json!([without])).await;
    assert!(exception(&reply).contains("no file with prefix 'absent' found"), "{reply}");
}

#[tokio::test]
async fn a_package_is_compiled_with_nothing_but_what_it_depends_on() {
    for machine in machines().await {
        compiled(&machine).await;
    }
}

async fn compiled(machine: &Machine) {
    let mut blobs = SoftwareBlobs::default();
    let library = blobs.package("library", "7", &[("lib.txt", 0o644, "library 7")]);
    let packaging = "set -e\necho compiling >&1\ncp $(dirname $BOSH_INSTALL_TARGET)/library/lib.txt $BOSH_INSTALL_TARGET/\n\
        echo \"$BOSH_PACKAGE_NAME $BOSH_PACKAGE_VERSION $(cat source.txt)\" > $BOSH_INSTALL_TARGET/made\n";
    let source = blobs.add("source", archive(&[("packaging", 0o644, packaging), ("source.txt", 0o644, "hello")]));
    blobs.hand_over(machine).await;
    let arguments = json!(["source", source["sha1"], "app", "fp.1", {"library": library}]);
    let reply = call(machine, "compile_package", arguments).await;
    let result = &reply["value"]["result"];
    let blob =
        machine.base().join("data/blobs").join(result["blobstore_id"].as_str().unwrap_or_else(|| panic!("{reply}")));
    let content = std::fs::read(blob).unwrap();
    assert_eq!(result["sha1"], sha1(&content));
    let mut unpacked = tar::Archive::new(flate2::read::GzDecoder::new(content.as_slice()));
    let into = machine.folder.path().join("unpacked");
    unpacked.unpack(&into).unwrap();
    assert_eq!(std::fs::read_to_string(into.join("made")).unwrap(), "app fp.1 hello\n");
    assert_eq!(std::fs::read_to_string(into.join("lib.txt")).unwrap(), "library 7");
    for package in ["packages/app", "packages/library"] {
        assert_eq!(versions(&machine.base(), package), 0, "the worker is as it was");
    }
    let log = machine.base().join("sys/log/compilation/packaging.stdout.log");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "compiling\n");

    let failing = blobs.add("failing", archive(&[("packaging", 0o644, "echo out; echo oh no >&2; exit 3")]));
    blobs.hand_over(machine).await;
    let reply = call(machine, "compile_package", json!(["failing", failing["sha1"], "app", "fp.2", {}])).await;
    let words = exception(&reply);
    for part in ["Compiling package app: Running packaging script", "Command exited with 3; Stdout: ", "oh no"] {
        assert!(words.contains(part), "{words}");
    }
    assert_eq!(std::fs::read_dir(machine.base().join("data/compile")).unwrap().count(), 0, "no source stays");
    for stream in ["stdout", "stderr"] {
        let log = machine.base().join(format!("sys/log/compilation/packaging.{stream}.log"));
        assert_eq!(log.metadata().unwrap().permissions().mode() & 0o777, 0o640, "{stream}");
    }
}

fn story() -> (SoftwareBlobs, Vec<(&'static str, Value)>) {
    let mut blobs = SoftwareBlobs::default();
    let tool = blobs.package("tool", "1", &[("bin/tool", 0o755, "tool 1")]);
    let newer = blobs.package("tool", "2", &[("bin/tool", 0o755, "tool 2")]);
    let source = blobs.add("source", archive(&[("packaging", 0o644, "cp packaging $BOSH_INSTALL_TARGET/")]));
    let compile = json!(["source", source["sha1"], "app", "fp.1", {"tool": tool}]);
    let first = blobs.spec("hash1", &["web", "db"], &[tool]);
    let second = blobs.spec("hash2", &["web"], &[newer]);
    let calls = vec![
        ("compile_package", compile),
        ("prepare", json!([first])),
        ("apply", json!([first])),
        ("prepare", json!([second])),
        ("apply", json!([second])),
    ];
    (blobs, calls)
}

async fn killed_at(kill_at: u64) -> bool {
    let mut machine = machine();
    machine.kill_at = Some(kill_at);
    let (blobs, calls) = story();
    let was_killed = kills::tell(&mut machine, &blobs, &calls).await;
    let after = format!("after a kill at step {kill_at}\n{}", machine.console());
    let read = |path: &str| std::fs::read_to_string(machine.base().join(path)).unwrap_or_default();
    assert_eq!(read("jobs/web/config/a.yml"), "hash2", "{after}");
    assert_eq!(read("jobs/web/packages/tool/bin/tool"), "tool 2", "{after}");
    assert!(!machine.base().join("data/jobs/db").exists(), "{after}");
    for versions in ["data/jobs/web", "data/packages/tool"] {
        let left = std::fs::read_dir(machine.base().join(versions)).unwrap().count();
        assert_eq!(left, 1, "{versions} {after}");
    }
    was_killed
}

#[tokio::test]
async fn an_agent_killed_at_any_step_of_an_installation_finishes_it() {
    let kills = kills::sweep(Points::sampled(5), killed_at).await;
    assert!(kills > 10, "only {kills} steps were killed; the story has more");
}

#[tokio::test]
async fn what_nobody_uses_and_wants_goes_with_the_next_prepare() {
    for machine in machines().await.into_iter().take(1) {
        let mut blobs = SoftwareBlobs::default();
        for number in 1..=4 {
            let tool = blobs.package("tool", &number.to_string(), &[("bin/tool", 0o755, "tool")]);
            let spec = blobs.spec(&format!("hash{number}"), &["web"], &[tool]);
            blobs.hand_over(&machine).await;
            let method = if number == 1 { "apply" } else { "prepare" };
            let reply = call(&machine, method, json!([spec])).await;
            assert!(reply["value"].is_string(), "{reply}");
            let expected = if number == 1 { 1 } else { 2 };
            for name in ["jobs/web", "packages/tool"] {
                assert_eq!(versions(&machine.base(), name), expected, "{name} after {number}");
            }
        }
        assert_eq!(std::fs::read_to_string(machine.base().join("jobs/web/config/a.yml")).unwrap(), "hash1");
        let rotation = std::fs::read_to_string(machine.base().join("bosh/etc_logrotate")).unwrap();
        assert!(rotation.contains("/data/sys/log/*/*.log") && rotation.contains("size=50M"), "{rotation}");
    }
}

/// An entry that no careful writer of archives would write.
fn odd_archive(kind: tar::EntryType, name: &[u8], target: &str, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    if !target.is_empty() {
        header.set_link_name(target).unwrap();
    }
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append(&header, content).unwrap();
    if !target.is_empty() {
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        header.set_mode(0o644);
        builder.append_data(&mut header, std::path::Path::new("link/escaped"), &b"x"[..]).unwrap();
    }
    builder.into_inner().unwrap()
}

#[tokio::test]
async fn archives_that_lead_out_of_their_tree_or_never_end_are_refused_and_write_nothing_outside() {
    let mut machine = machine();
    machine.start().await;
    let outside = machine.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let absolute = format!("{}/escaped", outside.display());
    let mut blobs = SoftwareBlobs::default();
    let bomb = {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..4].copy_from_slice(b"bomb");
        header.set_size(1 << 50);
        header.set_mode(0o644);
        header.set_cksum();
        std::io::Write::write_all(&mut encoder, header.as_bytes()).unwrap();
        std::io::Write::write_all(&mut encoder, &vec![0; 4 << 20]).unwrap();
        encoder.finish().unwrap()
    };
    let cases = [
        odd_archive(tar::EntryType::Regular, b"a/../../../../escaped", "", b"x"),
        odd_archive(tar::EntryType::Symlink, b"link", outside.to_str().unwrap(), b""),
        odd_archive(tar::EntryType::Link, b"link", "../../../../../settings.json", b""),
        odd_archive(tar::EntryType::Block, b"device", "", b""),
        odd_archive(tar::EntryType::Char, b"device", "", b""),
        bomb,
    ];
    for (number, content) in cases.into_iter().enumerate() {
        let mut package = blobs.add(&format!("case-{number}"), content);
        package["name"] = "tool".into();
        package["version"] = number.to_string().into();
        let spec = blobs.spec(&format!("hash{number}"), &["web"], &[package]);
        blobs.hand_over(&machine).await;
        let reply = call(&machine, "prepare", json!([spec])).await;
        assert!(exception(&reply).contains("cannot install the package 'tool'"), "case {number}: {reply}");
        assert_eq!(versions(&machine.base(), "packages/tool"), 0, "case {number}");
    }
    // As with tar, the slash in front of a name means the tree.
    let mut package = blobs.add("absolute", odd_archive(tar::EntryType::Regular, absolute.as_bytes(), "", b"x"));
    package["name"] = "tool".into();
    package["version"] = "absolute".into();
    let spec = blobs.spec("hash", &["web"], &[package]);
    blobs.hand_over(&machine).await;
    assert_eq!(call(&machine, "apply", json!([spec])).await["value"], "applied");
    assert!(machine.base().join("packages/tool").join(absolute.trim_start_matches('/')).exists());
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "nothing is written outside");
    for folder in [machine.folder.path().to_owned(), machine.base(), machine.base().join("data")] {
        assert!(!folder.join("escaped").exists());
    }
}

#[tokio::test]
async fn jobs_without_monit_files_have_no_processes_and_two_services_of_one_name_are_refused_by_the_names_of_both() {
    let mut machine = machine();
    machine.start().await;
    let mut blobs = SoftwareBlobs::default();
    let mut spec = blobs.spec("hash1", &["plain"], &[]);
    spec["rendered_templates_archive"] =
        blobs.add("plain", archive(&[("plain/bin/run", 0o755, "#!/bin/sh\necho ran\n")]));
    blobs.hand_over(&machine).await;
    assert_eq!(call(&machine, "apply", json!([spec])).await["value"], "applied");
    assert!(machine.console().contains("has no monit file: nothing of it is looked after"));
    assert_eq!(call(&machine, "run_errand", json!(["plain"])).await["value"]["stdout"], "ran\n");

    let check = "check process same with pidfile /p\n";
    let mut spec = blobs.spec("hash2", &["one", "two"], &[]);
    let files = archive(&[("one/monit", 0o644, check), ("two/monit", 0o644, check)]);
    spec["rendered_templates_archive"] = blobs.add("twice", files);
    blobs.hand_over(&machine).await;
    for method in ["prepare", "apply"] {
        let reply = call(&machine, method, json!([spec])).await;
        let words = "'same' is checked twice, in one.monitrc and in two.monitrc: rename one of them in its job";
        assert!(exception(&reply).contains(words), "{reply}");
    }
    assert!(machine.base().join("jobs/plain").exists(), "what was in use still is");
}
