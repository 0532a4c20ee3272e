//! Whether the agent answers questions for names, and how the programs of its VM come to ask it.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use windlass_durable::file;

use crate::agent::Agent;
use crate::layout::Base;
use crate::platform::Platform;
use crate::settings::Settings;

use super::records::Records;
use super::resolver::{Resolver, ResolverSettings, Sockets, name_servers, preferring};

/// Where programs look for name servers.
const NAME_SERVERS: &str = "/etc/resolv.conf";

fn wanted(settings: &Settings) -> Option<ResolverSettings> {
    let given = settings.agent.env.bosh.other.get("dns_resolver")?;
    match serde_json::from_value(given.clone()) {
        Ok(wanted) => Some(wanted),
        Err(error) => {
            tracing::error!("env.bosh.dns_resolver cannot be used, so names are not answered: {error}");
            None
        }
    }
}

/// A resolver with the names of before a restart, where the settings want one and the machine is the VM's own.
pub(crate) fn resolver(settings: &Settings, base: &Base, platform: &dyn Platform) -> Option<Arc<Resolver>> {
    wanted(settings).filter(|_| platform.can_answer_names())?;
    let records = std::fs::read(base.dns_records()).ok().and_then(|records| Records::read(&records).ok());
    let agent_id = settings.agent.agent_id.to_string();
    Some(Arc::new(Resolver::new(records.unwrap_or_default(), agent_id, base.health())))
}

/// Answers until the future is dropped. An address that cannot be had is told, and keeps nobody from anything else.
pub(crate) async fn serve(agent: &Agent) {
    let settings = agent.settings.current();
    let (Some(resolver), Some(wanted)) = (&agent.resolver, wanted(&settings)) else {
        return std::future::pending().await;
    };
    let address = SocketAddr::new(wanted.address, wanted.port);
    match Sockets::bind(address).await {
        Ok(sockets) => {
            tracing::info!("names of instances are answered at {address}");
            // The machine is set up by now, name servers included.
            let recursors: Vec<SocketAddr> = match wanted.recursors.is_empty() {
                true => name_servers(&std::fs::read_to_string(NAME_SERVERS).unwrap_or_default(), wanted.address),
                false => wanted.recursors.iter().map(|recursor| recursor.0).collect(),
            };
            if wanted.override_nameserver && wanted.port == 53 {
                prefer(wanted.address);
            }
            resolver.clone().serve(sockets, recursors).await;
        }
        Err(error) => {
            tracing::error!("names of instances are not answered: cannot listen on {address}: {error}");
            std::future::pending().await
        }
    }
}

/// Puts the resolver first among the name servers.
fn prefer(own: IpAddr) {
    let before = std::fs::read_to_string(NAME_SERVERS).unwrap_or_default();
    let after = preferring(&before, own);
    // Written in place: the runtime of a container may have mounted it there.
    if after != before
        && let Err(error) = file::write_in_place(Path::new(NAME_SERVERS), after)
    {
        tracing::error!("{NAME_SERVERS} cannot be written, so nobody asks {own}: {error}");
    }
}
