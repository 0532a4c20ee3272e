//! What the API does to a real director with real VMs, beyond what the command line's tests show.

pub(crate) mod client;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::site::Site;
use client::Client;

/// A site with so many instances of the group `db`, each with a disk.
fn deployed(instances: usize) -> (Site, Client) {
    let site = Site::ready_to_deploy();
    site.write_documents(instances);
    site.deploy();
    let client = Client::of(&site);
    (site, client)
}

fn instance(client: &Client, index: i64) -> Value {
    let instances = client.get("/deployments/example/instances");
    instances.as_array().unwrap().iter().find(|instance| instance["index"] == index).unwrap().clone()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} in {value}"))
}

fn strings(list: &Value, key: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| text(item, key).to_owned()).collect()
}

/// An orphan that is attached has its data, and nothing that was there before is lost.
#[test]
fn an_orphaned_disk_is_attached_with_its_data_and_deleted_with_its_snapshots() {
    let (site, client) = deployed(2);
    let (first, second) = (instance(&client, 0), instance(&client, 1));
    let path = format!("/deployments/example/jobs/db/{}", text(&first, "id"));
    site.write_to_store(text(&second, "cid"), "precious", "data");
    assert_eq!(client.done("POST", "/deployments/example/snapshots", ""), "snapshots of deployment 'example' created");
    let snapshots = client.get("/deployments/example/snapshots");
    assert_eq!(strings(&snapshots, "uuid"), [text(&first, "id"), text(&second, "id")]);
    assert_eq!(site.in_cloud("snapshots").len(), 2);

    site.write_documents(1);
    site.deploy();
    let orphan = strings(&client.get("/disks"), "disk_cid").remove(0);
    let attach = format!("/disks/{orphan}/attachments?deployment=example&job=db&instance_id={}", text(&first, "id"));
    let (code, reason) = client.fails("PUT", &attach, "");
    assert!(code == 520003 && reason.contains("must be in 'bosh stopped' state"), "{code} {reason}");
    client.done("PUT", &format!("{path}?state=stopped"), "");
    let own = site.in_cloud("disks").into_iter().find(|disk| *disk != orphan).unwrap();
    client.done("PUT", &attach, "");
    assert_eq!(fs::read_to_string(site.store(text(&first, "cid")).join("precious")).unwrap(), "data");
    assert_eq!(strings(&client.get("/disks"), "disk_cid"), [own.as_str()], "the disk before is an orphan now");
    client.done("PUT", &format!("{path}?state=started"), "");

    // Its snapshot came with it; the other one goes with its disk.
    let left = client.get("/deployments/example/snapshots");
    assert_eq!(strings(&left, "uuid"), [text(&first, "id")], "{left}");
    assert_eq!(
        client.send("DELETE", &format!("/disks/{orphan}"), "", "").status,
        StatusCode::BAD_REQUEST,
        "it is in use"
    );
    client.done("DELETE", &format!("/disks/{own}"), "");
    assert_eq!((site.in_cloud("disks"), site.in_cloud("snapshots").len()), (vec![orphan.clone()], 1));
    let snapshot = text(&left[0], "snapshot_cid");
    let missing = client.send("DELETE", "/deployments/example/snapshots/none", "", "");
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    client.done("DELETE", &format!("/deployments/example/snapshots/{snapshot}"), "");
    assert_eq!(site.in_cloud("snapshots").len(), 0);

    // A disk in use stays in use; one that nobody uses is kept.
    let (_, reason) = client.fails("DELETE", &format!("/disks/{orphan}?orphan=true"), "");
    assert!(reason.contains("stop it first"), "{reason}");
    client.done("PUT", &format!("{path}?state=detached"), "");
    client.done("DELETE", &format!("/disks/{orphan}?orphan=true"), "");
    assert_eq!(strings(&client.get("/disks"), "disk_cid"), [orphan.as_str()]);
    let dry = client.get("/cleanup/dryrun?remove_all=true");
    assert_eq!(strings(&dry["orphaned_disks"], "disk_cid"), [orphan.as_str()], "{dry}");
    let kept = json!({"config": {"remove_all": true, "keep_orphaned_disks": true}}).to_string();
    client.done("POST", "/cleanup", &kept);
    assert_eq!(site.in_cloud("disks").len(), 1);
    let said = client.done("POST", "/cleanup", &json!({"config": {"remove_all": true}}).to_string());
    assert!(said.contains("1 orphaned disk(s)"), "{said}");
    assert!(site.in_cloud("disks").is_empty());
    assert_eq!(site.in_cloud("stemcells").len(), 1, "a stemcell in use stays");
}

/// An instance that its operator works on is left alone by everything else.
#[test]
fn an_ignored_instance_is_left_alone() {
    let (site, client) = deployed(2);
    let (first, second) = (instance(&client, 0), instance(&client, 1));
    let group = "/deployments/example/instance_groups/db";
    let ignore = |value: bool| {
        let path = format!("{group}/{}/ignore", text(&first, "id"));
        let answer = client.send("PUT", &path, "application/json", json!({"ignore": value}).to_string());
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    };
    ignore(true);
    let recreated = client.task("PUT", "/deployments/example/jobs/db?state=recreate", "text/yaml", "");
    assert_eq!(recreated.state, "error", "{recreated:?}");
    assert!(recreated.result.contains("change the state of the ignored instance"), "{recreated:?}");
    site.ok(&["-n", "-d", "example", "deploy", "--recreate", &site.manifest()]);
    assert_eq!(instance(&client, 0)["cid"], first["cid"], "it was left alone");
    assert_ne!(instance(&client, 1)["cid"], second["cid"]);
    let stop = format!("{group}/{}/actions/stop", text(&first, "id"));
    assert_eq!(client.fails("POST", &stop, "").0, 190020);
    assert_eq!(client.fails("DELETE", "/deployments/example", "").0, 190021);
    ignore(false);
    client.done("POST", &stop, "");
    let stats = client.task("GET", "/deployments/example/instances?format=full", "", "");
    assert!(stats.output.lines().any(|line| line.contains(r#""state":"stopped""#)), "{}", stats.output);
}

/// What agents packed comes out of the director as it was, and nothing else does.
#[test]
fn logs_of_one_and_of_several_are_fetched_and_people_are_let_in() {
    let (site, client) = deployed(2);
    let first = instance(&client, 0);
    let log = site.state_dir().join("cloud/vms").join(text(&first, "cid")).join("base/sys/log/job");
    fs::create_dir_all(&log).unwrap();
    fs::write(log.join("job.log"), "it works\n").unwrap();
    let one = client.done("GET", &format!("/deployments/example/jobs/db/{}/logs?type=job", text(&first, "id")), "");
    let packed = client.send("GET", &format!("/resources/{one}"), "", "");
    assert_eq!(packed.headers["content-type"], "application/x-gzip");
    let list = |archive: &[u8]| {
        let file = site.file("fetched.tgz");
        fs::write(&file, archive).unwrap();
        let listed = std::process::Command::new("tar").arg("tzf").arg(&file).output().unwrap();
        String::from_utf8(listed.stdout).unwrap()
    };
    assert!(list(&packed.body).contains("job/job.log"), "{}", list(&packed.body));
    let agents =
        client.done("GET", &format!("/deployments/example/jobs/db/{}/logs?type=agent", text(&first, "id")), "");
    let names = list(&client.send("GET", &format!("/resources/{agents}"), "", "").body);
    assert!(names.contains("current"), "what the agent said is there: {names}");
    let both = client.done("GET", "/deployments/example/jobs/*/*/logs?type=agent", "");
    let names = list(&client.send("GET", &format!("/resources/{both}"), "", "").body);
    assert_eq!(names.lines().count(), 2, "{names}");
    assert!(names.contains(text(&first, "id")), "{names}");
    for path in ["..%2Fdirector.db", "director.db", "%2E%2E%2Fenv.sh", "00000000-0000-0000-0000-000000000000"] {
        assert_eq!(client.send("GET", &format!("/resources/{path}"), "", "").status, StatusCode::NOT_FOUND, "{path}");
    }

    let target = json!({"job": "db", "ids": [first["id"]], "indexes": [first["id"]]});
    let params = json!({"user": "bosh_0123456789abcde", "public_key": "ssh-rsa AAAA"});
    let setup = json!({"command": "setup", "deployment_name": "example", "target": target, "params": params});
    let task = client.task("POST", "/deployments/example/ssh", "application/json", setup.to_string());
    let answers: Value = serde_json::from_str(&task.output).unwrap();
    assert_eq!(answers.as_array().unwrap().len(), 1);
    assert_eq!((text(&answers[0], "status"), &answers[0]["id"]), ("success", &first["id"]), "{answers}");
    let params = json!({"user_regex": "^bosh_0123456789abcde"});
    let cleanup = json!({"command": "cleanup", "deployment_name": "example", "target": target, "params": params});
    client.done("POST", "/deployments/example/ssh", &cleanup.to_string());
    let events = client.get("/events?object_type=instance&action=setup%20ssh");
    assert_eq!(events.as_array().unwrap().len(), 2, "{events}");
}

/// A VM that is deleted by hand is missed and made again; every step of it is in the events.
#[test]
fn a_vm_that_is_deleted_by_hand_comes_back_and_events_tell_of_it() {
    let (site, client) = deployed(1);
    let lost = instance(&client, 0);
    client.done("DELETE", &format!("/vms/{}", text(&lost, "cid")), "");
    client.done("DELETE", "/vms/nobody", "");
    assert!(site.in_cloud("vms").is_empty());
    assert_eq!(instance(&client, 0)["cid"], Value::Null);
    site.deploy();
    assert_eq!(site.in_cloud("vms").len(), 1);
    let told: Vec<String> = client
        .get("/events?deployment=example")
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .filter(|event| event.get("parent_id").is_some())
        .map(|event| format!("{} {}", text(event, "action"), text(event, "object_type")))
        .collect();
    let expected = [
        "create vm",
        "create disk",
        "create instance",
        "create deployment",
        "delete vm",
        "create vm",
        "create instance",
        "update deployment",
    ];
    assert_eq!(told, expected);
}

/// Serves one file over plain HTTP until the test ends.
fn serve(content: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap();
            let found = head[..read].starts_with(b"GET /stemcell.tgz ");
            let (status, body): (_, &[u8]) = if found { ("200 OK", &content) } else { ("404 Not Found", b"") };
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(body);
        }
    });
    format!("http://{address}")
}

/// A stemcell is fetched from where it is; one that is not what it should be is refused.
#[test]
fn a_stemcell_is_fetched_by_its_url() {
    let site = Site::start();
    let client = Client::of(&site);
    let path = site.file("stemcell.tgz");
    site.ok(&["stemcell", "build", "--output", path.to_str().unwrap()]);
    let url = serve(fs::read(&path).unwrap());
    let upload = |location: &str, sha1: Option<&str>, fix: bool| {
        let body = json!({"location": location, "sha1": sha1}).to_string();
        client.task("POST", &format!("/stemcells?fix={fix}"), "application/json", body)
    };
    let missing = upload(&format!("{url}/other.tgz"), None, false);
    assert_eq!(missing.events.last().unwrap()["error"]["code"], 100002, "{missing:?}");
    let wrong = upload(&format!("{url}/stemcell.tgz"), Some("0000000000000000000000000000000000000000"), false);
    assert_eq!(wrong.events.last().unwrap()["error"]["code"], 50007, "{wrong:?}");
    assert!(client.get("/stemcells").as_array().unwrap().is_empty());
    let taken = upload(&format!("{url}/stemcell.tgz"), None, false);
    assert_eq!(taken.result, "/stemcells/windlass-minimal/1", "{taken:?}");
    let first = client.get("/stemcells")[0].clone();
    let again = upload(&format!("{url}/stemcell.tgz"), None, false);
    let skipped = |event: &Value| event["task"].as_str().is_some_and(|task| task.contains("(already exists, skipped)"));
    assert!(again.events.iter().any(skipped), "{again:?}");
    upload(&format!("{url}/stemcell.tgz"), None, true);
    let stemcells = client.get("/stemcells");
    assert_eq!(stemcells.as_array().unwrap().len(), 1);
    assert_ne!(stemcells[0]["cid"], first["cid"], "made anew");
    let odd = client.send("POST", "/stemcells", "application/json", r#"{"location": "file:///etc/passwd"}"#);
    assert_eq!(odd.status, StatusCode::BAD_REQUEST, "{}", odd.text());
    let release = client.task("POST", "/releases", "application/x-compressed", vec![0_u8; 1 << 20]);
    assert_eq!(release.events.last().unwrap()["error"]["code"], 30003, "{release:?}");
}

/// What is asked of the records is the same to both databases.
#[test]
fn the_records_answer_the_same_from_postgresql() {
    let postgres = windlass_database::PrivatePostgres::start().unwrap();
    let site = Site::ready_to_deploy_with_database(Some(postgres.url()));
    site.deploy();
    let client = Client::of(&site);
    let first = instance(&client, 0);
    let count = |path: &str| client.get(path).as_array().unwrap().len();
    assert_eq!(count("/events?deployment=example&action=create&object_type=vm&user=admin&after_time=1"), 2);
    assert_eq!(count("/events?task=1&before_id=100000&before_time=2100-01-01%2000:00:00%20UTC&object_name=nothing"), 0);
    assert_eq!(count(&format!("/events?object_type=instance&instance=db/{}", text(&first, "id"))), 2);
    assert_eq!(count("/tasks?state=done,error&verbose=2&deployment=example&limit=5"), 1);
    assert_eq!(count("/tasks?verbose=1&limit=1"), 1);
    let path = format!("/deployments/example/jobs/db/{}/snapshots", text(&first, "id"));
    assert!(client.done("POST", &path, "").starts_with("snapshot(s) snap-"));
    let snapshots = client.get("/deployments/example/snapshots");
    client.done("DELETE", &format!("/deployments/example/snapshots/{}", text(&snapshots[0], "snapshot_cid")), "");
    assert_eq!(count("/deployments/example/snapshots"), 0);
    let new = json!({"type": "deploy", "name": "n", "content": "a: 1", "expected_latest_id": "0"}).to_string();
    let posted = |body: &str| client.send("POST", "/configs", "application/json", body.to_owned()).status;
    assert_eq!((posted(&new), posted(&new)), (StatusCode::CREATED, StatusCode::PRECONDITION_FAILED));
    assert_eq!(client.send("DELETE", "/configs?type=deploy&name=n", "", "").status, StatusCode::NO_CONTENT);
    client.done("DELETE", &format!("/vms/{}", text(&first, "cid")), "");
    client.done("DELETE", "/deployments/example", "");
    let orphan = strings(&client.get("/disks"), "disk_cid").remove(0);
    client.done("DELETE", &format!("/disks/{orphan}"), "");
    assert!(site.in_cloud("disks").is_empty());
}

/// A tar archive with one entry of any name and kind.
fn archive(entry: &str, kind: u8, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..entry.len()].copy_from_slice(entry.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[156] = kind;
    header[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header[257..263].copy_from_slice(b"ustar\0");
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut archive = header.to_vec();
    archive.extend(content);
    archive.resize(archive.len().next_multiple_of(512) + 1024, 0);
    archive
}

/// What nobody should send is refused with what is wrong with it, and nothing of it stays.
#[test]
fn bad_uploads_and_absurd_requests_are_refused_and_leave_nothing() {
    let (mut site, client) = deployed(1);
    let manifest = client.get("/deployments/example")["manifest"].as_str().unwrap().to_owned();
    let before = (client.get("/stemcells"), site.in_cloud("stemcells"), site.in_cloud("vms"), site.in_cloud("disks"));
    let outside = site.file("outside");
    for (what, tarball) in [
        ("no archive", b"this is no tarball".to_vec()),
        ("nothing", Vec::new()),
        ("a path out of the folder", archive("../../outside", b'0', "", b"x")),
        ("an absolute path", archive(outside.to_str().unwrap(), b'0', "", b"x")),
        ("a link out of the folder", archive("image", b'2', "/etc/passwd", b"")),
        ("no manifest", archive("image", b'0', "", b"x")),
        ("a broken manifest", archive("stemcell.MF", b'0', "", b"name: [")),
        ("a manifest without a name", archive("stemcell.MF", b'0', "", b"version: 1\n")),
    ] {
        let task = client.task("POST", "/stemcells", "application/x-compressed", tarball);
        assert!(task.result.starts_with("the stemcell cannot be used:"), "{what}: {task:?}");
    }
    assert!(!outside.exists(), "nothing is written elsewhere");
    // The last goes when the end of its task is on record.
    site.wait_until("an empty tmp/", |site| {
        let mut starts = fs::read_dir(site.state_dir().join("tmp")).unwrap().map(|start| start.unwrap().path());
        starts.all(|start| fs::read_dir(start).unwrap().next().is_none())
    });

    for (path, body, expected) in [
        ("/deployments?max_in_flight=-1", manifest.clone(), "max_in_flight"),
        ("/deployments?canaries=lots", manifest.clone(), "canaries"),
        ("/deployments?context=%7B%22cloud_config_ids%22%3A%5B99%5D%7D", manifest.clone(), "99"),
        ("/deployments?context=nonsense", manifest.clone(), "context"),
        ("/deployments?recreate_vms_created_before=soon", manifest.clone(), "soon"),
        ("/deployments", "[".repeat(100_000), "line 1"),
        ("/deployments", "name: example\nname: example\n".to_owned(), "name"),
        ("/deployments", format!("a: &a [{}]\nname: [*a,*a]\n", "x,".repeat(1000)), "name"),
    ] {
        let answer = client.send("POST", path, "text/yaml", body);
        let refused = answer.status == StatusCode::BAD_REQUEST && answer.text().contains(expected);
        assert!(refused, "{path}: expected '{expected}' in {} {}", answer.status, answer.text());
    }
    for (change, expected) in [
        (("instances: 1", "instances: 1000000000000"), "instances"),
        (("instances: 1", "instances: many"), "instances"),
        (("max_in_flight: 2", "max_in_flight: 200%x"), "max_in_flight"),
        (("persistent_disk_type: disk", "persistent_disk: 99999999999999999999"), "persistent_disk"),
    ] {
        let changed = manifest.replace(change.0, change.1);
        assert_ne!(changed, manifest, "{change:?}");
        let task = client.task("POST", "/deployments", "text/yaml", changed);
        assert!(task.state == "error" && task.result.contains(expected), "{change:?}: {task:?}");
    }
    let after = (client.get("/stemcells"), site.in_cloud("stemcells"), site.in_cloud("vms"), site.in_cloud("disks"));
    assert_eq!(before, after);
}
