//! `windlass upload-release`: hands a release to the director.

use std::path::Path;

use reqwest::Method;
use serde_json::json;

use super::upload_stemcell::progress_bar;
use crate::cli::UploadReleaseArgs;
use crate::director_answers::Release;
use crate::failure::Failure;
use crate::session::{Call, Session, While};
use crate::task_view;

pub(crate) async fn run(session: &mut Session<'_>, arguments: &UploadReleaseArgs) -> Result<(), Failure> {
    let source = &arguments.source;
    let doing = format!("uploading release '{source}'");
    let path = if arguments.fix { "/releases?fix=true" } else { "/releases" };
    if source.starts_with("http://") || source.starts_with("https://") {
        return fetch(session, arguments, path, &doing).await;
    }
    let file = Path::new(source.strip_prefix("file://").unwrap_or(source));
    let size = std::fs::metadata(file).map(|metadata| metadata.len()).ok();
    let bar = progress_bar(session.screen.is_live());
    let mut report = bar.reporter();
    let task = session.director.upload(path, file, move |sent| report(sent, size)).await;
    bar.clear();
    task_view::follow(session, task.while_(&doing)?, &doing).await
}

/// The director fetches it.
async fn fetch(
    session: &mut Session<'_>,
    arguments: &UploadReleaseArgs,
    path: &str,
    doing: &str,
) -> Result<(), Failure> {
    let named = arguments.name.as_deref().zip(arguments.release_version.as_deref());
    if let Some((name, version)) = named.filter(|_| !arguments.fix)
        && is_there(session, name, version).await?
    {
        session.screen.line(&format!("Release '{name}/{version}' already exists."));
        return Ok(());
    }
    let mut body = json!({"location": arguments.source});
    if let (Some(sha1), Some(body)) = (&arguments.sha1, body.as_object_mut()) {
        body.insert("sha1".to_owned(), json!(sha1));
    }
    session.carry_out(Call::new(Method::POST, path).with_json(body), doing).await.map(|_| ())
}

async fn is_there(session: &mut Session<'_>, name: &str, version: &str) -> Result<bool, Failure> {
    let releases: Vec<Release> = session.director.get("/releases").await.while_("listing releases")?;
    let mut versions = releases.iter().filter(|release| release.name == name).flat_map(|it| &it.release_versions);
    Ok(versions.any(|found| found.version == version))
}
