//! The integration cases of BOSH's agent (its folder `integration`), redone here or elsewhere. A case is called by its file and its
//! words; "it" is what is asserted there.
//!
//! | case of BOSH | here |
//! |---|---|
//! | apply, v1_apply (with signed URLs, with a blobstore): should … create appropriate /var/vcap/data directories for a job | [`apply_makes_what_bosh_makes_and_a_boot_makes_the_folders_of_jobs_again`]; signed URLs: `blobs::packages_at_signed_urls_are_compiled_and_installed` |
//! | prepare: should … create appropriate /var/vcap/data directories for a job | the same |
//! | prepare, when job dir tmpfs is enabled: mounts a tmpfs for /var/vcap/data/jobs | [`jobs_and_their_secrets_stay_in_memory_where_the_settings_say_so`] |
//! | prepare, when settings tmpfs is enabled: mounts a tmpfs for /var/vcap/settings | [`settings_and_their_secrets_are_on_no_disk_where_they_say_so_and_end_with_a_reboot`] |
//! | Instance Info: apply spec saves instance info to file and is readable by anyone | [`apply_makes_what_bosh_makes_and_a_boot_makes_the_folders_of_jobs_again`] |
//! | bundle_logs: puts the logs in the appropriate location | [`logs_of_jobs_of_the_agent_and_of_the_system_are_fetched_and_bundled_for_a_user`] |
//! | fetch_logs: job, agent, system log fetch works | the same; with signed URLs: `blobs::blobs_at_signed_urls_are_fetched_and_stored` |
//! | compile_package (both): compiles and stores it to the blobstore; compiles dependencies; allows passing bare sha1 | `software::a_package_is_compiled_with_nothing_but_what_it_depends_on`, `blobs::packages_at_signed_urls_are_compiled_and_installed` |
//! | compile_package (both): does not skip verification when digest argument is missing | [`nothing_is_taken_without_a_digest`] |
//! | sync_dns, sync_dns_with_signed_url: sends a … message | [`names_of_others_reach_the_hosts_file_and_only_jobs_read_the_records`], `blobs::blobs_at_signed_urls_are_fetched_and_stored` |
//! | sync_dns: does not skip verification if no checksum is sent | [`nothing_is_taken_without_a_digest`] |
//! | run_script: runs a custom script, with variables | `scripts::scripts_run_with_the_callers_environment_and_failures_name_the_jobs` |
//! | remove_file: removes the specified file | `services::logs_come_as_a_blob_or_as_a_file_that_is_removed_after_use` |
//! | DeleteARPEntries, CertManager | `linux::setup::trusted_certificates_are_the_directors_and_shutdown_powers_the_machine_off` |
//! | user permissions: should contain the correct home directory permissions | [`logs_of_jobs_of_the_agent_and_of_the_system_are_fetched_and_bundled_for_a_user`] |
//! | SystemMounts: binds root_tmp on /tmp and /var/tmp; does not change mounts and permissions | `linux::setup::a_machine_gets_its_name_its_users_and_its_folders` |
//! | EphemeralDisk (six), RawEphemeralDisk | `linux::ephemeral` |
//! | FileSettings: creates /var/vcap/bosh/settings.json | `sources` |
//! | nats firewall (three) | does not fit: there is no message bus |
//! | windows (all) | does not fit |

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Value, json};

use super::own_machine::OwnMachine;
use super::private::in_namespaces;
use crate::software::{SoftwareBlobs, sha1};

/// The number of the group vcap in the VM.
const VCAP: u32 = 1000;

/// Mode, owner and group.
fn owned(path: &Path) -> (u32, u32, u32) {
    let found = path.metadata().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (found.mode() & 0o7777, found.uid(), found.gid())
}

async fn refusal(own: &OwnMachine, method: &str, arguments: Value) -> String {
    let arguments = arguments.as_array().unwrap().clone();
    windlass_contract::explain(&own.machine.director().call(method, arguments).await.unwrap_err())
}

#[test]
fn apply_makes_what_bosh_makes_and_a_boot_makes_the_folders_of_jobs_again() {
    let name = "linux::bosh_cases::apply_makes_what_bosh_makes_and_a_boot_makes_the_folders_of_jobs_again";
    in_namespaces(name, async || {
        let mut own = OwnMachine::started(json!({})).await;
        let mut blobs = SoftwareBlobs::default();
        let packages = ["bar", "foo"].map(|name| blobs.package(name, "1", &[("bin/tool", 0o755, "x")]));
        let mut spec = blobs.spec("hash", &["foobar"], &packages);
        spec["az"] = json!("ex-az");
        blobs.hand_over(&own.machine).await;
        let check = |own: &OwnMachine, paths: &[&str], mode: u32| {
            for path in paths {
                assert_eq!(owned(&own.base(path)), (mode, 0, VCAP), "{path}");
            }
        };
        own.machine.director().call("prepare", vec![spec.clone()]).await.unwrap();
        check(&own, &["data/packages", "data/packages/bar", "data/packages/foo"], 0o755);
        check(&own, &["data/jobs", "data/jobs/foobar"], 0o750);
        for version in std::fs::read_dir(own.base("data/jobs/foobar")).unwrap() {
            assert_eq!(owned(&version.unwrap().path()), (0o750, 0, VCAP));
        }
        own.machine.director().call("apply", vec![spec]).await.unwrap();
        let of_job = ["data/sys/run/foobar", "data/sys/log/foobar", "data/foobar"];
        check(&own, &of_job, 0o770);
        check(&own, &["packages"], 0o755);
        check(&own, &["jobs"], 0o750);
        // The link of the job leads there in the VM's own root.
        for version in std::fs::read_dir(own.base("data/jobs/foobar")).unwrap() {
            assert_eq!(owned(&version.unwrap().path().join("packages")), (0o755, 0, VCAP));
        }
        for (file, content) in [("id", "i"), ("az", "ex-az"), ("name", "web"), ("deployment", "d")] {
            let path = own.base("instance").join(file);
            assert_eq!((owned(&path).0, std::fs::read_to_string(&path).unwrap().as_str()), (0o644, content), "{file}");
        }
        assert_eq!(owned(&own.base("instance")).0, 0o755);
        own.reboot();
        for folder in of_job {
            let _ = std::fs::remove_dir(own.base(folder));
        }
        own.machine.start().await;
        check(&own, &of_job, 0o770);
        assert_eq!(own.mounted("data/sys/run").unwrap().0, "tmpfs", "which a reboot empties");
    });
}

#[test]
fn jobs_and_their_secrets_stay_in_memory_where_the_settings_say_so() {
    let name = "linux::bosh_cases::jobs_and_their_secrets_stay_in_memory_where_the_settings_say_so";
    in_namespaces(name, async || {
        let mut own = OwnMachine::new(json!({}));
        own.machine.settings["env"]["bosh"]["job_dir"] = json!({"tmpfs": true, "tmpfs_size": "37m"});
        own.machine.start().await;
        let mut blobs = SoftwareBlobs::default();
        let spec = blobs.spec("hash", &["foobar"], &[]);
        blobs.hand_over(&own.machine).await;
        own.machine.director().call("prepare", vec![spec]).await.unwrap();
        for (folder, mode) in [("data/jobs", 0o750), ("data/sensitive_blobs", 0o700)] {
            assert_eq!(own.mounted(folder).unwrap().0, "tmpfs", "{folder}");
            assert_eq!(owned(&own.base(folder)), (mode, 0, VCAP), "{folder}");
        }
        assert!(own.base("data/jobs/foobar").is_dir());
        refuses_after_a_reboot(&mut own).await;
    });
}

/// What was in memory is gone then. An agent that is started again without a reboot goes on.
async fn refuses_after_a_reboot(own: &mut OwnMachine) {
    own.machine.kill();
    own.machine.start().await;
    own.reboot();
    own.machine.spawn();
    assert!(!own.machine.ended().await.success());
    let console = own.machine.console();
    assert!(
        console.contains("Refusing to boot: the VM was rebooted") && console.contains("recreate the VM"),
        "{console}"
    );
}

#[test]
fn settings_and_their_secrets_are_on_no_disk_where_they_say_so_and_end_with_a_reboot() {
    let name = "linux::bosh_cases::settings_and_their_secrets_are_on_no_disk_where_they_say_so_and_end_with_a_reboot";
    in_namespaces(name, async || {
        let mut own = OwnMachine::new(json!({}));
        own.machine.settings["env"]["bosh"]["agent"] = json!({"settings": {"tmpfs": true}});
        // What an agent before this one left there.
        std::fs::create_dir_all(own.base("bosh")).unwrap();
        std::fs::write(own.base("bosh/persistent_disk_hints.json"), "{}").unwrap();
        own.machine.start().await;
        let update = json!({"trusted_certs": "", "disk_associations": []});
        own.machine.director().call("update_settings", vec![update]).await.unwrap();
        let hint = json!({"path": "/dev/nothing"});
        own.machine.director().call("add_persistent_disk", vec![json!("cid-1"), hint]).await.unwrap();
        assert_eq!(own.mounted("bosh/settings").unwrap().0, "tmpfs");
        assert_eq!(owned(&own.base("bosh/settings")), (0o700, 0, 0));
        let files = ["settings.json", "update_settings.json", "persistent_disk_hints.json"];
        let are_in_memory = |own: &OwnMachine| {
            for file in files {
                assert_eq!(owned(&own.base("bosh/settings").join(file)).0, 0o600, "{file}");
                assert!(!own.base("bosh").join(file).exists(), "{file}");
            }
        };
        are_in_memory(&own);
        // The source may be silent when the agent is started again.
        own.machine.kill();
        std::fs::remove_file(own.machine.folder.path().join("settings.json")).unwrap();
        own.machine.spawn_again();
        own.machine.director().wait_until_ready(crate::machine::PATIENCE).await.unwrap();
        are_in_memory(&own);
        let hints = std::fs::read_to_string(own.base("bosh/settings/persistent_disk_hints.json")).unwrap();
        assert!(hints.contains("cid-1"), "{hints}");
        refuses_after_a_reboot(&mut own).await;
    });
}

#[test]
fn logs_of_jobs_of_the_agent_and_of_the_system_are_fetched_and_bundled_for_a_user() {
    let name = "linux::bosh_cases::logs_of_jobs_of_the_agent_and_of_the_system_are_fetched_and_bundled_for_a_user";
    in_namespaces(name, async || {
        let own = OwnMachine::started(json!({})).await;
        let director = own.machine.director();
        let folders =
            [("job", own.base("data/sys/log")), ("agent", own.base("bosh/log")), ("system", own.at("/var/log"))];
        let names = |archive: Vec<u8>| -> Vec<String> {
            let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&archive[..]));
            let entries = archive.entries().unwrap();
            entries.map(|entry| entry.unwrap().path().unwrap().to_str().unwrap().to_owned()).collect()
        };
        for (kind, folder) in &folders {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join(format!("fetch-logs-{kind}")), kind).unwrap();
            let fetched = director.call("fetch_logs", vec![json!(kind), Value::Null]).await.unwrap();
            let blob = std::fs::read(own.base("data/blobs").join(fetched["blobstore_id"].as_str().unwrap())).unwrap();
            assert_eq!(fetched["sha1"], sha1(&blob));
            let prefix = if *kind == "system" { "var/log/" } else { "" };
            let found = names(blob);
            assert!(found.contains(&format!("{prefix}fetch-logs-{kind}")), "{kind}: {found:?}");
        }
        let user = json!({"user": "bosh_abc", "public_key": "ssh-rsa KEY"});
        director.call("ssh", vec![json!("setup"), user]).await.unwrap();
        assert_eq!(owned(&own.base("bosh_ssh")).0, 0o755);
        assert_eq!(owned(&own.base("bosh_ssh/bosh_abc")).0, 0o700);
        let wanted = json!({"owning_user": "bosh_abc", "log_type": "job", "filters": []});
        let bundled = director.call("bundle_logs", vec![wanted]).await.unwrap();
        let path = own.at(bundled["logs_tar_path"].as_str().unwrap());
        let users = std::fs::read_to_string(own.at("/etc/passwd")).unwrap();
        let line = users.lines().find(|line| line.starts_with("bosh_abc:")).unwrap();
        let number = |index: usize| line.split(':').nth(index).unwrap().parse::<u32>().unwrap();
        assert_eq!(owned(&path), (0o600, number(2), number(3)));
        assert!(names(std::fs::read(&path).unwrap()).contains(&"fetch-logs-job".to_owned()));
    });
}

#[test]
fn names_of_others_reach_the_hosts_file_and_only_jobs_read_the_records() {
    let name = "linux::bosh_cases::names_of_others_reach_the_hosts_file_and_only_jobs_read_the_records";
    in_namespaces(name, async || {
        let own = OwnMachine::started(json!({})).await;
        let records =
            json!({"version": 1, "records": [["216.58.194.206", "google.com"], ["54.164.223.71", "pivotal.io"]],
            "record_keys": ["id", "instance_group", "az", "network", "deployment", "ip"],
            "record_infos": [["id-1", "instance-group-1", "az1", "network1", "deployment1", "ip1"]]})
            .to_string();
        let blob = own.machine.folder.path().join("outgoing");
        std::fs::write(&blob, &records).unwrap();
        own.machine.director().put_blob("new-dns-records", &blob).await.unwrap();
        let arguments = vec![json!("new-dns-records"), json!(sha1(records.as_bytes())), json!(1)];
        assert_eq!(own.machine.director().call("sync_dns", arguments).await.unwrap(), "synced");
        let hosts = std::fs::read_to_string(own.at("/etc/hosts")).unwrap();
        assert!(hosts.contains("216.58.194.206 google.com\n54.164.223.71 pivotal.io\n"), "{hosts}");
        let kept = own.base("instance/dns/records.json");
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), records);
        assert_eq!(owned(&kept), (0o640, 0, VCAP));
    });
}

#[test]
fn nothing_is_taken_without_a_digest() {
    in_namespaces("linux::bosh_cases::nothing_is_taken_without_a_digest", async || {
        let own = OwnMachine::started(json!({})).await;
        let mut blobs = SoftwareBlobs::default();
        blobs.package("fake", "1", &[("packaging", 0o644, "true")]);
        blobs.hand_over(&own.machine).await;
        let signed = json!([{"package_get_signed_url": "http://127.0.0.1:1/get", "upload_signed_url": "http://127.0.0.1:1/put",
            "digest": "", "name": "fake", "version": "1", "deps": {}}]);
        for (method, arguments) in [
            ("compile_package", json!(["fake-1", "", "fake", "1", {}])),
            ("compile_package_with_signed_url", signed),
            ("sync_dns", json!(["fake-1", "", 1])),
        ] {
            let error = refusal(&own, method, arguments).await.to_lowercase();
            let words = "no digest algorithm found. supported algorithms: sha1, sha256, sha512";
            assert!(error.contains(words), "{method}: {error}");
        }
    });
}
