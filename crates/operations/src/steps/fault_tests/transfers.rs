//! What is sent to an agent, and that nothing is sent that it has.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::json;
use windlass_planning::plan::{ActionKind, InstanceSpec};
use windlass_planning::records::VmRecord;
use windlass_planning::software::SoftwareOfInstance;

use super::world::{Habits, Resizing};
use super::{Run, Scene};
use crate::software::{Delivery, JobsFile, PackageFile, PackageOnDisk, SoftwareError, SoftwareSource};

/// A job with one package; each rendering has a name of its own, and the files change with `files`.
#[derive(Debug)]
struct OneJob {
    package: PathBuf,
    renderings: AtomicUsize,
    files: AtomicUsize,
}

#[async_trait]
impl SoftwareSource for OneJob {
    async fn for_vm(&self, _: &InstanceSpec, _: &VmRecord) -> Result<Delivery, SoftwareError> {
        let blob = format!("jobs-{}", self.renderings.fetch_add(1, Ordering::Relaxed));
        let files = format!("files-{}", self.files.load(Ordering::Relaxed));
        let spec = json!({
            "job": {"name": "db"},
            "packages": {"ruby": {"name": "ruby", "version": "1.1", "sha1": "p", "blobstore_id": "package"}},
            "rendered_templates_archive": {"blobstore_id": blob, "sha1": files},
        });
        let package =
            PackageFile { name: "ruby".into(), version: "1.1".into(), digest: "p".into(), blob: "package".into() };
        let spec = spec.as_object().unwrap().clone().into_iter().collect();
        Ok(Delivery { spec, packages: vec![package], jobs: JobsFile::new(blob, b"files").unwrap() })
    }

    async fn open(&self, _: &PackageFile) -> Result<PackageOnDisk, SoftwareError> {
        Ok(Box::new(self.package.clone()))
    }
}

#[tokio::test]
async fn what_an_agent_prepared_is_not_sent_again_when_it_is_put_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("package");
    std::fs::write(&package, "compiled").unwrap();
    for (files_change, is_made_again, expected) in [
        (false, false, &["package", "jobs-0"][..]),
        (true, false, &["package", "jobs-0", "jobs-1"]),
        // Some clouds do that to attach or detach a disk.
        (false, true, &["package", "jobs-0", "package", "jobs-2"]),
    ] {
        let scene = Scene::with_vm().running().wants_jobs(true);
        let run = Run::new(&scene, Habits { replays: true, restarts_vms: false, resizing: Resizing::Grows });
        let source = OneJob { package: package.clone(), renderings: AtomicUsize::new(0), files: AtomicUsize::new(0) };
        let source = Arc::new(source);
        let mut work = run.work();
        work.context.software = Some(source.clone());
        let software = SoftwareOfInstance { digest: "d".into(), configuration_hash: "c".into() };
        work.spec.as_mut().unwrap().software = Some(software);
        work.act(&ActionKind::Prepare).await.unwrap();
        source.files.store(usize::from(files_change), Ordering::Relaxed);
        work.act(&ActionKind::Stop { drain: true }).await.unwrap();
        if is_made_again {
            run.way.world().vms.values_mut().for_each(|vm| vm.blobs.clear());
        }
        work.act(&ActionKind::Start).await.unwrap();
        let sent: Vec<String> = run.way.world().vms.values().flat_map(|vm| vm.sent.clone()).collect();
        assert_eq!(sent, expected, "files change: {files_change}, the VM is made again: {is_made_again}");
    }
}
