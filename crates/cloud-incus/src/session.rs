//! A cluster that answered and trusts us, for one call.

use std::io::Write;

use windlass_contract::cpi::CpiError;
use windlass_cpi::Call;

use crate::client::{Client, ClientError, Endpoint, Server, Settings};
use crate::config::IncusConfig;
use crate::fault::Fault;
use crate::image;
use crate::tags;

/// A cluster that answered and trusts us.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) server: Server,
    pub(crate) config: IncusConfig,
}

/// Operators are told this long before a certificate ends.
const A_MONTH: i64 = 30 * 24 * 60 * 60;

impl Session {
    pub(crate) async fn open(config: &IncusConfig, call: &Call) -> Result<Self, Fault> {
        Self::connect(config, Some(&call.context.director_uuid)).await
    }

    /// As above, for a director or for the operator.
    pub(crate) async fn connect(config: &IncusConfig, director: Option<&str>) -> Result<Self, Fault> {
        if config.endpoints.is_empty() || config.project.is_empty() {
            return Err(CpiError::cpi(
                "the CPI's configuration names no cluster; give 'endpoints' and 'project' in 'cloud.properties.incus', or in \
                 the properties of the cpi config's entry",
            )
            .into());
        }
        config.check()?;
        let client = config.client()?;
        watch_certificate(config)?;
        let server = client.server().await?;
        let project = match client.project_config().await {
            Ok(project) => project,
            Err(error) if error.is_missing() => {
                return Err(CpiError::cpi(format!(
                    "there is no project '{}' in the cluster, or the client certificate may not use it; make it, and restrict \
                     the certificate to it",
                    config.project
                ))
                .into());
            }
            Err(error) => return Err(error.into()),
        };
        check_project(&project, config, director)?;
        Ok(Self { client, server, config: config.clone() })
    }

    /// The pool that VMs are in.
    pub(crate) fn vm_pool(&self, given: Option<&String>) -> Result<String, Fault> {
        given.or(self.config.pool.as_ref()).cloned().ok_or_else(|| {
            Fault::cloud(
                "no storage pool is named; give 'pool' in the VM type's cloud_properties, or in the CPI's configuration",
            )
        })
    }

    /// The pool that disks are in.
    pub(crate) fn disk_pool(&self, given: Option<&String>) -> Result<String, Fault> {
        given.or(self.config.disk_pool.as_ref()).or(self.config.pool.as_ref()).cloned().ok_or_else(|| {
            Fault::cloud(
                "no storage pool is named; give 'pool' in the disk type's cloud_properties, or 'disk_pool' in the CPI's \
                 configuration",
            )
        })
    }

    /// Refuses what another director made in this project.
    pub(crate) fn must_be_ours(&self, what: &str, director: Option<&str>, call: &Call) -> Result<(), Fault> {
        match director {
            Some(director) if director != call.context.director_uuid => Err(CpiError::cpi(format!(
                "{what} in the project '{}' belongs to the director '{director}'; give each director a project of its own",
                self.config.project
            ))
            .into()),
            _ => Ok(()),
        }
    }
}

/// The kind of VM that is asked for; only containers so far.
pub(crate) fn must_be_container(kind: Option<&str>) -> Result<(), CpiError> {
    match kind {
        None | Some("container") => Ok(()),
        Some("virtual-machine" | "vm") => Err(image::virtual_machines()),
        Some(other) => Err(CpiError::cloud(format!("'instance_type' is '{other}'; only 'container' is supported"))),
    }
}

fn check_project(project: &Settings, config: &IncusConfig, asking: Option<&str>) -> Result<(), Fault> {
    let name = &config.project;
    for feature in ["features.images", "features.storage.volumes"] {
        if name != "default" && project.get(feature).is_none_or(|value| value != "true") {
            return Err(CpiError::cpi(format!(
                "the project '{name}' shares things with the project 'default', because '{feature}' is not true; set it"
            ))
            .into());
        }
    }
    match project.get(tags::DIRECTOR) {
        Some(director) if asking.is_some_and(|asking| asking != director) => Err(CpiError::cpi(format!(
            "the project '{name}' belongs to the director '{director}'; give each director a project of its own"
        ))
        .into()),
        _ => Ok(()),
    }
}

fn watch_certificate(config: &IncusConfig) -> Result<(), ClientError> {
    let is_https = |text: &String| matches!(Endpoint::parse(text), Ok(Endpoint::Https { .. }));
    if !config.endpoints.iter().any(is_https) {
        return Ok(());
    }
    let left = config.identity()?.seconds_left()?;
    if left <= 0 {
        return Err(ClientError::Configuration(
            "the client certificate has expired; make a new one, have the cluster trust it, and give it as 'certificate' and \
             'private_key'"
                .to_owned(),
        ));
    }
    if left < A_MONTH {
        let days = left / (24 * 60 * 60);
        let _ = writeln!(
            std::io::stderr(),
            "warning: the client certificate for the cluster ends in {days} days; renew it"
        );
    }
    Ok(())
}
