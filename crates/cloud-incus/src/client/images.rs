//! Images that instances are made from.

use std::path::Path;

use hyper::Method;
use serde::Deserialize;

use super::content::Content;
use super::instances::{Settings, or_default};
use super::{Client, ClientError, Request};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Image {
    /// SHA-256 of its parts.
    pub fingerprint: String,
    /// What its metadata say.
    #[serde(default, deserialize_with = "or_default")]
    pub properties: Settings,
}

impl Client {
    /// The image with that fingerprint.
    pub async fn find_image(&self, fingerprint: &str) -> Result<Option<Image>, ClientError> {
        let request = Request::get(&["images", fingerprint], format!("look for the stemcell '{fingerprint}'"));
        match self.ask(request).await {
            Ok(image) => Ok(Some(image)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All images of the project.
    pub async fn images(&self) -> Result<Vec<Image>, ClientError> {
        self.ask(Request::get(&["images"], "list the stemcells").with("recursion", "1")).await
    }

    /// Uploads an image; the daemon compares what arrived with its fingerprint.
    pub async fn upload_image(&self, metadata: &[u8], rootfs: &Path, fingerprint: &str) -> Result<(), ClientError> {
        let request = Request::new(Method::POST, &["images"], "upload the stemcell")
            // LXD knows the first name, Incus the second.
            .header("x-lxd-fingerprint", fingerprint)
            .header("x-incus-fingerprint", fingerprint)
            .content(Content::image(metadata, rootfs.to_owned()));
        self.change(request).await
    }

    /// Removes an image. Instances that were made from it stay.
    pub async fn delete_image(&self, fingerprint: &str) -> Result<(), ClientError> {
        let request =
            Request::new(Method::DELETE, &["images", fingerprint], format!("delete the stemcell '{fingerprint}'"));
        self.change(request).await
    }
}
