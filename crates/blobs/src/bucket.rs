//! Blobs in a bucket of an object store.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as Key;
use object_store::{
    Attribute, AttributeValue, Attributes, ClientOptions, Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, RetryConfig,
};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use windlass_contract::secret::REDACTED;
use windlass_contract::{Secret, explain};
use windlass_durable::kill_point;

use crate::error::{BlobAction, BlobError};
use crate::options::{GcsCredentials, GcsOptions, S3Credentials, S3Options};
use crate::profile;
use crate::store::Listed;

/// How long a store may take to be reached, and may be silent. A part is sent within the second.
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(120);
/// How often, and for how long, a request is repeated that a store could not serve.
const RETRIES: usize = 3;
const RETRY_TIME: Duration = Duration::from_secs(30);
/// A larger file is sent in parts, of which one is in memory. Stores want at least 5 MiB, and at most 10,000 parts.
const PART: u64 = 8 << 20;
const MOST_PARTS: u64 = 9000;
/// Says whose blobs there are.
const OWNER: &str = "director.uuid";

/// A bucket, or a folder in it.
#[derive(Clone)]
pub(crate) struct Bucket {
    place: String,
    folder: String,
    store: Arc<dyn ObjectStore>,
    /// Asked first for what everybody may read.
    public: Option<Arc<dyn ObjectStore>>,
    is_read_only: bool,
    attributes: Attributes,
    /// What no message may contain.
    secrets: Arc<Vec<Secret>>,
}

impl fmt::Debug for Bucket {
    /// What stands behind it shows its credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("place", &self.place).finish_non_exhaustive()
    }
}

fn client(verify_peer: bool, endpoint: Option<&str>) -> ClientOptions {
    // The library takes its cryptography from the process.
    static CRYPTOGRAPHY: Once = Once::new();
    CRYPTOGRAPHY.call_once(|| {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    });
    ClientOptions::new()
        .with_connect_timeout(CONNECT)
        .with_read_timeout(SILENCE)
        .with_timeout_disabled()
        .with_allow_invalid_certificates(!verify_peer)
        .with_allow_http(endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")))
}

fn retries() -> RetryConfig {
    RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIME, ..RetryConfig::default() }
}

impl Bucket {
    pub(crate) fn s3(options: &S3Options) -> Result<Self, BlobError> {
        let place = place("s3", &options.bucket, &options.folder);
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&options.bucket)
            .with_region(&options.region)
            .with_virtual_hosted_style_request(options.has_bucket_in_host)
            .with_client_options(client(options.verify_peer, options.endpoint.as_deref()))
            .with_retry(retries());
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(encryption) = &options.encryption {
            builder = builder.with_config(key_of("aws_server_side_encryption", &place)?, encryption);
        }
        if let Some(key) = &options.kms_key {
            builder = builder.with_config(key_of("aws_sse_kms_key_id", &place)?, key);
        }
        let mut secrets = Vec::new();
        match &options.credentials {
            S3Credentials::None => builder = builder.with_skip_signature(true),
            S3Credentials::Static { id, secret } => {
                secrets.extend([id.clone(), secret.clone()]);
                builder = builder.with_access_key_id(id.reveal()).with_secret_access_key(secret.reveal());
            }
            S3Credentials::EnvOrProfile => match profile::find() {
                Some(key) => {
                    secrets.extend(key.secrets());
                    builder = builder.with_access_key_id(key.id).with_secret_access_key(key.secret);
                    if let Some(token) = key.token {
                        builder = builder.with_token(token);
                    }
                }
                None => builder = of_the_machine(builder, &place)?,
            },
        }
        let store = builder.build().map_err(|error| unusable(&place, &error, &secrets))?;
        Ok(Self {
            place,
            folder: options.folder.clone(),
            store: Arc::new(store),
            public: None,
            is_read_only: matches!(options.credentials, S3Credentials::None),
            attributes: Attributes::new(),
            secrets: Arc::new(secrets),
        })
    }

    pub(crate) fn gcs(options: &GcsOptions) -> Result<Self, BlobError> {
        let place = place("gcs", &options.bucket, &options.folder);
        // Simulators are named in the key itself, which may say that they know no tokens.
        let (in_key, has_tokens) = match &options.credentials {
            GcsCredentials::Static(key) => (text_of(key, "gcs_base_url"), !is_set(key, "disable_oauth")),
            _ => (None, true),
        };
        let endpoint = options.endpoint.as_ref().or(in_key.as_ref());
        let plain = || {
            let client = client(true, endpoint.map(String::as_str));
            let builder = GoogleCloudStorageBuilder::new()
                .with_bucket_name(&options.bucket)
                .with_client_options(client)
                .with_retry(retries());
            match endpoint {
                Some(endpoint) => builder.with_base_url(endpoint),
                None => builder,
            }
        };
        let mut secrets = Vec::new();
        let builder = match &options.credentials {
            GcsCredentials::None => plain().with_skip_signature(true),
            GcsCredentials::Static(key) => {
                secrets = secrets_of(key);
                match has_tokens {
                    true => plain().with_service_account_key(key.reveal()),
                    false => plain().with_bearer_token("simulated"),
                }
            }
            GcsCredentials::Default => match std::env::var("GOOGLE_APPLICATION_CREDENTIALS") {
                Ok(path) if !path.is_empty() => plain().with_application_credentials(path),
                _ => plain(),
            },
        };
        let store = builder.build().map_err(|error| unusable(&place, &error, &secrets))?;
        let public: Option<Arc<dyn ObjectStore>> = match options.credentials {
            GcsCredentials::Default => {
                let public = plain().with_skip_signature(true).build();
                Some(Arc::new(public.map_err(|error| unusable(&place, &error, &secrets))?))
            }
            _ => None,
        };
        let mut attributes = Attributes::new();
        if let Some(class) = &options.storage_class {
            attributes.insert(Attribute::StorageClass, AttributeValue::from(class.clone()));
        }
        Ok(Self {
            place,
            folder: options.folder.clone(),
            store: Arc::new(store),
            public,
            is_read_only: matches!(options.credentials, GcsCredentials::None),
            attributes,
            secrets: Arc::new(secrets),
        })
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    fn key(&self, id: &str) -> Result<Key, BlobError> {
        let full = if self.folder.is_empty() { id.to_owned() } else { format!("{}/{id}", self.folder) };
        let is_safe = !id.is_empty() && id.split('/').all(|part| !matches!(part, "" | "." | ".."));
        Key::parse(full).ok().filter(|_| is_safe).ok_or_else(|| BlobError::Id(id.to_owned()))
    }

    fn failed(&self, what: BlobAction, id: &str) -> impl Fn(Error) -> BlobError {
        move |error| match error {
            Error::NotFound { .. } if what == BlobAction::Fetch => {
                BlobError::Missing { id: id.to_owned(), place: self.place.clone() }
            }
            error => {
                let why = without(&explain(&error), &self.secrets);
                BlobError::Remote { place: self.place.clone(), what, id: id.to_owned(), why }
            }
        }
    }

    fn must_write(&self) -> Result<(), BlobError> {
        if self.is_read_only { Err(BlobError::ReadOnly(self.place.clone())) } else { Ok(()) }
    }

    /// Sends a file. It appears as a whole, or not at all.
    pub(crate) async fn put(&self, id: &str, from: &Path) -> Result<(), BlobError> {
        self.must_write()?;
        let key = self.key(id)?;
        let unreadable =
            |source| BlobError::File { what: BlobAction::Keep, id: id.to_owned(), path: from.to_owned(), source };
        let mut file = File::open(from).await.map_err(unreadable)?;
        let size = file.metadata().await.map_err(unreadable)?.len();
        let failed = self.failed(BlobAction::Keep, id);
        kill_point("before a blob is sent");
        if size <= PART {
            let content = next_part(&mut file, PART).await.map_err(unreadable)?;
            let options = PutOptions { attributes: self.attributes.clone(), ..PutOptions::default() };
            self.store.put_opts(&key, PutPayload::from(content), options).await.map_err(failed)?;
        } else {
            let options = PutMultipartOptions { attributes: self.attributes.clone(), ..PutMultipartOptions::default() };
            let mut upload = self.store.put_multipart_opts(&key, options).await.map_err(&failed)?;
            let sent = self.send_parts(&mut *upload, (id, &mut file), part_size(size), unreadable).await;
            if let Err(error) = sent {
                // Its parts take space until they are given up.
                let _ = upload.abort().await;
                return Err(error);
            }
        }
        kill_point("after a blob is sent");
        Ok(())
    }

    async fn send_parts(
        &self,
        upload: &mut dyn MultipartUpload,
        (id, file): (&str, &mut File),
        size: u64,
        unreadable: impl Fn(std::io::Error) -> BlobError,
    ) -> Result<(), BlobError> {
        loop {
            let part = next_part(file, size).await.map_err(&unreadable)?;
            if part.is_empty() {
                break;
            }
            upload.put_part(PutPayload::from(part)).await.map_err(self.failed(BlobAction::Keep, id))?;
        }
        upload.complete().await.map(drop).map_err(self.failed(BlobAction::Keep, id))
    }

    /// Fetches a blob into a new file.
    pub(crate) async fn get(&self, id: &str, into: &Path) -> Result<(), BlobError> {
        let key = self.key(id)?;
        if let Some(public) = &self.public
            && self.fetch(&**public, &key, id, into).await.is_ok()
        {
            return Ok(());
        }
        self.fetch(&*self.store, &key, id, into).await
    }

    #[expect(clippy::disallowed_methods, reason = "a temporary file of the caller, who renames it")]
    async fn fetch(&self, store: &dyn ObjectStore, key: &Key, id: &str, into: &Path) -> Result<(), BlobError> {
        let failed = self.failed(BlobAction::Fetch, id);
        let unwritable =
            |source| BlobError::File { what: BlobAction::Fetch, id: id.to_owned(), path: into.to_owned(), source };
        let found = store.get(key).await.map_err(&failed)?;
        let expected = found.meta.size;
        let mut stream = found.into_stream();
        let mut file = File::create(into).await.map_err(unwritable)?;
        let mut received = 0;
        while let Some(part) = stream.try_next().await.map_err(&failed)? {
            received += part.len() as u64;
            file.write_all(&part).await.map_err(unwritable)?;
        }
        file.flush().await.map_err(unwritable)?;
        if received == expected {
            return Ok(());
        }
        let why = format!("{received} of {expected} bytes came");
        Err(BlobError::Remote { place: self.place.clone(), what: BlobAction::Fetch, id: id.to_owned(), why })
    }

    pub(crate) async fn list(&self, drawer: &str) -> Result<Vec<Listed>, BlobError> {
        let prefix = self.key(drawer)?;
        let mut found = self.store.list(Some(&prefix));
        let mut listed = Vec::new();
        while let Some(object) = found.next().await {
            let object = object.map_err(self.failed(BlobAction::List, ""))?;
            let Some(id) = object.location.as_ref().strip_prefix(&format!("{prefix}/")) else { continue };
            listed.push(Listed { id: id.to_owned(), size: object.size, modified: object.last_modified.into() });
        }
        Ok(listed)
    }

    pub(crate) async fn remove(&self, id: &str) -> Result<(), BlobError> {
        self.must_write()?;
        kill_point("before a blob is removed from a store");
        match self.store.delete(&self.key(id)?).await {
            Err(Error::NotFound { .. }) => Ok(()),
            removed => removed.map_err(self.failed(BlobAction::Remove, id)),
        }
    }

    pub(crate) async fn claim(&self, owner: &str) -> Result<(), BlobError> {
        self.must_write()?;
        let key = self.key(OWNER)?;
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.store.put_opts(&key, PutPayload::from(owner.as_bytes().to_vec()), options).await {
            Ok(_) => return Ok(()),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
            // Some stores know no conditions; who is first is found by looking.
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {}
            Err(error) => return Err(self.failed(BlobAction::Keep, OWNER)(error)),
        }
        let found = match self.store.get(&key).await {
            Err(Error::NotFound { .. }) => {
                let content = PutPayload::from(owner.as_bytes().to_vec());
                return self.store.put(&key, content).await.map(drop).map_err(self.failed(BlobAction::Keep, OWNER));
            }
            found => found.map_err(self.failed(BlobAction::Fetch, OWNER))?,
        };
        let found = found.bytes().await.map_err(self.failed(BlobAction::Fetch, OWNER))?;
        let found = String::from_utf8_lossy(&found).trim().to_owned();
        if found == owner { Ok(()) } else { Err(BlobError::Owned { place: self.place.clone(), owner: found }) }
    }
}

fn place(kind: &str, bucket: &str, folder: &str) -> String {
    let folder = if folder.is_empty() { String::new() } else { format!("/{folder}") };
    format!("the blobstore {kind}://{bucket}{folder}")
}

fn part_size(size: u64) -> u64 {
    PART.max(size.div_ceil(MOST_PARTS))
}

async fn next_part(file: &mut File, size: u64) -> std::io::Result<Vec<u8>> {
    let mut part = Vec::new();
    file.take(size).read_to_end(&mut part).await?;
    Ok(part)
}

fn key_of(name: &str, place: &str) -> Result<AmazonS3ConfigKey, BlobError> {
    name.parse().map_err(|error| unusable(place, &error, &[]))
}

/// What Amazon's machines, containers and services tell their programs.
fn of_the_machine(mut builder: AmazonS3Builder, place: &str) -> Result<AmazonS3Builder, BlobError> {
    for name in [
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_ROLE_ARN",
        "AWS_ROLE_SESSION_NAME",
    ] {
        if let Ok(value) = std::env::var(name) {
            builder = builder.with_config(key_of(&name.to_lowercase(), place)?, value);
        }
    }
    Ok(builder)
}

fn unusable(place: &str, error: &Error, secrets: &[Secret]) -> BlobError {
    BlobError::Unusable { place: place.to_owned(), why: without(&explain(error), secrets) }
}

/// The key itself, and what it says that nobody else should read.
fn secrets_of(json_key: &Secret) -> Vec<Secret> {
    let inside =
        ["private_key", "private_key_id"].into_iter().filter_map(|name| text_of(json_key, name)).map(Secret::new);
    [json_key.clone()].into_iter().chain(inside).collect()
}

fn is_set(json_key: &Secret, name: &str) -> bool {
    let key: Option<serde_json::Value> = serde_json::from_str(json_key.reveal()).ok();
    key.and_then(|key| key.get(name)?.as_bool()).unwrap_or_default()
}

/// What a JSON document says under a name.
fn text_of(json_key: &Secret, name: &str) -> Option<String> {
    let key: serde_json::Value = serde_json::from_str(json_key.reveal()).ok()?;
    key.get(name)?.as_str().map(str::to_owned)
}

/// A store's words, without credentials.
fn without(text: &str, secrets: &[Secret]) -> String {
    let spoken = secrets.iter().filter(|secret| !secret.reveal().trim().is_empty());
    spoken.fold(text.to_owned(), |text, secret| text.replace(secret.reveal(), REDACTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_few_and_small() {
        assert_eq!(part_size(PART + 1), PART);
        assert!((64u64 << 30).div_ceil(part_size(64 << 30)) <= MOST_PARTS);
    }

    #[test]
    fn credentials_are_taken_out_of_a_stores_words() {
        let key = Secret::new(r#"{"private_key": "marked-key", "private_key_id": "marked-id"}"#);
        let said = without("no marked-key of marked-id fits", &secrets_of(&key));
        assert_eq!(said, "no <redacted> of <redacted> fits");
    }
}
