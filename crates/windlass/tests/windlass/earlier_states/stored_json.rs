//! Everything that is stored as JSON is read by the types of today, and written again with all that it had: a field or a kind
//! that was renamed is found here, in milliseconds. What is added may stand beside it. Jobs of tasks are the director's own, and so
//! is the test of them.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use windlass_cloud_sim::records as sim;
use windlass_contract::{DiskHint, Object};
use windlass_create_env::state::{OwnState, State};
use windlass_database::sqlx::{self, AnyConnection, AssertSqlSafe, Row};
use windlass_durable::process::ProcessIdentity;
use windlass_operations::ledger::Change;
use windlass_planning::plan::{InstanceSpec, Plan};
use windlass_planning::problems::Problem;
use windlass_planning::records::VmRecord;
use windlass_rigs::earlier_states::{Content, Entry, Kept, check, of_every_version};

use super::kept::connect;

/// Every kind of change that was ever stored.
const CHANGES: [&str; 14] = [
    "attach_disk",
    "create_disk",
    "create_stemcell",
    "create_vm",
    "delete_disk",
    "delete_snapshot",
    "delete_stemcell",
    "delete_vm",
    "detach_disk",
    "reboot_vm",
    "resize_disk",
    "set_disk_metadata",
    "set_vm_metadata",
    "snapshot_disk",
];

/// What is in a column.
async fn column(database: &mut AnyConnection, column: &str) -> Vec<String> {
    let (table, name) = column.split_once('.').unwrap();
    let statement = format!("SELECT {name} FROM {table} WHERE {name} IS NOT NULL");
    let rows = sqlx::query(AssertSqlSafe(statement)).fetch_all(database).await.unwrap();
    rows.iter().map(|row| row.try_get(0).unwrap()).collect()
}

async fn check_column<T: Serialize + DeserializeOwned>(
    database: &mut AnyConnection,
    name: &'static str,
) -> (&'static str, usize) {
    let texts = column(database, name).await;
    texts.iter().for_each(|text| check::<T>(name, text));
    (name, texts.len())
}

/// Each column, and how many records it has.
async fn check_columns(database: &mut AnyConnection) -> Vec<(&'static str, usize)> {
    vec![
        check_column::<Change>(database, "intents.change_json").await,
        check_column::<ProcessIdentity>(database, "intents.child").await,
        check_column::<VmRecord>(database, "vms.record").await,
        check_column::<VmRecord>(database, "orphaned_vms.record").await,
        check_column::<InstanceSpec>(database, "instances.spec").await,
        check_column::<Object>(database, "disks.cloud_properties").await,
        check_column::<DiskHint>(database, "disks.hint").await,
        check_column::<Object>(database, "orphan_disks.cloud_properties").await,
        check_column::<Plan>(database, "plans.plan").await,
        check_column::<Problem>(database, "problems.problem").await,
        check_column::<Object>(database, "events.context").await,
    ]
}

async fn director_database(kept: &Kept) -> AnyConnection {
    connect(kept, "director", Path::new("/somewhere"), "sqlite::memory:").await
}

#[tokio::test]
async fn every_stored_record_is_read_and_written_again_with_all_that_it_had() {
    for kept in of_every_version("simulated") {
        let mut database = director_database(&kept).await;
        for (name, records) in check_columns(&mut database).await {
            assert!(records > 0, "nothing of {name} was looked at in {kept:?}");
        }
        let changes = column(&mut database, "intents.change_json").await;
        let changes = changes.iter().map(|text| serde_json::from_str::<Value>(text).unwrap()["change"].clone());
        let changes: BTreeSet<String> = changes.map(|kind| kind.as_str().unwrap().to_owned()).collect();
        let missing: Vec<_> = CHANGES.iter().filter(|kind| !changes.contains(**kind)).collect();
        assert!(missing.is_empty(), "{missing:?} in {kept:?}");
    }
    for kept in of_every_version("processes") {
        check_columns(&mut director_database(&kept).await).await;
    }
}

fn check_files<T: Serialize + DeserializeOwned>(entries: &[Entry], name: &str) {
    let mut found = 0;
    for entry in entries.iter().filter(|entry| entry.path.rsplit('/').next() == Some(name)) {
        if let Content::File { bytes, .. } = &entry.content {
            found += 1;
            check::<T>(&entry.path, std::str::from_utf8(bytes).unwrap());
        }
    }
    assert!(found > 0, "there is no {name}");
}

#[test]
fn every_state_file_is_read_and_written_again_with_all_that_it_had() {
    for kept in of_every_version("environments") {
        let entries = kept.entries(Path::new("/somewhere"));
        for name in ["finished", "killed"] {
            check_files::<State>(&entries, &format!("{name}-state.json"));
            check_files::<OwnState>(&entries, &format!("{name}-state.windlass.json"));
        }
    }
    for kept in of_every_version("simulated") {
        let entries = kept.entries(Path::new("/somewhere"));
        check_files::<sim::VmRecord>(&entries, "vm.json");
        check_files::<sim::DiskRecord>(&entries, "disk.json");
        check_files::<sim::SnapshotRecord>(&entries, "snapshot.json");
        check_files::<sim::StemcellRecord>(&entries, "stemcell.json");
    }
}
