//! A proxy between CPI and daemon loses one answer: the daemon did what it was asked, and the CPI does not know. The call must find
//! out by itself, and have its effect once.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use windlass_rigs::own_machine::is_own_machine;

use crate::rig::{Asked, Site, volume};

/// Forwards everything, and loses the answer to one request that changes something.
struct Proxy {
    folder: tempfile::TempDir,
    /// How many such requests came.
    passed: Arc<AtomicUsize>,
    /// Which of them has no answer; 0 for none.
    lost: Arc<AtomicUsize>,
    /// Whether nothing is answered after that one.
    for_good: Arc<AtomicBool>,
}

impl Proxy {
    fn before(daemon: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let (passed, lost) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let for_good = Arc::<AtomicBool>::default();
        let rule = Rule { passed: Arc::clone(&passed), lost: Arc::clone(&lost), for_good: Arc::clone(&for_good) };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (daemon, rule) = (daemon.clone(), rule.clone());
                std::thread::spawn(move || forward(&stream, &daemon, &rule));
            }
        });
        Self { folder, passed, lost, for_good }
    }

    fn endpoint(&self) -> String {
        format!("unix:{}", self.folder.path().join("socket").display())
    }

    fn lose(&self, which: usize) {
        self.for_good.store(false, Ordering::SeqCst);
        self.passed.store(0, Ordering::SeqCst);
        self.lost.store(which, Ordering::SeqCst);
    }

    /// That answer, and everything after it.
    fn lose_from(&self, which: usize) {
        self.lose(which);
        self.for_good.store(true, Ordering::SeqCst);
    }
}

#[derive(Clone)]
struct Rule {
    passed: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
    for_good: Arc<AtomicBool>,
}

impl Rule {
    fn is_over(&self) -> bool {
        let lost = self.lost.load(Ordering::SeqCst);
        self.for_good.load(Ordering::SeqCst) && self.passed.load(Ordering::SeqCst) >= lost
    }
}

/// Serves one connection until it ends.
fn forward(stream: &UnixStream, daemon: &Path, rule: &Rule) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let changes = !head.starts_with("GET ");
        if rule.is_over() {
            return None;
        }
        let mut upstream = UnixStream::connect(daemon).ok()?;
        // The oldest form: its answer ends with the connection, and has a length.
        write!(upstream, "{}\r\n", head.replacen("HTTP/1.1", "HTTP/1.0", 1)).ok()?;
        upstream.write_all(&body).ok()?;
        let mut answer = Vec::new();
        upstream.read_to_end(&mut answer).ok()?;
        if changes && rule.passed.fetch_add(1, Ordering::SeqCst) + 1 == rule.lost.load(Ordering::SeqCst) {
            return None;
        }
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
        let etag = String::from_utf8_lossy(&answer[..end]).into_owned();
        let etag =
            etag.lines().find(|line| line.to_ascii_lowercase().starts_with("etag:")).map(|line| format!("{line}\r\n"));
        let status = String::from_utf8_lossy(&answer[9..12]).into_owned();
        let content = &answer[end + 4..];
        let etag = etag.unwrap_or_default();
        let mut stream = stream;
        write!(stream, "HTTP/1.1 {status} X\r\n{etag}content-length: {}\r\n\r\n", content.len()).ok()?;
        stream.write_all(content).ok()?;
    }
}

/// Loses the first, second, … answer of the call that `make` gives, until none is left to lose.
fn sweep<T>(site: &Site, proxy: &Proxy, make: impl Fn() -> (Asked, T), check: impl Fn(T, &Value)) -> usize {
    for which in 1.. {
        proxy.lose(0);
        let (asked, made) = make();
        proxy.lose(which);
        let answer = site.answer(&asked);
        let was_lost = proxy.passed.load(Ordering::SeqCst) >= which;
        proxy.lose(0);
        assert_eq!(answer["error"], Value::Null, "answer {which}: {answer}");
        check(made, &answer["result"]);
        if !was_lost {
            return which - 1;
        }
    }
    0
}

#[test]
fn a_call_whose_answers_are_lost_finds_out_what_happened_and_has_one_effect() {
    const NAME: &str = "lost_answers::a_call_whose_answers_are_lost_finds_out_what_happened_and_has_one_effect";
    if !is_own_machine(NAME) {
        return;
    }
    let Some(site) = Site::start(NAME) else { return };
    let proxy = Proxy::before(site.lxd().socket());
    site.configure(json!({"endpoints": [proxy.endpoint()]}));
    let stemcell = site.stemcell();
    let mut lost = sweep(
        &site,
        &proxy,
        || (Asked::new("create_vm", site.vm_arguments(&stemcell, 11)), ()),
        |(), created| {
            let vm = created[0].as_str().unwrap();
            assert_eq!(site.held(), [vm, stemcell.as_str()]);
            assert_eq!(site.instance(vm)["status"], "Running");
            site.ok("delete_vm", json!([vm]));
        },
    );
    assert!(lost >= 6, "a VM takes more requests than {lost}");
    let vm = site.vm(&stemcell, 12);
    lost += sweep(
        &site,
        &proxy,
        || (Asked::new("create_disk", json!([32, {}, vm])), ()),
        |(), disk| {
            assert_eq!(site.held(), [vm.as_str(), &stemcell, volume(disk.as_str().unwrap())]);
            site.ok("delete_disk", json!([disk]));
        },
    );
    lost += sweep(
        &site,
        &proxy,
        || {
            let disk = site.disk(&vm);
            (Asked::new("attach_disk", json!([vm, disk])), disk)
        },
        |disk, _| {
            assert_eq!(site.claim(&disk), vm.as_str());
            assert_eq!(site.ok("get_disks", json!([vm])), json!([disk]));
            site.ok("detach_disk", json!([vm, disk]));
            site.ok("delete_disk", json!([disk]));
        },
    );
    lost += sweep(
        &site,
        &proxy,
        || {
            let disk = site.disk(&vm);
            site.ok("attach_disk", json!([vm, disk]));
            (Asked::new("detach_disk", json!([vm, disk])), disk)
        },
        |disk, _| {
            assert_eq!(site.claim(&disk), Value::Null);
            site.ok("delete_disk", json!([disk]));
        },
    );
    lost += sweep(
        &site,
        &proxy,
        || (Asked::new("delete_vm", json!([site.vm(&stemcell, 13)])), ()),
        |(), _| {
            assert_eq!(site.held(), [vm.as_str(), &stemcell]);
        },
    );
    site.ok("delete_vm", json!([vm]));
    site.ok("delete_stemcell", json!([stemcell]));
    assert_eq!(site.held(), Vec::<String>::new());
    eprintln!("{lost} answers were lost: each call had one effect");
}

/// Its caller was told that it failed, so nobody would ever delete it.
#[test]
fn what_a_call_could_neither_finish_nor_remove_is_removed_by_a_later_one() {
    const NAME: &str = "lost_answers::what_a_call_could_neither_finish_nor_remove_is_removed_by_a_later_one";
    if !is_own_machine(NAME) {
        return;
    }
    let Some(site) = Site::start(NAME) else { return };
    let proxy = Proxy::before(site.lxd().socket());
    site.configure(json!({"endpoints": [proxy.endpoint()]}));
    let stemcell = site.stemcell();
    let fails = |asked: &Asked, from: usize| {
        proxy.lose_from(from);
        let answer = site.answer(asked);
        proxy.lose(0);
        assert!(answer["error"]["message"].is_string(), "{answer}");
    };
    let asked_vm = |last| Asked::new("create_vm", site.vm_arguments(&stemcell, last));
    for from in [1, 3] {
        fails(&asked_vm(20), from);
        assert_eq!(site.held().len(), 2, "a VM is there from the first request on: {:?}", site.held());
        // The agent of another try is another one, and its address the same.
        let mut arguments = site.vm_arguments(&stemcell, 20);
        arguments[0] = json!("agent-of-another-try");
        let created = site.ok("create_vm", arguments);
        let vm = created[0].as_str().unwrap();
        assert_eq!(site.held(), [vm, &stemcell]);
        site.ok("delete_vm", json!([vm]));
    }
    // Who only deletes has it removed as well.
    fails(&asked_vm(20), 1);
    site.ok("delete_vm", json!(["vm-00000000-0000-4000-8000-000000000001"]));
    assert_eq!(site.held(), [stemcell.as_str()]);
    fails(&Asked::new("create_disk", json!([32, {}, null])), 1);
    assert_eq!(site.held().len(), 2);
    let disk = site.ok("create_disk", json!([32, {}, null]));
    assert_eq!(site.held(), [stemcell.as_str(), volume(disk.as_str().unwrap())]);

    // What was refused has left nothing to look for.
    let noted = || std::fs::read_dir(site.folder.path().join("state/leftovers")).unwrap().count();
    let before = noted();
    for pool in ["no-such-pool", "../../out"] {
        let answer = site.answer(&Asked::new("create_disk", json!([32, {"pool": pool}, null])));
        assert!(answer["error"]["message"].is_string(), "{answer}");
    }
    assert_eq!(noted(), before);

    // Asked for again, it is what was begun, and stays.
    for asked in [asked_vm(21), Asked::new("create_disk", json!([32, {}, null]))] {
        fails(&asked, 1);
        let answer = site.answer(&asked);
        assert_eq!(answer["error"], Value::Null, "{answer}");
    }
    let held = site.held();
    assert_eq!(held.len(), 4, "{held:?}");
    let vm = site.vm(&stemcell, 22);
    assert_eq!(site.held().len(), 5, "{held:?}");

    // A backup brings back notes of what is in use by now.
    let notes = site.folder.path().join("state/leftovers");
    let note = json!({"endpoints": [proxy.endpoint()], "project": site.project}).to_string();
    site.ok("set_vm_metadata", json!([vm, {"deployment": "shop"}]));
    site.ok("attach_disk", json!([vm, disk]));
    site.write(disk.as_str().unwrap(), "precious");
    site.ok("detach_disk", json!([vm, disk]));
    for cid in [vm.as_str(), disk.as_str().unwrap()] {
        std::fs::write(notes.join(cid), &note).unwrap();
    }
    site.vm(&stemcell, 23);
    assert_eq!(site.held().len(), 6);
    assert_eq!(site.read(disk.as_str().unwrap()), "precious");
    assert!(std::fs::read_dir(notes).unwrap().all(|entry| entry.unwrap().file_name() == "lock"));
}
