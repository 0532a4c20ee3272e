//! The CPI that can be broken, with a folder of its own, and everything that certification needs to look into it.

use std::sync::atomic::AtomicBool;

use windlass_certify::{Observers, Plan, Profile, Report, certify};

pub(crate) struct Toy {
    folder: tempfile::TempDir,
}

impl Toy {
    pub(crate) fn new() -> Self {
        let toy = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(toy.state()).unwrap();
        std::fs::write(toy.folder.path().join("agent"), "#!/bin/sh\n").unwrap();
        toy
    }

    pub(crate) fn state(&self) -> std::path::PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn plan(&self, defect: &str, only: &[&str]) -> Plan {
        let state = self.state().display().to_string();
        let command = |text: String| Some(text.parse().unwrap());
        // Short only where a call must run into its deadline: a loaded machine is slow.
        let hangs = ["waits-for-a-line", "talks-before-it-reads"].contains(&defect);
        let deadline = if hangs { 2 } else { 60 };
        let profile = format!("{{deadline: {deadline}, parallel: 4, wrong_credentials: {{password: wrong}}}}");
        Plan {
            cpi: format!("{} {state} {defect}", env!("CARGO_BIN_EXE_toy-cpi")).parse().unwrap(),
            profile: Profile::from_yaml(&profile).unwrap(),
            stemcell: None,
            agent: self.folder.path().join("agent"),
            observers: Observers {
                show_settings: command(format!(
                    "sed -E 's/^.*\"settings\":(.*),\"disks\":\\[[^]]*\\]}}$/\\1/' {state}/vms/{{vm_cid}}"
                )),
                list: command(format!(
                    "sh -c 'cd {state} && ls stemcells vms disks snapshots networks | grep - || true'"
                )),
                disk_size: command(format!("sed -E 's/[^0-9]//g' {state}/disks/{{disk_cid}}")),
            },
            only: only.iter().map(|id| (*id).to_owned()).collect(),
            registry: None,
            until: None,
        }
    }

    pub(crate) fn certify(&self, defect: &str, only: &[&str]) -> Report {
        certify(&self.plan(defect, only), &AtomicBool::new(false), |_| {}).unwrap()
    }

    /// The files of everything that is there.
    pub(crate) fn left(&self) -> Vec<String> {
        let shelves = ["stemcells", "vms", "disks", "snapshots", "networks"].map(|shelf| self.state().join(shelf));
        let entries = shelves.iter().flat_map(|shelf| std::fs::read_dir(shelf).unwrap().flatten());
        entries.map(|entry| entry.path().display().to_string()).collect()
    }
}
