//! A proxy between CPI and daemon loses one answer: the daemon did what it was asked, and the CPI does not know. The call must find
//! out by itself, and have its effect once.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
}

impl Proxy {
    fn before(daemon: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let (passed, lost) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (counter, victim) = (Arc::clone(&passed), Arc::clone(&lost));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (daemon, counter, victim) = (daemon.clone(), Arc::clone(&counter), Arc::clone(&victim));
                std::thread::spawn(move || forward(&stream, &daemon, &counter, &victim));
            }
        });
        Self { folder, passed, lost }
    }

    fn endpoint(&self) -> String {
        format!("unix:{}", self.folder.path().join("socket").display())
    }

    fn lose(&self, which: usize) {
        self.passed.store(0, Ordering::SeqCst);
        self.lost.store(which, Ordering::SeqCst);
    }
}

/// Serves one connection until it ends.
fn forward(stream: &UnixStream, daemon: &Path, passed: &AtomicUsize, lost: &AtomicUsize) -> Option<()> {
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
        let mut upstream = UnixStream::connect(daemon).ok()?;
        // The oldest form: its answer ends with the connection, and has a length.
        write!(upstream, "{}\r\n", head.replacen("HTTP/1.1", "HTTP/1.0", 1)).ok()?;
        upstream.write_all(&body).ok()?;
        let mut answer = Vec::new();
        upstream.read_to_end(&mut answer).ok()?;
        if changes && passed.fetch_add(1, Ordering::SeqCst) + 1 == lost.load(Ordering::SeqCst) {
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
