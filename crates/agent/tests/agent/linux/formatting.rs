//! The moment in which a disk is formatted, and what may go wrong in it.

use std::time::{Duration, Instant};

use serde_json::json;

use super::own_machine::{MIB, OwnMachine};
use super::private::in_namespaces;
use crate::machine::PATIENCE;

#[test]
fn a_tool_that_outlives_its_agent_is_waited_for() {
    in_namespaces("linux::formatting::a_tool_that_outlives_its_agent_is_waited_for", async || {
        let mut own = OwnMachine::new(json!({}));
        own.stub("mke2fs", "echo begun >> /stubs/made; sleep 3; exec /usr/sbin/mke2fs \"$@\"");
        own.machine.start().await;
        let disk = own.disk("disk", 64 * MIB);
        let director = own.machine.director();
        let mounting = tokio::spawn({
            let hint = disk.path();
            async move { director.call("mount_disk", vec![json!("d"), json!(hint)]).await }
        });
        let made = own.at("/stubs/made");
        let deadline = Instant::now() + PATIENCE;
        while !made.exists() {
            assert!(Instant::now() < deadline, "{}", own.machine.console());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        own.machine.kill();
        mounting.abort();
        own.machine.start().await;
        own.mount("d", json!(disk.path())).await.unwrap();
        assert_eq!(std::fs::read_to_string(made).unwrap(), "begun\n", "it was formatted by one tool, once");
        assert_eq!(own.mounted("store").unwrap().0, "ext4");
        assert!(!own.base("bosh/formatting.json").exists());
    });
}

#[test]
fn what_a_tool_left_half_made_is_made_again_but_nobody_elses_data() {
    in_namespaces("linux::formatting::what_a_tool_left_half_made_is_made_again_but_nobody_elses_data", async || {
        let own = OwnMachine::started(json!({})).await;
        let disk = own.disk("disk", 64 * MIB);
        // As a machine that dies in the middle leaves it.
        own.stub(
            "mke2fs",
            "for last; do :; done; echo half | dd of=$last bs=1M seek=3 conv=notrunc status=none; exit 1",
        );
        let error = own.mount("d", json!(disk.path())).await.unwrap_err();
        assert!(error.contains("mke2fs -t ext4 -j -E lazy_itable_init=1") && error.contains("failed"), "{error}");
        // Under another name it is a disk with something on it.
        let error = own.mount("other", json!(disk.path())).await.unwrap_err();
        assert!(error.contains("p1 holds data of a kind that this agent does not know"), "{error}");
        std::fs::remove_file(own.at("/stubs/mke2fs")).unwrap();
        own.mount("d", json!(disk.path())).await.unwrap();
        assert_eq!(own.mounted("store").unwrap().0, "ext4");
    });
}
