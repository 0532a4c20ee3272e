//! Has a cluster trust a director: a client certificate of its own, confined to a project of its own, from one token.
//!
//! | step | after a kill here, the same command again |
//! |---|---|
//! | the configuration is written, with a new key | goes on with that key |
//! | the token is redeemed | sees that the certificate is trusted |
//! | the project is made | finds it |
//! | the certificate is confined to the project | finds it so |
//! | the configuration is written again, with all members | – |
//!
//! A token that is confined to the project already makes the same, but for the project, which has to be there.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_contract::Secret;
use windlass_contract::cpi::CpiError;
use windlass_durable::file;

use crate::client::{Client, ClientError, Endpoint, Fingerprint, Identity, Patience, Settings};
use crate::config::IncusConfig;
use crate::session::Session;

/// How long a certificate lives.
const TWO_YEARS: Duration = Duration::from_secs(730 * 24 * 60 * 60);

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub project: String,
    /// How the server's operator knows the certificate.
    pub name: String,
    /// The pool that VMs and disks are in unless they say otherwise.
    pub pool: Option<String>,
    /// The managed network of subnets that name none; a project that is made sees no other one.
    pub network: Option<String>,
}

/// What was set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Established {
    /// Where the cluster answers.
    pub endpoints: Vec<String>,
    /// Whether the project was made, and not there already.
    pub made_project: bool,
    /// The fingerprint of the client certificate.
    pub fingerprint: String,
}

/// why trust was not established
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// it is no token
    #[error(
        "this is no token: {0}; 'incus config trust add NAME' or 'lxc config trust add --name NAME' prints one, in one line"
    )]
    NotAToken(String),
    /// the configuration cannot be read or written
    #[error("cannot use the file {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// the file is something else
    #[error("the file {} is there already, and is not for the project '{project}' of this cluster; name another one", path.display())]
    AnotherFile {
        path: PathBuf,
        /// What is asked for.
        project: String,
    },
    /// no key can be made
    #[error("no certificate can be made: {0}")]
    NoCertificate(String),
    /// the token was used, or its time is over
    #[error("the server refuses the token; a token is good once and for a while: make another one")]
    TokenRefused(#[source] ClientError),
    /// the project is missing, and may not be made
    #[error(
        "there is no project '{project}' that the certificate may use, and it may not make one; make the project, and a token \
         for it alone ('--restricted --projects {project}'), or a token without restrictions"
    )]
    NoProject {
        project: String,
        /// What the server said.
        #[source]
        source: ClientError,
    },
    /// what was named is not there
    #[error(
        "there is no {what} '{name}' in the cluster; make it, or name another one, and run the same again: until then the \
         certificate has all rights of the token"
    )]
    Missing {
        /// A pool or a network.
        what: &'static str,
        name: String,
    },
    /// the cluster refused or did not answer
    #[error(transparent)]
    Client(#[from] ClientError),
    /// what was set up cannot be used
    #[error("{}", .0.message)]
    Unusable(CpiError),
}

/// A token: who made it, and where they answer.
#[derive(Debug, Clone, Deserialize)]
struct Token {
    fingerprint: String,
    addresses: Vec<String>,
    #[serde(default)]
    secret: String,
}

impl Token {
    fn parse(text: &str) -> Result<Self, TrustError> {
        let bytes = BASE64_STANDARD.decode(text.trim()).map_err(|error| TrustError::NotAToken(error.to_string()))?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|error| TrustError::NotAToken(error.to_string()))?;
        match token.secret.is_empty() || token.addresses.is_empty() {
            true => Err(TrustError::NotAToken("it has no secret or no address".to_owned())),
            false => Ok(token),
        }
    }
}

/// Sets up trust for `token`, and writes a configuration for the CPI to `output`. May be repeated after it was interrupted.
pub async fn establish(token: &str, wanted: &Wanted, output: &Path) -> Result<Established, TrustError> {
    let token = token.trim();
    let parsed = Token::parse(token)?;
    let pin = Fingerprint::parse(&parsed.fingerprint)?;
    let endpoints: Vec<String> = parsed.addresses.iter().map(|address| format!("https://{address}")).collect();
    let mut incus = configuration(wanted, &pin, &endpoints, output)?;
    let identity = identity(&incus).ok_or_else(|| another_file(output, wanted))?;
    let fingerprint = identity.fingerprint()?;
    let parse = |text: &String| Endpoint::parse(text);
    let endpoints = endpoints.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let client = Client::new(endpoints, Some((&identity, &pin)), "default", Patience::default())?;
    if !client.is_trusted().await? {
        client.redeem(token, &wanted.name).await.map_err(TrustError::TokenRefused)?;
    }
    must_be_there(&client, &fingerprint, wanted).await?;
    let made_project = project(&client, wanted).await?;
    confine(&client, &fingerprint, &wanted.project).await?;
    let members: Vec<String> = match client.members().await {
        Ok(members) => members.into_iter().map(|member| member.url).filter(|url| !url.is_empty()).collect(),
        // There is no cluster, or it is none of our business.
        Err(ClientError::Refused { .. }) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    if !members.is_empty() {
        incus["endpoints"] = json!(members);
        write(&incus, output)?;
    }
    let config: IncusConfig = serde_json::from_value(incus).map_err(|_| another_file(output, wanted))?;
    Session::connect(&config, None).await.map_err(|fault| TrustError::Unusable(fault.into()))?;
    Ok(Established { endpoints: config.endpoints, made_project, fingerprint: fingerprint.as_str().to_owned() })
}

fn another_file(path: &Path, wanted: &Wanted) -> TrustError {
    TrustError::AnotherFile { path: path.to_owned(), project: wanted.project.clone() }
}

/// The configuration that an interrupted command wrote, or a new one.
fn configuration(wanted: &Wanted, pin: &Fingerprint, endpoints: &[String], output: &Path) -> Result<Value, TrustError> {
    let failed = |source| TrustError::File { path: output.to_owned(), source };
    let mut incus = match std::fs::read(output) {
        Ok(bytes) => {
            let whole: Value = serde_json::from_slice(&bytes).map_err(|_| another_file(output, wanted))?;
            let incus = whole.pointer("/cloud/properties/incus").cloned().unwrap_or_default();
            let is_it = incus["project"] == wanted.project.as_str() && incus["server_fingerprint"] == pin.as_str();
            if !is_it {
                return Err(another_file(output, wanted));
            }
            incus
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (certificate, private_key) = new_certificate(&wanted.name)?;
            json!({"endpoints": endpoints, "project": wanted.project, "certificate": certificate,
                "private_key": private_key, "server_fingerprint": pin.as_str()})
        }
        Err(error) => return Err(failed(error)),
    };
    // The command before may have named one that is not there.
    for (key, value) in [("pool", &wanted.pool), ("network", &wanted.network)] {
        if let Some(value) = value {
            incus[key] = json!(value);
        }
    }
    write(&incus, output)?;
    Ok(incus)
}

fn write(incus: &Value, output: &Path) -> Result<(), TrustError> {
    let whole = json!({"cloud": {"plugin": "incus", "properties": {"incus": incus}}});
    file::write_json(output, &whole, file::PRIVATE)
        .map_err(|source| TrustError::File { path: output.to_owned(), source })
}

fn identity(incus: &Value) -> Option<Identity> {
    let text = |key: &str| incus[key].as_str().map(str::to_owned);
    Some(Identity { certificate: text("certificate")?, private_key: Secret::new(text("private_key")?) })
}

fn new_certificate(name: &str) -> Result<(String, String), TrustError> {
    let failed = |error: rcgen::Error| TrustError::NoCertificate(error.to_string());
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).map_err(failed)?;
    let mut parameters = rcgen::CertificateParams::new(Vec::<String>::new()).map_err(failed)?;
    parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    let now = SystemTime::now();
    // Clocks differ.
    parameters.not_before = (now - Duration::from_secs(60 * 60)).into();
    parameters.not_after = (now + TWO_YEARS).into();
    let certificate = parameters.self_signed(&key).map_err(failed)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Pool and network, before a project is made that would see no other. Who is confined already sees them in their project alone.
async fn must_be_there(client: &Client, fingerprint: &Fingerprint, wanted: &Wanted) -> Result<(), TrustError> {
    if !client.certificate(fingerprint.as_str()).await.is_ok_and(|known| !known.restricted) {
        return Ok(());
    }
    let missing = |what, name: &String| Err(TrustError::Missing { what, name: name.clone() });
    if let Some(pool) = &wanted.pool
        && client.pool(pool).await.is_err_and(|error| error.is_missing())
    {
        return missing("storage pool", pool);
    }
    match &wanted.network {
        Some(network) if client.find_network(network).await?.is_none() => missing("network", network),
        _ => Ok(()),
    }
}

/// Makes the project unless it is there.
async fn project(client: &Client, wanted: &Wanted) -> Result<bool, TrustError> {
    if client.config_of_project(&wanted.project).await.is_ok() {
        return Ok(false);
    }
    let description = "VMs and disks of a BOSH director";
    match client.create_project(&wanted.project, description, &confinement(wanted)).await {
        Ok(()) => Ok(true),
        Err(error) if error.is_taken() => Ok(false),
        Err(source @ ClientError::Refused { .. }) => {
            Err(TrustError::NoProject { project: wanted.project.clone(), source })
        }
        Err(error) => Err(error.into()),
    }
}

/// What a project of a director has of its own, and what VMs in it may not do.
fn confinement(wanted: &Wanted) -> Settings {
    let mut config: Settings = [
        ("features.images", "true"),
        ("features.profiles", "true"),
        ("features.storage.volumes", "true"),
        ("features.networks", "false"),
        ("restricted", "true"),
        ("restricted.containers.nesting", "allow"),
        ("restricted.devices.disk", "managed"),
        ("restricted.snapshots", "allow"),
        ("restricted.cluster.target", "allow"),
        // Bridges on the members' own network are not managed.
        ("restricted.devices.nic", if wanted.network.is_some() { "managed" } else { "allow" }),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    if let Some(network) = &wanted.network {
        config.insert("restricted.networks.access".to_owned(), network.clone());
    }
    config
}

/// Confines our certificate to the project. One that may not ask about itself is confined already.
async fn confine(client: &Client, fingerprint: &Fingerprint, project: &str) -> Result<(), TrustError> {
    match client.certificate(fingerprint.as_str()).await {
        Ok(known) if known.restricted && known.projects == [project] => Ok(()),
        Ok(_) => match client.restrict(fingerprint.as_str(), project).await {
            Err(ClientError::Refused { code: 403, .. }) => Ok(()),
            other => Ok(other?),
        },
        Err(ClientError::Refused { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_token_is_told_with_how_to_get_one() {
        for wrong in ["", "not base64!", "e30=", "eyJzZWNyZXQiOiJ4IiwiZmluZ2VycHJpbnQiOiJ4IiwiYWRkcmVzc2VzIjpbXX0="] {
            let error = Token::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("this is no token") && error.contains("config trust add"), "{error}");
        }
        let token = json!({"client_name": "x", "fingerprint": "00", "addresses": ["10.0.0.1:8443"], "secret": "s"});
        let token = Token::parse(&format!("{}\n", BASE64_STANDARD.encode(token.to_string()))).unwrap();
        assert_eq!(token.addresses, ["10.0.0.1:8443"]);
    }

    #[test]
    fn an_interrupted_command_goes_on_with_its_key_and_another_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("incus.json");
        let wanted = |project: &str| Wanted {
            project: project.to_owned(),
            name: "d1".to_owned(),
            pool: Some("fast".to_owned()),
            network: None,
        };
        let pin = Fingerprint::parse(&"0".repeat(64)).unwrap();
        let endpoints = ["https://10.0.0.1:8443".to_owned()];
        let first = configuration(&wanted("p1"), &pin, &endpoints, &output).unwrap();
        assert_eq!(first, configuration(&wanted("p1"), &pin, &endpoints, &output).unwrap());
        assert!(identity(&first).unwrap().seconds_left().unwrap() > 700 * 24 * 60 * 60);
        let error = configuration(&wanted("p2"), &pin, &endpoints, &output).unwrap_err().to_string();
        assert!(error.contains("not for the project 'p2'"), "{error}");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&output).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
