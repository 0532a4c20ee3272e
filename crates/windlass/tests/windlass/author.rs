//! Release directories as their authors use them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_rigs::object_store::ObjectStore;

use crate::site::Site;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");

/// A release directory and a home of its own.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Self {
        let desk = Self(tempfile::tempdir().unwrap());
        let hello = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/windlass/data/hello");
        copy(&hello, &desk.release());
        desk
    }

    fn release(&self) -> PathBuf {
        self.0.path().join("hello-release")
    }

    fn run(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::new(WINDLASS);
        command.args(arguments).current_dir(self.release()).env("HOME", self.0.path()).output().unwrap()
    }

    /// What is said of a failure.
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?} succeeded");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Desk {
    /// A desk whose blobs are in a bucket.
    fn with_bucket(store: &ObjectStore, provider: &str, options: &str) -> Self {
        let desk = Self::new();
        store.make_bucket(&format!("{provider}blobs"));
        let config = desk.release().join("config");
        fs::write(
            config.join("final.yml"),
            format!("name: hello\nblobstore:\n  provider: {provider}\n  options: {{bucket_name: {provider}blobs, folder_name: r}}\n"),
        )
        .unwrap();
        fs::write(config.join("private.yml"), format!("blobstore: {{options: {options}}}\n")).unwrap();
        desk
    }
}

/// Blobs and final archives go to the store, and come back from there for somebody who has nothing but the directory.
fn is_shared_through(store: &ObjectStore, provider: &str, options: &str) {
    let desk = Desk::with_bucket(store, provider, options);
    let large = desk.0.path().join("large");
    fs::write(&large, (0..3_000_000u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    desk.ok(&["add-blob", large.to_str().unwrap(), "tools/large"]);
    let shown = desk.ok(&["upload-blobs", "--tty"]);
    assert!(shown.contains("Blob upload 'tools/large'"), "{shown}");
    desk.ok(&["create-release", "--final", "--force"]);
    let bucket = format!("{provider}blobs");
    let keys = store.keys(&bucket);
    // The blob, a job, a package.
    assert!(keys.len() >= 3 && keys.iter().all(|key| provider == "gcs" || key.starts_with("r/")), "{keys:?}");
    let tarball = desk.0.path().join("dev.tgz");
    desk.ok(&["create-release", "--force", "--tarball", tarball.to_str().unwrap()]);
    let shown = desk.ok(&["finalize-release", tarball.to_str().unwrap(), "--version", "9", "--force"]);
    assert!(shown.contains("9"), "{shown}");
    // Somebody else: no cache, no blobs.
    fs::remove_dir_all(desk.0.path().join(".bosh")).unwrap();
    fs::remove_dir_all(desk.release().join("blobs")).unwrap();
    fs::remove_dir_all(desk.release().join(".dev_builds")).unwrap();
    desk.ok(&["sync-blobs"]);
    assert_eq!(fs::read(desk.release().join("blobs/tools/large")).unwrap(), fs::read(&large).unwrap());
    let again = desk.0.path().join("again.tgz");
    desk.ok(&["create-release", "releases/hello/hello-9.yml", "--tarball", again.to_str().unwrap()]);
    assert!(desk.ok(&["inspect-local-release", again.to_str().unwrap()]).contains("hello"));
    // What the store lost, and what it refuses, is told without credentials.
    store.keys(&bucket).iter().for_each(|key| store.remove(&bucket, key));
    fs::remove_dir_all(desk.release().join("blobs")).unwrap();
    let said = desk.fails(&["sync-blobs"]);
    assert!(said.contains(&format!("in the blobstore {provider}://{bucket}")), "{said}");
    assert!(!said.contains("marked"), "{said}");
}

#[test]
fn blobs_and_final_releases_go_through_s3_and_gcs() {
    let Some(store) = ObjectStore::start() else { return };
    let (host, port) = (store.host(), store.port());
    is_shared_through(
        &store,
        "s3",
        &format!(
            "{{host: {host}, port: {port}, use_ssl: false, access_key_id: marked-id, secret_access_key: marked-secret}}"
        ),
    );
    let key = format!(
        r#"{{"private_key": "marked", "private_key_id": "", "client_email": "", "disable_oauth": true, "gcs_base_url": "{}"}}"#,
        store.url()
    );
    is_shared_through(&store, "gcs", &format!("{{credentials_source: static, json_key: '{key}'}}"));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        let is_made = |name: &str| [".dev_builds", "dev_releases", "blobs"].contains(&name);
        match entry.file_type().unwrap().is_dir() {
            true if is_made(&entry.file_name().to_string_lossy()) => {}
            true => copy(&entry.path(), &to),
            false => {
                fs::copy(entry.path(), to).unwrap();
            }
        }
    }
}

#[test]
fn a_directory_becomes_a_release_on_the_director_and_its_packages_are_sent_once() {
    let (desk, site) = (Desk::new(), Site::start());
    let shown = desk.ok(&["create-release", "--tty"]);
    for words in ["Adding job 'hello/", "Added package 'hello/", "Added dev release 'hello/0+dev.1'", "1 packages"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let folder = desk.release();
    let folder = folder.to_str().unwrap();
    let upload = |arguments: &[&str]| {
        let mut command = Command::new(WINDLASS);
        command.args(["--tty", "--state-dir", site.state_dir().to_str().unwrap(), "upload-release"]).args(arguments);
        let output = command.env("HOME", desk.0.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(upload(&["--dir", folder]).contains("Creating new packages"));
    fs::write(desk.release().join("jobs/hello/monit"), "# another\n").unwrap();
    desk.ok(&["create-release"]);
    let second = upload(&[folder]);
    assert!(second.contains("Processing 1 existing package") && second.contains("Creating new jobs"), "{second}");
    // The package's archive is not in what was sent: a director that lost it would have to say so.
    assert!(site.ok(&["releases"]).contains("0+dev.2"));
}
