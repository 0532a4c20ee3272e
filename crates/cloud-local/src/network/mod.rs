//! Which addresses a VM gets, and the interfaces that they are on.
//!
//! - [`loopback`]: in process isolation, addresses of the loopback interface.
//! - [`bridged`]: in container isolation, interfaces on bridges, one bridge per subnet.
//! - [`bridge`]: bridges, made with their first VM and removed with their last; what they must not overlap.
//! - [`wire`]: connecting a container to its bridges.
//! - [`outbound`]: ways out of this machine, for those who want them.
//! - [`netlink`]: the conversation with the kernel.

pub(crate) mod bridge;
pub(crate) mod bridged;
pub(crate) mod loopback;
pub(crate) mod netlink;
pub(crate) mod outbound;
pub(crate) mod wire;

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use windlass_contract::Networks;
use windlass_durable::lock::{FileLock, Locks};

/// How long a change of networks waits for another one.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// The networks of a VM with an address for each.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// As the caller gave them, with what the cloud chose.
    pub(crate) networks: Networks,
    /// All addresses; in process isolation, the first is the one that the agent listens on.
    pub(crate) addresses: Vec<IpAddr>,
    /// How a container is connected.
    pub(crate) wiring: Wiring,
}

/// How a container is connected. Kept with the VM, so that a reboot connects it in the same way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wiring {
    /// In the order of their names in the VM: `eth0`, `eth1`, …
    pub(crate) interfaces: Vec<Interface>,
    /// Addresses beyond those of the subnets; on the first interface.
    pub(crate) vips: Vec<IpAddr>,
    /// Where everything else goes: at most one per family.
    pub(crate) gateways: Vec<IpAddr>,
    /// Whom to ask for names.
    pub(crate) name_servers: Vec<String>,
    /// Whether the VM may reach beyond this machine.
    pub(crate) outbound: bool,
}

/// An interface of a container on the bridge of a subnet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interface {
    pub(crate) bridge: String,
    pub(crate) subnet: IpNet,
    /// This machine's address in the subnet.
    pub(crate) machine: IpAddr,
    pub(crate) addresses: Vec<IpAddr>,
}

/// why the network could not be changed
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("cannot {doing} {what}")]
    Kernel {
        doing: &'static str,
        what: String,
        #[source]
        source: std::io::Error,
    },
    /// somebody else uses these addresses
    #[error("{wanted} overlaps {used}, which this machine uses for something else; choose another range")]
    Overlap { wanted: IpNet, used: String },
    /// the firewall's program did not do it
    #[error("nft refused to {doing}: {said}")]
    Firewall { doing: String, said: String },
}

/// Held while addresses are given or bridges made and removed: short, and by one process at a time.
pub(crate) fn lock(state: &std::path::Path) -> std::io::Result<FileLock> {
    let locks = state.join("locks");
    windlass_durable::file::create_private_dir(&locks)?;
    Locks::new(locks).acquire("networks", PATIENCE)
}

fn refused<'a>(doing: &'static str, what: impl ToString + 'a) -> impl FnOnce(std::io::Error) -> NetworkError + 'a {
    move |source| NetworkError::Kernel { doing, what: what.to_string(), source }
}

impl From<NetworkError> for windlass_contract::cpi::CpiError {
    fn from(error: NetworkError) -> Self {
        Self::cloud(windlass_contract::explain(&error))
    }
}
