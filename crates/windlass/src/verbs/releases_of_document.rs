//! Releases that a manifest or runtime config names with a URL: the director gets them before the document.

use windlass_manifest::Document;

use crate::cli::{DirArgs, UploadReleaseArgs};
use crate::failure::Failure;
use crate::session::Session;
use crate::verbs::upload_release;

/// Uploads those that the director does not have, or all of them with `fix`.
pub(super) async fn upload(session: &mut Session<'_>, document: &Document, fix: bool) -> Result<(), Failure> {
    for release in named(document, fix) {
        upload_release::run(session, &release).await?;
    }
    Ok(())
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
    let exported = release.optional_list("exported_from").unwrap_or_default().into_iter().next();
    let stemcell = exported.or_else(|| release.optional("stemcell").ok().flatten())?;
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
}
