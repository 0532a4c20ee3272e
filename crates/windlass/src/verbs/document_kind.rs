//! What a YAML file is, for users who name one where a stemcell or a release is expected.

use std::path::Path;

use windlass_manifest::Document;

use crate::failure::Failure;

/// A file of this size is no document that somebody wrote.
const LARGEST: u64 = 4 * 1024 * 1024;

pub(super) const STEMCELL: &str = "a stemcell is a tarball, and 'windlass stemcell build' makes one";
pub(super) const RELEASE: &str = "a release is a tarball, a release directory, or a manifest in its 'releases' or \
    'dev_releases', and 'windlass create-release' makes one";

const RELEASE_MANIFEST: &str = "the manifest of a release, which 'windlass upload-release' takes";

/// A document that has one of the keys is of the kind. The first that fits counts.
const KINDS: [(&[&str], &str); 6] = [
    (&["cloud_provider"], "a manifest for 'windlass create-env'"),
    (&["instance_groups"], "a deployment manifest, which 'windlass deploy' takes"),
    (&["vm_types", "disk_types", "azs"], "a cloud config, which 'windlass update-cloud-config' takes"),
    (&["addons"], "a runtime config, which 'windlass update-runtime-config' takes"),
    (&["cpis"], "a CPI config, which 'windlass update-cpi-config' takes"),
    (&["blobstore", "final_name"], "the configuration of a release directory"),
];

/// The failure that says what the file is, if it is YAML and not what is `expected`.
pub(super) fn mistaken(path: &Path, expected: &'static str) -> Option<Failure> {
    std::fs::metadata(path).ok().filter(|found| found.is_file() && found.len() <= LARGEST)?;
    let is = kind(&std::fs::read_to_string(path).ok()?)?;
    let is_meant = expected == RELEASE && is == RELEASE_MANIFEST;
    (!is_meant).then(|| Failure::OtherDocument { path: path.to_owned(), is, expected })
}

fn kind(text: &str) -> Option<&'static str> {
    let document = Document::parse(text).ok()?;
    let keys: Vec<&str> = document.root().entries().ok()?.into_iter().map(|(key, _)| key).collect();
    let found = KINDS.iter().find(|(marks, _)| marks.iter().any(|mark| keys.contains(mark)));
    let is_release = || keys.contains(&"name") && keys.contains(&"version");
    Some(found.map_or_else(|| if is_release() { RELEASE_MANIFEST } else { "a YAML file" }, |(_, kind)| kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::chain;

    #[test]
    fn a_file_in_the_place_of_another_is_told_by_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.yml");
        let told = |text: &str, expected| {
            std::fs::write(&path, text).unwrap();
            mistaken(&path, expected).map(|failure| chain(&failure).replace(path.to_str().unwrap(), "x.yml"))
        };
        let said = told("name: shop\ninstance_groups: []\n", STEMCELL).unwrap();
        let expected = "'x.yml' is a deployment manifest, which 'windlass deploy' takes; a stemcell is a tarball, and \
            'windlass stemcell build' makes one";
        assert_eq!(said, expected);
        assert!(told("azs: []\n", RELEASE).unwrap().starts_with("'x.yml' is a cloud config, which"));
        assert!(told("a: b\n", RELEASE).unwrap().starts_with("'x.yml' is a YAML file; a release is"));
        assert!(told("name: r\nversion: 1\n", STEMCELL).unwrap().contains("the manifest of a release"));
        assert_eq!(told("name: r\nversion: 1\njobs: []\n", RELEASE), None);
        assert_eq!(told("just words\n", STEMCELL), None);
        assert!(mistaken(folder.path(), STEMCELL).is_none(), "a folder");
    }
}
