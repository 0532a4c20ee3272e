//! The files of the stemcell that we build: what an agent needs in a container, and nothing else.

use serde_json::json;

/// An entry of the root file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path, without the leading slash; folders end with one.
    pub path: &'static str,
    /// Permissions.
    pub mode: u32,
    /// What it is.
    pub content: Content,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A folder.
    Folder,
    /// A file with this text.
    Text(String),
    /// The agent's executable.
    Agent,
}

/// Where CPIs of containers write the agent's settings before they start it.
pub const SETTINGS: &str = "/var/vcap/bosh/warden-cpi-agent-env.json";

/// Every entry, sorted, folders before what is in them.
pub fn entries(stemcell_version: &str) -> Vec<Entry> {
    let folder = |path| Entry { path, mode: 0o755, content: Content::Folder };
    let text = |path, text: &str| Entry { path, mode: 0o644, content: Content::Text(text.to_owned()) };
    vec![
        folder("dev/"),
        folder("etc/"),
        text("etc/group", "root:x:0:\nvcap:x:1000:\n"),
        text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nvcap:x:1000:1000:vcap:/home/vcap:/bin/sh\n"),
        folder("proc/"),
        folder("sys/"),
        Entry { path: "tmp/", mode: 0o1777, content: Content::Folder },
        folder("var/"),
        folder("var/vcap/"),
        folder("var/vcap/bosh/"),
        text("var/vcap/bosh/agent.json", &agent_json()),
        folder("var/vcap/bosh/bin/"),
        Entry { path: "var/vcap/bosh/bin/bosh-agent", mode: 0o755, content: Content::Agent },
        folder("var/vcap/bosh/etc/"),
        // The name of the agent's platform, not of the stemcell's operating system.
        text("var/vcap/bosh/etc/operating_system", "ubuntu\n"),
        text("var/vcap/bosh/etc/stemcell_version", &format!("{stemcell_version}\n")),
        folder("var/vcap/micro_bosh/"),
        folder("var/vcap/micro_bosh/data/"),
        folder("var/vcap/micro_bosh/data/cache/"),
        folder("warden-cpi-dev/"),
    ]
}

/// Disks are handed over mounted, and the settings lie in a file.
fn agent_json() -> String {
    let config = json!({
        "Platform": {"Linux": {
            "UseDefaultTmpDir": true,
            "UsePreformattedPersistentDisk": true,
            "BindMountPersistentDisk": true,
            "SkipDiskSetup": true,
        }},
        "Infrastructure": {"Settings": {"Sources": [{"Type": "File", "SettingsPath": SETTINGS}]}},
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_and_their_folders_come_first() {
        let paths: Vec<&str> = entries("1").iter().map(|entry| entry.path).collect();
        assert!(paths.is_sorted());
        for path in &paths {
            let parent = path.trim_end_matches('/').rsplit_once('/').map(|(parent, _)| format!("{parent}/"));
            assert!(parent.is_none_or(|parent| paths.contains(&parent.as_str())), "{path}");
        }
    }
}
