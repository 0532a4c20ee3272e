//! Calls to small CPIs written as shell scripts: real processes, real pipes, real signals.

use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_contract::cpi::ErrorType;
use windlass_contract::cpi::methods::{CreateVm, DeleteVm, HasVm};
use windlass_contract::{AgentId, ApiVersion, Networks, Object, RequestId, StemcellCid, VmCid};
use windlass_cpi_client::{CallError, CallObserver, Cpi, CpiCommand, CpiOptions, Environment};
use windlass_durable::process::ProcessIdentity;

const INFO: &str = r#"{"result":{"stemcell_formats":["warden-tar"],"api_version":2},"error":null,"log":""}"#;

/// A CPI whose script runs with the request in the file `$dir/request`; `info` is answered for it.
struct ScriptedCpi {
    folder: TempDir,
    cpi: Cpi,
}

impl ScriptedCpi {
    fn new(script: &str) -> Self {
        Self::with(script, |_| {})
    }

    fn with(script: &str, adjust: impl FnOnce(&mut CpiOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().display();
        let body = format!(
            "dir='{dir}'\ncat > \"$dir/request\"\nif grep -q '\"method\":\"info\"' \"$dir/request\"; then\n\
             echo x >> \"$dir/infos\"; echo '{INFO}'; exit 0; fi\n{script}\n"
        );
        Self::raw(folder, &body, adjust)
    }

    /// A CPI that is nothing but `script`.
    fn raw(folder: TempDir, script: &str, adjust: impl FnOnce(&mut CpiOptions)) -> Self {
        let path = folder.path().join("cpi.sh");
        std::fs::write(&path, script).unwrap();
        let mut options = options();
        adjust(&mut options);
        let command = CpiCommand {
            executable: "/bin/sh".into(),
            arguments: vec![path.into()],
            environment: Environment::Director,
        };
        Self { folder, cpi: Cpi::new(command, options) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn request(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("request")).unwrap()).unwrap()
    }

    async fn has_vm(&self) -> Result<bool, CallError> {
        self.cpi.call(&HasVm { vm_cid: vm() }, None).await
    }
}

fn options() -> CpiOptions {
    CpiOptions {
        director_uuid: "d-1".into(),
        properties: Object::new(),
        preferred_version: ApiVersion::HIGHEST,
        deadline: Duration::from_secs(30),
    }
}

fn vm() -> VmCid {
    VmCid::new("vm-7").unwrap()
}

fn answer(result: &str) -> String {
    format!(r#"echo '{{"result":{result},"error":null,"log":""}}'"#)
}

fn create_vm(env: Value) -> CreateVm {
    CreateVm {
        agent_id: AgentId::new("agent-1").unwrap(),
        stemcell_cid: StemcellCid::new("stemcell-1").unwrap(),
        cloud_properties: Object::new(),
        networks: Networks::new(),
        disk_cids: None,
        env: env.as_object().cloned(),
        bootstrap_settings: None,
    }
}

/// What is true within ten seconds.
async fn eventually(what: &str, check: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !check() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_call_carries_what_the_original_sends_and_its_answer_is_typed() {
    let scripted = ScriptedCpi::with(&answer(r#"["vm-7",{"a":{"type":"manual","ip":"10.0.0.5"}}]"#), |options| {
        options.properties = json!({"region": "r", "director_uuid": "mine"}).as_object().cloned().unwrap();
    });
    let created = scripted.cpi.call(&create_vm(json!({"bosh": {}})), Some(ApiVersion(3))).await.unwrap();
    assert_eq!((created.cid, created.networks["a"].ip.as_deref()), (vm(), Some("10.0.0.5")));
    let request = scripted.request();
    assert_eq!(request["api_version"], 2);
    assert_eq!(request["arguments"], json!(["agent-1", "stemcell-1", {}, {}, null, {"bosh": {}}]));
    assert_eq!(request["context"]["director_uuid"], "d-1", "a property cannot replace the caller's identity");
    assert_eq!(request["context"]["region"], "r");
    assert_eq!(request["context"]["vm"], json!({"stemcell": {"api_version": 3}}));
    assert!(RequestId::new(request["context"]["request_id"].as_str().unwrap()).unwrap().is_unique());
}

#[tokio::test]
async fn the_version_is_asked_once_and_without_a_version() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "dir='{}'\nread -r request || true\ncase \"$request\" in *api_version*) echo x >> \"$dir/versioned\";; *) echo x >> \
         \"$dir/bare\";; esac\ncase \"$request\" in *'\"info\"'*) echo '{INFO}';; *) {};; esac",
        folder.path().display(),
        answer("true")
    );
    let scripted = ScriptedCpi::raw(folder, &script, |_| {});
    assert!(scripted.has_vm().await.unwrap() && scripted.has_vm().await.unwrap());
    assert_eq!(scripted.cpi.info().await.unwrap().stemcell_formats, ["warden-tar"]);
    assert_eq!(std::fs::read_to_string(scripted.path("bare")).unwrap(), "x\n");
    assert_eq!(std::fs::read_to_string(scripted.path("versioned")).unwrap(), "x\nx\n");
}

#[tokio::test]
async fn the_version_is_asked_again_when_the_cpis_configuration_changed_and_not_before() {
    let scripted = ScriptedCpi::new("");
    let (config, script) = (scripted.path("cpi.json"), scripted.path("versioned.sh"));
    let reports = |version: u32| {
        let answer = json!({"result": {"api_version": version}, "error": null, "log": ""});
        std::fs::write(scripted.path("new"), answer.to_string()).unwrap();
        std::fs::rename(scripted.path("new"), &config).unwrap();
    };
    let body = format!(
        "cd '{}'; cat > request; if grep -q '\"info\"' request; then echo x >> asked; cat \"$1\"; else {}; fi",
        scripted.folder.path().display(),
        answer("true")
    );
    std::fs::write(&script, body).unwrap();
    let command = CpiCommand {
        executable: "/bin/sh".into(),
        arguments: vec![script.clone().into(), config.clone().into()],
        environment: Environment::Director,
    };
    let cpi = Cpi::new(command, options());
    let asked = || std::fs::read_to_string(scripted.path("asked")).unwrap().lines().count();
    for (version, expected) in [(2, 1), (1, 2), (3, 3)] {
        reports(version);
        for _ in 0..3 {
            assert!(cpi.call(&HasVm { vm_cid: vm() }, None).await.unwrap());
            assert_eq!(scripted.request()["api_version"], version.min(2));
        }
        assert_eq!(asked(), expected, "once for each configuration");
    }
    std::fs::write(&script, std::fs::read_to_string(&script).unwrap() + "\n# another\n").unwrap();
    cpi.call(&HasVm { vm_cid: vm() }, None).await.unwrap();
    assert_eq!(asked(), 4, "another program is asked, too");
}

#[tokio::test]
async fn a_cpi_that_refuses_the_version_is_asked_for_it_again() {
    let scripted = ScriptedCpi::new(
        r#"echo '{"result":null,"error":{"type":"Bosh::Clouds::CPIAPIVersionNotSupported","message":"no","ok_to_retry":false},"log":""}'"#,
    );
    for _ in 0..2 {
        scripted.has_vm().await.unwrap_err();
    }
    assert_eq!(std::fs::read_to_string(scripted.path("infos")).unwrap(), "x\nx\n");
}

#[tokio::test]
async fn a_cpi_without_info_is_spoken_to_in_version_1() {
    for (kind, message) in [("Bosh::Clouds::NotImplemented", "no"), ("InvalidCall", "Method is not known, got info")] {
        let script = format!(
            r#"cat > /dev/null; echo '{{"result":null,"error":{{"type":"{kind}","message":"{message}","ok_to_retry":false}},"log":""}}'"#
        );
        let scripted = ScriptedCpi::raw(tempfile::tempdir().unwrap(), &script, |_| {});
        assert_eq!(scripted.cpi.negotiated().await.unwrap().version, ApiVersion::V1);
    }
    let broken = r#"cat > /dev/null; echo '{"result":null,"error":{"type":"Bosh::Clouds::CloudError","message":"login refused","ok_to_retry":false},"log":""}'"#;
    let scripted = ScriptedCpi::raw(tempfile::tempdir().unwrap(), broken, |_| {});
    let error = scripted.cpi.negotiated().await.unwrap_err();
    assert_eq!(error.cpi_error().unwrap().message, "login refused", "other errors are not taken for version 1");
}

#[tokio::test]
async fn answers_that_are_none_are_explained() {
    for (script, reason) in [
        ("echo garbage", "stdout is not one JSON object"),
        (r#"echo '{"result":true,"error":null}'"#, "the response has no 'log'"),
        (r#"echo debug; echo '{"result":true,"error":null,"log":""}'"#, "not one JSON object"),
        ("echo 'no credentials' >&2; exit 3", "it wrote nothing to stdout (exit status: 3)"),
        ("kill -9 $$", "it wrote nothing to stdout (signal: 9"),
        (r#"echo '{"result":"yes","error":null,"log":""}'"#, "its result is wrong"),
    ] {
        let scripted = ScriptedCpi::new(script);
        let error = scripted.has_vm().await.unwrap_err();
        assert!(matches!(error, CallError::InvalidAnswer { .. }) && error.effect_is_unknown(), "{script}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(reason) && text.contains("'has_vm'"), "{script}: {text}");
        assert!(!script.contains("credentials") || text.contains("stderr: no credentials"), "{text}");
    }
}

#[tokio::test]
async fn an_error_answer_keeps_its_type_and_loses_its_secrets() {
    let scripted = ScriptedCpi::new(
        r#"echo '{"result":1,"error":{"type":"Bosh::Clouds::VMCreationFailed","message":"login with hunter2 refused","ok_to_retry":true},"log":"tried hunter2"}'"#,
    );
    let watcher = Watcher::default();
    let call = create_vm(json!({"bosh": {"password": "hunter2"}}));
    let prepared = scripted.cpi.prepare(&call, None, RequestId::new("r-1").unwrap()).await.unwrap();
    let error = scripted.cpi.send(prepared, &watcher).await.unwrap_err();
    let cause = error.cpi_error().unwrap();
    assert_eq!((cause.kind.clone(), cause.ok_to_retry), (ErrorType::VmCreationFailed, true));
    assert_eq!(cause.message, "login with <redacted> refused");
    assert_eq!(error.to_string(), "the CPI answered 'create_vm' with an error (request r-1)");
    assert_eq!(*watcher.lines.lock().unwrap(), ["tried <redacted>"]);
}

/// Operators would not find out what their CPI was asked, or would find a password there.
#[tokio::test]
async fn a_call_is_told_with_request_answer_and_duration_and_without_secrets() {
    for (answer, end) in [
        (r#"{"result":["vm-1",{"echo":"hunter22"}],"error":null,"log":""}"#, r#"s: ["vm-1",{"echo":"<redacted>"}]"#),
        (
            r#"{"result":null,"error":{"type":"Bosh::Clouds::CloudError","message":"no hunter22","ok_to_retry":false},"log":""}"#,
            "s: the CPI answered 'create_vm' with an error (request r-1): Bosh::Clouds::CloudError: no <redacted>",
        ),
    ] {
        let scripted = ScriptedCpi::new(&format!("echo '{answer}'"));
        let watcher = Watcher::default();
        let call = create_vm(json!({"bosh": {"password": "hunter22"}}));
        let prepared = scripted.cpi.prepare(&call, None, RequestId::new("r-1").unwrap()).await.unwrap();
        let _ = scripted.cpi.send(prepared, &watcher).await;
        let told = watcher.told.lock().unwrap().clone();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("asking the CPI: {\"method\":\"create_vm\",\"arguments\":["), "{told:?}");
        assert!(told[1].starts_with("'create_vm' ") && told[1].contains(" after 0."), "{told:?}");
        assert!(told[1].contains(end) && !told.concat().contains("hunter22"), "{told:?}");
    }
}

#[tokio::test]
async fn an_excerpt_of_garbage_shows_no_secret() {
    let scripted = ScriptedCpi::new("echo oops; cat \"$dir/request\"");
    let error = scripted.cpi.call(&create_vm(json!({"bosh": {"password": "hunter2"}})), None).await.unwrap_err();
    assert!(error.to_string().contains("stdout: oops"), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_valid_answer_counts_whatever_the_exit_status() {
    assert!(ScriptedCpi::new(&format!("{}; exit 1", answer("true"))).has_vm().await.unwrap());
}

#[tokio::test]
async fn past_its_deadline_a_cpi_is_killed_with_its_descendants() {
    let scripted = ScriptedCpi::with(
        "trap '' TERM\n(trap '' TERM; while :; do sleep 1; done) & echo $! > \"$dir/grandchild\"\nwhile :; do sleep 1; done",
        |options| options.deadline = Duration::from_secs(3),
    );
    let watcher = Watcher::default();
    let prepared = scripted.cpi.prepare(&HasVm { vm_cid: vm() }, None, RequestId::random()).await.unwrap();
    let error = scripted.cpi.send(prepared, &watcher).await.unwrap_err();
    assert!(matches!(&error, CallError::Deadline { method, .. } if method == "has_vm"), "{error:?}");
    assert!(error.to_string().contains("within 3s and was killed with its process group"), "{error}");
    let child = watcher.child.lock().unwrap().unwrap();
    assert!(!child.is_running());
    let grandchild = std::fs::read_to_string(scripted.path("grandchild")).unwrap();
    eventually("the grandchild is gone", || !is_alive(grandchild.trim())).await;
}

fn is_alive(pid: &str) -> bool {
    pid.parse().is_ok_and(|pid| ProcessIdentity::of(pid).is_ok_and(|process| process.is_running()))
}

#[tokio::test]
async fn an_answer_is_kept_although_a_helper_holds_the_streams_past_the_deadline() {
    let scripted = ScriptedCpi::with(&format!("sleep 60 &\n{}", answer("true")), |options| {
        options.deadline = Duration::from_secs(3);
    });
    assert!(scripted.has_vm().await.unwrap());
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_any_more_is_killed() {
    let scripted = ScriptedCpi::new("echo $$ > \"$dir/pid\"; while :; do sleep 1; done");
    let file = scripted.path("pid");
    let pid = {
        let call = scripted.has_vm();
        tokio::pin!(call);
        tokio::select! {
            answer = &mut call => panic!("{answer:?}"),
            () = eventually("the CPI runs", || std::fs::read_to_string(&file).is_ok_and(|pid| pid.ends_with('\n'))) => {}
        }
        std::fs::read_to_string(&file).unwrap()
    };
    eventually("the CPI is gone", || !is_alive(pid.trim())).await;
}

#[tokio::test]
async fn a_large_request_and_a_talkative_cpi_do_not_block_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "i=0; while [ $i -lt 4000 ]; do echo \"line $i of a long story that fills the pipe before stdin is read\" >&2; \
         i=$((i+1)); done\nif grep -q '\"method\":\"info\"'; then echo '{INFO}'; else {}; fi",
        answer(r#"["vm-7",{}]"#)
    );
    let scripted = ScriptedCpi::raw(folder, &script, |_| {});
    let call = create_vm(json!({"padding": "x".repeat(1 << 20)}));
    let watcher = Watcher::default();
    let prepared = scripted.cpi.prepare(&call, None, RequestId::random()).await.unwrap();
    assert_eq!(scripted.cpi.send(prepared, &watcher).await.unwrap().cid, vm());
    assert_eq!(watcher.lines.lock().unwrap().len(), 4000);
}

#[tokio::test]
async fn a_cpi_may_answer_without_reading_a_large_request() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "dir='{}'\nif [ -e \"$dir/asked\" ]; then {}; exec 0<&-; else touch \"$dir/asked\"; echo '{INFO}'; fi",
        folder.path().display(),
        answer(r#"["vm-7",{}]"#)
    );
    let scripted = ScriptedCpi::raw(folder, &script, |_| {});
    let call = create_vm(json!({"padding": "x".repeat(1 << 20)}));
    assert_eq!(scripted.cpi.call(&call, None).await.unwrap().cid, vm());
}

/// Runs `has_vm`, and says how the process's memory grew by it, in KiB.
async fn memory_of(scripted: &ScriptedCpi) -> (Result<bool, CallError>, u64) {
    let before = most_memory();
    let outcome = scripted.has_vm().await;
    (outcome, most_memory() - before)
}

/// The most memory that this process ever had, in KiB.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A shell that writes a result of `count` times `0,`.
fn many_zeros(count: usize) -> String {
    format!(r#"printf '{{"result":['; yes '0,' | head -n {count} | tr -d '\n'; echo '0],"error":null,"log":""}}'"#)
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_refused_in_a_few_words_and_takes_no_memory() {
    // More than any CPI says, and as much as may come in all, but not as a result.
    for (zeros, reason) in
        [(32 << 20, "it wrote more than 1048576 bytes to stdout"), (400_000, "its result has 800003 bytes")]
    {
        let scripted = ScriptedCpi::new(&many_zeros(zeros));
        let (outcome, grown) = memory_of(&scripted).await;
        let error = outcome.unwrap_err();
        assert!(error.effect_is_unknown() && error.to_string().contains(reason), "{error}");
        assert!(error.to_string().len() < 1500, "{} bytes", error.to_string().len());
        assert!(grown < 32 << 10, "{grown} KiB");
    }
}

#[tokio::test]
async fn an_info_of_62_megabytes_makes_a_short_error() {
    let script = |zeros| format!("cat > /dev/null; {}", many_zeros(zeros));
    for zeros in [31 << 20, 100_000] {
        let scripted = ScriptedCpi::raw(tempfile::tempdir().unwrap(), &script(zeros), |_| {});
        let error = scripted.cpi.info().await.unwrap_err();
        assert!(error.to_string().len() < 1500, "{} bytes", error.to_string().len());
    }
}

#[tokio::test]
async fn what_info_reports_in_place_of_a_version_shows_no_secret() {
    let script = r#"request=$(cat); echo "{\"result\":[$request],\"error\":null,\"log\":\"\"}""#;
    let scripted = ScriptedCpi::raw(tempfile::tempdir().unwrap(), script, |options| {
        options.properties = json!({"region": "hunter2", "short": "abc12"}).as_object().cloned().unwrap();
    });
    let error = scripted.cpi.info().await.unwrap_err().to_string();
    assert!(error.contains("nothing but [") && !error.contains("hunter2") && !error.contains("abc12"), "{error}");
}

#[tokio::test]
async fn a_cpi_that_never_stops_logging_fills_no_disk_and_its_last_words_are_kept() {
    let much = "yes 'a line of a few words' | head -n 700000 >&2; echo 'the end' >&2";
    let scripted = ScriptedCpi::new(&format!("{much}; {}", answer("true")));
    let watcher = Watcher::default();
    let prepared = scripted.cpi.prepare(&HasVm { vm_cid: vm() }, None, RequestId::random()).await.unwrap();
    assert!(scripted.cpi.send(prepared, &watcher).await.unwrap());
    let lines = std::mem::take(&mut *watcher.lines.lock().unwrap());
    let passed: usize = lines.iter().map(|line| line.len() + 1).sum();
    assert!((4_000_000..4_200_000).contains(&passed), "{passed} bytes");
    let dropped =
        lines.last().unwrap().strip_prefix("… ").and_then(|line| line.strip_suffix(" bytes more were dropped"));
    assert!(dropped.unwrap().parse::<usize>().unwrap() > 11_000_000, "{:?}", lines.last());

    let scripted = ScriptedCpi::new(&format!("{much}; exit 3"));
    let error = scripted.has_vm().await.unwrap_err().to_string();
    assert!(
        error.contains("stderr: a line of a few words\n")
            && error.ends_with("…\na line of a few words\na line of a few words\nthe end"),
        "{error}"
    );
}

#[tokio::test]
async fn a_long_message_of_a_cpi_is_cut_and_says_so() {
    let scripted = ScriptedCpi::new(
        r#"printf '{"result":null,"error":{"type":"Bosh::Clouds::CloudError","ok_to_retry":false,"message":"no'
           head -c 500000 /dev/zero | tr '\0' 'o'; echo '"},"log":""}'"#,
    );
    let error = scripted.cpi.call(&DeleteVm { vm_cid: vm() }, None).await.unwrap_err();
    let message = &error.cpi_error().unwrap().message;
    assert!(message.starts_with("nooo") && message.ends_with("o… 483618 bytes more were dropped"), "{}", message.len());
}

#[derive(Default)]
struct Watcher {
    child: Mutex<Option<ProcessIdentity>>,
    lines: Mutex<Vec<String>>,
    told: Mutex<Vec<String>>,
    /// A file that must not exist yet when the process is announced.
    request: Option<PathBuf>,
    refuses: bool,
}

impl CallObserver for Watcher {
    async fn spawned(&self, child: ProcessIdentity) -> io::Result<()> {
        assert!(child.is_running());
        assert!(!self.request.as_ref().is_some_and(|request| request.metadata().is_ok_and(|file| file.len() > 0)));
        *self.child.lock().unwrap() = Some(child);
        if self.refuses { Err(io::Error::other("the disk is full")) } else { Ok(()) }
    }

    fn stderr_line(&self, line: &str) {
        self.lines.lock().unwrap().push(line.to_owned());
    }

    fn told(&self, line: &str) {
        self.told.lock().unwrap().push(line.to_owned());
    }
}

#[tokio::test]
async fn the_process_is_known_before_it_gets_its_request() {
    let scripted = ScriptedCpi::new(&answer("null"));
    let prepared = scripted.cpi.prepare(&DeleteVm { vm_cid: vm() }, None, RequestId::random()).await.unwrap();
    std::fs::remove_file(scripted.path("request")).unwrap();
    let watcher = Watcher { request: Some(scripted.path("request")), ..Watcher::default() };
    scripted.cpi.send(prepared.clone(), &watcher).await.unwrap();
    assert!(watcher.child.lock().unwrap().is_some());

    std::fs::remove_file(scripted.path("request")).unwrap();
    let watcher = Watcher { refuses: true, ..Watcher::default() };
    let error = scripted.cpi.send(prepared, &watcher).await.unwrap_err();
    assert!(matches!(error, CallError::NotRecorded { .. }) && !error.effect_is_unknown(), "{error:?}");
    assert!(!watcher.child.lock().unwrap().unwrap().is_running(), "it never got its request");
    assert_eq!(std::fs::read_to_string(scripted.path("request")).unwrap_or_default(), "");
}

#[tokio::test]
async fn what_is_asked_again_with_the_same_id_is_the_same_request() {
    let scripted = ScriptedCpi::new(&answer("null"));
    let id = RequestId::random();
    let mut requests = Vec::new();
    for _ in 0..2 {
        let prepared =
            scripted.cpi.prepare(&DeleteVm { vm_cid: vm() }, Some(ApiVersion::V2), id.clone()).await.unwrap();
        scripted.cpi.send(prepared, &()).await.unwrap();
        requests.push(std::fs::read_to_string(scripted.path("request")).unwrap());
    }
    assert_eq!(requests[0], requests[1]);
}

#[tokio::test]
async fn under_a_director_the_environment_is_wiped() {
    let scripted = ScriptedCpi::new(&format!("env > \"$dir/env\"; {}", answer("true")));
    scripted.has_vm().await.unwrap();
    let env = std::fs::read_to_string(scripted.path("env")).unwrap();
    // The shell itself sets the last three.
    let allowed = ["PATH", "TMPDIR", "HOME", "PWD", "OLDPWD", "SHLVL", "_"];
    for line in env.lines() {
        assert!(allowed.contains(&line.split('=').next().unwrap()), "{line}");
    }
    assert!(env.contains("PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"), "{env}");
}

#[tokio::test]
async fn what_is_not_executable_is_told_before_anything_is_started() {
    let scripted = ScriptedCpi::new("");
    let options = CpiOptions {
        director_uuid: "d-1".into(),
        properties: Object::new(),
        preferred_version: ApiVersion::V2,
        deadline: Duration::from_secs(1),
    };
    for executable in [scripted.path("cpi.sh"), scripted.path("missing"), scripted.path("")] {
        let command = CpiCommand { executable, arguments: vec![], environment: Environment::CommandLine };
        let error = Cpi::new(command, options.clone()).info().await.unwrap_err();
        assert!(matches!(error, CallError::NotExecutable { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn calls_can_be_spawned_as_tasks() {
    let scripted = std::sync::Arc::new(ScriptedCpi::new(&answer("true")));
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let scripted = scripted.clone();
            tokio::spawn(async move { scripted.has_vm().await.unwrap() })
        })
        .collect();
    for call in calls {
        assert!(call.await.unwrap());
    }
    assert_eq!(std::fs::read_to_string(scripted.path("infos")).unwrap(), "x\n", "four calls, one info");
}
