//! The command line against a real director with real VMs. With `WINDLASS_ORIGINAL_BOSH` naming the original program, both
//! are asked, and what they print is compared.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::site::Site;

/// What only looks, with its flags.
const LISTS: &[&str] = &[
    "env",
    "env --details",
    "stemcells",
    "stemcells --column=name --column=version",
    "releases",
    "deployments",
    "-d example deployment",
    "-d example manifest",
    "cloud-config",
    "configs",
    "configs --recent=3",
    "configs --type=cloud --name=default",
    "config 1",
    "config --type=cloud --name=default",
    "diff-config --from-id=1 --to-id=2",
    "-d example vms",
    "-d example vms --cloud-properties",
    "vms",
    "-d example instances",
    "-d example instances -i --ps",
    "-d example instances --failing",
    "instances",
    "disks --orphaned",
    "networks --orphaned",
    "orphaned-vms",
    "tasks",
    "locks",
    "events --before-id=20",
    "event 3",
    "-d example errands",
    "-d example variables",
    "-d example snapshots",
    "clean-up --dry-run",
    "clean-up --all --dry-run",
];

pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// The first row's cell.
pub(crate) fn cell(site: &Site, line: &str, column: &str) -> String {
    site.rows(&words(line))[0][column].as_str().unwrap_or_else(|| panic!("{line}: no {column}")).to_owned()
}

/// Operators would have to learn new words, and their scripts would break.
#[test]
fn an_operator_finds_the_verbs_they_know() {
    let site = Site::ready_to_deploy();
    fs::write(site.file("ops.yml"), "- {type: replace, path: /instance_groups/name=db/instances, value: ((n))}\n")
        .unwrap();
    let (manifest, ops) = (site.manifest(), site.file("ops.yml").display().to_string());
    let missing = site.fails(&["-n", "deploy", &manifest, "-o", &ops, "--var-errs"]);
    assert!(missing.contains("no value for 'n'"), "{missing}");
    site.ok(&["-n", "deploy", &manifest, "-o", &ops, "-v", "n=2", "--max-in-flight", "2"]);
    let more = fs::read_to_string(site.file("cloud-config.yml")).unwrap() + "vm_extensions: [{name: more}]\n";
    fs::write(site.file("more.yml"), more).unwrap();
    site.ok(&["-n", "update-cloud-config", site.file("more.yml").to_str().unwrap()]);

    let instance = cell(&site, "-d example instances -i", "instance");
    let on_instance = |line: &str| site.ok(&words(&format!("-n -d example {line}").replace("ID", &instance)));
    on_instance("stop ID");
    on_instance("start ID --no-converge");
    on_instance("restart ID --skip-drain");
    on_instance("ignore ID");
    assert_eq!(cell(&site, "-d example instances -i", "ignore"), "true");
    on_instance("unignore ID");
    on_instance("take-snapshot ID");
    let snapshot = cell(&site, "-d example snapshots", "cid");
    on_instance(&format!("delete-snapshot {snapshot}"));
    assert!(site.rows(&words("-d example snapshots")).is_empty());
    on_instance("cloud-check --report");
    on_instance(&format!("logs ID --agent --dir={}", site.file("state").display()));
    on_instance("stop --hard ID");
    let disks = site.rows(&words("-d example disks"));
    let of_instance = disks.iter().find(|disk| disk["instance"] == instance.as_str()).unwrap();
    let disk = of_instance["disk_cid"].as_str().unwrap().to_owned();
    on_instance(&format!("orphan-disk {disk}"));
    assert_eq!(cell(&site, "disks --orphaned", "disk_cid"), disk);
    on_instance(&format!("attach-disk ID {disk}"));
    on_instance("start");
    on_instance("recreate ID");
    on_instance("update-resurrection off");
    on_instance("update-resurrection on");

    let told = on_instance("explain ID");
    let disks = site.rows(&words("-d example disks"));
    let hint = disks.iter().find(|row| row["disk_cid"] == disk.as_str()).unwrap()["hint"].as_str().unwrap().to_owned();
    for word in ["it was asked for", "it moves to the new VM", "waiting for the agent", "mounting disk", &disk, &hint] {
        assert!(told.contains(word), "no '{word}' in\n{told}");
    }
    for (line, word) in [
        ("-d nope disks", "no deployment 'nope'"),
        ("-d nope vms", "'nope' doesn't exist"),
        ("-d nope deployment", "no deployment 'nope'"),
        ("-d example explain db/nope", "no instance 'db/nope'"),
        ("-d example stop db --no-converge", "name it: GROUP/ID"),
        ("networks", "--orphaned"),
        ("stemcells --column=nope", "no table has a column 'nope'"),
        ("cpi-config", "no cpi config"),
        ("config --type=cloud --name=nope", "no config of type 'cloud' and name 'nope'"),
    ] {
        let said = site.fails(&words(line));
        assert!(said.contains(word), "{line}: {said}");
    }
    for line in LISTS {
        site.ok(&words(line));
    }
    compare_with_the_original(&site);
    site.ok(&words("-n -d example delete-deployment"));
    site.ok(&words("-n clean-up --all"));
    assert!(site.rows(&words("disks --orphaned")).is_empty());
}

fn compare_with_the_original(site: &Site) {
    let Ok(original) = std::env::var("WINDLASS_ORIGINAL_BOSH") else { return };
    let script = fs::read_to_string(site.state_dir().join("env.sh")).unwrap();
    let variables: Vec<(&str, &str)> = script
        .lines()
        .filter_map(|line| line.strip_prefix("export ")?.split_once('='))
        .map(|(name, value)| (name, value.trim_matches('\'')))
        .collect();
    let mut differ = Vec::new();
    for line in LISTS {
        for form in ["", "--tty", "--json"] {
            let arguments: Vec<&str> = ["-n", "--no-color", form].into_iter().filter(|word| !word.is_empty()).collect();
            let mut theirs = Command::new(&original);
            theirs.envs(variables.clone()).env("HOME", site.file("home")).args(&arguments).args(words(line));
            let theirs = theirs.output().unwrap();
            let ours = site.verb(&[&arguments[..], &words(line)[..]].concat()).output().unwrap();
            let (theirs, ours) = (comparable(&theirs.stdout), comparable(&ours.stdout));
            if theirs != ours {
                differ.push(format!("{line} {form}: the original prints\n{theirs}\nand we print\n{ours}\n"));
            }
        }
    }
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}

/// Without the numbers of tasks, which differ between two runs, and blank lines at the end.
fn comparable(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let tidy = |line: &str| match line.split_once("Task ") {
        Some((before, after)) => {
            format!("{before}Task {}", after.trim_start_matches(|letter: char| letter.is_ascii_digit()))
        }
        None => line.to_owned(),
    };
    let lines: Vec<_> = text.lines().map(tidy).collect();
    lines.join("\n").trim_end().to_owned()
}

fn signal(pid: i32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// A user who presses Ctrl-C must know that the director goes on, and how to look at it or to end it.
#[test]
fn breaking_off_the_waiting_does_not_end_the_task() {
    let mut site = Site::ready_to_deploy();
    site.deploy();
    // Agents that do not answer keep a task busy for a while.
    let agents = site.vm_processes();
    for pid in &agents {
        signal(*pid, "-STOP");
    }
    let waiting = site.verb(&["-d", "example", "vms"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_busy = |row: &Value| row["description"] == "retrieve vm-stats" && row["state"] == "processing";
    let mut task = String::new();
    site.wait_until("asking the agents", |site| {
        let busy = site.rows(&["tasks"]).into_iter().find(is_busy);
        task = busy.and_then(|row| Some(row["id"].as_str()?.to_owned())).unwrap_or_default();
        !task.is_empty()
    });
    signal(i32::try_from(waiting.id()).unwrap(), "-INT");
    let ended = waiting.wait_with_output().unwrap();
    for pid in &agents {
        signal(*pid, "-CONT");
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    for words in
        [format!("task {task} goes on"), format!("windlass task {task}"), format!("windlass cancel-task {task}")]
    {
        assert!(said.contains(&words), "no '{words}' in {said}");
    }
    // Following it again shows its end.
    site.ok(&["task", &task]);
}

/// Operators who look for the cause of a failure would not find out what their CPI was asked, or others would read passwords.
#[test]
fn the_cpi_log_of_a_task_shows_every_call_and_no_secret() {
    let site = Site::ready_to_deploy();
    site.deploy();
    let tasks = site.rows(&words("tasks --recent"));
    let task = tasks.iter().find(|row| row["description"] == "create deployment").unwrap()["id"].as_str().unwrap();
    let log = site.ok(&["task", task, "--cpi"]);
    for method in ["create_vm", "set_vm_metadata", "create_disk", "attach_disk", "set_disk_metadata"] {
        assert!(log.contains(&format!("asking the CPI: {{\"method\":\"{method}\"")), "no {method} in\n{log}");
        assert!(log.contains(&format!("'{method}' was answered after 0.")), "no answer to {method} in\n{log}");
    }
    let settings = site.settings(&site.in_cloud("vms")[0]);
    let password =
        settings["env"]["bosh"]["mbus"]["urls"][0].as_str().unwrap().split([':', '@']).nth(2).unwrap().to_owned();
    assert!(password.len() > 8 && !log.contains(&password), "the agent's password is in\n{log}");
}

/// Takes a VM away behind the director's back.
pub(crate) fn lose_vm(site: &Site, vm: &str) {
    ask_cpi(site, "delete_vm", json!([vm]));
}

/// Asks the cloud for something behind the director's back.
pub(crate) fn ask_cpi(site: &Site, method: &str, arguments: Value) -> Value {
    let mut cpi = Command::new(env!("CARGO_BIN_EXE_windlass"));
    cpi.args(["cpi", "local", "--config"]).arg(site.state_dir().join("cpi/local.json"));
    let mut cpi = cpi.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let request =
        json!({"method": method, "arguments": arguments, "context": {"director_uuid": "x"}, "api_version": 2});
    cpi.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
    let answer: Value = serde_json::from_slice(&cpi.wait_with_output().unwrap().stdout).unwrap();
    assert!(answer["error"].is_null(), "{answer}");
    answer["result"].clone()
}

/// Types answers to the questions of a verb.
fn answered(site: &Site, words: &[&str], answers: &str) -> Output {
    let mut verb = site.verb(words);
    let mut verb = verb.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A verb that asks nothing may have ended by now.
    let _ = verb.stdin.take().unwrap().write_all(answers.as_bytes());
    verb.wait_with_output().unwrap()
}

/// The same on a terminal, with what was printed.
pub(crate) fn answer(site: &Site, line: &str, answers: &str) -> (bool, String) {
    let ended = answered(site, &[&["--tty", "--no-color"], &words(line)[..]].concat(), answers);
    let printed = [ended.stdout, ended.stderr].concat();
    (ended.status.success(), String::from_utf8(printed).unwrap())
}

/// Disks with their data would go although somebody said no, only because the output is kept in a file.
#[test]
fn nothing_is_destroyed_without_consent_also_where_no_terminal_reads_the_output() {
    let site = Site::ready_to_deploy();
    for instances in [2, 1] {
        site.write_documents(instances);
        site.deploy();
    }
    let state = || {
        let instances = site.rows(&words("-d example instances -i"));
        let started = instances.iter().filter(|row| row["state"] == "started").count();
        (site.rows(&words("disks --orphaned")).len(), started)
    };
    assert_eq!(state(), (1, 1));
    for line in ["clean-up --all", "-d example stop", "-d example delete-deployment"] {
        for (answers, said) in [("n\n", "nothing was changed"), ("\n", "nothing was changed"), ("", "-n goes on")] {
            for form in ["--no-color", "--json"] {
                let ended = answered(&site, &[&[form], &words(line)[..]].concat(), answers);
                let (stdout, stderr) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
                assert_eq!(ended.status.code(), Some(1), "{line} {form} {answers:?}: {stdout}{stderr}");
                assert!(stderr.contains("Continue? [yN]: ") && !stdout.contains("Continue?"), "{stdout}{stderr}");
                assert!(format!("{stdout}{stderr}").contains(said), "{line} {answers:?}: {stdout}{stderr}");
                assert!(form != "--json" || serde_json::from_str::<Value>(&stdout).is_ok(), "no JSON: {stdout}");
            }
        }
    }
    assert_eq!(state(), (1, 1), "something was done");
    let agreed = |line: &str| assert!(answered(&site, &words(line), "y\n").status.success(), "{line}");
    agreed("clean-up --all");
    assert_eq!(state(), (0, 1));
    agreed("-d example stop");
    assert_eq!(state(), (0, 0));
    agreed("-d example delete-deployment");
    assert!(site.rows(&["deployments"]).is_empty());
}

/// Somebody who repairs a deployment by hand would get something else than they chose.
#[test]
fn a_person_chooses_how_to_repair() {
    let site = Site::ready_to_deploy();
    site.ok(&["update-resurrection", "off"]);
    site.deploy();
    lose_vm(&site, &cell(&site, "-d example vms", "vm_cid"));
    let nobody = site.fails(&words("-n -d example cloud-check"));
    assert!(nobody.contains("--resolution"), "{nobody}");
    let report = site.fails(&words("-n -d example cloud-check --report"));
    assert!(report.contains("1 problem(s) found"), "{report}");
    let (_, refused) = answer(&site, "-d example cloud-check", "9\n");
    assert!(refused.contains("none of the choices"), "{refused}");
    let (went, declined) = answer(&site, "-d example cloud-check", "3\nn\n");
    assert!(!went && declined.contains("3: Recreate VM and wait"), "{declined}");
    assert!(site.in_cloud("vms").is_empty(), "nothing was agreed to");
    let (went, repaired) = answer(&site, "-d example cloud-check", "3\ny\n");
    assert!(went && repaired.contains("Succeeded"), "{repaired}");
    assert_eq!(site.in_cloud("vms").len(), 1);
    site.ok(&words("-n -d example cloud-check --report"));
}

/// People name their directors once, and both command lines know them.
#[test]
fn a_director_can_have_a_name() {
    let site = Site::start();
    let script = fs::read_to_string(site.state_dir().join("env.sh")).unwrap();
    let value = |name: &str| {
        let line = script.lines().find_map(|line| line.strip_prefix(&format!("export {name}="))).unwrap();
        line.trim_matches('\'').to_owned()
    };
    let config = site.file("config");
    let run = |program: &str, line: &str| {
        let mut command = Command::new(program);
        for name in ["BOSH_ENVIRONMENT", "BOSH_CA_CERT", "BOSH_CLIENT", "BOSH_CLIENT_SECRET"] {
            command.env_remove(name);
        }
        command.env("BOSH_CONFIG", &config).env("HOME", site.file("home")).args(words(line)).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    let ours = env!("CARGO_BIN_EXE_windlass");
    let (url, ca) = (value("BOSH_ENVIRONMENT"), value("BOSH_CA_CERT"));
    let (user, secret) = (value("BOSH_CLIENT"), value("BOSH_CLIENT_SECRET"));
    let must = |program: &str, line: &str| {
        let (went, said) = run(program, line);
        assert!(went, "{line}: {said}");
        said
    };
    assert!(!run(ours, "-e https://127.0.0.1:1 alias-env wrong").0);
    must(ours, &format!("-e {url} --ca-cert {ca} alias-env mine"));
    assert!(must(ours, "environments").contains(&format!("{url}\tmine\t")));
    let nobody = must(ours, &format!("--config {} environments", site.file("nothing").display()));
    assert!(!nobody.contains("mine"), "the flag wins over the variable: {nobody}");
    assert!(must(ours, "-e mine env").contains("(not logged in)"));
    let (went, said) = run(ours, "-n -e mine --client admin --client-secret wrong log-in");
    assert!(!went && said.contains("does not know this user"), "{said}");
    let (went, said) = run(ours, "-n -e mine log-in");
    assert!(!went && said.contains("BOSH_CLIENT_SECRET"), "{said}");
    must(ours, &format!("-n -e mine --client {user} --client-secret {secret} log-in"));
    must(ours, "-e mine stemcells");
    if let Ok(original) = std::env::var("WINDLASS_ORIGINAL_BOSH") {
        must(&original, "-n -e mine stemcells");
        must(&original, &format!("-n -e {url} --ca-cert {ca} alias-env theirs"));
        must(ours, "-e theirs stemcells");
        must(ours, &format!("-e {url} --ca-cert {ca} alias-env mine"));
    }
    must(ours, "-e mine log-out");
    assert!(must(ours, "-e mine env").contains("(not logged in)"));
    must(ours, "unalias-env mine");
    assert!(!run(ours, "unalias-env mine").0);
}

/// The verbs of BOSH's client; those in the second list do nothing without an argument.
const VERBS_OF_BOSH: &str = "environment environments log-in log-out task tasks cancel-tasks locks clean-up config configs delete-config \
    diff-config cloud-config cpi-config runtime-config deployment deployments delete-deployment manifest events \
    stemcells releases upload-release errands disks networks snapshots take-snapshot delete-snapshots instances \
    vms cloud-check orphaned-vms logs start stop restart recreate ssh init-release reset-release create-release \
    sha1ify-release sha2ify-release blobs sync-blobs upload-blobs variables env";
const VERBS_WITH_ARGUMENTS: &str = "create-env delete-env stop-env start-env alias-env unalias-env cancel-task curl update-config \
    update-cloud-config update-cpi-config update-runtime-config deploy interpolate event inspect-local-stemcell \
    upload-stemcell delete-stemcell repack-stemcell export-release inspect-release inspect-local-release \
    delete-release run-errand attach-disk delete-disk orphan-disk delete-network delete-snapshot \
    update-resurrection ignore unignore create-recovery-plan recover delete-vm pcap scp generate-job \
    generate-package vendor-package finalize-release add-blob remove-blob int";

/// Our program under the name of BOSH's client.
fn linked_as_bosh(folder: &Path) -> PathBuf {
    let bosh = folder.join("bosh");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_windlass"), &bosh).unwrap();
    bosh
}

/// Scripts that were written for BOSH's client look at exit codes, and at its output, which has an empty line when it fails. That it
/// is so was found with BOSH's client itself.
#[test]
fn a_link_named_bosh_has_the_exit_codes_of_bosh() {
    let folder = tempfile::tempdir().unwrap();
    let bosh = linked_as_bosh(folder.path());
    let code = |program: &Path, line: &str| {
        let mut command = Command::new(program);
        command.args(words(line)).stdin(Stdio::null()).env("HOME", folder.path()).env_remove("BOSH_ENVIRONMENT");
        let output = command.env("XDG_STATE_HOME", folder.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    for line in ["nope", "vms --nope", "stop --canaries", "delete-disk"] {
        assert_eq!(code(&bosh, line), (Some(1), "\n".to_owned()), "{line}");
        // 2 would be taken for a plan that changes something.
        assert_eq!(code(Path::new(env!("CARGO_BIN_EXE_windlass")), line), (Some(1), String::new()), "{line}");
    }
    for verb in VERBS_OF_BOSH.split(' ').chain(VERBS_WITH_ARGUMENTS.split(' ')) {
        assert_eq!(code(&bosh, &format!("{verb} --no-such-flag")), (Some(1), "\n".to_owned()), "{verb}");
    }
    for verb in VERBS_WITH_ARGUMENTS.split(' ') {
        assert_eq!(code(&bosh, verb), (Some(1), "\n".to_owned()), "{verb}");
    }
    assert_eq!(code(&bosh, "-e https://127.0.0.1:1 tasks"), (Some(1), "\n".to_owned()));
    assert_eq!(Command::new(&bosh).output().unwrap().status.code(), Some(1), "no verb at all");
    let (code, help) = code(&bosh, "--help");
    assert!(code == Some(0) && help.contains("Usage: bosh"), "{help}");
}

/// As BOSH's client does it for scripts, found with BOSH's client itself.
#[test]
fn a_link_named_bosh_asks_and_fails_among_its_output() {
    let site = Site::start();
    let bosh = linked_as_bosh(&site.file(""));
    let run = |line: &str, answer: &str| {
        let mut command = Command::new(&bosh);
        command.arg("--state-dir").arg(site.state_dir()).args(words(line)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(run("clean-up", "n\n"), (Some(1), "Continue? [yN]: n\n\n\n".to_owned()));
    assert_eq!(run("clean-up", ""), (Some(1), "Continue? [yN]: \n\n".to_owned()));
    let (code, printed) = run("clean-up", "yes\n");
    assert!(code == Some(0) && printed.starts_with("Continue? [yN]: yes\n"), "{printed}");
    assert_eq!(run("curl /nope", ""), (Some(1), "Not Found: /nope\n\n".to_owned()));
    let (code, printed) = run("--json task 99999", "");
    assert!(code == Some(1) && printed.ends_with('}') && !printed.contains("\"Task 99999\""), "{printed}");
    // A password from a pipe is nothing to print. Nobody asks for one with credentials of a state directory.
    let mut command = Command::new(&bosh);
    command.args(["-e", "https://127.0.0.1:1", "log-in"]).env("HOME", site.file("")).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"admin\nf496s3cret\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = [output.stdout, output.stderr].map(|printed| String::from_utf8(printed).unwrap()).concat();
    assert!(printed.contains("Password") && !printed.contains("f496s3cret"), "{printed}");
    // What is no release is not sent.
    let file = site.file("no-release.tgz");
    fs::write(&file, "hello").unwrap();
    assert_eq!(run(&format!("upload-release {}", file.display()), ""), (Some(1), "\n".to_owned()));
    let (code, printed) = run(&format!("--json upload-stemcell {}", site.manifest()), "");
    assert!(
        code == Some(1) && printed.contains(" is a deployment manifest, which 'windlass deploy' takes"),
        "{printed}"
    );
    let (_, printed) = run("curl -i /info", "");
    assert!(printed.contains("\r\nContent-Type: application/json\r\nDate: "), "{printed}");
}

/// A shell that completes words is what an operator types with all day.
#[test]
fn shells_learn_the_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Command::new(env!("CARGO_BIN_EXE_windlass")).args(["completion", shell]).output().unwrap();
        let script = String::from_utf8(script.stdout).unwrap();
        assert!(script.contains("update-cloud-config"), "{shell}");
        if shell == "bash" && Path::new("/bin/bash").exists() {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("windlass.bash");
            fs::write(&file, &script).unwrap();
            let checked = Command::new("/bin/bash").arg("-n").arg(&file).status().unwrap();
            assert!(checked.success(), "bash does not understand it");
        }
    }
}

/// Scripts were written for what BOSH's client prints.
#[test]
fn dry_runs_json_and_failures_are_printed_as_by_boshs_client() {
    let site = Site::ready_to_deploy();
    // It asks nothing, because it does nothing.
    let printed = site.ok(&["-d", "example", "deploy", "--dry-run", &site.manifest()]);
    let told: Vec<&str> = printed.lines().filter_map(|line| line.split(" | ").nth(2)).collect();
    let took = |line: &str| line.split(" (00:").next().unwrap().to_owned();
    assert_eq!(
        told.into_iter().map(took).collect::<Vec<_>>(),
        ["Preparing deployment: Preparing deployment", "Preparing deployment: Rendering templates"],
        "{printed}"
    );
    assert!(!printed.contains("create VM"), "'windlass plan' tells it: {printed}");
    assert!(site.in_cloud("vms").is_empty() && site.rows(&["deployments"]).is_empty());

    let printed: Value =
        serde_json::from_str(&site.ok(&["-n", "--json", "-d", "example", "deploy", &site.manifest()])).unwrap();
    let lines: Vec<&str> = printed["Lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let difference: Vec<&&str> = lines.iter().filter(|line| line.starts_with("+ ")).collect();
    assert!(difference.contains(&&"+ instance_groups:\n") && difference.len() > 10, "a line each: {lines:?}");
    assert!(!lines.iter().any(|line| line.contains("create VM")), "{lines:?}");
    assert_eq!(lines.last(), Some(&"Succeeded"));

    // A table without rows ends the last line of the task before it.
    let mut checked = Command::new(linked_as_bosh(&site.file("")));
    let checked = checked.arg("--state-dir").arg(site.state_dir()).args(words("-d example cloud-check --report"));
    let checked = checked.output().unwrap();
    let printed = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success() && printed.ends_with(")\n"), "{printed:?}");

    let failed = site.windlass(&["-d", "nope", "vms"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).ends_with("\nExit code 1\n"), "{failed:?}");
}

#[test]
fn variables_are_imported_and_exported_as_a_vars_store() {
    let site = Site::ready_to_deploy();
    let manifest = site.manifest();
    let defined = "name: example\nstemcells: []\nreleases: []\ninstance_groups: []\n\
        update: {canaries: 1, max_in_flight: 1, canary_watch_time: 1, update_watch_time: 1}\n\
        variables:\n- {name: password, type: password}\n- {name: /shared/user, type: user}\n- {name: made, type: password}\n";
    fs::write(&manifest, defined).unwrap();
    let (given, kept) = (site.file("creds.yml"), site.file("kept.yml"));
    let (given, kept) = (given.to_str().unwrap(), kept.to_str().unwrap());
    fs::write(given, "password: hunter2\n/shared/user: {username: eve, password: geheim}\n").unwrap();
    let import = ["--tty", "-d", "example", "import-variables", given];
    let said = site.ok(&import);
    assert!(said.contains("2 variables were set, 0 had their values already."), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    assert!(site.ok(&import).contains("0 variables were set, 2 had their values already."));
    site.deploy();
    let listed = site.rows(&["-d", "example", "variables"]);
    let names: Vec<&str> = listed.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["/shared/user", "/windlass/example/made", "/windlass/example/password"]);
    assert!(!format!("{listed:?}").contains("hunter2"), "{listed:?}");
    assert!(site.ok(&["--tty", "-d", "example", "export-variables", kept]).contains("3 variables were written to"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(kept).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    // The client reads it as its own.
    let read =
        |path: &str| site.ok(&["interpolate", &site.file("all.yml").display().to_string(), "--vars-store", path]);
    fs::write(site.file("all.yml"), "a: ((password))\nb: ((made))\n").unwrap();
    let filled = read(kept);
    assert!(filled.contains("a: hunter2\n") && !filled.contains("((made))"), "{filled}");
}

/// As an operator has it who keeps values apart from the director that deploys.
#[test]
fn a_director_asks_another_one_for_values() {
    let keeper = Site::start();
    let env = fs::read_to_string(keeper.state_dir().join("env.sh")).unwrap();
    let part = |name: &str| {
        let line = env.lines().find(|line| line.contains(&format!("{name}="))).unwrap();
        line.split_once('=').unwrap().1.trim_matches('\'').to_owned()
    };
    let mut site = Site::ready_to_deploy();
    let secret = site.file("secret");
    fs::write(&secret, part("BOSH_CLIENT_SECRET")).unwrap();
    let settings = format!(
        "isolation: process\nconfig_server: {{url: '{}', ca_cert: '{}', client: admin, client_secret: {{file: '{}'}}}}\n",
        part("BOSH_ENVIRONMENT"),
        part("BOSH_CA_CERT"),
        secret.display()
    );
    fs::write(site.state_dir().join("director.yml"), settings).unwrap();
    site.kill_director();
    site.start_director(None);
    let manifest = site.manifest();
    let defined = "name: example\nstemcells: []\nreleases: []\ninstance_groups: []\n\
        update: {canaries: 1, max_in_flight: 1, canary_watch_time: 1, update_watch_time: 1}\n\
        variables:\n- {name: password, type: password}\n";
    fs::write(&manifest, defined).unwrap();
    site.deploy();
    let listed = site.rows(&["-d", "example", "variables"]);
    assert_eq!(listed.len(), 1, "{listed:?}");
    let kept = keeper.ok(&["curl", "/v1/data?name=/windlass/example/password"]);
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(kept["data"][0]["id"], listed[0]["id"], "{kept}");
    let value = kept["data"][0]["value"].as_str().unwrap();
    let database = fs::read(site.state_dir().join("director.db")).unwrap();
    assert!(!database.windows(value.len()).any(|window| window == value.as_bytes()));
}
