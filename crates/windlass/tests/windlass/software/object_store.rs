//! A director that keeps its blobs in an object store: software reaches VMs all the same, and the credentials of the store nobody.

use std::fs;
use std::path::Path;

use windlass_rigs::object_store::ObjectStore;

use super::Shop;

/// All files below a folder that say one of `words`; sockets and what a VM has of the machine are left out.
fn files_with(folder: &Path, words: &[&str], found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && entry.file_name() != "usr" && entry.file_name() != "proc" {
            files_with(&entry.path(), words, found);
        } else if kind.is_file() && entry.metadata().is_ok_and(|found| found.len() < 4 << 20) {
            let content = fs::read(entry.path()).unwrap_or_default();
            let text = String::from_utf8_lossy(&content);
            if words.iter().any(|word| text.contains(word)) {
                found.push(entry.path().display().to_string());
            }
        }
    }
}

#[test]
fn a_director_with_blobs_in_s3_runs_jobs_and_tells_nobody_its_credentials() {
    let Some(store) = ObjectStore::start() else { return };
    store.make_bucket("windlass");
    let settings = format!(
        "blobs_limit: 1GiB\nblobstore: {{provider: s3, options: {{bucket_name: windlass, folder_name: one, host: {}, port: {}, use_ssl: \
         false, access_key_id: marked-key-id, secret_access_key: marked-secret-key}}}}\n",
        store.host(),
        store.port()
    );
    let mut shop = Shop::in_processes_with(&settings);
    let of_releases = || store.keys("windlass").iter().filter(|key| key.starts_with("one/releases/")).count();
    assert_eq!(of_releases(), 3, "a job and two packages");
    shop.deploy("1", "{name: you}");
    assert!(shop.runs(), "{:?}", shop.processes());
    assert_eq!(of_releases(), 5, "and both packages compiled");
    let logs = shop.site.file("logs");
    fs::create_dir(&logs).unwrap();
    shop.site.ok(&["-d", "example", "logs", "--dir", logs.to_str().unwrap()]);
    assert_eq!(fs::read_dir(&logs).unwrap().count(), 1);
    assert_eq!(store.keys("windlass").iter().filter(|key| key.starts_with("one/blobs/")).count(), 1);
    for folder in ["releases", "blobs"] {
        let kept = fs::read_dir(shop.site.state_dir().join(folder)).map_or(0, Iterator::count);
        assert_eq!(kept, 0, "a blob is in {folder}/");
    }
    // A director without any copy fetches what it needs.
    shop.site.kill_director();
    shop.site.start_director(None);
    shop.site.ok(&["-n", "-d", "example", "recreate"]);
    assert!(shop.runs(), "{:?}", shop.processes());
    // What the store lost is told with the remedy, also without credentials.
    let gone = store.keys("windlass").into_iter().filter(|key| key.starts_with("one/releases/")).collect::<Vec<_>>();
    gone.iter().for_each(|key| store.remove("windlass", key));
    shop.site.kill_director();
    shop.site.start_director(None);
    let failed = shop.site.fails(&["-n", "-d", "example", "recreate"]);
    assert!(failed.contains("upload the release again with --fix"), "{failed}");
    let mut found = Vec::new();
    files_with(&shop.site.file("."), &["marked-key-id", "marked-secret-key"], &mut found);
    let settings = shop.site.state_dir().join("director.yml");
    found.retain(|path| !path.ends_with("director.yml"));
    assert_eq!(found, Vec::<String>::new(), "credentials are in these files");
    shop.site.ok(&["-n", "-d", "example", "delete-deployment", "--force"]);
    shop.site.ok(&["-n", "delete-release", "greeter"]);
    shop.site.ok(&["-n", "clean-up", "--all"]);
    let left: Vec<String> = store.keys("windlass").into_iter().filter(|key| !key.starts_with("one/blobs/")).collect();
    assert_eq!(left, ["one/director.uuid"]);
    // Another director does not get in its way.
    let other = shop.site.file("other");
    fs::create_dir(&other).unwrap();
    fs::copy(&settings, other.join("director.yml")).unwrap();
    let mut director = std::process::Command::new(env!("CARGO_BIN_EXE_windlass"));
    let output =
        director.args(["--state-dir", other.to_str().unwrap(), "director", "--listen", "127.0.0.1:0"]).output();
    let said = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
    assert!(said.contains("belongs to the director") && !said.contains("marked-"), "{said}");
}
