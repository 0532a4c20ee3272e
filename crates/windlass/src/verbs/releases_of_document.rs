//! Releases that a manifest or runtime config names with a URL: the director gets them before the document. One whose version is
//! `create` is made of its directory, and the document names the version that it got.

use std::path::Path;

use serde_json::Value;
use windlass_manifest::{Document, to_yaml};
use windlass_release_author::{Create, ReleaseDirectory};

use crate::cli::{DirArgs, UploadReleaseArgs};
use crate::failure::Failure;
use crate::session::Session;
use crate::verbs::author::teller;
use crate::verbs::upload_release;

/// What a manifest says where a version should be made.
const TO_BE_MADE: &str = "create";

/// Uploads those that the director does not have, or all of them with `fix`. Gives the document's text if that changed.
pub(super) async fn upload(
    session: &mut Session<'_>,
    document: &Document,
    fix: bool,
) -> Result<Option<String>, Failure> {
    let mut made = Vec::new();
    for release in named(document, fix) {
        match release.release_version.as_deref() {
            Some(TO_BE_MADE) => made.push(make(session, release).await?),
            _ => upload_release::run(session, &release).await?,
        }
    }
    Ok((!made.is_empty()).then(|| to_yaml(&with_versions(document.node().to_json(), &made))))
}

/// Makes a dev version of a directory, and gives the release's name and the version to the director.
async fn make(session: &mut Session<'_>, release: UploadReleaseArgs) -> Result<(String, String), Failure> {
    let source = release.source.as_deref().unwrap_or_default();
    let directory = ReleaseDirectory::at(Path::new(source.strip_prefix("file://").unwrap_or(source)))?;
    let options = Create { name: release.name.clone(), version: None, timestamp: true, is_final: false, force: true };
    let built = directory.create(&options, &mut teller(session.screen))?;
    let made = (release.name.clone().unwrap_or_else(|| built.name.clone()), built.version.clone());
    upload_release::upload_built(session, &UploadReleaseArgs { fix: false, ..release }, &built).await?;
    Ok(made)
}

/// The document with these versions, and without the places that they were made from.
fn with_versions(mut document: Value, made: &[(String, String)]) -> Value {
    let releases = document.get_mut("releases").and_then(Value::as_array_mut).into_iter().flatten();
    for release in releases.filter_map(Value::as_object_mut) {
        let is_it = |(name, _): &&(String, String)| release.get("name").and_then(Value::as_str) == Some(name);
        if let Some((_, version)) = made.iter().find(is_it) {
            release.insert("version".to_owned(), version.as_str().into());
            release.shift_remove("url");
        }
    }
    document
}

/// What is no release is the director's to complain about.
fn named(document: &Document, fix: bool) -> Vec<UploadReleaseArgs> {
    let releases = document.root().optional_list("releases").unwrap_or_default();
    let text = |release: &windlass_manifest::At<'_>, key: &str| {
        let found = release.optional(key).ok().flatten()?;
        found.string().map(str::to_owned).ok().filter(|text| !text.is_empty())
    };
    let one = |release: &windlass_manifest::At<'_>| {
        Some(UploadReleaseArgs {
            source: Some(text(release, "url")?),
            dir: DirArgs { dir: ".".into() },
            fix,
            rebase: false,
            name: text(release, "name"),
            release_version: text(release, "version"),
            sha1: text(release, "sha1"),
            stemcell: stemcell(release),
        })
    };
    releases.iter().filter_map(one).collect()
}

/// For which stemcell it is compiled, if it says so.
fn stemcell(release: &windlass_manifest::At<'_>) -> Option<String> {
    let exported = || release.optional_list("exported_from").unwrap_or_default().into_iter().next();
    let stemcell = release.optional("stemcell").ok().flatten().or_else(exported)?;
    let text = |key: &str| Some(stemcell.field(key).ok()?.string().ok()?.to_owned());
    Some(format!("{}/{}", text("os")?, text("version")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_with_a_url_are_uploaded() {
        let text =
            "releases:\n- {name: a, version: '1', url: 'https://x/a.tgz', sha1: s}\n- {name: b, version: latest}\n";
        let found = named(&Document::parse(text).unwrap(), true);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.source.as_deref(), one.fix), (Some("https://x/a.tgz"), true));
        assert_eq!(
            (one.name.as_deref(), one.release_version.as_deref(), one.sha1.as_deref()),
            (Some("a"), Some("1"), Some("s"))
        );
        assert!(named(&Document::parse("releases: 7").unwrap(), false).is_empty());
    }

    #[test]
    fn a_document_names_the_version_that_was_made_of_a_directory() {
        let text =
            "name: d\nreleases:\n- {name: a, version: create, url: 'file://src'}\n- {name: b, version: '1', url: x}\n";
        let document = Document::parse(text).unwrap();
        let made = [("a".to_owned(), "1+dev.17".to_owned())];
        let changed = with_versions(document.node().to_json(), &made);
        let expected = serde_json::json!({"name": "d", "releases": [
            {"name": "a", "version": "1+dev.17"}, {"name": "b", "version": "1", "url": "x"}]});
        assert_eq!(changed, expected);
    }
}
