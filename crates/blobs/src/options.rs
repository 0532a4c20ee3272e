//! `provider` and `options` of a blobstore, as BOSH's authors and operators write them.

use std::path::{Path, PathBuf};

use serde_json::Value;
use windlass_contract::{Object, Secret};

/// Where blobs are kept.
#[derive(Debug, Clone)]
pub enum BlobstoreChoice {
    /// A folder: the one that is named, or the caller's own.
    Local(Option<PathBuf>),
    S3(Box<S3Options>),
    Gcs(Box<GcsOptions>),
}

/// An S3-compatible store.
#[derive(Debug, Clone)]
pub struct S3Options {
    pub(crate) bucket: String,
    /// Before the ids; empty, or without slashes around it.
    pub(crate) folder: String,
    pub(crate) region: String,
    /// Where it is, unless it is Amazon's.
    pub(crate) endpoint: Option<String>,
    pub(crate) has_bucket_in_host: bool,
    pub(crate) verify_peer: bool,
    pub(crate) credentials: S3Credentials,
    pub(crate) encryption: Option<String>,
    pub(crate) kms_key: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum S3Credentials {
    /// Everybody may read.
    None,
    Static {
        id: Secret,
        secret: Secret,
    },
    /// Those of the environment, of a profile, or of the machine.
    EnvOrProfile,
}

/// Google's store.
#[derive(Debug, Clone)]
pub struct GcsOptions {
    pub(crate) bucket: String,
    pub(crate) folder: String,
    pub(crate) endpoint: Option<String>,
    pub(crate) credentials: GcsCredentials,
    pub(crate) storage_class: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum GcsCredentials {
    /// Everybody may read.
    None,
    Static(Secret),
    /// Those that Google's own tools would use.
    Default,
}

/// why options cannot be used
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// a provider that is not there
    #[error("is '{0}'; there are 'local', 's3' and 'gcs'")]
    Provider(String),
    /// options that do not fit
    #[error("is '{provider}', and {why}")]
    Options {
        provider: &'static str,
        /// Names the option and what to do; never its value, which may be a secret.
        why: String,
    },
}

const LOCAL: [&str; 1] = ["blobstore_path"];

/// Those that tune BOSH's client are taken and change nothing.
const S3: [&str; 26] = [
    "bucket_name",
    "folder_name",
    "credentials_source",
    "access_key_id",
    "secret_access_key",
    "endpoint",
    "host",
    "port",
    "region",
    "use_ssl",
    "ssl_verify_peer",
    "host_style",
    "signature_version",
    "server_side_encryption",
    "sse_kms_key_id",
    "multipart_upload",
    "request_checksum_calculation_enabled",
    "response_checksum_calculation_enabled",
    "uploader_request_checksum_calculation_enabled",
    "download_concurrency",
    "download_part_size",
    "upload_concurrency",
    "upload_part_size",
    "assume_role_arn",
    "swift_auth_account",
    "swift_temp_url_key",
];

const GCS: [&str; 7] =
    ["bucket_name", "folder_name", "credentials_source", "json_key", "storage_class", "endpoint", "encryption_key"];

impl BlobstoreChoice {
    /// Reads what is configured. Options that BOSH does not know are left alone, as BOSH does.
    pub fn read(provider: &str, options: &Object) -> Result<Self, OptionsError> {
        match provider {
            "local" => Reader { provider: "local", options }.local(),
            "s3" => Reader { provider: "s3", options }.s3(),
            "gcs" => Reader { provider: "gcs", options }.gcs(),
            other => Err(OptionsError::Provider(other.to_owned())),
        }
    }

    /// The same, where an option that is not known is a mistake.
    pub fn read_strictly(provider: &str, options: &Object) -> Result<Self, OptionsError> {
        let mut choice = Self::read(provider, options)?;
        if let Self::Gcs(gcs) = &mut choice {
            gcs.folder = Reader { provider: "gcs", options }.folder()?;
        }
        let (provider, known): (_, &[&str]) = match choice {
            Self::Local(_) => ("local", &LOCAL),
            Self::S3(_) => ("s3", &S3),
            Self::Gcs(_) => ("gcs", &GCS),
        };
        match options.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(OptionsError::Options { provider, why: format!("has no option '{key}'") }),
            None => Ok(choice),
        }
    }

    /// Whether several machines see the same blobs.
    pub fn is_shared(&self) -> bool {
        !matches!(self, Self::Local(_))
    }

    /// Whether it says something that nobody else should read.
    pub fn has_secrets(&self) -> bool {
        match self {
            Self::Local(_) => false,
            Self::S3(s3) => matches!(s3.credentials, S3Credentials::Static { .. }),
            Self::Gcs(gcs) => matches!(gcs.credentials, GcsCredentials::Static(_)),
        }
    }

    /// The same with a folder that starts at `root`.
    pub fn relative_to(self, root: &Path) -> Self {
        match self {
            Self::Local(path) => Self::Local(path.map(|path| root.join(path))),
            other => other,
        }
    }
}

struct Reader<'a> {
    provider: &'static str,
    options: &'a Object,
}

impl Reader<'_> {
    fn wrong(&self, why: impl Into<String>) -> OptionsError {
        OptionsError::Options { provider: self.provider, why: why.into() }
    }

    /// Text that is there and not empty; numbers are taken for text.
    fn text(&self, key: &str) -> Result<Option<String>, OptionsError> {
        match self.options.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(self.wrong(format!("its option '{key}' should be text"))),
        }
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool, OptionsError> {
        match self.options.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.wrong(format!("its option '{key}' should be true or false"))),
        }
    }

    fn bucket(&self) -> Result<String, OptionsError> {
        self.text("bucket_name")?.ok_or_else(|| self.wrong("bucket_name must be set"))
    }

    fn folder(&self) -> Result<String, OptionsError> {
        Ok(self.text("folder_name")?.unwrap_or_default().trim_matches('/').to_owned())
    }

    /// Better refused than kept otherwise than is asked.
    fn refuse(&self, key: &str, why: &str) -> Result<(), OptionsError> {
        match self.text(key)? {
            Some(_) => Err(self.wrong(format!("its option '{key}' is not supported: {why}"))),
            None => Ok(()),
        }
    }

    fn local(&self) -> Result<BlobstoreChoice, OptionsError> {
        Ok(BlobstoreChoice::Local(self.text("blobstore_path")?.map(PathBuf::from)))
    }

    fn s3(&self) -> Result<BlobstoreChoice, OptionsError> {
        self.refuse("assume_role_arn", "give credentials of that role")?;
        self.refuse("swift_auth_account", "use the store's S3 interface")?;
        if let Some(version) = self.text("signature_version")?.filter(|version| version != "4") {
            return Err(self.wrong(format!("signs with version 4, not {version}; leave out 'signature_version'")));
        }
        let credentials = self.s3_credentials()?;
        let bucket = self.bucket()?;
        let host = self.text("host")?.filter(|host| !is_amazon(host));
        let has_bucket_in_host = self.flag("host_style", false)?;
        let endpoint = match (self.text("endpoint")?, host) {
            (Some(endpoint), _) => Some(endpoint),
            (None, Some(host)) => {
                let scheme = if self.flag("use_ssl", true)? { "https" } else { "http" };
                let port = self.text("port")?.filter(|port| port != "0").map(|port| format!(":{port}"));
                let host = if has_bucket_in_host { format!("{bucket}.{host}") } else { host };
                Some(format!("{scheme}://{host}{}", port.unwrap_or_default()))
            }
            (None, None) => None,
        };
        let region = self.text("region")?;
        let region = region.or_else(|| self.text("host").ok().flatten().and_then(|host| region_of(&host)));
        Ok(BlobstoreChoice::S3(Box::new(S3Options {
            bucket,
            folder: self.folder()?,
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
            endpoint,
            has_bucket_in_host,
            verify_peer: self.flag("ssl_verify_peer", true)?,
            credentials,
            encryption: self.text("server_side_encryption")?,
            kms_key: self.text("sse_kms_key_id")?,
        })))
    }

    fn s3_credentials(&self) -> Result<S3Credentials, OptionsError> {
        let (id, secret) = (self.text("access_key_id")?, self.text("secret_access_key")?);
        let source = self.text("credentials_source")?.unwrap_or_default();
        match (source.as_str(), id, secret) {
            ("static" | "", Some(id), Some(secret)) => {
                Ok(S3Credentials::Static { id: Secret::new(id), secret: Secret::new(secret) })
            }
            ("none" | "", None, None) => Ok(S3Credentials::None),
            ("env_or_profile", None, None) => Ok(S3Credentials::EnvOrProfile),
            ("static" | "", ..) => Err(self.wrong("access_key_id and secret_access_key must be provided")),
            ("none" | "env_or_profile", ..) => {
                Err(self
                    .wrong(format!("can't use access_key_id and secret_access_key with {source} credentials_source")))
            }
            _ => Err(self.wrong(format!("invalid credentials_source: {source}"))),
        }
    }

    fn gcs(&self) -> Result<BlobstoreChoice, OptionsError> {
        self.refuse("encryption_key", "the store encrypts with its own keys")?;
        let source = self.text("credentials_source")?.unwrap_or_default();
        let credentials = match (source.as_str(), self.text("json_key")?) {
            ("static" | "", Some(key)) => GcsCredentials::Static(Secret::new(key)),
            ("static", None) => return Err(self.wrong("json_key must be set")),
            ("none", _) => GcsCredentials::None,
            ("", None) => GcsCredentials::Default,
            _ => return Err(self.wrong(format!("invalid credentials_source: {source}"))),
        };
        Ok(BlobstoreChoice::Gcs(Box::new(GcsOptions {
            bucket: self.bucket()?,
            // BOSH's authors have none there: one that is set changes nothing.
            folder: String::new(),
            endpoint: self.text("endpoint")?,
            credentials,
            storage_class: self.text("storage_class")?,
        })))
    }
}

/// Such as `s3.eu-central-1.amazonaws.com`, for which the client knows the rest.
fn is_amazon(host: &str) -> bool {
    let host = host.strip_suffix(".cn").unwrap_or(host);
    host.starts_with("s3") && host.ends_with(".amazonaws.com")
}

fn region_of(host: &str) -> Option<String> {
    let inner = host.strip_suffix(".cn").unwrap_or(host).strip_prefix("s3")?.strip_suffix(".amazonaws.com")?;
    let region = inner.trim_start_matches(['-', '.']);
    (!region.is_empty() && region != "external-1").then(|| region.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(provider: &str, options: Value) -> Result<BlobstoreChoice, String> {
        let Value::Object(options) = options else { panic!("no options") };
        BlobstoreChoice::read_strictly(provider, &options).map_err(|error| error.to_string())
    }

    fn s3(options: Value) -> S3Options {
        let BlobstoreChoice::S3(s3) = read("s3", options).unwrap() else { panic!("not s3") };
        *s3
    }

    #[test]
    fn the_place_of_a_bucket_follows_from_host_port_and_region_as_in_bosh() {
        let amazon = s3(json!({"bucket_name": "b"}));
        assert_eq!((amazon.endpoint, amazon.region.as_str()), (None, "us-east-1"));
        let regional = s3(json!({"bucket_name": "b", "host": "s3.eu-central-1.amazonaws.com"}));
        assert_eq!((regional.endpoint, regional.region.as_str()), (None, "eu-central-1"));
        let own =
            s3(json!({"bucket_name": "b", "host": "minio", "port": 9000, "use_ssl": false, "folder_name": "/a/"}));
        assert_eq!((own.endpoint.as_deref(), own.folder.as_str()), (Some("http://minio:9000"), "a"));
        let in_host = s3(json!({"bucket_name": "b", "host": "oss.example", "host_style": true}));
        assert_eq!(in_host.endpoint.as_deref(), Some("https://b.oss.example"));
    }

    #[test]
    fn what_is_wrong_is_named_without_its_value() {
        let cases = [
            ("dav", json!({}), "is 'dav'; there are 'local', 's3' and 'gcs'"),
            ("s3", json!({}), "bucket_name must be set"),
            (
                "s3",
                json!({"bucket_name": "b", "access_key_id": "hidden"}),
                "access_key_id and secret_access_key must be",
            ),
            (
                "s3",
                json!({"bucket_name": "b", "access_key_id": "hidden", "secret_access_key": "hidden", "credentials_source": "none"}),
                "can't use access_key_id and secret_access_key with none credentials_source",
            ),
            ("s3", json!({"bucket_name": "b", "credentials_source": "guess"}), "invalid credentials_source: guess"),
            ("s3", json!({"bucket_name": "b", "signature_version": "2"}), "signs with version 4"),
            ("s3", json!({"bucket_name": "b", "assume_role_arn": "a"}), "'assume_role_arn' is not supported"),
            ("s3", json!({"bucket_name": "b", "secret_acces_key": "hidden"}), "has no option 'secret_acces_key'"),
            ("s3", json!({"bucket_name": "b", "secret_access_key": ["hidden"]}), "'secret_access_key' should be text"),
            ("gcs", json!({"bucket_name": "b", "credentials_source": "static"}), "json_key must be set"),
            ("gcs", json!({"bucket_name": "b", "encryption_key": "hidden"}), "'encryption_key' is not supported"),
        ];
        for (provider, options, expected) in cases {
            let said = read(provider, options).unwrap_err();
            assert!(said.contains(expected) && !said.contains("hidden"), "{said}");
        }
    }

    #[test]
    fn credentials_do_not_print_themselves() {
        let options = json!({"bucket_name": "b", "access_key_id": "hidden", "secret_access_key": "hidden"});
        assert!(!format!("{:?}", read("s3", options).unwrap()).contains("hidden"));
        let options = json!({"bucket_name": "b", "json_key": "hidden"});
        assert!(!format!("{:?}", read("gcs", options).unwrap()).contains("hidden"));
    }
}
