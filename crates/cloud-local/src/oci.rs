//! Root file systems from an OCI image layout: a folder with an index, manifests and layers, as `skopeo` and others write it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use windlass_archive::Budget;

use crate::unpack::{UnpackError, unpack_layer};

/// The annotation that names an image of a layout.
const NAME: &str = "org.opencontainers.image.ref.name";

/// A manifest is small; a larger one is something else.
const LONGEST_DOCUMENT: u64 = 4 << 20;

/// why a layout could not be unpacked
#[derive(Debug, thiserror::Error)]
pub(crate) enum OciError {
    /// a file of the layout cannot be read
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// a document that is not understood
    #[error("{} is not what an OCI layout has there", path.display())]
    Document {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("the OCI layout {} has {}; name one of its images behind the path, as in oci:PATH:NAME", path.display(), has)]
    NoImage { path: PathBuf, has: String },
    /// a digest of a kind that we do not know
    #[error("the digest '{0}' is not a sha256")]
    Digest(String),
    /// what is stored is not what was stored
    #[error("{} is damaged: its digest is not its name", path.display())]
    Damaged { path: PathBuf },
    /// a layer that we cannot unpack
    #[error("a layer is of type '{0}', and only tar and gzipped tar are understood; convert the image")]
    LayerType(String),
    /// a layer could not be unpacked
    #[error(transparent)]
    Unpack(#[from] UnpackError),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct Manifest {
    layers: Vec<Descriptor>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

/// An image in a layout.
#[derive(Debug)]
pub(crate) struct OciImage {
    layout: PathBuf,
    layers: Vec<Descriptor>,
}

/// Whether `folder` is an OCI layout.
pub(crate) fn is_layout(folder: &Path) -> bool {
    folder.join("oci-layout").is_file() && folder.join("index.json").is_file()
}

impl OciImage {
    /// The image called `name`, or the only one.
    pub(crate) fn open(layout: &Path, name: Option<&str>) -> Result<Self, OciError> {
        let index: Index = document(&layout.join("index.json"), None)?;
        let mut descriptor = choose(layout, index.manifests, name)?;
        // An index of an index is one image for several machines.
        for _ in 0..4 {
            if !descriptor.media_type.contains("index") && !descriptor.media_type.contains("manifest.list") {
                break;
            }
            let index: Index = document(&blob(layout, &descriptor)?, Some(&descriptor))?;
            descriptor = choose(layout, index.manifests, None)?;
        }
        let manifest: Manifest = document(&blob(layout, &descriptor)?, Some(&descriptor))?;
        Ok(Self { layout: layout.to_owned(), layers: manifest.layers })
    }

    /// The size of all layers as they are stored.
    pub(crate) fn size(&self) -> u64 {
        self.layers.iter().map(|layer| layer.size).sum()
    }

    /// Unpacks all layers, one over the other, into `root`, which must be empty.
    pub(crate) fn unpack(&self, root: &Path, budget: &Budget) -> Result<(), OciError> {
        for layer in &self.layers {
            if !layer.media_type.is_empty() && !layer.media_type.ends_with("tar") && !layer.media_type.ends_with("gzip")
            {
                return Err(OciError::LayerType(layer.media_type.clone()));
            }
            let path = blob(&self.layout, layer)?;
            // Before a byte of it is used.
            check(&path, layer)?;
            unpack_layer(&path, root, budget)?;
        }
        Ok(())
    }
}

fn choose(layout: &Path, manifests: Vec<Descriptor>, name: Option<&str>) -> Result<Descriptor, OciError> {
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let fits = |descriptor: &Descriptor| match &descriptor.platform {
        Some(platform) => platform.os == "linux" && platform.architecture == architecture,
        None => true,
    };
    let named =
        |descriptor: &Descriptor| name.is_none_or(|name| descriptor.annotations.get(NAME).is_some_and(|it| it == name));
    let names: Vec<String> =
        manifests.iter().filter_map(|descriptor| descriptor.annotations.get(NAME).cloned()).collect();
    let count = manifests.len();
    let mut fitting: Vec<Descriptor> = manifests.into_iter().filter(|it| fits(it) && named(it)).collect();
    match (fitting.pop(), fitting.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => {
            let has = if names.is_empty() { format!("{count} images without names") } else { names.join(", ") };
            Err(OciError::NoImage { path: layout.to_owned(), has })
        }
    }
}

fn blob(layout: &Path, descriptor: &Descriptor) -> Result<PathBuf, OciError> {
    match descriptor.digest.strip_prefix("sha256:") {
        Some(hex) if hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Ok(layout.join("blobs/sha256").join(hex))
        }
        _ => Err(OciError::Digest(descriptor.digest.clone())),
    }
}

fn document<T: DeserializeOwned>(path: &Path, descriptor: Option<&Descriptor>) -> Result<T, OciError> {
    let unreadable = |source| OciError::Read { path: path.to_owned(), source };
    if let Some(descriptor) = descriptor {
        check(path, descriptor)?;
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(unreadable)?.take(LONGEST_DOCUMENT).read_to_end(&mut bytes).map_err(unreadable)?;
    serde_json::from_slice(&bytes).map_err(|source| OciError::Document { path: path.to_owned(), source })
}

fn check(path: &Path, descriptor: &Descriptor) -> Result<(), OciError> {
    let unreadable = |source| OciError::Read { path: path.to_owned(), source };
    let mut digest = Sha256::new();
    let mut file = fs::File::open(path).map_err(unreadable)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(unreadable)? {
            0 => break,
            length => digest.update(&buffer[..length]),
        }
    }
    let hex: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if descriptor.digest == format!("sha256:{hex}") {
        return Ok(());
    }
    Err(OciError::Damaged { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_archive::Limits;

    use super::*;
    use crate::unpack::tests::{entry, image};

    struct Layout {
        folder: tempfile::TempDir,
    }

    impl Layout {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("blobs/sha256")).unwrap();
            fs::write(folder.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
            Self { folder }
        }

        fn put(&self, bytes: &[u8], media_type: &str) -> serde_json::Value {
            let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            fs::write(self.folder.path().join("blobs/sha256").join(&hex), bytes).unwrap();
            json!({"mediaType": media_type, "digest": format!("sha256:{hex}"), "size": bytes.len()})
        }

        fn layer(&self, entries: &[(tar::Header, Vec<u8>)]) -> serde_json::Value {
            let path = image(self.folder.path(), entries);
            self.put(&fs::read(path).unwrap(), "application/vnd.oci.image.layer.v1.tar+gzip")
        }

        fn finish(&self, layers: &[serde_json::Value]) {
            let manifest = json!({"schemaVersion": 2, "config": {}, "layers": layers}).to_string();
            let mut manifest = self.put(manifest.as_bytes(), "application/vnd.oci.image.manifest.v1+json");
            manifest["annotations"] = json!({NAME: "latest"});
            let index = json!({"schemaVersion": 2, "manifests": [manifest]}).to_string();
            fs::write(self.folder.path().join("index.json"), index).unwrap();
        }
    }

    #[test]
    fn layers_lie_one_over_the_other_and_take_away() {
        use tar::EntryType::{Directory, Regular, Symlink};
        let layout = Layout::new();
        let below = layout.layer(&[
            entry(Directory, "etc/", "", b""),
            entry(Regular, "etc/old", "", b"old"),
            entry(Regular, "etc/kept", "", b"kept"),
            entry(Directory, "opt/", "", b""),
            entry(Regular, "opt/gone", "", b"x"),
            entry(Directory, "becomes/", "", b""),
            entry(Regular, "becomes/file", "", b"x"),
        ]);
        let above = layout.layer(&[
            entry(Regular, "etc/.wh.old", "", b""),
            entry(Directory, "opt/", "", b""),
            entry(Regular, "opt/.wh..wh..opq", "", b""),
            entry(Regular, "opt/new", "", b"new"),
            entry(Symlink, "becomes", "etc/kept", b""),
        ]);
        layout.finish(&[below, above]);
        assert!(is_layout(layout.folder.path()));
        let root = tempfile::tempdir().unwrap();
        let image = OciImage::open(layout.folder.path(), Some("latest")).unwrap();
        assert!(image.size() > 0);
        image.unpack(root.path(), &Budget::new(Limits::default())).unwrap();
        let there = |path: &str| root.path().join(path).exists();
        assert!(
            there("etc/kept") && there("opt/new") && !there("etc/old") && !there("opt/gone") && !there("etc/.wh.old")
        );
        assert_eq!(fs::read(root.path().join("becomes")).unwrap(), b"kept");
        let error = OciImage::open(layout.folder.path(), Some("other")).unwrap_err().to_string();
        assert!(error.contains("latest"), "{error}");
    }

    #[test]
    fn a_layer_takes_nothing_away_outside_of_its_root() {
        use tar::EntryType::{Regular, Symlink};
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("precious"), "x").unwrap();
        let layout = Layout::new();
        let link = outside.path().to_str().unwrap();
        let below = layout.layer(&[entry(Symlink, "out", link, b"")]);
        let above = layout.layer(&[entry(Regular, "out/.wh.precious", "", b"")]);
        let opaque = layout.layer(&[entry(Regular, "out/.wh..wh..opq", "", b"")]);
        for top in [above, opaque] {
            layout.finish(&[below.clone(), top]);
            let root = tempfile::tempdir().unwrap();
            let _ = OciImage::open(layout.folder.path(), None)
                .unwrap()
                .unpack(root.path(), &Budget::new(Limits::default()));
            assert!(outside.path().join("precious").exists());
        }
    }

    #[test]
    fn a_damaged_layer_is_refused_before_it_is_used() {
        let layout = Layout::new();
        let layer = layout.layer(&[entry(tar::EntryType::Regular, "a", "", b"x")]);
        let zstd = layout.put(b"x", "application/vnd.oci.image.layer.v1.tar+zstd");
        layout.finish(std::slice::from_ref(&layer));
        let path = layout.folder.path().join("blobs/sha256").join(&layer["digest"].as_str().unwrap()[7..]);
        let mut bytes = fs::read(&path).unwrap();
        bytes.push(0);
        fs::write(&path, bytes).unwrap();
        let root = tempfile::tempdir().unwrap();
        let damaged = OciImage::open(layout.folder.path(), None)
            .unwrap()
            .unpack(root.path(), &Budget::new(Limits::default()))
            .unwrap_err();
        assert!(matches!(damaged, OciError::Damaged { .. }) && fs::read_dir(root.path()).unwrap().next().is_none());
        layout.finish(&[zstd]);
        let unknown = OciImage::open(layout.folder.path(), None)
            .unwrap()
            .unpack(root.path(), &Budget::new(Limits::default()))
            .unwrap_err();
        assert!(matches!(unknown, OciError::LayerType(_)), "{unknown}");
    }
}
