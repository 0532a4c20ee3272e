//! Jobs of a CPI, rendered for this machine.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::{Value, json};
use windlass_contract::Object;
use windlass_durable::file;
use windlass_planning::desired::bind_properties;
use windlass_render::{RenderedJob, Renderer};

use crate::InstallError;
use crate::error::file as failed;
use crate::plan::{CpiPlan, PlannedJob};

/// Only its owner reads a file, because any of them may hold a credential; `bin/` can be started as well.
const FILE: u32 = 0o600;
const PROGRAM: u32 = 0o700;
const MONIT: &str = "monit";

/// Renders the jobs into `folder`, which is put in place as a whole.
pub fn install(
    plan: &CpiPlan<'_>,
    deployment: &str,
    properties: &Object,
    renderer: &dyn Renderer,
    folder: &Path,
) -> Result<(), InstallError> {
    let rendered = plan.jobs.iter().map(|planned| render(planned, deployment, properties, renderer));
    let rendered = rendered.collect::<Result<Vec<_>, _>>()?;
    let building = file::beside(folder).map_err(failed(folder))?;
    file::create_private_dir(&building).map_err(failed(&building))?;
    let written = plan
        .jobs
        .iter()
        .zip(&rendered)
        .try_for_each(|(planned, files)| write(&building.join(&planned.job.spec.name), files));
    let placed = written.and_then(|()| {
        file::remove_tree(folder).map_err(failed(folder))?;
        file::rename_tree(&building, folder).map_err(failed(folder))
    });
    if placed.is_err() {
        // The first error is the one to tell; what stays is removed by the next run.
        let _ = file::remove_all(&building);
    }
    placed
}

fn render(
    planned: &PlannedJob<'_>,
    deployment: &str,
    properties: &Object,
    renderer: &dyn Renderer,
) -> Result<RenderedJob, InstallError> {
    let job = &planned.job.spec.name;
    let bound = bind_properties(&planned.job.spec, properties)
        .map_err(|problems| InstallError::Properties { job: job.clone(), problems })?;
    let spec = template_spec(planned, deployment, bound);
    renderer.render(planned.job, &spec).map_err(|error| {
        // Logs of CI systems are read by many.
        InstallError::Render { job: job.clone(), source: Box::new(error.without_values(planned.job)) }
    })
}

/// What templates see, as BOSH's command line shows it to jobs that are not on a VM.
fn template_spec(planned: &PlannedJob<'_>, deployment: &str, properties: Value) -> Value {
    let (job, release) = (&planned.job.spec.name, &planned.release.manifest);
    json!({
        "deployment": deployment, "name": job, "index": 0, "id": uuid::Uuid::new_v4(), "az": "unknown", "bootstrap": true,
        "job": {"name": job, "templates": [{"name": job}], "template": job},
        "networks": {"default": {"ip": "", "netmask": "", "gateway": ""}},
        "ip": "", "address": "", "persistent_disk": 0, "dns_domain_name": "bosh",
        "properties": properties, "links": {}, "release": {"name": release.name, "version": release.version},
    })
}

fn write(folder: &Path, job: &RenderedJob) -> Result<(), InstallError> {
    let files = job.files.iter().map(|file| (file.destination.as_str(), file.content.as_str()));
    for (destination, content) in files.chain([(MONIT, job.monit.as_str())]) {
        // Destinations stay inside: that is checked when a job is read.
        let path = folder.join(destination);
        let mode = if destination.starts_with("bin/") { PROGRAM } else { FILE };
        if let Some(parent) = path.parent() {
            file::create_private_dir(parent).map_err(failed(parent))?;
        }
        let written = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        written.and_then(|mut file| std::io::Write::write_all(&mut file, content.as_bytes())).map_err(failed(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use windlass_render::Native;

    use super::*;
    use crate::plan::JobReference;
    use crate::testing::{TestRelease, cpi_job, mode};

    fn object(value: Value) -> Object {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn rendered_jobs_are_whole_and_only_their_owner_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = folder.path().join("jobs");
        let made = TestRelease::new("clouds").job(&cpi_job("cloud_cpi", &[]));
        let releases = [made.read()];
        let plan =
            CpiPlan::new(&releases, &[JobReference { release: "clouds".into(), job: "cloud_cpi".into() }]).unwrap();
        install(&plan, "env", &object(json!({"password": "secret"})), &Native, &jobs).unwrap();
        let config = jobs.join("cloud_cpi/config/cpi.json");
        assert_eq!(fs::read_to_string(&config).unwrap(), "{\"password\": \"secret\"}\n");
        assert_eq!((mode(&config), mode(&jobs.join("cloud_cpi/bin/cpi")), mode(&jobs)), (0o600, 0o700, 0o700));
        // A second one that fails leaves the first.
        let error = install(&plan, "env", &object(json!({})), &Native, &jobs).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("cpi.json.erb") && cause.contains("password"), "{cause}");
        assert!(config.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half-written stays");
    }
}
