//! A fake monit for these tests: it answers as monit does, and forgets what it was told when it restarts.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use super::*;
use crate::supervisor::{process, state_of};

#[derive(Debug, Default)]
struct State {
    /// Monitor, status and pending, by name.
    services: BTreeMap<String, (u32, u32, u32)>,
    asked: Vec<String>,
    /// How often it says that it is busy.
    busy: u32,
    /// Whether it stops services at all.
    is_stubborn: bool,
}

struct Fake {
    folder: tempfile::TempDir,
    state: Arc<Mutex<State>>,
    address: SocketAddr,
}

impl Fake {
    fn new(services: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        for name in services {
            state.lock().unwrap().services.insert((*name).to_owned(), (1, 0, 0));
        }
        let (shared, starts) = (state.clone(), folder.path().join("starts"));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = answer(stream.unwrap(), &mut shared.lock().unwrap(), &starts);
            }
        });
        Self { folder, state, address }
    }

    fn monit(&self, base: &Base) -> Monit {
        let starts = self.folder.path().join("starts");
        let shell = |text: String| vec!["/bin/sh".to_owned(), "-c".to_owned(), text];
        Monit {
            address: self.address,
            mail: ([127, 0, 0, 1], 0).into(),
            commands: [shell("true".to_owned()), shell(format!("echo >> {}", starts.display()))],
            pause: Duration::from_millis(5),
            ..Monit::new(base.clone(), "")
        }
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }
}

fn answer(stream: TcpStream, state: &mut State, starts: &std::path::Path) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8(body).unwrap().replace(&format!("&securitytoken={TOKEN}"), "");
    assert!(head.contains(&format!("Cookie: securitytoken={TOKEN}")), "{head}");
    assert!(head.contains("Authorization: Basic dmNhcDpyYW5kb20tcGFzc3dvcmQ="), "{head}");
    let path = head.split(' ').nth(1).unwrap();
    if state.busy > 0 {
        state.busy -= 1;
        return (&stream).write_all(b"HTTP/1.0 503 Service Unavailable\r\n\r\nbusy");
    }
    if path == "/_status2?format=xml" {
        let incarnation = std::fs::read_to_string(starts).unwrap_or_default().len();
        let services: String = state
            .services
            .iter()
            .map(|(name, (monitor, status, pending))| {
                let message = if *status > 0 { "<status_message>broken</status_message>" } else { "" };
                format!("<service name=\"{name}\"><status>{status}</status>{message}<monitor>{monitor}</monitor><pendingaction>{pending}</pendingaction></service>")
            })
            .collect();
        let members: String = state.services.keys().map(|name| format!("<service>{name}</service>")).collect();
        // What is pending is done by the next time.
        state.services.values_mut().for_each(|service| service.2 = 0);
        let xml = format!(
            "<?xml version=\"1.0\"?><monit incarnation=\"{incarnation}\"><services>{services}</services><servicegroups>\
             <servicegroup name=\"vcap\">{members}</servicegroup></servicegroups></monit>"
        );
        return (&stream).write_all(format!("HTTP/1.0 200 OK\r\nServer: monit 5.2.5\r\n\r\n{xml}").as_bytes());
    }
    state.asked.push(format!("{path} {body}"));
    let is_stubborn = state.is_stubborn;
    let Some(service) = state.services.get_mut(path.trim_start_matches('/')) else {
        return (&stream).write_all(b"HTTP/1.0 404 Not Found\r\n\r\nThere is no service by that name");
    };
    *service = match body.as_str() {
        "action=start" => (2, 0, 1),
        "action=stop" if is_stubborn => (1, 512, 0),
        "action=stop" => (0, 0, 1),
        _ => (0, 0, 0),
    };
    (&stream).write_all(b"HTTP/1.0 200 OK\r\n\r\n")
}

fn job(base: &Base, name: &str) {
    let folder = base.jobs().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("monit"), format!("check process {name} with pidfile /p\n")).unwrap();
}

fn spec(jobs: &[&str]) -> Spec {
    let templates: Vec<_> = jobs.iter().map(|job| serde_json::json!({"name": job, "version": "1"})).collect();
    serde_json::from_value(serde_json::json!({"job": {"templates": templates},
        "rendered_templates_archive": {"blobstore_id": "b", "sha1": "s"}}))
    .unwrap()
}

#[test]
fn monit_is_driven_as_the_original_drives_it() {
    let fake = Fake::new(&["db", "web"]);
    let folder = tempfile::tempdir().unwrap();
    let base = Base::prepare(folder.path()).unwrap();
    let (monit, tasks) = (fake.monit(&base), Tasks::new(base.tasks()));
    monit.resume().unwrap();
    assert_eq!(std::fs::read_to_string(folder.path().join("monit/monit.user")).unwrap(), USER);
    job(&base, "web");
    job(&base, "db");
    monit.start(&spec(&["web", "db"])).unwrap();
    let file = |name: &str| folder.path().join("monit/job").join(name);
    assert!(file("0000_db.monitrc").exists() && file("0001_web.monitrc").exists());
    assert_eq!(fake.asked(), ["/db action=start", "/web action=start"]);
    assert_eq!(state_of(&monit.services().unwrap()), "starting");
    fake.state.lock().unwrap().services.values_mut().for_each(|service| *service = (1, 0, 0));
    let services = monit.services().unwrap();
    assert_eq!((state_of(&services), process(&services[1])["name"].as_str()), ("running", Some("web")));

    fake.state.lock().unwrap().busy = 30;
    monit.unmonitor().unwrap();
    assert_eq!(fake.asked(), ["/db action=unmonitor", "/web action=unmonitor"], "also when it was busy for a while");
    monit.stop(&tasks).unwrap();
    assert_eq!(fake.asked(), ["/db action=stop", "/web action=stop"]);
    assert!(base.stopped().exists());

    fake.state.lock().unwrap().is_stubborn = true;
    let error = monit.stop(&tasks).unwrap_err().to_string();
    assert_eq!(error, "Stopping services '[db, web]' errored");
    monit.forget().unwrap();
    assert!(!folder.path().join("monit/job").exists(), "between apply and start there are no files");
}

#[test]
fn a_monit_that_is_silent_or_does_not_start_anew_is_told() {
    let fake = Fake::new(&[]);
    let folder = tempfile::tempdir().unwrap();
    let base = Base::prepare(folder.path()).unwrap();
    let mut monit = fake.monit(&base);
    monit.pause = Duration::from_millis(1);
    monit.commands = [vec!["true".to_owned()], vec!["true".to_owned()]];
    assert_eq!(monit.forget().unwrap_err().to_string(), "Failed to reload monit: it still is the one of 0");
    monit.commands[1] = vec!["/nowhere/sv".to_owned()];
    let error = windlass_contract::explain(&monit.resume().unwrap_err());
    assert!(error.contains("cannot start the job supervisor: '/nowhere/sv'"), "{error}");
    monit.address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = monit.services().unwrap_err().to_string();
    assert!(error.starts_with("monit does not answer at 127.0.0.1:"), "{error}");
}

/// The newest monit that Debian has, in a folder of its own. It and its services do not outlive the test.
struct Installed {
    folder: tempfile::TempDir,
    address: SocketAddr,
}

const CTL: &str = r#"#!/bin/sh
case $2 in
start) sleep 300 < /dev/null > /dev/null 2>&1 & echo $! > "$1/$3.pid" ;;
stop) kill "$(cat "$1/$3.pid")"; rm "$1/$3.pid" ;;
esac
"#;

impl Installed {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (port, at) = (address.port(), folder.path().display());
        let monitrc = format!(
            "set daemon 1\nset log {at}/log\nset pidfile {at}/monit.pid\nset idfile {at}/id\nset statefile {at}/state\n\
             set httpd port {port} and use address 127.0.0.1\n allow {USER}\ninclude {at}/base/monit/job/*.monitrc\n"
        );
        for (name, text, mode) in [("monitrc", monitrc.as_str(), 0o600), ("ctl", CTL, 0o755)] {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        Self { folder, address }
    }

    fn monit(&self, base: &Base) -> Monit {
        let at = self.folder.path().display();
        let shell = |text: String| vec!["/bin/sh".to_owned(), "-c".to_owned(), text];
        let end = format!("kill $(cat {at}/monit.pid); while [ -e {at}/monit.pid ]; do sleep 0.05; done");
        Monit {
            address: self.address,
            mail: ([127, 0, 0, 1], 0).into(),
            commands: [shell(end), shell(format!("exec monit -c {at}/monitrc"))],
            pause: Duration::from_millis(200),
            ..Monit::new(base.clone(), "")
        }
    }

    fn pid(&self, name: &str) -> Option<u32> {
        let text = std::fs::read_to_string(self.folder.path().join(name)).ok()?;
        let pid = text.trim().parse().ok()?;
        windlass_durable::process::ProcessIdentity::of(pid).ok().filter(|process| process.is_running())?;
        Some(pid)
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "not so: {what}\n{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        for name in ["monit.pid", "web.pid"] {
            if let Some(process) = self.pid(name).and_then(|pid| rustix::process::Pid::from_raw(pid as i32)) {
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
        }
    }
}

/// It answers every request with the way to the page of the service, not with the page.
#[test]
fn the_monit_of_debian_starts_keeps_and_stops_jobs_for_the_agent() {
    let installed = Installed::new();
    let folder = installed.folder.path().join("base");
    std::fs::create_dir(&folder).unwrap();
    let base = Base::prepare(&folder).unwrap();
    let (monit, tasks) = (installed.monit(&base), Tasks::new(base.tasks()));
    monit.resume().unwrap();
    let (job, at) = (base.jobs().join("web"), installed.folder.path().display());
    std::fs::create_dir_all(&job).unwrap();
    let ctl = |verb: &str| format!("{verb} program \"{at}/ctl {at} {verb} web\"");
    let check =
        format!("check process web with pidfile {at}/web.pid\n {}\n {}\n group vcap\n", ctl("start"), ctl("stop"));
    std::fs::write(job.join("monit"), check).unwrap();
    monit.start(&spec(&["web"])).unwrap();
    let token = format!("action=monitor&securitytoken={TOKEN}");
    assert_eq!(monit.ask("POST", "/web", &token).unwrap().0, 302, "a way, which is taken for a yes");
    let runs = || installed.pid("web.pid").is_some() && state_of(&monit.services().unwrap()) == "running";
    installed.until("it runs", runs);
    let services = monit.services().unwrap();
    assert!(services[0].usage.unwrap().memory > 0, "{services:?}");
    let first = installed.pid("web.pid").unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(first as i32).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    installed.until("it is back", || installed.pid("web.pid").is_some_and(|pid| pid != first) && runs());
    monit.unmonitor().unwrap();
    installed.until("it is left alone", || state_of(&monit.services().unwrap()) == "failing");
    assert!(installed.pid("web.pid").is_some());
    monit.stop(&tasks).unwrap();
    installed.until("it is gone", || installed.pid("web.pid").is_none());
    assert_eq!(monit.state(), "stopped");
    monit.forget().unwrap();
    assert!(monit.services().unwrap().is_empty());
}
