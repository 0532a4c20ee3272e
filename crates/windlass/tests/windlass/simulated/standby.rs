//! Two directors on one PostgreSQL: one leads, the other stands by, and takes over in the middle of the first one's work when that
//! is killed, or frozen. One that thaws finds that it may write nothing and ends.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use windlass_database::PrivatePostgres;
use windlass_database::sqlx::{self, AssertSqlSafe, Connection};
use windlass_durable::process::ProcessIdentity;

use super::site::{GROUP, WINDLASS, claim, empty_stemcell, end_host};

const PATIENCE: Duration = Duration::from_secs(120);
/// What a director records of its work.
const TABLES: [&str; 7] = ["intents", "instances", "vms", "disks", "tasks", "locks", "events"];

/// Two directors. Dropped, they leave nothing behind.
struct Pair {
    folder: tempfile::TempDir,
    postgres: PrivatePostgres,
    directors: [Option<Child>; 2],
    /// Whether they are on machines of their own.
    is_elsewhere: [bool; 2],
    prefix: String,
    _claim: UnixListener,
}

impl Pair {
    /// The first leads, and is ready to deploy; the second stands by.
    fn ready() -> Self {
        Self::with("", false)
    }

    /// The same with more settings, and with the second on another machine.
    fn with(more: &str, second_is_elsewhere: bool) -> Self {
        let (prefix, claim) = claim();
        let postgres = PrivatePostgres::start().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (directors, is_elsewhere) = ([None, None], [false, second_is_elsewhere]);
        let mut pair = Self { folder, postgres, directors, is_elsewhere, prefix, _claim: claim };
        fs::create_dir(pair.file("shared")).unwrap();
        for which in 0..2 {
            fs::create_dir(pair.state_dir(which)).unwrap();
            let (db, shared, cpi) = (pair.postgres.url(), pair.file("shared"), pair.file("cpi.json"));
            let settings = format!(
                "db: '{db}'\nshared_dir: {}\ncpi: {{exec: sim, config: {}}}\nresurrector: {{enabled: false}}\n{more}",
                shared.display(),
                cpi.display()
            );
            fs::write(pair.state_dir(which).join("director.yml"), settings).unwrap();
        }
        pair.write_cpi(&json!({}));
        pair.start(0);
        pair.wait_for("the first leads", |pair| pair.leads(0));
        let stemcell = pair.file("stemcell.tgz");
        fs::write(&stemcell, empty_stemcell("empty", "windlass-minimal", "1")).unwrap();
        pair.ok(0, &["upload-stemcell", stemcell.to_str().unwrap()]);
        let range = &pair.prefix;
        let cloud_config = format!(
            "azs: [{{name: z1}}]\nvm_types: [{{name: small}}]\ndisk_types: [{{name: disk, disk_size: 64}}]\n\
             networks: [{{name: default, subnets: [{{range: {range}.0/24, gateway: {range}.1, azs: [z1]}}]}}]\n"
        );
        fs::write(pair.file("cloud-config.yml"), cloud_config).unwrap();
        let manifest = format!(
            "name: example\nstemcells: [{{alias: default, os: windlass-minimal, version: latest}}]\n\
             update: {{canaries: 1, max_in_flight: 1, canary_watch_time: 1-30000, update_watch_time: 1-30000}}\n\
             instance_groups:\n- {GROUP}\n"
        );
        fs::write(pair.file("manifest.yml"), manifest).unwrap();
        pair.ok(0, &["-n", "update-cloud-config", pair.file("cloud-config.yml").to_str().unwrap()]);
        pair.start(1);
        pair.wait_for("the second stands by", |pair| pair.log(1).contains("this one stands by"));
        pair
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn state_dir(&self, which: usize) -> PathBuf {
        self.file(&format!("state-{which}"))
    }

    fn log(&self, which: usize) -> String {
        fs::read_to_string(self.file(&format!("log-{which}"))).unwrap_or_default()
    }

    fn write_cpi(&self, properties: &Value) {
        let mut sim = json!({"state_dir": self.file("cloud")});
        sim.as_object_mut().unwrap().extend(properties.as_object().unwrap().clone());
        let config = json!({"cloud": {"plugin": "sim", "properties": {"sim": sim}}}).to_string();
        fs::write(self.file("cpi.json"), &config).unwrap();
        for which in 0..2 {
            let used = self.state_dir(which).join("cpi/sim.json");
            if used.exists() {
                fs::write(used, &config).unwrap();
            }
        }
    }

    fn start(&mut self, which: usize) {
        let log = fs::File::create(self.file(&format!("log-{which}"))).unwrap();
        let mut command = match self.is_elsewhere[which] {
            false => Command::new(WINDLASS),
            // With names and pids of its own, as far as a director can tell.
            true => {
                let mut machine = Command::new("unshare");
                machine.args(["--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]);
                machine.args(["sh", "-c", "hostname another-machine && exec \"$0\" \"$@\"", WINDLASS]);
                machine
            }
        };
        command.arg("--state-dir").arg(self.state_dir(which)).args(["director", "--listen", "127.0.0.1:0"]);
        command.env("RUST_LOG", "info,windlass_cpi_client=debug,windlass_agent_client=debug").stdin(Stdio::null());
        self.directors[which] = Some(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    }

    fn leads(&self, which: usize) -> bool {
        self.state_dir(which).join("env.sh").exists()
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what}, not:\n{}\n\n{}", self.log(0), self.log(1));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn verb(&self, which: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new(WINDLASS);
        for name in ["BOSH_ENVIRONMENT", "BOSH_CA_CERT", "BOSH_CLIENT", "BOSH_CLIENT_SECRET", "BOSH_DEPLOYMENT"] {
            command.env_remove(name);
        }
        command.arg("--state-dir").arg(self.state_dir(which)).args(arguments).stdin(Stdio::null());
        command
    }

    fn ok(&self, which: usize, arguments: &[&str]) -> String {
        let output = self.verb(which, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}\n{}\n\n{}", self.log(0), self.log(1));
        String::from_utf8(output.stdout).unwrap()
    }

    fn rows(&self, which: usize, arguments: &[&str]) -> Vec<Value> {
        let printed: Value = serde_json::from_str(&self.ok(which, &[arguments, &["--json"]].concat())).unwrap();
        printed["Tables"][0]["Rows"].as_array().unwrap().clone()
    }

    /// Asks the second, which has told in its log where it listens.
    fn ask_standby(&self, path: &str) -> Output {
        let log = self.log(1);
        let address = log.split("listens=").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
        let mut command = Command::new(WINDLASS);
        command.args(["curl", path]).stdin(Stdio::null()).env("BOSH_ENVIRONMENT", format!("https://{address}"));
        command.env("BOSH_CA_CERT", self.state_dir(0).join("ca.pem"));
        command.env("BOSH_CLIENT", "admin").env("BOSH_CLIENT_SECRET", "whatever").output().unwrap()
    }

    fn signal(&self, which: usize, signal: &str) {
        let pid = self.directors[which].as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Waits for the end of a director.
    fn end(&mut self, which: usize) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.directors[which].as_mut().unwrap().try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.log(which));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn records(&self) -> Vec<String> {
        let rows = |table: &str| self.query(&format!("SELECT '{table} ' || t::text FROM {table} t ORDER BY 1"));
        TABLES.into_iter().flat_map(rows).collect()
    }

    /// The CPI that works for the first director, as it is on record: who it is, and until when it may run.
    fn cpi(&self) -> Option<(ProcessIdentity, i64)> {
        let rows = self.query("SELECT child || '|' || child_until FROM intents WHERE child IS NOT NULL");
        let (child, until) = rows.first()?.rsplit_once('|').unwrap();
        Some((serde_json::from_str(child).unwrap(), until.parse().unwrap()))
    }

    fn query(&self, query: &str) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            sqlx::any::install_default_drivers();
            let mut database = sqlx::AnyConnection::connect(&self.postgres.url()).await.unwrap();
            sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_all(&mut database).await.unwrap()
        })
    }

    /// Which disk was to be attached to which VM, by both directors.
    fn attachments(&self) -> BTreeSet<String> {
        let both = format!("{}\n{}", self.log(0), self.log(1));
        let requests = both.lines().filter_map(|line| line.split_once("calling the CPI request="));
        let requests = requests
            .map(|(_, text)| serde_json::Deserializer::from_str(text).into_iter::<Value>().next().unwrap().unwrap());
        let attachments = requests.filter(|request| request["method"] == "attach_disk");
        attachments.map(|request| request["arguments"].to_string()).collect()
    }

    /// The VMs that the cloud attached disks to.
    fn attached_in_cloud(&self) -> Vec<Value> {
        let disks =
            fs::read_dir(self.file("cloud/disks")).unwrap().map(|entry| entry.unwrap().path().join("disk.json"));
        let disks = disks.map(|path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap());
        disks.map(|disk| disk["attached_to"].clone()).collect()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for director in self.directors.iter_mut().flatten() {
            let _ = director.kill();
            let _ = director.wait();
        }
        end_host(&self.file("cloud"));
    }
}

/// The first director is stopped by `signal` while it attaches a disk, and the second does the rest.
fn taken_over_after(signal: &str) -> Pair {
    let pair = Pair::ready();
    for path in ["/info", "/health", "/deployments"] {
        let refused = pair.ask_standby(path);
        let said = format!("{refused:?}");
        assert!(!refused.status.success() && said.contains("503") && said.contains("stands by"), "{said}");
        let env = fs::read_to_string(pair.state_dir(0).join("env.sh")).unwrap();
        let leader = env.split('\'').nth(1).unwrap();
        assert!(said.contains(leader), "it names who leads: {said}");
    }
    pair.write_cpi(&json!({"latency": {"attach_disk": 3000}}));
    stopped_while_it_attaches(&pair, signal);
    pair.wait_for("the second leads", |pair| pair.leads(1));
    the_second_does_the_rest(&pair);
    pair
}

/// The first director begins a deploy, and is stopped by `signal` while it attaches the disk.
fn stopped_while_it_attaches(pair: &Pair, signal: &str) {
    let manifest = pair.file("manifest.yml");
    let mut deploy = pair.verb(0, &["-n", "-d", "example", "deploy", manifest.to_str().unwrap()]);
    let mut deploy = deploy.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    pair.wait_for("a disk is being attached", |pair| !pair.attachments().is_empty() && pair.cpi().is_some());
    pair.signal(0, signal);
    let _ = deploy.kill();
    let _ = deploy.wait();
}

fn the_second_does_the_rest(pair: &Pair) {
    pair.wait_for("the task has ended", |pair| pair.rows(1, &["tasks"]).is_empty());
    assert_eq!(pair.rows(1, &["tasks", "--recent=1"])[0]["state"], "done", "{}", pair.log(1));
    assert_eq!(pair.attachments().len(), 1, "one disk to one VM");
    let disks = pair.rows(1, &["disks"]);
    assert_eq!((disks.len(), &disks[0]["mounted"]), (1, &json!("true")));
    let vms = pair.rows(1, &["-d", "example", "vms"]);
    assert_eq!(vms.len(), 1);
    assert_eq!(pair.attached_in_cloud(), [vms[0]["vm_cid"].clone()]);
    assert!(pair.rows(1, &["leaks"]).is_empty() && pair.rows(1, &["locks"]).is_empty());
    assert!(pair.ok(1, &["plan", pair.file("manifest.yml").to_str().unwrap()]).contains("nothing to do"));
}

#[test]
fn the_second_director_takes_over_when_the_first_is_killed_while_it_attaches_a_disk() {
    taken_over_after("-KILL");
}

#[test]
fn a_director_that_was_frozen_while_it_attached_a_disk_writes_nothing_more_and_ends() {
    let mut pair = taken_over_after("-STOP");
    let (records, asked) = (pair.records(), pair.log(0).matches("calling the CPI").count());
    let told = pair.log(0).matches("asking the agent").count();
    pair.signal(0, "-CONT");
    assert!(!pair.end(0).success());
    assert!(pair.log(0).contains("another director took over"), "{}", pair.log(0));
    assert_eq!(pair.records(), records);
    assert_eq!(pair.log(0).matches("calling the CPI").count(), asked, "{}", pair.log(0));
    assert_eq!(pair.log(0).matches("asking the agent").count(), told, "{}", pair.log(0));
    assert_eq!((pair.attachments().len(), pair.attached_in_cloud().len()), (1, 1));
    assert!(pair.ok(1, &["plan", pair.file("manifest.yml").to_str().unwrap()]).contains("nothing to do"));
}

/// How the request begins that a director logs.
const ATTACHES: &str = r#"{"method":"attach_disk""#;
const HANGS_ONCE: &str = r#"{"faults": [{"method": "attach_disk", "nth": 1, "fault": "hang"}]}"#;

/// Half of its work may be done at any moment, so nobody does it again beside it; and it ends with its director.
#[test]
fn the_cpi_of_a_director_that_lost_its_lead_ends_with_it_and_is_not_asked_again_before() {
    let mut pair = Pair::ready();
    pair.write_cpi(&serde_json::from_str(HANGS_ONCE).unwrap());
    stopped_while_it_attaches(&pair, "-STOP");
    let (cpi, _) = pair.cpi().unwrap();
    pair.wait_for("the second leads", |pair| pair.leads(1));
    pair.wait_for("the second knows of it", |pair| pair.log(1).contains("an earlier run did not hear the end of this"));
    assert!(cpi.is_running(), "nobody ended it: {}", pair.log(1));
    assert!(!pair.log(1).contains(ATTACHES), "it is asked beside it: {}", pair.log(1));
    pair.signal(0, "-CONT");
    assert!(!pair.end(0).success());
    // The kernel may still be ending what was killed.
    pair.wait_for("its CPI ends with it", |_| !cpi.is_running());
    the_second_does_the_rest(&pair);
    assert!(!pair.log(1).contains("does not end and is killed"), "{}", pair.log(1));
    assert!(pair.log(1).contains(ATTACHES), "the second attached it: {}", pair.log(1));
}

/// Nobody there can see whether it still runs.
#[test]
fn a_cpi_on_the_machine_of_a_director_that_died_is_waited_for_until_its_deadline() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("another machine is pretended with namespaces, which needs root; this did not run");
        return;
    }
    let pair = Pair::with("cpi_deadline: 12s\n", true);
    pair.write_cpi(&serde_json::from_str(HANGS_ONCE).unwrap());
    stopped_while_it_attaches(&pair, "-KILL");
    let (cpi, until) = pair.cpi().unwrap();
    let _ended = EndedWithTest(cpi);
    pair.wait_for("the second waits", |pair| pair.log(1).contains("its CPI may still run on that machine"));
    // It ends, and nobody where the second is can know.
    cpi.signal_group(rustix::process::Signal::KILL).unwrap();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    pair.wait_for("the second attaches it", |pair| {
        let is_asked = pair.log(1).contains(ATTACHES);
        assert!(!is_asked || now() >= until, "it may have run beside it: {}", pair.log(1));
        is_asked
    });
    the_second_does_the_rest(&pair);
}

/// What nobody waits for any more.
struct EndedWithTest(ProcessIdentity);

impl Drop for EndedWithTest {
    fn drop(&mut self) {
        let _ = self.0.signal_group(rustix::process::Signal::KILL);
    }
}
