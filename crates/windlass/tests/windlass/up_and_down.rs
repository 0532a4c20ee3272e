//! `up`, `status` and `down`: what a newcomer types first, and what must leave nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use windlass_rigs::ordinary_user::is_ordinary_user;
use windlass_rigs::own_machine::is_own_machine;
use windlass_rigs::small_disk::SmallDisk;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");

/// A state directory, which is taken down with the test.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(WINDLASS);
        command.env("WINDLASS_STATE_DIR", self.state_dir()).env("HOME", self.folder.path());
        command.env_remove("BOSH_ENVIRONMENT").current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command().args(line.split(' ')).output().unwrap()
    }

    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}: {said}{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a line of a shell shows on a terminal of 80 columns.
    fn on_terminal(&self, line: &str) -> String {
        let shell = format!("stty cols 80 rows 24; {}", line.replace("windlass", WINDLASS));
        let mut command = Command::new("python3");
        command.args(["-c", "import pty, sys; pty.spawn(['bash', '-c', sys.argv[1]])", &shell]);
        command.env("WINDLASS_STATE_DIR", self.state_dir()).env("TERM", "xterm");
        command.env_remove("BOSH_ENVIRONMENT").current_dir(self.folder.path()).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().replace('\r', "")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.state_dir().exists() {
            let _ = self.run("-n down --all");
        }
    }
}

/// Processes that name `path`.
fn processes_about(path: &Path) -> Vec<String> {
    let path = path.display().to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let lines = processes.filter_map(|process| fs::read(process.join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).filter(|line| line.contains(&path)).collect()
}

fn bridges() -> Vec<String> {
    let links = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    links.map(|link| link.file_name().to_string_lossy().into_owned()).filter(|name| name.starts_with("wl-")).collect()
}

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).display().to_string()
}

fn lives(home: &Home, what_vms_are: &str) {
    let state_dir = home.state_dir();
    let refused = home.run("status");
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("windlass up"));
    assert!(!home.run("-n down --all").status.success(), "there is nothing to take down");
    assert!(!state_dir.exists(), "looking makes nothing");

    let said = home.ok("up --listen 127.0.0.1:0");
    assert!(said.contains("Stemcell      windlass-minimal/1") && said.contains(what_vms_are), "{said}");
    assert!(state_dir.join("director.log").exists() && said.contains("director.log"), "{said}");
    let again = home.ok("up --listen 127.0.0.1:0");
    assert!(again.contains("--listen and --isolation change nothing while it runs"), "{again}");
    assert!(again.contains("runs here already") && again.contains("it is there already, and stays"), "{again}");

    home.ok("down");
    let (database, back_up) = (state_dir.join("director.db"), home.folder.path().join("back-up.db"));
    fs::copy(&database, &back_up).unwrap();
    home.ok("up --listen 127.0.0.1:0");

    home.ok(&format!("-n deploy {}", example("deployment.yml")));
    let status = home.ok("status");
    assert!(status.contains("Director      running at https://127.0.0.1:"), "labels are there in a pipe: {status}");
    assert!(status.contains("example     running  1 of 1"), "{status}");
    let json: Value = serde_json::from_str(&home.ok("status --json")).unwrap();
    assert_eq!(json["Tables"][1]["Rows"][0]["health"], "running");
    assert_eq!(home.ok("-d example instances --failing").trim(), "", "nothing fails when all is well");

    if what_vms_are.starts_with("VMs are containers") {
        let vitals: Value = serde_json::from_str(&home.ok("-d example vms --vitals --json")).unwrap();
        let memory = vitals["Tables"][0]["Rows"][0]["memory_usage"].as_str().unwrap();
        let mebibytes = memory.split(['(', ' ']).find_map(|word| word.parse::<f64>().ok());
        assert!(mebibytes.is_some_and(|used| used < 100.0), "a VM tells what it uses itself: {memory}");
    }
    looks_well_on_a_terminal(home);

    let said = home.ok("down");
    assert!(said.contains("1 VM keeps running"), "{said}");
    assert!(!home.run("status").status.success());
    assert!(!processes_about(&state_dir).is_empty(), "the VM lives on");
    home.ok("up --listen 127.0.0.1:0");
    assert!(home.ok("status").contains("example     running  1 of 1"), "the VM is cared for again");

    // Restored, the director knows the stemcell and not the VM that keeps it.
    home.ok("down");
    fs::copy(&back_up, &database).unwrap();
    let said = home.ok("-n down --all");
    assert!(said.contains("could not delete everything") && said.ends_with("Nothing is left.\n"), "{said}");
    assert_eq!(processes_about(&state_dir), Vec::<String>::new());
    assert_eq!(bridges(), Vec::<String>::new());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(state_dir.to_str().unwrap()), "{mounts}");
    assert!(!state_dir.exists());
}

fn looks_well_on_a_terminal(home: &Home) {
    let example = example("deployment.yml");
    for line in ["vms", "instances --details", "disks", "tasks --recent", "events", "explain db/0", "snapshots"] {
        let shown = home.on_terminal(&format!("windlass -d example {line} --no-color"));
        for line in shown.lines() {
            assert!(line.chars().count() <= 80, "wider than the terminal: {line}\n{shown}");
        }
        assert!(!shown.contains("Exit code"), "{line}: {shown}");
    }
    let vms = home.on_terminal("windlass -d example vms");
    assert!(vms.contains("\u{1b}[32m● running\u{1b}[0m") && vms.contains("1 vm\n"), "{vms}");
    assert!(home.ok("-d example vms").contains("\t-"), "scripts get what BOSH prints");
    let wide = home.on_terminal("windlass -d example vms --wide");
    assert!(wide.contains("Stemcell") && wide.contains("1 vms"), "{wide}");
    assert!(home.on_terminal("windlass -d example tasks --recent").contains(" ago"));
    let watched = home.on_terminal("timeout --signal INT 3 windlass -d example instances --watch=1");
    assert!(watched.matches("every 1 s").count() >= 2 && watched.contains("● running"), "{watched}");
    assert!(!home.run("instances --watch").status.success(), "there is no terminal to draw on");

    let misspelt = home.run("-d exmple vms");
    let said = String::from_utf8_lossy(&misspelt.stderr).into_owned();
    assert!(said.starts_with("Deployment 'exmple' doesn't exist; did you mean 'example'?"), "{said}");
    let plan: Value = serde_json::from_str(&home.ok(&format!("plan --json --recreate {example}"))).unwrap();
    let kinds: Vec<&str> =
        plan["Tables"][0]["Rows"].as_array().unwrap().iter().filter_map(|row| row["kind"].as_str()).collect();
    assert!(kinds.contains(&"create_vm"), "{plan:#}");
    assert_eq!(home.run(&format!("plan --detailed-exitcode --recreate {example}")).status.code(), Some(2));
    assert_eq!(home.run(&format!("plan --detailed-exitcode {example}")).status.code(), Some(0));
    let names = home.ok("complete-names -- -d ex");
    assert_eq!(names, "example\n");
    assert!(home.ok("complete-names -- -d example recreate ").starts_with("db/"));
    let told = home.ok("-d example explain db/0");
    assert!(told.contains("Desired state") && told.contains("After"), "{told}");
    let misspelt = home.state_dir().join("misspelt.yml");
    fs::write(&misspelt, "azs: [{name: z1}]\nvm_typs: []\n").unwrap();
    let warned = home.run(&format!("-n update-cloud-config --name other {}", misspelt.display()));
    fs::remove_file(&misspelt).unwrap();
    assert!(String::from_utf8_lossy(&warned.stderr).contains("did you mean 'vm_types'?"), "{warned:?}");
    home.ok("-n delete-config --type cloud --name other");
}

/// As root VMs are containers.
#[test]
fn a_director_comes_up_shows_how_it_is_and_leaves_nothing() {
    if is_own_machine("up_and_down::a_director_comes_up_shows_how_it_is_and_leaves_nothing") {
        lives(&Home::new(), "VMs are containers, with addresses in 10.84.0.0/24");
    }
}

#[test]
fn a_director_comes_up_without_privileges_and_leaves_nothing() {
    if is_ordinary_user("up_and_down::a_director_comes_up_without_privileges_and_leaves_nothing") {
        lives(&Home::new(), "VMs are processes of this machine, with addresses in 127.84.");
    }
}

/// It holds the lock of its deployment for ten minutes, and somebody wants it all to go away now.
#[test]
fn everything_goes_also_while_a_task_waits_for_an_agent() {
    if !is_own_machine("up_and_down::everything_goes_also_while_a_task_waits_for_an_agent") {
        return;
    }
    let home = Home::new();
    fs::create_dir(home.state_dir()).unwrap();
    fs::write(home.state_dir().join("director.yml"), "cpi: sim\n").unwrap();
    home.ok("up --listen 127.0.0.1:0");
    home.ok("stemcell build --output stemcell.tgz");
    home.ok("upload-stemcell stemcell.tgz");
    // Agents of the simulated cloud are in 127.0.0.0/8, so nobody ever answers here.
    let cloud_config = fs::read_to_string(example("cloud-config.yml")).unwrap().replace("127.84.", "10.84.");
    fs::write(home.folder.path().join("cloud-config.yml"), cloud_config).unwrap();
    home.ok("-n update-cloud-config cloud-config.yml");
    let mut deploy = home.command();
    deploy.args(["-n", "deploy", &example("deployment.yml")]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut deploy = deploy.spawn().unwrap();
    let begun = Instant::now();
    while !home.ok("locks").contains("example") {
        assert!(begun.elapsed() < Duration::from_secs(30), "the deploy does not begin");
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = home.ok("-n down --all");
    deploy.wait().unwrap();
    assert!(said.contains("Cancelling task ") && said.ends_with("Nothing is left.\n"), "{said}");
    assert!(!home.state_dir().exists());
}

/// What asks for the log is told where it is, and what makes room works.
#[test]
fn a_director_with_a_full_disk_shows_where_its_log_is_and_goes() {
    if !is_own_machine("up_and_down::a_director_with_a_full_disk_shows_where_its_log_is_and_goes") {
        return;
    }
    let home = Home::new();
    let _disk = SmallDisk::on(home.folder.path(), "size=400m");
    home.ok("up --listen 127.0.0.1:0");
    home.ok(&format!("-n deploy {}", example("deployment.yml")));
    let fill = Command::new("dd").args(["if=/dev/zero", "of=fill", "bs=64k"]).current_dir(home.folder.path()).output();
    assert!(!fill.unwrap().status.success(), "the disk is full");
    let status = home.run("status");
    let (shown, said) = (String::from_utf8_lossy(&status.stdout), String::from_utf8_lossy(&status.stderr));
    assert!(said.starts_with("the director's disk is full") && shown.contains("director.log"), "{shown}{said}");
    let said = home.ok("-n down --all");
    assert!(said.contains("could not delete everything") && said.ends_with("Nothing is left.\n"), "{said}");
    assert_eq!(processes_about(&home.state_dir()), Vec::<String>::new());
}

/// Its lines would stand in the middle of what the next command shows.
#[test]
fn a_director_in_the_background_of_a_shell_writes_its_log_elsewhere() {
    let home = Home::new();
    let line =
        "set -m; windlass director --listen 127.0.0.1:0 & until windlass env; do sleep 0.1; done; kill %1; wait %1";
    let shown = home.on_terminal(line);
    assert!(!shown.contains("INFO") && !shown.contains("listens on"), "{shown}");
    assert!(shown.contains("Succeeded"), "{shown}");
    let log = fs::read_to_string(home.state_dir().join("director.log")).unwrap();
    assert!(log.contains("INFO"), "{log}");
    let line = "timeout --foreground --signal INT 2 windlass director --listen 127.0.0.1:0; true";
    let shown = home.on_terminal(line);
    assert!(shown.contains("The director listens on"), "in the foreground it says so: {shown}");
}

/// A port that is taken is told by the command that starts the director, not only in a log.
#[test]
fn a_director_that_cannot_start_in_the_background_says_why() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let failed = home.run(&format!("up --listen {}", taken.local_addr().unwrap()));
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && said.contains("the director did not start"), "{said}");
    assert!(said.contains(&taken.local_addr().unwrap().to_string()) && said.contains("director.log"), "{said}");
}
