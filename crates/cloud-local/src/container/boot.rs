//! What runs first in a VM of a stemcell, and where the stemcell's agent looks for its settings.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::root::Root;
use crate::machine::SETTINGS_IN_VM;

pub(crate) const AGENT: &str = "/var/vcap/bosh/bin/bosh-agent";

/// The agent's own configuration.
pub(crate) const AGENT_CONFIG: &str = "/var/vcap/bosh/agent.json";

/// Where the agent is asked for its log.
pub(crate) const AGENT_LOG: &str = "/var/vcap/bosh/log/current";

/// What runs first in a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "init")]
pub(crate) enum Boot {
    /// The agent, kept running by us.
    Agent { command: Vec<String> },
    /// runit, which keeps the agent running.
    Runit,
    /// systemd, which keeps the agent running.
    Systemd,
}

/// What a stemcell's root file system tells.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BootableRoot {
    pub(crate) boot: Boot,
    /// Where the agent looks for its settings.
    pub(crate) settings_path: PathBuf,
    /// The agent's configuration, if the image has none of its own.
    pub(crate) agent_config: Option<Value>,
    /// Whether the agent fetches its settings from a registry when it is told where that is.
    pub(crate) asks_registry: bool,
}

/// why a root file system is no stemcell for containers
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    #[error("there is no agent at {AGENT}; use a stemcell that has one")]
    NoAgent,
    /// its agent gets its settings elsewhere
    #[error("its agent does not look for settings in a file, as {AGENT_CONFIG} says; use a stemcell for containers")]
    NoSettingsFile,
    /// its agent would wait for settings that are elsewhere
    #[error(
        "its agent never asks a registry, as {AGENT_CONFIG} says (no 'UseRegistry'); use a stemcell whose agent does, or a \
         request and a stemcell of version 2 or higher, which need no registry"
    )]
    NoRegistry,
    /// the agent's configuration is not understood
    #[error("{AGENT_CONFIG} is not understood")]
    Config(#[source] serde_json::Error),
    /// it cannot be read
    #[error("its files cannot be read")]
    Io(#[from] std::io::Error),
}

impl BootableRoot {
    /// Looks at the root file system in the folder `root`. `has_agent`: it gets one in any case.
    pub(crate) fn of(root: &Path, has_agent: bool) -> Result<Self, ImageError> {
        let root = Root::open(root)?;
        if !has_agent && !root.has_executable(AGENT) {
            return Err(ImageError::NoAgent);
        }
        let own = root.read(AGENT_CONFIG)?;
        let own: Option<Value> = own.map(|text| serde_json::from_str(&text)).transpose().map_err(ImageError::Config)?;
        let agent_config = own.is_none().then(container_config);
        let config = own.or_else(|| agent_config.clone()).unwrap_or_default();
        Ok(Self {
            boot: boot(&root, &config)?,
            settings_path: settings_path(&config)?,
            asks_registry: config["Infrastructure"]["Settings"]["UseRegistry"] == true,
            agent_config,
        })
    }
}

/// The version of the contract to which the configuration of an image limits its agent.
pub(crate) fn agent_version(root: &Path) -> Result<Option<u64>, ImageError> {
    let Some(text) = Root::open(root)?.read(AGENT_CONFIG)? else { return Ok(None) };
    let config: Value = serde_json::from_str(&text).map_err(ImageError::Config)?;
    Ok(config["ApiVersion"].as_u64())
}

fn settings_path(config: &Value) -> Result<PathBuf, ImageError> {
    let sources = config["Infrastructure"]["Settings"]["Sources"].as_array().into_iter().flatten();
    let mut files = sources.filter(|source| source["Type"] == "File");
    let path = files.find_map(|source| source["SettingsPath"].as_str()).filter(|path| path.starts_with('/'));
    path.map(PathBuf::from).ok_or(ImageError::NoSettingsFile)
}

/// As our container stemcells have it: disks are handed over mounted, and in a file lie the settings, or where they are.
fn container_config() -> Value {
    json!({
        "Platform": {"Linux": {
            "UseDefaultTmpDir": true,
            "UsePreformattedPersistentDisk": true,
            "BindMountPersistentDisk": true,
            "SkipDiskSetup": true,
        }},
        "Infrastructure": {"Settings": {
            "Sources": [{"Type": "File", "SettingsPath": SETTINGS_IN_VM, "UserDataPath": SETTINGS_IN_VM}],
            "UseRegistry": true, "UseServerName": true,
        }},
    })
}

fn boot(root: &Root, config: &Value) -> Result<Boot, ImageError> {
    if root.has("/usr/sbin/runsvdir-start") {
        return Ok(Boot::Runit);
    }
    let units = ["etc", "lib", "usr/lib"];
    let has_unit = |name| units.iter().any(|folder| root.has(&format!("/{folder}/systemd/system/{name}.service")));
    if root.has("/sbin/init") && (has_unit("bosh-agent") || has_unit("agent")) {
        return Ok(Boot::Systemd);
    }
    let platform = root.read("/var/vcap/bosh/etc/operating_system")?.unwrap_or_default();
    let platform = if platform.trim().is_empty() { "ubuntu" } else { platform.trim() };
    let mut command = [AGENT, "-P", platform, "-C", AGENT_CONFIG].map(str::to_owned).to_vec();
    // An agent that needs monit to run jobs would not start without it.
    if !root.has("/var/vcap/bosh/bin/monit") && config["RunsJobs"] != true {
        command.extend(["-M", "dummy"].map(str::to_owned));
    }
    Ok(Boot::Agent { command })
}

impl Boot {
    /// The command that runs first.
    pub(crate) fn command(&self) -> Vec<String> {
        match self {
            Self::Agent { command } => command.clone(),
            Self::Runit => vec!["/usr/sbin/runsvdir-start".to_owned()],
            Self::Systemd => vec!["/sbin/init".to_owned()],
        }
    }

    /// What tells the first process to end all others and itself.
    pub(crate) fn end_signal(&self) -> Signal {
        match self {
            Self::Agent { .. } => Signal::TERM,
            Self::Runit => Signal::HUP,
            // Ctrl-Alt-Delete: it ends all services, and nobody here starts them again.
            Self::Systemd => Signal::INT,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn each_kind_of_stemcell_is_booted_its_own_way() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert!(matches!(BootableRoot::of(root, false), Err(ImageError::NoAgent)));
        put(root, &AGENT[1..], "");
        let image = BootableRoot::of(root, false).unwrap();
        let command = [AGENT, "-P", "ubuntu", "-C", AGENT_CONFIG, "-M", "dummy"].map(str::to_owned).to_vec();
        assert_eq!(image.boot, Boot::Agent { command });
        assert_eq!(image.agent_config, Some(container_config()));
        assert!(image.asks_registry, "as our own agent can");
        let mut config = container_config();
        config["RunsJobs"] = json!(true);
        put(root, &AGENT_CONFIG[1..], &config.to_string());
        let command = [AGENT, "-P", "ubuntu", "-C", AGENT_CONFIG].map(str::to_owned).to_vec();
        assert_eq!(BootableRoot::of(root, false).unwrap().boot, Boot::Agent { command }, "ours needs no monit");
        put(root, "sbin/init", "");
        assert!(matches!(BootableRoot::of(root, false).unwrap().boot, Boot::Agent { .. }), "it would start no agent");
        put(root, "lib/systemd/system/bosh-agent.service", "");
        assert_eq!(BootableRoot::of(root, false).unwrap().boot, Boot::Systemd);
        put(root, "usr/sbin/runsvdir-start", "");
        assert_eq!(BootableRoot::of(root, false).unwrap().boot, Boot::Runit);
    }

    #[test]
    fn the_settings_go_where_the_image_says() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), &AGENT[1..], "");
        let sources = json!([{"Type": "HTTP", "URI": "http://x"}, {"Type": "File", "SettingsPath": "/etc/own.json"}]);
        let config = json!({"Infrastructure": {"Settings": {"Sources": sources}}}).to_string();
        put(folder.path(), &AGENT_CONFIG[1..], &config);
        let image = BootableRoot::of(folder.path(), false).unwrap();
        assert_eq!((image.settings_path.to_str(), image.agent_config), (Some("/etc/own.json"), None));
        assert!(!image.asks_registry);
        put(folder.path(), &AGENT_CONFIG[1..], &config.replace("File", "CDROM"));
        assert!(matches!(BootableRoot::of(folder.path(), false), Err(ImageError::NoSettingsFile)));
        put(folder.path(), &AGENT_CONFIG[1..], "{");
        assert!(matches!(BootableRoot::of(folder.path(), false), Err(ImageError::Config(_))));
    }
}
