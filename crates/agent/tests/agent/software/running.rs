//! Jobs that run: their processes under the supervisor, on a VM whose base directory is `/var/vcap`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use windlass_durable::sweep::Points;

use super::{SoftwareBlobs, archive, call, machine};
use crate::kills;
use crate::machine::{Machine, exception};

/// A VM whose base directory is `/var/vcap`, in mounts of its own; none without root. `more` is done there before
/// the agent starts.
fn machine_that_runs_jobs(more: &str) -> Option<Machine> {
    let mut machine = Machine::new();
    machine.settings["env"]["bosh"]["mbus"]["require_client_cert"] = json!(false);
    let allowed = std::process::Command::new("unshare").args(["--mount", "true"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        eprintln!("needs mounts of its own and did not run");
        return None;
    }
    let (folder, base) = (machine.folder.path(), machine.base());
    std::fs::create_dir(&base).unwrap();
    // The same process becomes the agent, so that a kill meets it.
    let script = format!(
        "#!/bin/sh\nif [ -z \"$INSIDE\" ]; then INSIDE=1 exec unshare --mount --propagation private \"$0\" \"$@\"; fi\n\
         unset INSIDE\nAGENT_PROGRAM={}\nmount -t tmpfs tmpfs /var && mkdir /var/vcap && mount --bind {} /var/vcap || exit 1\n\
         {more}\nexec {} -P directory -M monit \"$5\" \"$6\" -b /var/vcap\n",
        machine.program.display(),
        base.display(),
        machine.program.display()
    );
    let program = folder.join("agent");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    machine.program = program;
    Some(machine)
}

/// Ends the supervisor and the processes that the jobs of a VM left, which nobody else does here.
struct Processes(Machine);

impl Processes {
    fn pid(&self, name: &str) -> Option<u32> {
        let text = std::fs::read_to_string(self.0.base().join("data/sys/run").join(name)).ok()?;
        text.trim().parse().ok().filter(|pid: &u32| Path::new(&format!("/proc/{pid}/stat")).exists())
    }

    fn with(is_meant: impl Fn(u32, &str) -> bool) -> Vec<u32> {
        let pids =
            std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let line = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        pids.filter(|pid| is_meant(*pid, &String::from_utf8_lossy(&line(*pid)))).collect()
    }

    /// Those of the jobs, which have the VM's id in their names.
    fn of_jobs(&self) -> Vec<u32> {
        let id = self.0.agent_id.to_string();
        Self::with(|_, line| line.contains(&id))
    }

    /// The supervisor sees the VM's settings where it is.
    fn supervisor(&self) -> Option<u32> {
        let id = self.0.agent_id.to_string();
        let sees = |pid: u32| {
            let settings = format!("/proc/{pid}/root/var/vcap/bosh/settings.json");
            std::fs::read_to_string(settings).is_ok_and(|settings| settings.contains(&id))
        };
        Self::with(|pid, line| line.contains("supervise\0") && sees(pid)).first().copied()
    }

    /// Runs a command where the agent is; what it said on both streams.
    fn inside(&self, command: &str) -> (String, String) {
        let mut process = std::process::Command::new("nsenter");
        process.args(["--target", &self.0.pid().to_string(), "--mount", "sh", "-c", command]);
        let output = process.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    }

    fn end(pid: u32) {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.supervisor().into_iter().chain(self.of_jobs()).for_each(Self::end);
    }
}

async fn until(what: &str, machine: &Machine, is_so: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_so() {
        let log = std::fs::read_to_string(machine.base().join("monit/monit.log")).unwrap_or_default();
        assert!(std::time::Instant::now() < deadline, "{what}\n{}\n{log}", machine.console());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn state_of(machine: &Machine) -> Value {
    machine.message(json!({"method": "get_state", "arguments": ["full"]})).await["value"].clone()
}

/// The state once all jobs run.
async fn running(machine: &Machine) -> Value {
    let begun = std::time::Instant::now();
    loop {
        let state = state_of(machine).await;
        if state["job_state"] == "running" {
            return state;
        }
        assert!(begun.elapsed().as_secs() < 60, "{state}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_jobs_process_is_started_kept_alive_and_stopped_whatever_becomes_of_the_agent() {
    let Some(mut machine) = machine_that_runs_jobs("") else { return };
    machine.start().await;
    let word = machine.agent_id.to_string();
    let mut blobs = SoftwareBlobs::default();
    let ctl = format!(
        "#!/bin/bash\nrun=/var/vcap/sys/run/web\nmkdir -p $run\ncase $1 in\nstart) (exec -a web-{word} sleep 1000) & \
         echo $! > $run/pid ;;\nstop) kill $(cat $run/pid); rm $run/pid ;;\nesac\n"
    );
    let monit_file = "check process web with pidfile /var/vcap/sys/run/web/pid\n\
        start program \"/var/vcap/jobs/web/bin/ctl start\"\nstop program \"/var/vcap/jobs/web/bin/ctl stop\"\ngroup vcap\n";
    let mut spec = blobs.spec("hash1", &["web"], &[]);
    let files = archive(&[("web/monit", 0o644, monit_file), ("web/bin/ctl", 0o755, &ctl)]);
    spec["rendered_templates_archive"] = blobs.add("rendered", files);
    blobs.hand_over(&machine).await;
    assert_eq!(call(&machine, "apply", json!([spec])).await["value"], "applied");
    assert_eq!(machine.message(json!({"method": "start", "arguments": []})).await["value"], "started");
    let mut vm = Processes(machine);
    until("no process", &vm.0, || vm.pid("web/pid").is_some()).await;
    let first = vm.pid("web/pid").unwrap();
    let state = running(&vm.0).await;
    let web = &state["processes"][0];
    assert_eq!((&web["name"], &web["state"]), (&json!("web"), &json!("running")));
    // Directors that watch a start do not ask in full, and name what does not run.
    let short = vm.0.message(json!({"method": "get_state", "arguments": []})).await["value"].clone();
    assert_eq!((&short["processes"][0]["name"], &short["vitals"]), (&json!("web"), &Value::Null));
    // Scripts of releases see it with monit's words, which work in the VM's mounts.
    let monit = |words: &str| vm.inside(&format!("/var/vcap/bosh/bin/monit {words}"));
    let (summary, _) = monit("summary");
    assert!(
        summary.lines().nth(2).is_some_and(|line| line == "Process 'web'                       running"),
        "{summary}"
    );
    assert_eq!(std::fs::read_to_string(vm.0.base().join("monit/job/0000_web.monitrc")).unwrap(), monit_file);
    let health = || std::fs::read_to_string(vm.0.base().join("instance/health.json")).unwrap();
    assert_eq!(health(), r#"{"state":"running"}"#);
    // The agent dies and comes back: nothing is touched.
    let supervisor = vm.supervisor().unwrap();
    vm.0.kill();
    vm.0.start().await;
    running(&vm.0).await;
    assert_eq!((vm.of_jobs(), vm.supervisor()), (vec![first], Some(supervisor)));
    // The supervisor dies: the next question brings it back, and it finds what runs.
    Processes::end(supervisor);
    until("the supervisor lives", &vm.0, || vm.supervisor() != Some(supervisor)).await;
    running(&vm.0).await;
    assert!(vm.supervisor().is_some());
    assert_eq!(vm.of_jobs(), [first]);
    // The process dies: it is started again.
    Processes::end(first);
    // It is one of the jobs' once it runs its program.
    let is_back = || vm.pid("web/pid").is_some_and(|pid| pid != first) && vm.of_jobs().len() == 1;
    until("it does not come back", &vm.0, is_back).await;
    let alerts = vm.0.director().alerts().await.unwrap();
    let title = format!("web ({}) - Does not exist - restart", vm.0.address);
    assert!(alerts.iter().any(|alert| alert.title == title && alert.severity == 1), "{alerts:?}");
    // By hand, as operators do it.
    let (_, errors) = vm.inside("/var/vcap/bosh/bin/monit stop nobody");
    assert!(errors.contains("there is no service 'nobody': there are web"), "{errors}");
    let stop = "/var/vcap/bosh/bin/monit stop -g vcap && while ! /var/vcap/bosh/bin/monit summary | \
        grep -q \"'web' *not monitored$\"; do sleep 0.1; done";
    vm.inside(stop);
    assert_eq!(vm.of_jobs(), [] as [u32; 0]);
    vm.inside("/var/vcap/bosh/bin/monit reload && /var/vcap/bosh/bin/monit start all");
    running(&vm.0).await;
    // Stopped, it stays stopped.
    assert_eq!(call(&vm.0, "stop", json!([])).await["value"], "stopped");
    assert_eq!((vm.of_jobs(), state_of(&vm.0).await["job_state"].clone()), (vec![], json!("stopped")));
    assert_eq!(std::fs::read_to_string(vm.0.base().join("instance/health.json")).unwrap(), r#"{"state":"stopped"}"#);

    let before = std::fs::read_link(vm.0.base().join("jobs/web")).unwrap();
    let broken = archive(&[("web/monit", 0o644, "check process web with a twist\n"), ("web/bin/ctl", 0o755, &ctl)]);
    let mut wrong = blobs.spec("hash2", &["web"], &[]);
    wrong["rendered_templates_archive"] = blobs.add("rendered-wrong", broken);
    blobs.hand_over(&vm.0).await;
    // Already before anything is stopped for it.
    for method in ["prepare", "apply"] {
        let reply = call(&vm.0, method, json!([wrong])).await;
        assert!(exception(&reply).contains("monit files cannot be used"), "{reply}");
    }
    assert_eq!(std::fs::read_link(vm.0.base().join("jobs/web")).unwrap(), before, "what was in use still is");
}

/// A job with one process. Its second copy would leave a note, and its scripts say when they run.
fn careful_job(word: &str) -> Vec<u8> {
    let ctl = format!(
        "#!/bin/bash\nhome=/var/vcap/data/web\ncase $1 in\nstart) (exec -a web-{word} bash -c \"mkdir $home/lock 2> /dev/null || \
         echo twice >> $home/twice; echo \\$\\$ > $home/pid; exec -a web-{word} sleep 1000\" > /dev/null 2>&1) & ;;\nstop) pid=$(cat $home/pid) || exit 0; \
         kill $pid; while kill -0 $pid 2> /dev/null; do sleep 0.01; done; rmdir $home/lock; rm $home/pid ;;\nesac\n"
    );
    let monit = "check process web with pidfile /var/vcap/data/web/pid\n\
        start program \"/var/vcap/jobs/web/bin/ctl start\"\nstop program \"/var/vcap/jobs/web/bin/ctl stop\"\ngroup vcap\n";
    let drain = "#!/bin/bash\necho drain >> /var/vcap/data/web/drains; echo 0\n";
    let pre_start = "#!/bin/bash\nmkdir /var/vcap/data/web/starting || echo twice >> /var/vcap/data/web/twice\n\
        sleep 0.1; rmdir /var/vcap/data/web/starting\n";
    archive(&[
        ("web/monit", 0o644, monit),
        ("web/bin/ctl", 0o755, &ctl),
        ("web/bin/drain", 0o755, drain),
        ("web/bin/pre-start", 0o755, pre_start),
    ])
}

async fn running_killed_at(kill_at: u64) -> bool {
    // The supervisor and the programs that it starts live on.
    let unkilled = "printf '#!/bin/sh\\nunset WINDLASS_KILL_AT\\nexec %s \"$@\"\\n' \"$AGENT_PROGRAM\" > /var/unkilled; \
        chmod +x /var/unkilled; export WINDLASS_AGENT=/var/unkilled";
    let Some(mut machine) = machine_that_runs_jobs(unkilled) else { return false };
    machine.kill_at = Some(kill_at);
    let mut blobs = SoftwareBlobs::default();
    let mut spec = blobs.spec("hash1", &["web"], &[]);
    spec["rendered_templates_archive"] = blobs.add("rendered", careful_job(machine.agent_id.as_str()));
    let calls = [
        ("prepare", json!([spec])),
        ("apply", json!([spec])),
        ("run_script", json!(["pre-start", {}])),
        ("start", json!([])),
        ("drain", json!(["shutdown"])),
        ("stop", json!([])),
        ("apply", json!([spec])),
        ("run_script", json!(["pre-start", {}])),
        ("start", json!([])),
    ];
    let mut vm = Processes(machine);
    let mut was_killed = kills::tell(&mut vm.0, &blobs, &calls).await;
    let after = format!("after a kill at step {kill_at}");
    until(&after, &vm.0, || vm.of_jobs().len() == 1).await;
    was_killed |= kills::tell_on(&mut vm.0, &blobs, &[("stop", json!([]))]).await;
    let log = std::fs::read_to_string(vm.0.base().join("monit/monit.log")).unwrap_or_default();
    assert_eq!(vm.of_jobs(), [] as [u32; 0], "{after}: a process is lost\n{log}");
    assert!(!vm.0.base().join("data/web/twice").exists(), "{after}: something ran beside itself\n{log}");
    was_killed
}

#[tokio::test]
async fn an_agent_killed_at_any_step_of_starting_draining_and_stopping_loses_no_process_and_has_none_twice() {
    if machine_that_runs_jobs("").is_none() {
        return;
    }
    let kills = kills::sweep(Points::sampled(8), running_killed_at).await;
    assert!(kills > 3, "only {kills} steps were killed; the story has more");
}

#[tokio::test]
async fn a_disk_that_is_full_in_the_middle_of_an_apply_leaves_what_is_in_use_and_the_next_apply_works() {
    let Some(mut machine) =
        machine_that_runs_jobs("mkdir -p /var/vcap/data && mount -t tmpfs -o size=6m tmpfs /var/vcap/data")
    else {
        return;
    };
    machine.start().await;
    let vm = Processes(machine);
    let in_use = || vm.inside("cat /var/vcap/packages/tool/bin/tool").0;
    let mut blobs = SoftwareBlobs::default();
    let small = blobs.package("tool", "1", &[("bin/tool", 0o755, "tool 1")]);
    let first = blobs.spec("hash1", &["web"], &[small]);
    blobs.hand_over(&vm.0).await;
    assert_eq!(call(&vm.0, "apply", json!([first])).await["value"], "applied");
    // Many files, so that the size of each is no surprise.
    let content = "0".repeat(100_000);
    let names: Vec<String> = (0..100).map(|number| format!("share/{number}")).collect();
    let files: Vec<(&str, u32, &str)> = names.iter().map(|name| (name.as_str(), 0o644, content.as_str())).collect();
    let large = blobs.package("tool", "2", &files);
    let second = blobs.spec("hash2", &["web"], &[large]);
    blobs.hand_over(&vm.0).await;
    for method in ["prepare", "apply"] {
        let reply = call(&vm.0, method, json!([second])).await;
        assert!(exception(&reply).contains("cannot install the package 'tool'"), "{reply}");
    }
    assert_eq!(in_use(), "tool 1");
    assert_eq!(vm.inside("ls -A /var/vcap/data/packages/tool | wc -l").0.trim(), "1", "nothing half-installed stays");
    let newer = blobs.package("tool", "3", &[("bin/tool", 0o755, "tool 3")]);
    let third = blobs.spec("hash3", &["web"], &[newer]);
    blobs.hand_over(&vm.0).await;
    assert_eq!(call(&vm.0, "apply", json!([third])).await["value"], "applied");
    assert_eq!(in_use(), "tool 3");
}

#[tokio::test]
async fn bpm_is_stood_in_for_where_the_operator_asks_for_it_and_says_so() {
    for is_asked_for in [true, false] {
        let mut machine = machine();
        machine.settings["env"]["bosh"]["bpm_stand_in"] = json!(is_asked_for);
        machine.start().await;
        let base = machine.base();
        let said = "ulimit -n; echo \\\"$A $HOME\\\"; echo oh >&2; exec sleep 60";
        let config = format!(
            "processes:\n- name: web\n  executable: /bin/sh\n  args: [-c, \"{said}\"]\n  env: {{A: b}}\n  limits: {{open_files: 64, memory: 1G}}\n  \
             hooks: {{pre_start: {0}/jobs/web/bin/hook}}\n- name: once\n  executable: /bin/sh\n  args: [-c, 'echo once $A; exit 7']\n",
            base.display()
        );
        let hook = format!("#!/bin/sh\necho hooked >> {}/hooked\n", base.display());
        let mut blobs = SoftwareBlobs::default();
        let mut spec = blobs.spec("hash1", &["web", "bpm"], &[]);
        let files = archive(&[
            ("bpm/monit", 0o644, "# nothing"),
            ("bpm/bin/bpm", 0o755, "#!/bin/sh\necho the real one\n"),
            ("web/monit", 0o644, "# nothing"),
            ("web/bin/hook", 0o755, &hook),
            ("web/config/bpm.yml", 0o644, &config),
        ]);
        spec["rendered_templates_archive"] = blobs.add("rendered", files);
        blobs.hand_over(&machine).await;
        assert_eq!(call(&machine, "apply", json!([spec])).await["value"], "applied");
        let bpm = |words: &[&str]| {
            let output = std::process::Command::new(base.join("jobs/bpm/bin/bpm")).args(words).output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        };
        if !is_asked_for {
            assert_eq!(bpm(&["version"]).1, "the real one\n");
            continue;
        }
        assert!(machine.console().contains("processes of jobs that use it are not isolated"));
        let pid_file = base.join("sys/run/bpm/web/web.pid");
        for _ in 0..2 {
            assert_eq!(bpm(&["start", "web"]), (Some(0), String::new(), String::new()));
        }
        let pid = std::fs::read_to_string(&pid_file).unwrap();
        let log =
            |stream: &str| std::fs::read_to_string(base.join(format!("sys/log/web/{stream}.log"))).unwrap_or_default();
        until("it says nothing", &machine, || log("web.stderr") == "oh\n").await;
        assert_eq!(log("web.stdout"), format!("64\nb {}/data/web\n", base.display()), "started once");
        assert_eq!(std::fs::read_to_string(base.join("hooked")).unwrap(), "hooked\n");
        assert!(
            log("bpm").contains("the process is not isolated")
                && log("bpm").contains("the limit of 1G of memory does not hold")
        );
        let width = pid.len().max(3);
        let listed = format!(
            "Name     {:width$} Status\nweb      {pid:width$} running\nweb.once {:width$} stopped\n",
            "Pid", "-"
        );
        assert_eq!(bpm(&["list"]).1, listed);
        assert_eq!(bpm(&["pid", "web"]).1.trim(), pid);
        let failed = "Error: failed to run job-process: exit status 7\n".to_owned();
        assert_eq!(bpm(&["run", "web", "-p", "once", "-e", "A=x"]), (Some(7), "once x\n".to_owned(), failed));
        assert_eq!(log("once.stdout"), "once x\n");
        let (code, _, errors) = bpm(&["start", "web", "-p", "nobody"]);
        assert!(code == Some(1) && errors.contains("process \"nobody\" not present in job configuration"), "{errors}");
        assert_eq!(bpm(&["stop", "web"]).0, Some(0));
        assert!(!pid_file.exists() && !Path::new(&format!("/proc/{pid}/cwd")).exists());
        assert_eq!(bpm(&["stop", "web"]).0, Some(0), "what does not run is stopped");
    }
}
