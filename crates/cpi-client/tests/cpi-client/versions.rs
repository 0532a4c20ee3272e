//! What a call looks like in each of the eight combinations of director, CPI and stemcell, as far as the caller decides it.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_contract::cpi::methods::{AttachDisk, CreateVm};
use windlass_contract::{AgentId, ApiVersion, DiskCid, DiskHint, Networks, Object, StemcellCid, VmCid};
use windlass_cpi_client::{Cpi, CpiCommand, CpiOptions, Environment};

/// A CPI that answers in the shapes of the request's version and keeps the last request.
struct VersionedCpi {
    folder: TempDir,
    cpi: Cpi,
}

impl VersionedCpi {
    /// One that reports `reported` in `info`, asked by a caller that prefers `preferred`.
    fn new(reported: Option<u32>, preferred: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let info =
            reported.map_or(json!({"stemcell_formats": []}), |it| json!({"stemcell_formats": [], "api_version": it}));
        let script = format!(
            r#"cat > '{request}'
            answer() {{ echo "{{\"result\":$1,\"error\":null,\"log\":\"\"}}"; }}
            asked() {{ grep -q "$1" '{request}'; }}
            if asked '"method":"info"'; then answer '{info}'
            elif asked '"api_version":1}}$' && asked create_vm; then answer '"vm-1"'
            elif asked '"api_version":1}}$'; then answer '"nobody reads this"'
            elif asked create_vm; then answer '["vm-1",{{}}]'
            else answer '{{"path":"/dev/sdc"}}'; fi"#,
            request = folder.path().join("request").display(),
        );
        let path = folder.path().join("cpi.sh");
        std::fs::write(&path, script).unwrap();
        let command = CpiCommand {
            executable: PathBuf::from("/bin/sh"),
            arguments: vec![path.into()],
            environment: Environment::Director,
        };
        let options = CpiOptions {
            director_uuid: "d-1".into(),
            properties: Object::new(),
            preferred_version: ApiVersion(preferred),
            deadline: Duration::from_secs(30),
        };
        Self { folder, cpi: Cpi::new(command, options) }
    }

    fn request(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.folder.path().join("request")).unwrap()).unwrap()
    }

    /// The hint, after a VM was made from a stemcell of that version and a disk was attached to it.
    async fn make_and_attach(&self, stemcell: Option<ApiVersion>) -> Option<DiskHint> {
        let vm = CreateVm {
            agent_id: AgentId::new("agent-1").unwrap(),
            stemcell_cid: StemcellCid::new("stemcell-1").unwrap(),
            cloud_properties: Object::new(),
            networks: Networks::new(),
            disk_cids: None,
            env: None,
            bootstrap_settings: None,
        };
        assert_eq!(self.cpi.call(&vm, stemcell).await.unwrap().cid, VmCid::new("vm-1").unwrap());
        let disk = AttachDisk { vm_cid: VmCid::new("vm-1").unwrap(), disk_cid: DiskCid::new("disk-1").unwrap() };
        self.cpi.call(&disk, stemcell).await.unwrap().hint
    }
}

#[tokio::test]
async fn shapes_follow_the_negotiated_version_and_the_stemcells_version_is_told_as_it_is() {
    for preferred in [1, 2] {
        for reported in [None, Some(1), Some(2), Some(3)] {
            for stemcell in [None, Some(1), Some(2), Some(3)] {
                let row = format!("director {preferred}, CPI {reported:?}, stemcell {stemcell:?}");
                let cpi = VersionedCpi::new(reported, preferred);
                let hint = cpi.make_and_attach(stemcell.map(ApiVersion)).await;
                let spoken = reported.unwrap_or(1).min(preferred);
                let expected = (spoken >= 2).then(|| DiskHint::path("/dev/sdc"));
                assert_eq!(hint, expected, "{row}");
                let request = cpi.request();
                assert_eq!(request["api_version"], spoken, "{row}");
                let told = stemcell.map(|version| json!({"stemcell": {"api_version": version}}));
                assert_eq!(request["context"].get("vm"), told.as_ref(), "{row}");
            }
        }
    }
}
