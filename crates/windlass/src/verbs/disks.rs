//! `windlass disks`: every disk with the hint by which its agent finds it, or the orphans.

use serde_json::Value;
use windlass_director_client::answers::{Disk, OrphanedDisk};

use crate::failure::Failure;
use crate::formats;
use crate::session::{Session, While};
use crate::table::Table;

pub(crate) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let deployment = session.existing_deployment().await?;
    let mut disks: Vec<Disk> = session.director.get("/windlass/disks").await.while_("listing disks")?;
    disks.retain(|disk| deployment.is_none_or(|name| name == disk.deployment));
    session.screen.table(&table(disks));
    Ok(())
}

pub(crate) async fn run_orphaned(session: &mut Session<'_>) -> Result<(), Failure> {
    let disks = session.director.get("/disks").await.while_("listing orphaned disks")?;
    session.screen.table(&orphans(disks));
    Ok(())
}

fn table(disks: Vec<Disk>) -> Table {
    let row = |disk: Disk| {
        let hint = match &disk.hint {
            Value::Null => String::new(),
            hint => hint.to_string(),
        };
        vec![disk.disk_cid, formats::size_mib(disk.size), disk.instance, disk.vm_cid, disk.mounted.to_string(), hint]
    };
    Table {
        content: "disks",
        header: vec!["Disk CID", "Size", "Instance", "VM CID", "Mounted", "Hint"],
        rows: disks.into_iter().map(row).collect(),
        ..Table::default()
    }
}

fn orphans(mut disks: Vec<OrphanedDisk>) -> Table {
    // The newest first; their times have a form that sorts.
    disks.sort_by(|a, b| b.orphaned_at.cmp(&a.orphaned_at));
    let row = |disk: OrphanedDisk| {
        let size = formats::size_mib(disk.size);
        let since = formats::date_of_director(&disk.orphaned_at);
        vec![disk.disk_cid, size, disk.deployment_name, disk.instance_name, disk.az, since]
    };
    Table {
        content: "disks",
        header: vec!["Disk CID", "Size", "Deployment", "Instance", "AZ", "Orphaned At"],
        rows: disks.into_iter().map(row).collect(),
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orphans_are_shown_as_by_the_original() {
        let disks = r#"[{"disk_cid":"426b","size":1024,"az":"z1","deployment_name":"shop","instance_name":"web/af33","cloud_properties":{"type":"ssd"},"orphaned_at":"2026-11-15 19:18:19 UTC"},
            {"disk_cid":"6b60","size":1024,"az":"z1","deployment_name":"shop","instance_name":"web/3298","cloud_properties":{},"orphaned_at":"2026-11-15 19:20:40 UTC"}]"#;
        let expected = "6b60\t1.0 GiB\tshop\tweb/3298\tz1\tSun Nov 15 19:20:40 UTC 2026\t\n\
                        426b\t1.0 GiB\tshop\tweb/af33\tz1\tSun Nov 15 19:18:19 UTC 2026\t\n";
        assert_eq!(orphans(serde_json::from_str(disks).unwrap()).for_scripts(), expected);
    }

    #[test]
    fn the_hint_is_shown_in_the_words_of_the_cpi() {
        let disks = r#"[{"disk_cid":"disk-1","size":64,"deployment":"example","instance":"db/1","vm_cid":"vm-1","mounted":true,"active":true,"hint":{"path":"/x"}}]"#;
        let expected = "disk-1\t64 MiB\tdb/1\tvm-1\ttrue\t{\"path\":\"/x\"}\t\n";
        assert_eq!(table(serde_json::from_str(disks).unwrap()).for_scripts(), expected);
    }
}
