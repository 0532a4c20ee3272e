//! Stemcells that are changed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::json;
use windlass_contract::ApiVersion;
use windlass_contract::explain;
use windlass_stemcell::{DigestCheck, RepackError, RepackOptions, build, inspect, repack};

use crate::building;
use crate::reading::MANIFEST;
use crate::rig::{Folder, Tarball, image_of};

/// The files of a stemcell.
fn files(stemcell: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(stemcell).unwrap()));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        files.insert(entry.path().unwrap().display().to_string(), content);
    }
    files
}

fn foreign(folder: &Folder) -> RepackOptions {
    let manifest = MANIFEST.replace("api_version: 3", "sc_api_version: 2\nbosh_protocol: '1'");
    let stemcell = Tarball::new()
        .file("./packages.txt", b"sh 1.0\n")
        .file("./image", b"an image of some cloud")
        .file("./stemcell.MF", manifest.as_bytes());
    let input = folder.with(&stemcell.gzip());
    RepackOptions { input, output: folder.path("repacked.tgz"), ..RepackOptions::default() }
}

#[test]
fn fields_change_and_everything_else_stays() {
    let folder = Folder::new();
    let options = RepackOptions {
        name: Some("other".into()),
        version: Some("1.10".into()),
        os: Some("other-os".into()),
        api_version: Some(ApiVersion(3)),
        cloud_properties: json!({"ami": {"x": "y"}}).as_object().unwrap().clone(),
        formats: Some(vec!["aws-raw".into()]),
        ..foreign(&folder)
    };
    repack(&options, |_, _| {}).unwrap();
    let (before, after) = (files(&options.input), files(&options.output));
    assert_eq!(after["packages.txt"], before["./packages.txt"]);
    assert_eq!(after["image"], before["./image"]);
    assert_eq!(after.len(), 3);
    let manifest = inspect(&options.output, |_, _| {}).unwrap().manifest;
    assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("other", "1.10"));
    assert_eq!((manifest.os(), manifest.api_version), ("other-os", Some(ApiVersion(3))));
    assert_eq!(manifest.stemcell_formats, ["aws-raw"]);
    assert_eq!(json!(manifest.cloud_properties), json!({"property1": "test", "ami": {"x": "y"}}));
    let text = String::from_utf8(after["stemcell.MF"].clone()).unwrap();
    assert!(text.contains("bosh_protocol: \"1\"") && !text.contains("sc_api_version"), "{text}");
}

#[test]
fn changing_nothing_changes_nothing_and_a_stemcell_can_be_changed_in_place() {
    let folder = Folder::new();
    let built = building::options(&folder, "stemcell.tgz");
    build(&built, |_, _| {}).unwrap();
    let before = fs::read(&built.output).unwrap();
    let options =
        RepackOptions { input: built.output.clone(), output: built.output.clone(), ..RepackOptions::default() };
    let mut last = (0, None);
    repack(&options, |done, total| last = (done, total)).unwrap();
    assert!(fs::read(&built.output).unwrap() == before, "the bytes differ");
    assert_eq!(last.1, Some(last.0), "progress ends at its end");
    repack(&RepackOptions { version: Some("2".into()), ..options }, |_, _| {}).unwrap();
    assert_eq!(inspect(&built.output, |_, _| {}).unwrap().manifest.version, "2");
}

#[test]
fn another_agent_is_the_only_change_of_an_image() {
    let folder = Folder::new();
    let built = building::options(&folder, "stemcell.tgz");
    build(&built, |_, _| {}).unwrap();
    let agent = folder.path("another-agent");
    fs::write(&agent, "#!/bin/sh\nexit 7\n").unwrap();
    let options = RepackOptions {
        input: built.output.clone(),
        output: folder.path("repacked.tgz"),
        agent: Some(agent),
        ..RepackOptions::default()
    };
    repack(&options, |_, _| {}).unwrap();
    assert_eq!(inspect(&options.output, |_, _| {}).unwrap().digest, DigestCheck::Matches);
    let (mut before, mut after) = (image_of(&built.output), image_of(&options.output));
    let (old, new) =
        (before.remove("var/vcap/bosh/bin/bosh-agent").unwrap(), after.remove("var/vcap/bosh/bin/bosh-agent").unwrap());
    assert_eq!((new.text(), new.mode), ("#!/bin/sh\nexit 7\n", old.mode));
    assert!(before == after, "something else changed");
}

#[test]
fn a_light_stemcell_is_made_of_a_heavy_one() {
    let folder = Folder::new();
    let options = RepackOptions { empty_image: true, ..foreign(&folder) };
    repack(&options, |_, _| {}).unwrap();
    let inspection = inspect(&options.output, |_, _| {}).unwrap();
    assert_eq!((inspection.image_size, inspection.digest), (0, DigestCheck::Matches));
}

#[test]
fn what_cannot_be_done_is_refused_and_nothing_is_left() {
    let folder = Folder::new();
    let good = foreign(&folder);
    let agent = folder.path("agent");
    fs::write(&agent, "#!/bin/sh\n").unwrap();
    let refusal = |options: RepackOptions| {
        let error = repack(&options, |_, _| {}).unwrap_err();
        assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 2, "only the stemcell and the agent are there");
        error
    };
    let with_agent = |agent: &Path| RepackOptions { agent: Some(agent.to_owned()), ..good.clone() };
    assert!(matches!(refusal(with_agent(&agent)), RepackError::Image(_)));
    assert!(matches!(refusal(with_agent(&folder.path("missing"))), RepackError::Program(_)));
    assert!(matches!(refusal(with_agent(&std::env::current_exe().unwrap())), RepackError::NotStatic(_)));
    let light = RepackOptions { empty_image: true, ..with_agent(&agent) };
    assert!(matches!(refusal(light), RepackError::AgentWithoutImage));
    assert!(matches!(refusal(RepackOptions { name: Some(String::new()), ..good.clone() }), RepackError::Empty("name")));
    let missing = RepackOptions { input: folder.path("missing"), ..good.clone() };
    assert!(matches!(refusal(missing), RepackError::Read(_)));

    let image = Tarball::new().file("etc/hosts", b"").gzip();
    fs::write(&good.input, Tarball::new().file("stemcell.MF", MANIFEST.as_bytes()).file("image", &image).gzip())
        .unwrap();
    assert!(explain(&refusal(with_agent(&agent))).contains("no '/var/vcap/bosh/bin/bosh-agent'"));
    let image = Tarball::new().file("../x", b"").gzip();
    fs::write(&good.input, Tarball::new().file("stemcell.MF", MANIFEST.as_bytes()).file("image", &image).gzip())
        .unwrap();
    assert!(matches!(refusal(with_agent(&agent)), RepackError::Outside(_)));
    let whole = fs::read(&good.input).unwrap();
    fs::write(&good.input, &whole[..whole.len() - 3]).unwrap();
    assert!(matches!(refusal(good.clone()), RepackError::Read(_)));
}
