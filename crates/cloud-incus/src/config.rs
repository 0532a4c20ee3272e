//! `cloud.properties.incus` of `cpi.json`, overlaid by the properties of a cpi-config entry.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use serde::Deserialize;
use windlass_contract::Secret;
use windlass_contract::cpi::CpiError;

use crate::client::{Client, ClientError, Endpoint, Fingerprint, Identity, Patience};

/// The configuration of the cloud.
#[derive(Debug, Clone, Deserialize)]
pub struct IncusConfig {
    /// `https://HOST:PORT` of each member, or one `unix:/PATH`; the first that answers is used.
    #[serde(default)]
    pub endpoints: Vec<String>,
    /// The project of this director; it must exist, and nobody else may use it.
    #[serde(default)]
    pub project: String,
    /// The client certificate, as PEM; for https.
    #[serde(default)]
    pub certificate: Option<String>,
    /// Its key, as PEM; for https.
    #[serde(default)]
    pub private_key: Option<Secret>,
    /// SHA-256 of the server's certificate; for https, unless `server_certificate` is given.
    #[serde(default)]
    pub server_fingerprint: Option<String>,
    /// The server's certificate, as PEM.
    #[serde(default)]
    pub server_certificate: Option<String>,
    /// The storage pool of VMs whose type names none.
    #[serde(default)]
    pub pool: Option<String>,
    /// The storage pool of disks whose type names none; that of VMs if absent.
    #[serde(default)]
    pub disk_pool: Option<String>,
    /// The managed network of subnets that name none.
    #[serde(default)]
    pub network: Option<String>,
    /// Where networks that are made without a range get theirs.
    #[serde(default = "managed_range")]
    pub managed_range: IpNet,
    /// Where VMs and disks are made that say nothing about it: a member, or `@group`.
    #[serde(default)]
    pub target: Option<String>,
    /// What VMs are unless their type says otherwise; only `container` so far.
    #[serde(default)]
    pub instance_type: Option<String>,
    /// How long an operation of the daemon may take, in seconds; 20 minutes if absent.
    #[serde(default)]
    pub patience: Option<u64>,
    /// Where answered requests are remembered; absolute.
    #[serde(default)]
    pub state_dir: Option<PathBuf>,
}

fn managed_range() -> IpNet {
    IpNet::V4(Ipv4Net::new_assert([10, 247, 0, 0].into(), 16))
}

impl IncusConfig {
    /// Refuses what can be seen to be wrong without asking anybody.
    pub(crate) fn check(&self) -> Result<(), CpiError> {
        if self.project.is_empty() || self.project.contains(['/', '?', '&', ' ']) {
            return Err(CpiError::cpi(format!("'cloud.properties.incus.project' cannot be '{}'", self.project)));
        }
        match &self.state_dir {
            Some(path) if !path.is_absolute() => Err(CpiError::cpi(format!(
                "'cloud.properties.incus.state_dir' must be an absolute path, not '{}'",
                path.display()
            ))),
            _ => Ok(()),
        }
    }

    /// A connection to the cluster; nothing is sent yet.
    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        let endpoints =
            self.endpoints.iter().map(|text| Endpoint::parse(text)).collect::<Result<Vec<_>, ClientError>>()?;
        let tls = match endpoints.iter().any(|endpoint| matches!(endpoint, Endpoint::Https { .. })) {
            true => Some((self.identity()?, self.pin()?)),
            false => None,
        };
        let mut patience = Patience::default();
        if let Some(seconds) = self.patience {
            patience.operation = Duration::from_secs(seconds);
        }
        let tls = tls.as_ref().map(|(identity, pin)| (identity, pin));
        Client::new(endpoints, tls, self.project.clone(), patience)
    }

    /// The certificate that we show to endpoints that are no sockets.
    pub(crate) fn identity(&self) -> Result<Identity, ClientError> {
        match (&self.certificate, &self.private_key) {
            (Some(certificate), Some(private_key)) => {
                Ok(Identity { certificate: certificate.clone(), private_key: private_key.clone() })
            }
            _ => Err(ClientError::Configuration(
                "https among 'endpoints' needs 'certificate' and 'private_key', a client certificate that the cluster trusts"
                    .to_owned(),
            )),
        }
    }

    fn pin(&self) -> Result<Fingerprint, ClientError> {
        match (&self.server_fingerprint, &self.server_certificate) {
            (Some(digits), _) => Fingerprint::parse(digits),
            (None, Some(pem)) => Fingerprint::of_pem(pem),
            (None, None) => Err(ClientError::Configuration(
                "https among 'endpoints' needs 'server_fingerprint', the SHA-256 of the cluster's certificate"
                    .to_owned(),
            )),
        }
    }
}
