//! A director on the embedded cloud that was killed while it recreated a VM. Its VMs are processes, and those ended.

use std::collections::BTreeMap;
use std::fs;

use windlass_rigs::earlier_states::of_every_version;

use super::opened::Opened;

fn data(opened: &Opened) -> BTreeMap<String, String> {
    let entries = fs::read_dir(opened.state_dir().join("cloud/disks")).unwrap().map(|entry| entry.unwrap());
    let read = |entry: fs::DirEntry| {
        let content = fs::read_to_string(entry.path().join("data/precious")).unwrap();
        (entry.file_name().into_string().unwrap(), content)
    };
    entries.map(read).collect()
}

/// VMs by the names of their instances, all of which run and have their data.
fn running(opened: &Opened, deployment: &str) -> BTreeMap<String, String> {
    let rows = opened.rows(&["-d", deployment, "vms"]);
    for row in &rows {
        // Nothing is to run on them; an agent that does not answer would be named here.
        assert_eq!(row["process_state"], "", "{row:?}\n{}", opened.log());
        let store = opened.state_dir().join("cloud/vms").join(&row["vm_cid"]).join("base/store/precious");
        assert_eq!(fs::read_to_string(store).unwrap(), format!("of {} in {deployment}\n", row["instance"]));
    }
    rows.iter().map(|row| (row["instance"].clone(), row["vm_cid"].clone())).collect()
}

/// After a power cut nothing runs. The director leaves VMs alone until it is told what to do about them: cloud-check names them
/// all, and restarts them from what they had, or a deploy replaces them.
#[test]
fn vms_of_processes_come_back_from_their_folders_and_a_killed_recreate_is_finished() {
    for kept in of_every_version("processes") {
        let mut opened = Opened::unpack(&kept, "127.251.2");
        let disks = data(&opened);
        assert_eq!(disks.len(), 4);
        let killed = opened.query("SELECT CAST(id AS TEXT) FROM tasks WHERE state = 'processing'");
        assert_eq!((killed.len(), opened.query("SELECT name FROM locks").len()), (1, 1));
        opened.start("127.251.2.2:25777");
        assert!(opened.query("SELECT id FROM intents").is_empty(), "{}", opened.log());
        let ended = opened.query(&format!("SELECT state || ': ' || result FROM tasks WHERE id = {}", killed[0]));
        assert!(ended[0].starts_with("error: ") && ended[0].contains("Run the command again"), "{ended:?}");
        assert!(opened.rows(&["locks"]).is_empty() && opened.rows(&["leaks"]).is_empty());

        // The VM that was being made runs; nobody else does.
        let report = opened.windlass(&["-d", "steady", "cloud-check", "--report", "--json"]);
        let report = String::from_utf8(report.stdout).unwrap();
        assert_eq!(report.matches("unresponsive_agent").count(), 3, "{report}");
        let before = opened.query("SELECT cid FROM vms ORDER BY cid");
        opened.ok(&["-n", "-d", "steady", "cloud-check", "--resolution", "reboot_vm"]);
        opened.ok(&["-d", "steady", "cloud-check", "--report"]);
        assert_eq!(opened.query("SELECT cid FROM vms ORDER BY cid"), before, "they are the same VMs");
        opened.plans_nothing("steady");
        let vms = running(&opened, "steady");
        let (_, old) = vms.iter().find(|(instance, _)| instance.starts_with("old/")).unwrap();
        let settings = opened.ok(&["local", "settings", old]);
        assert!(settings.contains("127.251.2.2:25777"), "it has its settings from the registry: {settings}");

        opened.ok(&["-n", "-d", "killed", "recreate"]);
        opened.plans_nothing("killed");
        opened.ok(&["-d", "killed", "cloud-check", "--report"]);
        assert_eq!(running(&opened, "killed").len(), 1);
        opened.ok(&["-n", "-d", "steady", "recreate"]);
        assert_eq!(running(&opened, "steady").len(), 3);
        assert_eq!(data(&opened), disks);
        assert!(opened.rows(&["leaks"]).is_empty());
    }
}
