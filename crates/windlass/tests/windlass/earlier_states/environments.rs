//! What `create-env` left: an environment that was finished, and one that was killed while its disk grew.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use windlass_rigs::earlier_states::of_every_version;

use super::kept::{WINDLASS, claim_network, load};
use super::opened::end_vms;

struct Environments {
    folder: tempfile::TempDir,
    cloud: Option<Child>,
}

impl Environments {
    fn document(&self, name: &str) -> PathBuf {
        self.folder.path().join("documents").join(name)
    }

    fn run(&self, verb: &str, name: &str, size: &str) -> String {
        let output = Command::new(WINDLASS)
            .current_dir(self.folder.path())
            .arg(verb)
            .arg(self.document(&format!("{name}.yml")))
            .args(["-v", &format!("size={size}"), "--vars-store"])
            .arg(self.document(&format!("{name}-variables.yml")))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{said}");
        said
    }

    /// Where software on the VM finds its data.
    fn store(&self, name: &str, cloud: &str) -> PathBuf {
        let state = read(&self.document(&format!("{name}-state.json")));
        self.document(cloud).join("vms").join(state["current_vm_cid"].as_str().unwrap()).join("base/store/precious")
    }
}

impl Drop for Environments {
    fn drop(&mut self) {
        if let Some(cloud) = &mut self.cloud {
            let _ = cloud.kill();
            let _ = cloud.wait();
        }
        end_vms(self.folder.path());
    }
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn an_environment_is_found_as_it_was_left_and_one_that_was_killed_is_finished() {
    let _network = claim_network("127.251.3");
    for kept in of_every_version("environments") {
        let mut environments = Environments { folder: tempfile::tempdir().unwrap(), cloud: None };
        kept.unpack(environments.folder.path(), WINDLASS);
        let registry = environments.document("killed-state.windlass.registry/registry.db");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(load(&kept, "registry", environments.folder.path(), &registry));

        // The VM of this one runs on, as on any cloud.
        let mut host = Command::new(WINDLASS);
        host.args(["--state-dir"]).arg(environments.document("sim")).arg("sim");
        environments.cloud = Some(host.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect("127.251.3.9:6868").is_err() {
            assert!(Instant::now() < deadline, "the agent does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        let before = fs::read(environments.document("finished-state.json")).unwrap();
        let said = environments.run("create-env", "finished", "64");
        assert!(said.contains("No deployment, stemcell or release changes. Skipping deploy."), "{said}");
        assert_eq!(fs::read(environments.document("finished-state.json")).unwrap(), before);
        assert_eq!(fs::read_to_string(environments.store("finished", "sim")).unwrap(), "of finished\n");
        let said = environments.run("create-env", "finished", "128");
        assert!(said.contains("to 128 MiB: its size changed from 64 MiB"), "{said}");
        assert_eq!(fs::read_to_string(environments.store("finished", "sim")).unwrap(), "of finished\n");

        // The other one has a registry for the time of each run, with what the VM's settings are in.
        let beside = environments.document("killed-state.windlass.json");
        assert!(!read(&beside)["intents"].as_array().unwrap().is_empty());
        let size = fs::read_to_string(environments.document("killed-size")).unwrap();
        let said = environments.run("create-env", "killed", size.trim());
        assert!(said.contains("an earlier run did not finish") && said.contains("A registry runs"), "{said}");
        assert_eq!(read(&beside)["intents"], serde_json::json!([]));
        let cloud = "killed-state.windlass.cloud";
        assert_eq!(fs::read_to_string(environments.store("killed", cloud)).unwrap(), "of killed\n");
        let state = read(&environments.document("killed-state.json"));
        assert_eq!(state["disks"][0]["size"].to_string(), size.trim());
        assert_eq!(state["disks"].as_array().unwrap().len(), 1);
        let said = environments.run("create-env", "killed", size.trim());
        assert!(said.contains("No deployment, stemcell or release changes. Skipping deploy."), "{said}");
        for name in ["finished", "killed"] {
            environments.run("delete-env", name, size.trim());
            assert!(!environments.document(&format!("{name}-state.json")).exists());
        }
    }
}
