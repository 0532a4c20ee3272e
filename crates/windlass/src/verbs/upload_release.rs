//! `windlass upload-release`: hands a release to the director, without the packages that it has.

use std::path::Path;
use std::process::Stdio;

use reqwest::Method;
use serde_json::{Value, json};
use windlass_director_client::answers::Release;
use windlass_director_client::escape;
use windlass_release::ReleaseError;
use windlass_release::tarball::read_manifest;
use windlass_release_author::{BuiltRelease, ReleaseDirectory};

use super::author::{self, teller};
use super::document_kind::{RELEASE, mistaken};
use super::upload_stemcell::progress_bar;
use crate::cli::UploadReleaseArgs;
use crate::failure::Failure;
use crate::session::{Call, Session, While};
use crate::task_view;

pub(crate) async fn run(session: &mut Session<'_>, arguments: &UploadReleaseArgs) -> Result<(), Failure> {
    if !arguments.fix && is_known(session, arguments).await? {
        return Ok(());
    }
    let Some(source) = &arguments.source else {
        let release = find(session, arguments, &arguments.dir.dir)?;
        return upload_built(session, arguments, &release).await;
    };
    if source.starts_with("http://") || source.starts_with("https://") {
        return fetch(session, arguments, source).await;
    }
    if let Some(repository) = git_repository(source) {
        let folder = tempfile::tempdir().map_err(|error| Failure::Process("cannot make a temporary folder", error))?;
        clone(repository, folder.path()).await?;
        let release = find(session, arguments, folder.path())?;
        return upload_built(session, arguments, &release).await;
    }
    let path = Path::new(source.strip_prefix("file://").unwrap_or(source));
    if path.is_dir() || path.extension().is_some_and(|extension| extension == "yml") {
        if let Some(failure) = mistaken(path, RELEASE) {
            return Err(failure);
        }
        let directory = ReleaseDirectory::at(&arguments.dir.dir)?;
        let release = author::open(&directory, path, session.screen)?;
        return upload_built(session, arguments, &release).await;
    }
    upload_tarball(session, arguments, path).await
}

/// The version of a directory that is asked for, or the latest.
fn find(session: &mut Session<'_>, arguments: &UploadReleaseArgs, folder: &Path) -> Result<BuiltRelease, Failure> {
    let directory = ReleaseDirectory::at(folder)?;
    let (name, version) = (arguments.name.as_deref(), arguments.release_version.as_deref());
    Ok(directory.find(name, version, &mut teller(session.screen))?)
}

/// What a release is cloned from.
fn git_repository(source: &str) -> Option<&str> {
    let is_git = ["git://", "git+", "git@"].iter().any(|start| source.starts_with(start));
    is_git.then(|| source.strip_prefix("git+").unwrap_or(source))
}

async fn clone(url: &str, into: &Path) -> Result<(), Failure> {
    let mut git = tokio::process::Command::new("git");
    let ran = git.args(["clone", "--quiet", "--depth", "1", "--", url]).arg(into).stdin(Stdio::null()).output().await;
    let failed = |source| Failure::Clone { url: url.to_owned(), source };
    let output = ran.map_err(failed)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(std::io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))),
    }
}

/// A tarball goes as it is, unless the director has packages of it.
async fn upload_tarball(session: &mut Session<'_>, arguments: &UploadReleaseArgs, path: &Path) -> Result<(), Failure> {
    // What else is wrong with it is the director's to tell.
    let (text, manifest) = read_manifest(path).map_err(|error| match &error {
        ReleaseError::Archive(..) => mistaken(path, RELEASE).unwrap_or(Failure::Release(Box::new(error))),
        _ => Failure::Release(Box::new(error)),
    })?;
    let known = match !arguments.fix && manifest.all_packages().next().is_some() {
        true => known_packages(session, &text, !manifest.compiled_packages.is_empty()).await?,
        false => Vec::new(),
    };
    if known.is_empty() {
        return send(session, arguments, path).await;
    }
    upload_without(session, arguments, &BuiltRelease::of_tarball(path)?, &known).await
}

pub(super) async fn upload_built(
    session: &mut Session<'_>,
    arguments: &UploadReleaseArgs,
    release: &BuiltRelease,
) -> Result<(), Failure> {
    let known = match arguments.fix || release.packages.is_empty() {
        true => Vec::new(),
        false => known_packages(session, &release.manifest(), release.is_compiled()).await?,
    };
    upload_without(session, arguments, release, &known).await
}

async fn upload_without(
    session: &mut Session<'_>,
    arguments: &UploadReleaseArgs,
    release: &BuiltRelease,
    known: &[String],
) -> Result<(), Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::Process("cannot make a temporary folder", error))?;
    let path = folder.path().join("release.tgz");
    release.write_tarball(&path, known)?;
    send(session, arguments, &path).await
}

/// The fingerprints of packages that need not be sent.
async fn known_packages(session: &mut Session<'_>, manifest: &str, compiled: bool) -> Result<Vec<String>, Failure> {
    let path = if compiled { "/packages/matches_compiled" } else { "/packages/matches" };
    session.director.post_yaml(path, manifest).await.while_("asking which packages the director has")
}

async fn send(session: &mut Session<'_>, arguments: &UploadReleaseArgs, file: &Path) -> Result<(), Failure> {
    let doing = format!("uploading release '{}'", arguments.source.as_deref().unwrap_or("of this directory"));
    let size = std::fs::metadata(file).map(|metadata| metadata.len()).ok();
    let bar = progress_bar(session.screen.is_live());
    let mut report = bar.reporter();
    let task = session.director.upload(&path(arguments), file, move |sent| report(sent, size)).await;
    bar.clear();
    task_view::follow(session, task.while_(&doing)?, &doing).await
}

fn path(arguments: &UploadReleaseArgs) -> String {
    let flags = [("fix", arguments.fix), ("rebase", arguments.rebase)];
    let set: Vec<String> = flags.iter().filter(|(_, set)| *set).map(|(flag, _)| format!("{flag}=true")).collect();
    if set.is_empty() { "/releases".to_owned() } else { format!("/releases?{}", set.join("&")) }
}

/// The director fetches it.
async fn fetch(session: &mut Session<'_>, arguments: &UploadReleaseArgs, source: &str) -> Result<(), Failure> {
    let mut body = json!({"location": source});
    if let (Some(sha1), Some(body)) = (&arguments.sha1, body.as_object_mut()) {
        body.insert("sha1".to_owned(), json!(sha1));
    }
    let doing = format!("uploading release '{source}'");
    session.carry_out(Call::new(Method::POST, path(arguments)).with_json(body), &doing).await.map(|_| ())
}

/// Whether the director has what is named; says so.
async fn is_known(session: &mut Session<'_>, arguments: &UploadReleaseArgs) -> Result<bool, Failure> {
    let named = arguments.name.as_deref().zip(arguments.release_version.as_deref());
    let Some((name, version)) = named else { return Ok(false) };
    let releases: Vec<Release> = session.director.get("/releases").await.while_("listing releases")?;
    let mut versions = releases.iter().filter(|release| release.name == name).flat_map(|it| &it.release_versions);
    if !versions.any(|found| found.version == version) {
        return Ok(false);
    }
    let path = format!("/releases/{}?version={}", escape(name), escape(version));
    let release: Value = session.director.get(&path).await.while_("looking for packages")?;
    let (is_whole, compiled_for) = match &arguments.stemcell {
        None => (has_sources(&release), String::new()),
        Some(stemcell) => (is_compiled(&release, stemcell), format!(" for stemcell '{stemcell}'")),
    };
    if !is_whole {
        return Ok(false);
    }
    session.screen.line(&format!("Release '{name}/{version}'{compiled_for} already exists."));
    Ok(true)
}

fn list(value: &Value, key: &str) -> Vec<Value> {
    value[key].as_array().cloned().unwrap_or_default()
}

/// Whether the director can compile all packages of a release.
fn has_sources(release: &Value) -> bool {
    list(release, "packages")
        .iter()
        .all(|package| package["blobstore_id"].as_str().is_some_and(|blob| !blob.is_empty()))
}

/// Whether all packages of a release are there for a stemcell.
fn is_compiled(release: &Value, stemcell: &str) -> bool {
    let is_there = |package: &Value| list(package, "compiled_packages").iter().any(|it| it["stemcell"] == stemcell);
    list(release, "packages").iter().all(is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_told_from_files() {
        assert_eq!(git_repository("git+https://x/y.git"), Some("https://x/y.git"));
        assert_eq!(git_repository("git@x:y"), Some("git@x:y"));
        assert_eq!(git_repository("git.tgz"), None);
    }

    #[test]
    fn a_release_is_there_for_a_stemcell_if_all_packages_are() {
        let release = json!({"packages": [{"compiled_packages": [{"stemcell": "os/1"}]}, {"compiled_packages": []}]});
        assert!(!is_compiled(&release, "os/1"));
        assert!(is_compiled(&json!({"packages": [release["packages"][0]]}), "os/1"));
        let sources = |blob: Value| has_sources(&json!({"packages": [{"blobstore_id": "a"}, {"blobstore_id": blob}]}));
        assert!(sources(json!("b")) && !sources(Value::Null) && !sources(json!("")) && has_sources(&json!({})));
    }
}
