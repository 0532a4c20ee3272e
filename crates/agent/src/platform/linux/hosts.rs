//! The machine's name and the names of others.

use std::io;
use std::path::PathBuf;

use serde_json::json;
use windlass_durable::{file, kill_point};

use super::Linux;

/// why names are not known
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostsError {
    /// the machine keeps its old name
    #[error("cannot call the machine '{name}'")]
    Name {
        name: String,
        #[source]
        source: io::Error,
    },
    /// a file cannot be changed
    #[error("cannot change {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The hosts file, in the original's words.
fn hosts(hostname: &str, records: &[(String, String)]) -> String {
    let mut text = format!(
        "127.0.0.1 {hostname} localhost\n\n# The following lines are desirable for IPv6 capable hosts\n::1 {hostname} \
         localhost ip6-localhost ip6-loopback\nfe00::0 ip6-localnet\nff00::0 ip6-mcastprefix\nff02::1 ip6-allnodes\nff02::2 \
         ip6-allrouters\nff02::3 ip6-allhosts\n"
    );
    text.extend(records.iter().map(|(address, name)| format!("{address} {name}\n")));
    text
}

impl Linux {
    /// Calls the machine by its agent's id, once: afterwards its owner may call it otherwise.
    pub(super) fn call_machine(&self, hostname: &str) -> Result<(), HostsError> {
        let state = self.base.bosh().join("agent_state.json");
        let done = json!({"Linux": {"hosts_configured": true}});
        let known = std::fs::read(&state).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if known.as_ref() == Some(&done) {
            return Ok(());
        }
        kill_point("before the host's name is set");
        rustix::system::sethostname(hostname.as_bytes())
            .map_err(|error| HostsError::Name { name: hostname.to_owned(), source: error.into() })?;
        self.write_etc("/etc/hostname", hostname)?;
        self.write_etc("/etc/hosts", &hosts(hostname, &[]))?;
        file::write(&state, done.to_string().as_bytes(), 0o644).map_err(|source| HostsError::Io { path: state, source })
    }

    pub(super) fn write_hosts_file(&self, hostname: &str, records: &[(String, String)]) -> Result<(), HostsError> {
        self.write_etc("/etc/hosts", &hosts(hostname, records))
    }

    /// Replaces a file as a whole; one on which a container's runtime mounted its own is overwritten in place.
    fn write_etc(&self, path: &str, text: &str) -> Result<(), HostsError> {
        let path = self.root.at(path);
        let written = match file::write(&path, text.as_bytes(), 0o644) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => file::write_in_place(&path, text),
            written => written,
        };
        written.map_err(|source| HostsError::Io { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_file_names_the_machine_and_then_the_others() {
        let text = hosts("agent-1", &[("10.0.0.2".into(), "a.b".into())]);
        assert!(text.starts_with("127.0.0.1 agent-1 localhost\n\n# The following"), "{text}");
        assert!(text.ends_with("ff02::3 ip6-allhosts\n10.0.0.2 a.b\n"), "{text}");
        assert!(text.contains("\n::1 agent-1 localhost ip6-localhost ip6-loopback\nfe00::0"), "{text}");
    }
}
