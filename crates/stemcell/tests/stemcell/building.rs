//! Stemcells that we build around an agent.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use windlass_contract::ApiVersion;
use windlass_contract::explain;
use windlass_stemcell::{Base, BuildError, BuildOptions, DigestCheck, build, inspect};

use crate::rig::{Folder, image_of};

pub(crate) fn options(folder: &Folder, output: &str) -> BuildOptions {
    let agent = folder.path("agent");
    fs::write(&agent, b"#!/bin/sh\nexit 0\n".repeat(10_000)).unwrap();
    BuildOptions { version: "1.10".into(), ..BuildOptions::new(agent, folder.path(output)) }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let folder = Folder::new();
    for (output, mode) in [("a.tgz", 0o755), ("b.tgz", 0o700)] {
        let options = options(&folder, output);
        fs::set_permissions(&options.agent, fs::Permissions::from_mode(mode)).unwrap();
        build(&options, |_, _| {}).unwrap();
        // The next agent is a new file, with another time and other permissions.
        fs::remove_file(&options.agent).unwrap();
    }
    assert_eq!(fs::read(folder.path("a.tgz")).unwrap(), fs::read(folder.path("b.tgz")).unwrap());
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 2, "nothing is left over");
}

#[test]
fn what_was_built_holds_what_an_agent_needs() {
    let folder = Folder::new();
    let options = options(&folder, "stemcell.tgz");
    let mut last = (0, 0);
    build(&options, |done, total| {
        let total = total.unwrap();
        assert!(done > last.0 && done <= total);
        last = (done, total);
    })
    .unwrap();
    assert_eq!(last, (170_000, 170_000));
    let inspection = inspect(&options.output, |_, _| {}).unwrap();
    assert_eq!(inspection.digest, DigestCheck::Matches);
    let manifest = &inspection.manifest;
    assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("windlass-minimal", "1.10"));
    assert_eq!((manifest.os(), manifest.api_version), ("windlass-minimal", Some(ApiVersion::V2)));
    assert_eq!(manifest.stemcell_formats, ["warden-tar"]);

    let image = image_of(&options.output);
    let agent = &image["var/vcap/bosh/bin/bosh-agent"];
    assert_eq!((agent.mode, &agent.content), (0o755, &fs::read(&options.agent).unwrap()));
    assert_eq!(image["tmp"].mode, 0o1777);
    let config: serde_json::Value = serde_json::from_slice(&image["var/vcap/bosh/agent.json"].content).unwrap();
    let settings = &config["Infrastructure"]["Settings"];
    assert_eq!(settings["Sources"][0]["Type"], "File");
    assert_eq!(settings["Sources"][0]["SettingsPath"], "/var/vcap/bosh/warden-cpi-agent-env.json");
    // An older caller makes the CPI leave them in a registry, whatever the stemcell.
    assert_eq!((&settings["UseRegistry"], &config["ApiVersion"]), (&Value::Bool(true), &Value::Null));
    let linux = config["Platform"]["Linux"].as_object().unwrap();
    let keys = ["UseDefaultTmpDir", "UsePreformattedPersistentDisk", "BindMountPersistentDisk", "SkipDiskSetup"];
    assert!(linux.len() == keys.len() && keys.iter().all(|key| linux[*key] == true));
    assert_eq!(image["var/vcap/bosh/etc/operating_system"].text(), "ubuntu\n");
    assert_eq!(image["var/vcap/bosh/etc/stemcell_version"].text(), "1.10\n");
    assert!(image["etc/passwd"].text().contains("\nvcap:x:1000:1000:"));
    assert!(image["etc/shadow"].mode & 0o007 == 0 && image["etc/shadow"].text().contains("vcap:*:"));
    assert_eq!(image["home/vcap"].owner, (1000, 1000));
    for empty in ["dev", "proc", "sys", "run", "tmp", "var/log", "warden-cpi-dev", "var/vcap/micro_bosh/data/cache"] {
        assert!(image[empty].kind.is_dir(), "{empty}");
        assert!(!image.keys().any(|path| path.starts_with(&format!("{empty}/"))), "{empty}");
    }
    assert!(!image.contains_key("var/vcap/data"), "the agent makes it");
}

#[test]
fn an_old_stemcell_looks_for_its_settings_in_a_registry() {
    let folder = Folder::new();
    let options = BuildOptions { api_version: ApiVersion::V1, ..options(&folder, "stemcell.tgz") };
    build(&options, |_, _| {}).unwrap();
    assert_eq!(inspect(&options.output, |_, _| {}).unwrap().manifest.api_version, Some(ApiVersion::V1));
    let config = &image_of(&options.output)["var/vcap/bosh/agent.json"].content;
    let config: Value = serde_json::from_slice(config).unwrap();
    assert_eq!(config["ApiVersion"], 1);
    assert_eq!(config["Infrastructure"]["Settings"]["UseRegistry"], true);
    assert_eq!(config["Infrastructure"]["Settings"]["UseServerName"], true);
    // The original's agents of that time read the registry's location nowhere but in the user data.
    let source = &config["Infrastructure"]["Settings"]["Sources"][0];
    assert_eq!(source["UserDataPath"], source["SettingsPath"]);
    let newest = BuildOptions { api_version: ApiVersion(3), ..options };
    build(&newest, |_, _| {}).unwrap();
    assert_eq!(inspect(&newest.output, |_, _| {}).unwrap().manifest.api_version, Some(ApiVersion(3)));
}

#[test]
fn an_agent_brings_the_libraries_it_needs() {
    let folder = Folder::new();
    // This test itself is a program with libraries, as the one binary is.
    let agent = std::env::current_exe().unwrap();
    let options = BuildOptions::new(&agent, folder.path("stemcell.tgz"));
    build(&options, |_, _| {}).unwrap();
    let image = image_of(&options.output);
    assert_eq!(image["var/vcap/bosh/bin/bosh-agent"].content, fs::read(&agent).unwrap());
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let loaded: BTreeSet<&str> = maps
        .lines()
        .filter_map(|line| line.split_once('/'))
        .map(|(_, path)| path)
        .filter(|path| path.contains(".so"))
        .collect();
    for library in loaded {
        let name = library.rsplit('/').next().unwrap();
        let packed = image.iter().find(|(path, _)| path.rsplit('/').next() == Some(name));
        let (_, packed) = packed.unwrap_or_else(|| panic!("{library} is missing"));
        assert_eq!(packed.content, fs::read(format!("/{library}")).unwrap());
    }
}

#[test]
fn a_busybox_is_a_shell_and_never_an_init() {
    let Some(busybox) = windlass_stemcell::find_busybox() else {
        println!("needs a static busybox: install the package busybox-static");
        return;
    };
    let folder = Folder::new();
    let base = Base::Minimal { busybox: Some(busybox.clone()) };
    let options = BuildOptions { base, ..options(&folder, "stemcell.tgz") };
    build(&options, |_, _| {}).unwrap();
    let image = image_of(&options.output);
    assert_eq!(image["bin/busybox"].content, fs::read(&busybox).unwrap());
    assert_eq!(image["bin/sh"].link, Path::new("busybox"));
    assert!(image["var/vcap/bosh/bin/bosh-agent-rc"].text().starts_with("#!/bin/sh\n"));
    assert!(!image.keys().any(|path| path.ends_with("/init")));
    let unusable = |path: &Path| {
        let base = Base::Minimal { busybox: Some(path.to_owned()) };
        build(&BuildOptions { base, ..options.clone() }, |_, _| {})
    };
    let dynamic = std::env::current_exe().unwrap();
    assert!(explain(&unusable(&dynamic).unwrap_err()).contains("'busybox-static'"));
}

#[test]
fn a_stemcell_that_could_not_work_is_not_built() {
    let folder = Folder::new();
    let good = options(&folder, "stemcell.tgz");
    let older_than_any = BuildOptions { api_version: ApiVersion(0), ..good.clone() };
    assert!(matches!(build(&older_than_any, |_, _| {}), Err(BuildError::ApiVersion(ApiVersion(0)))));
    let nameless = BuildOptions { name: String::new(), ..good.clone() };
    assert!(matches!(build(&nameless, |_, _| {}), Err(BuildError::Empty("name"))));
    for agent in [folder.path("missing"), folder.path("")] {
        assert!(matches!(build(&BuildOptions { agent, ..good.clone() }, |_, _| {}), Err(BuildError::Agent { .. })));
    }
    let nowhere = BuildOptions { output: folder.path("missing/stemcell.tgz"), ..good };
    assert!(matches!(build(&nowhere, |_, _| {}), Err(BuildError::Write { .. })));
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 1, "only the agent is there");
}

#[test]
fn a_build_replaces_an_older_stemcell_as_a_whole() {
    let folder = Folder::new();
    let options = options(&folder, "stemcell.tgz");
    fs::write(&options.output, "older").unwrap();
    build(&options, |_, _| {}).unwrap();
    let mut start = [0; 2];
    File::open(&options.output).unwrap().read_exact(&mut start).unwrap();
    assert_eq!(start, [0x1f, 0x8b]);
}
