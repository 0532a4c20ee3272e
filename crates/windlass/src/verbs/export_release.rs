//! `windlass export-release`: a release with its packages compiled for a stemcell, as a tarball.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use windlass_director_client::ClientError;

use crate::cli::ExportReleaseArgs;
use crate::failure::Failure;
use crate::session::{Call, Session, While};
use crate::task_view;
use crate::verbs::logs;

#[derive(Debug, Deserialize)]
struct Exported {
    blobstore_id: String,
    sha1: String,
}

pub(super) async fn run(session: &mut Session<'_>, arguments: &ExportReleaseArgs) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let ExportReleaseArgs { release, stemcell, jobs, dir } = arguments;
    let doing = format!("exporting release '{release}'");
    let wanted: Vec<_> = jobs.iter().map(|job| json!({"name": job})).collect();
    let body = json!({
        "deployment_name": deployment, "release_name": release.name, "release_version": release.version,
        "stemcell_os": stemcell.name, "stemcell_version": stemcell.version, "sha2": true, "jobs": wanted,
    });
    let task = session.carry_out(Call::new(Method::POST, "/releases/export").with_json(body), &doing).await?;
    let result = task_view::result(session, task, &doing).await?;
    let exported: Exported = serde_json::from_str(&result).map_err(ClientError::from_json).while_(&doing)?;
    logs::download(session, (&exported.blobstore_id, Some(&exported.sha1)), dir, &file_name(arguments)).await
}

/// As BOSH's client calls it.
fn file_name(arguments: &ExportReleaseArgs) -> String {
    let ExportReleaseArgs { release, stemcell, jobs, .. } = arguments;
    let mut parts = jobs.clone();
    parts.sort();
    parts.extend([&release.name, &release.version, &stemcell.name, &stemcell.version].map(Clone::clone));
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_names_of_the_jobs_in_front() {
        let mut arguments = ExportReleaseArgs {
            release: "shop/1".parse().unwrap(),
            stemcell: "ubuntu-jammy/1.2".parse().unwrap(),
            jobs: Vec::new(),
            dir: ".".into(),
        };
        assert_eq!(file_name(&arguments), "shop-1-ubuntu-jammy-1.2");
        arguments.jobs = vec!["web".into(), "db".into()];
        assert_eq!(file_name(&arguments), "db-web-shop-1-ubuntu-jammy-1.2");
    }
}
