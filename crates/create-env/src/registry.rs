//! A registry for the time of a run, where the CPI or the stemcell is too old to do without one. What is in it stays beside the
//! state file for the next run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use windlass_contract::{Networks, Object, Secret};
use windlass_durable::file;
use windlass_registry::Credentials;
use windlass_registry::server::{Config, Registry, StartError};

use crate::cloud_provider::{RegistryPlace, SshTunnel};

/// The one who writes.
const USER: &str = "registry";
/// How long ssh waits before it tries again: the VM is not there yet.
const AGAIN: Duration = Duration::from_millis(500);

/// why there is no registry
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// it does not start
    #[error("the registry, which this CPI or stemcell needs, cannot start")]
    Start(#[from] StartError),
    /// its folder cannot be made
    #[error("cannot use '{}' for the registry", path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// A registry that runs.
#[derive(Debug)]
pub struct EnvRegistry {
    registry: Registry,
    tunnel: Option<tokio::task::JoinHandle<()>>,
    /// `registry` of the CPI's properties.
    pub properties: Object,
}

impl EnvRegistry {
    /// Starts one with its content in `folder`.
    pub async fn start(
        folder: &Path,
        place: &RegistryPlace,
        tunnel: Option<&SshTunnel>,
        networks: &Networks,
        manifest_folder: &Path,
    ) -> Result<Self, RegistryError> {
        let password = password(folder)?;
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        // Through the tunnel, the VM finds it on its own loopback.
        let host = if tunnel.is_some() { loopback } else { place.host.unwrap_or_else(|| reachable_from(networks)) };
        // An address may come with the VM, as those of bridges do: nobody can listen there before.
        let listen = if host.is_loopback() { loopback } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        let database = Secret::new(format!("sqlite:{}", folder.join("registry.db").display()));
        let writer = Credentials { user: USER.to_owned(), password: password.clone() };
        let registry =
            Registry::start(Config::new(SocketAddr::new(listen, place.port), database, vec![writer])).await?;
        let endpoint = format!("http://{}", SocketAddr::new(host, registry.address().port()));
        let properties = json!({"endpoint": endpoint, "host": host, "port": registry.address().port(), "user": USER,
            "username": USER, "password": password.reveal()});
        let tunnel = tunnel.map(|tunnel| {
            let port = registry.address().port();
            tokio::spawn(keep_tunnel(tunnel.clone(), port, manifest_folder.to_owned()))
        });
        Ok(Self { registry, tunnel, properties: properties.as_object().cloned().unwrap_or_default() })
    }

    pub async fn stop(self) {
        if let Some(tunnel) = self.tunnel {
            tunnel.abort();
        }
        self.registry.stop().await;
    }
}

/// The password of the one who writes: the same in each run, because those of VMs, by which they read, are made from it.
fn password(folder: &Path) -> Result<Secret, RegistryError> {
    let failed = |source| RegistryError::Folder { path: folder.to_owned(), source };
    file::create_private_dir(folder).map_err(failed)?;
    let path = folder.join("password");
    match std::fs::read_to_string(&path) {
        Ok(password) => Ok(Secret::new(password)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let password = uuid::Uuid::new_v4().simple().to_string();
            file::write(&path, password.as_bytes(), file::PRIVATE).map_err(failed)?;
            Ok(Secret::new(password))
        }
        Err(error) => Err(failed(error)),
    }
}

/// The address at which VMs find this machine, whether or not one is there: the one that it has on its way out, or loopback
/// if they are on loopback themselves.
fn reachable_from(networks: &Networks) -> IpAddr {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let addresses = || networks.values().filter_map(|network| network.ip.as_ref()?.parse().ok());
    if addresses().any(|ip: IpAddr| ip.is_loopback()) {
        return loopback;
    }
    let gateway = networks.values().find(|network| network.is_default_for("gateway")).and_then(|it| it.gateway.clone());
    way_out().ok().or(gateway.and_then(|gateway| gateway.parse().ok())).unwrap_or(loopback)
}

/// The address that this machine has on its way out. A datagram socket that is connected sends nothing.
fn way_out() -> std::io::Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 254), 9))?;
    Ok(socket.local_addr()?.ip())
}

/// Ties the VM's loopback to ours, as soon as the VM is there and again whenever it breaks.
async fn keep_tunnel(tunnel: SshTunnel, port: u16, manifest_folder: PathBuf) {
    let key = tunnel.private_key.as_ref().map(|key| key_file(key, &manifest_folder));
    loop {
        let mut ssh = tokio::process::Command::new("ssh");
        ssh.args(["-N", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-o", "StrictHostKeyChecking=no"])
            .args(["-o", "UserKnownHostsFile=/dev/null", "-p", &tunnel.port.to_string()])
            // Nobody knows the VM's key, so whoever answers gets nothing of the operator's.
            .args(["-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "PasswordAuthentication=no"])
            .args(["-R", &format!("127.0.0.1:{port}:127.0.0.1:{port}")]);
        if let Some(Ok(key)) = &key {
            ssh.arg("-i").arg(key.path());
        }
        ssh.arg(format!("{}@{}", tunnel.user, tunnel.host))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        match ssh.stderr(Stdio::null()).status().await {
            Ok(status) => tracing::debug!(%status, "ssh ended"),
            Err(error) => tracing::warn!(%error, "ssh cannot be started, so the VM does not reach the registry"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// A key that ssh can read: as a file of its own, or where it is.
fn key_file(key: &Secret, manifest_folder: &Path) -> std::io::Result<KeyFile> {
    if !key.reveal().contains("-----BEGIN") {
        return Ok(KeyFile::Given(manifest_folder.join(key.reveal())));
    }
    let mut file = tempfile::NamedTempFile::new()?;
    std::io::Write::write_all(&mut file, key.reveal().as_bytes())?;
    Ok(KeyFile::Written(file))
}

enum KeyFile {
    Given(PathBuf),
    Written(tempfile::NamedTempFile),
}

impl KeyFile {
    fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Written(file) => file.path(),
        }
    }
}
