//! The files that make a root file system a stemcell.
//!
//! [`minimal`] is a whole one: an agent and nothing else. [`additions`] are what a real system gets on top of its own.

use std::path::PathBuf;

use serde_json::json;
use windlass_contract::ApiVersion;

use crate::accounts::Accounts;
use crate::busybox::Busybox;
use crate::companions::{self, Programs};
use crate::init::Init;
use crate::program::Needs;

/// An entry of the root file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path, without the leading slash; folders end with one.
    pub path: String,
    pub mode: u32,
    /// The number of its user.
    pub user: u32,
    /// The number of its group.
    pub group: u32,
    pub content: Content,
    /// Whether what a root file system has of its own at this place is left there.
    pub yields: bool,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Folder,
    /// A file with this text.
    Text(String),
    /// A file with the content of this one.
    File(PathBuf),
    /// A link to this path.
    Link(String),
}

/// Where CPIs of containers write the agent's settings before they start it.
pub const SETTINGS: &str = "/var/vcap/bosh/warden-cpi-agent-env.json";
pub const AGENT: &str = "var/vcap/bosh/bin/bosh-agent";
/// The folder of the agent.
pub(crate) const AGENT_FOLDER: &str = "/var/vcap/bosh/bin";
/// Where the agent's own loader and libraries are in a system that has others.
pub(crate) const LIBRARIES: &str = "var/vcap/bosh/lib/";

/// What the files depend on.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) stemcell_version: String,
    pub(crate) api_version: ApiVersion,
    pub(crate) agent: PathBuf,
    /// What the agent needs to run, if it is not static.
    pub(crate) needs: Option<Needs>,
    /// Whether the agent needs nobody to run jobs.
    pub(crate) runs_jobs: bool,
}

/// What of a system decides about what it gets.
#[derive(Debug, Clone)]
pub(crate) struct System {
    pub(crate) init: Init,
    pub(crate) programs: Programs,
    pub(crate) has_monit: bool,
}

/// Every entry of a stemcell without a system, sorted, folders before what is in them.
pub(crate) fn minimal(setup: &Setup, accounts: &Accounts, busybox: Option<&Busybox>) -> Vec<Entry> {
    let mut entries = of_every_system(setup, None);
    entries.push(program(AGENT, setup.agent.clone()));
    entries.extend(accounts_files(accounts));
    entries.extend(names());
    if let Some(needs) = &setup.needs {
        // The loader inside finds them where the one outside did.
        let loader = (needs.loader.clone(), needs.loader.clone());
        let libraries = needs.libraries.values().map(|library| (library.target.clone(), library.source.clone()));
        for (target, source) in libraries.chain([loader]) {
            entries.push(program(&in_image(&target), source));
        }
    }
    if let Some(busybox) = busybox {
        entries.push(program("bin/busybox", busybox.program.clone()));
        entries.extend(busybox.applets.iter().map(|name| link(&format!("bin/{name}"), "busybox")));
        entries.extend(companions::without_system());
    }
    with_folders(entries)
}

/// Every entry of a stemcell whose programs are those of the machine that its VMs run on. `has_agent`: it brings its own agent.
pub(crate) fn of_host(setup: &Setup, accounts: &Accounts, has_agent: bool) -> Vec<Entry> {
    let mut entries = of_every_system(setup, None);
    if has_agent {
        entries.push(program(AGENT, setup.agent.clone()));
    }
    entries.extend(accounts_files(accounts));
    entries.extend(names());
    entries.extend(companions::without_system());
    with_folders(entries)
}

/// How names are found.
fn names() -> [Entry; 2] {
    [
        text("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
        text("etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"),
    ]
}

/// What a system gets on top of its own files.
pub(crate) fn additions(setup: &Setup, accounts: &Accounts, system: &System) -> Vec<Entry> {
    // The service manager starts monit. Without monit the agent needs none, and writes name servers itself.
    let service_manager = (system.init == Init::Systemd && system.has_monit).then_some("systemd");
    let mut entries = of_every_system(setup, service_manager);
    entries.extend(accounts_files(accounts));
    match &setup.needs {
        None => entries.push(program(AGENT, setup.agent.clone())),
        Some(needs) => {
            // The system's own libraries may be older than those that the agent was built with, and stay as they are.
            entries.push(Entry { mode: 0o755, ..text(AGENT, LAUNCHER) });
            entries.push(program(&format!("{LIBRARIES}bosh-agent"), setup.agent.clone()));
            entries.push(program(&format!("{LIBRARIES}ld.so"), needs.loader.clone()));
            for (name, library) in &needs.libraries {
                entries.push(program(&format!("{LIBRARIES}{name}"), library.source.clone()));
            }
        }
    }
    entries.extend(companions::companions(system));
    // An agent that needs monit to run jobs runs none where there is no monit.
    let flags = if system.has_monit || setup.runs_jobs { "" } else { " -M dummy" };
    let start = format!("{START}{flags}\n");
    match system.init {
        Init::Agent => {}
        Init::Systemd => {
            entries.push(text("etc/systemd/system/bosh-agent.service", &format!("{UNIT}ExecStart={start}")));
            let wanted = "etc/systemd/system/multi-user.target.wants/bosh-agent.service";
            entries.push(link(wanted, "/etc/systemd/system/bosh-agent.service"));
        }
        Init::Runit => {
            entries.push(Entry { mode: 0o755, ..text("etc/sv/agent/run", &format!("{RUN}exec {start}")) });
            entries.push(link("etc/service/agent", "/etc/sv/agent"));
        }
    }
    with_folders(entries)
}

const LAUNCHER: &str = "#!/bin/sh\nlib=\"${0%/*}/../lib\"\nexport WINDLASS_AGENT=\"$0\"\nexec \"$lib/ld.so\" --library-path \"$lib\" \"$lib/bosh-agent\" \"$@\"\n";
const START: &str = "/var/vcap/bosh/bin/bosh-agent -P ubuntu -C /var/vcap/bosh/agent.json";
// Without a limit of starts: an agent that ends at once, because its settings are not there yet, comes back until they are.
const UNIT: &str = "[Unit]\nDescription=BOSH agent\nStartLimitIntervalSec=0\n\n[Install]\nWantedBy=multi-user.target\n\n\
    [Service]\nWorkingDirectory=/var/vcap/bosh\n\
    Environment=PATH=/var/vcap/bosh/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n\
    Restart=always\nRestartSec=1\nKillMode=process\n";
const RUN: &str = "#!/bin/sh\nPATH=/var/vcap/bosh/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n\
    export PATH\ncd /var/vcap/bosh || exit 1\nexec 2>&1\n";

fn of_every_system(setup: &Setup, service_manager: Option<&str>) -> Vec<Entry> {
    let folder = |path| folder(path, 0o755);
    vec![
        folder("dev/"),
        Entry { yields: true, ..text("etc/resolv.conf", "") },
        Entry { user: 1000, group: 1000, ..self::folder("home/vcap/", 0o700) },
        folder("proc/"),
        self::folder("root/", 0o700),
        folder("run/"),
        folder("sys/"),
        self::folder("tmp/", 0o1777),
        text("var/vcap/bosh/agent.json", &agent_json(setup, service_manager)),
        // The name of the agent's platform, not of the stemcell's operating system.
        text("var/vcap/bosh/etc/operating_system", "ubuntu\n"),
        text("var/vcap/bosh/etc/stemcell_version", &format!("{}\n", setup.stemcell_version)),
        text("var/vcap/bosh/etc/infrastructure", "warden\n"),
        folder("var/log/"),
        folder("var/vcap/micro_bosh/data/cache/"),
        self::folder("var/vcap/monit/", 0o700),
        self::folder("var/tmp/", 0o1777),
        // Disks of containers appear here.
        folder("warden-cpi-dev/"),
    ]
}

fn accounts_files(accounts: &Accounts) -> [Entry; 3] {
    [
        text("etc/group", &accounts.group),
        text("etc/passwd", &accounts.passwd),
        Entry { mode: 0o640, group: accounts.shadow_group, ..text("etc/shadow", &accounts.shadow) },
    ]
}

/// Disks are handed over mounted, and the settings lie in a file. Where director, CPI and stemcell are not all of version 2, what
/// lies there says in which registry they are.
fn agent_json(setup: &Setup, service_manager: Option<&str>) -> String {
    let mut config = json!({
        "Platform": {"Linux": {
            "UseDefaultTmpDir": true,
            "UsePreformattedPersistentDisk": true,
            "BindMountPersistentDisk": true,
            "SkipDiskSetup": true,
        }},
        "Infrastructure": {"Settings": {
            // The original's agents that know registries read nothing but the user data; later ones ignore that key.
            "Sources": [{"Type": "File", "SettingsPath": SETTINGS, "UserDataPath": SETTINGS}],
            // A file has no instance id that could name the VM in a registry.
            "UseRegistry": true, "UseServerName": true,
        }},
    });
    if let Some(name) = service_manager {
        config["Platform"]["Linux"]["ServiceManager"] = name.into();
    }
    if setup.runs_jobs {
        // The agent's own supervisor takes the place of monit.
        config["RunsJobs"] = true.into();
    }
    if setup.api_version < ApiVersion::V2 {
        config["ApiVersion"] = setup.api_version.0.into();
    }
    format!("{config:#}\n")
}

/// Sorted by path, with the folders that nobody named.
fn with_folders(entries: Vec<Entry>) -> Vec<Entry> {
    let mut all = std::collections::BTreeMap::new();
    for entry in entries {
        let mut path = entry.path.trim_end_matches('/');
        while let Some((parent, _)) = path.rsplit_once('/') {
            all.entry(format!("{parent}/")).or_insert_with(|| folder(&format!("{parent}/"), 0o755));
            path = parent;
        }
        all.insert(entry.path.clone(), entry);
    }
    all.into_values().collect()
}

pub(crate) fn folder(path: &str, mode: u32) -> Entry {
    Entry { path: path.to_owned(), mode, user: 0, group: 0, content: Content::Folder, yields: true }
}

pub(crate) fn text(path: &str, text: &str) -> Entry {
    let content = Content::Text(text.to_owned());
    Entry { path: path.to_owned(), mode: 0o644, user: 0, group: 0, content, yields: false }
}

fn program(path: &str, source: PathBuf) -> Entry {
    Entry { path: path.to_owned(), mode: 0o755, user: 0, group: 0, content: Content::File(source), yields: false }
}

pub(crate) fn link(path: &str, target: &str) -> Entry {
    Entry {
        path: path.to_owned(),
        mode: 0o777,
        user: 0,
        group: 0,
        content: Content::Link(target.to_owned()),
        yields: false,
    }
}

/// A path of a library as the image has it: without `..`, which a loader understands and a tar does not.
fn in_image(path: &std::path::Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            std::path::Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            std::path::Component::ParentDir => drop(parts.pop()),
            _ => {}
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn entries_are_sorted_and_their_folders_come_first() {
        let setup = Setup {
            stemcell_version: "1".into(),
            api_version: ApiVersion::V2,
            agent: "/agent".into(),
            needs: None,
            runs_jobs: false,
        };
        let busybox = Busybox { program: "/busybox".into(), applets: vec!["sh".into()] };
        let system = System { init: Init::Systemd, programs: Programs::from(["sh".into()]), has_monit: false };
        for entries in
            [minimal(&setup, &Accounts::minimal(), Some(&busybox)), additions(&setup, &Accounts::minimal(), &system)]
        {
            let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
            assert!(paths.is_sorted());
            for (at, path) in paths.iter().enumerate() {
                let parent = path.trim_end_matches('/').rsplit_once('/').map(|(parent, _)| format!("{parent}/"));
                assert!(parent.is_none_or(|parent| paths[..at].contains(&parent.as_str())), "{path}");
            }
        }
    }

    #[test]
    fn a_library_has_one_place_in_an_image() {
        assert_eq!(in_image(Path::new("/var/vcap/bosh/bin/../lib/libx.so")), "var/vcap/bosh/lib/libx.so");
    }
}
