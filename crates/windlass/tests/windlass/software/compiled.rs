//! Compiled releases, end to end: exported, inspected, uploaded without sources, deployed; and compiled once by two deploys.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use windlass_durable::sweep::Points;
use windlass_rigs::own_machine::is_own_machine;

use super::Shop;
use super::release::Sources;
use crate::keeping::api::Api;

impl Shop {
    /// What its packages are compiled for.
    fn slug(&self) -> String {
        let version = self.site.rows(&["stemcells"])[0]["version"].as_str().unwrap().to_owned();
        format!("{}/{}", self.os, version.trim_end_matches('*'))
    }

    /// Exports the release, and says what was printed.
    fn export(&self, words: &[&str]) -> (String, PathBuf) {
        let folder = self.site.file("exports");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let (slug, into) = (self.slug(), folder.to_str().unwrap());
        let export = ["-d", "example", "export-release", "greeter/1", &slug, "--dir", into];
        let said = self.site.ok(&[&export[..], words].concat());
        let files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [tarball] = files.as_slice() else { panic!("{files:?}") };
        (said, tarball.clone())
    }

    /// A deployment that uses the release and has no instances.
    fn deploy_nothing(&self) {
        let manifest = "name: example\nreleases: [{name: greeter, version: '1'}]\nstemcells: []\nupdate: {canaries: 1, \
            max_in_flight: 1, canary_watch_time: 1, update_watch_time: 1}\ninstance_groups: []\n";
        fs::write(self.site.manifest(), manifest).unwrap();
        self.site.deploy();
    }

    fn made_blobs(&self) -> usize {
        fs::read_dir(self.site.state_dir().join("blobs")).unwrap().count()
    }

    /// How often agents were asked to compile something.
    fn compilations(&self) -> usize {
        let log = self.site.director_log();
        log.lines().filter(|line| line.contains("asking the agent") && line.contains("compile_package")).count()
    }
}

#[test]
fn a_release_is_exported_and_deployed_without_its_sources() {
    if !is_own_machine("software::compiled::a_release_is_exported_and_deployed_without_its_sources") {
        return;
    }
    let shop = Shop::in_containers();
    shop.deploy_nothing();
    let refused = |words: &[&str], expected: &str| {
        let said = shop.site.fails(&[&["-d", "example", "export-release"], words].concat());
        assert!(said.contains(expected), "{said}");
    };
    let slug = shop.slug();
    refused(&["greeter/2", &slug], "Release version 'greeter/2' doesn't exist");
    refused(&["nobody/1", &slug], "Release 'nobody' doesn't exist");
    refused(&["greeter/1", "windlass-host/1"], "fits this machine alone");
    refused(&["greeter/1", "nowhere/1"], "Stemcell version '1' for OS 'nowhere' doesn't exist");
    refused(
        &["greeter/1", &slug, "--job", "nobody"],
        "Job 'nobody' for release 'greeter/1' doesn't exist; it has greeter",
    );

    let (said, tarball) = shop.export(&[]);
    assert!(said.contains("Compiling packages: words/") && said.contains("Compiling packages: greeter/"), "{said}");
    assert!(said.contains("copying packages: greeter/") && said.contains("copying jobs: greeter/"), "{said}");
    assert!(shop.site.in_cloud("vms").is_empty(), "a worker is left");
    let name = tarball.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.starts_with(&format!("greeter-1-{}-", slug.replace('/', "-"))), "{name}");
    let inspected = shop.site.ok(&["inspect-local-release", tarball.to_str().unwrap()]);
    let (os, version) = slug.split_once('/').unwrap();
    assert!(inspected.contains(os) && inspected.contains(version) && inspected.contains("words"), "{inspected}");
    let kept = shop.site.file("compiled.tgz");
    fs::copy(&tarball, &kept).unwrap();
    let (again, _) = shop.export(&["--job", "greeter"]);
    assert!(!again.contains("Compiling packages"), "{again}");
    assert_eq!(shop.made_blobs(), 2);
    let cleaned = shop.site.ok(&["-n", "clean-up"]);
    assert!(cleaned.contains("Deleting exported releases"), "{cleaned}");
    assert_eq!(shop.made_blobs(), 0);

    shop.site.ok(&["-n", "-d", "example", "delete-deployment"]);
    shop.site.ok(&["-n", "delete-release", "greeter"]);
    assert_eq!(fs::read_dir(shop.site.state_dir().join("releases")).unwrap().count(), 0, "an archive is left");
    let kept = kept.to_str().unwrap();
    let said = shop.site.ok(&["upload-release", kept]);
    assert!(said.contains("Creating new compiled packages: words/"), "{said}");
    assert!(said.contains("Compiled Release has been created: greeter/1"), "{said}");
    let said = shop.site.ok(&["upload-release", kept]);
    assert!(!said.contains("Creating new"), "{said}");
    for package in Api::of(&shop.site).get("/releases/greeter?version=1")["packages"].as_array().unwrap() {
        assert!(package["blobstore_id"].is_null(), "{package}");
        assert_eq!(package["compiled_packages"][0]["stemcell"], slug.as_str(), "{package}");
    }
    it_is_refused_where_it_does_not_fit(&shop);

    let said = shop.deploy("1", "{name: you}");
    assert!(!said.contains("Compiling packages"), "{said}");
    assert!(shop.runs(), "{:?}", shop.processes());
    assert!(shop.greeting("front").ends_with(" world"), "{}", shop.greeting("front"));
    // The sources come later, and change nothing.
    shop.upload(&Sources::default());
    let plan = shop.site.ok(&["plan", &shop.site.manifest()]);
    assert!(plan.contains("nothing to do"), "{plan}");
    let refused = shop.site.fails(&["-n", "delete-release", "greeter/1"]);
    assert!(refused.contains("ReleaseVersion 'greeter/1' is still in use by: example"), "{refused}");
    shop.site.ok(&["-n", "-d", "example", "delete-deployment"]);
    let cleaned = shop.site.ok(&["-n", "clean-up", "--all"]);
    assert!(cleaned.contains("Deleting releases: greeter/1"), "{cleaned}");
    assert_eq!(fs::read_dir(shop.site.state_dir().join("releases")).unwrap().count(), 0, "an archive is left");
}

/// On a stemcell of another line there is nothing that could run.
fn it_is_refused_where_it_does_not_fit(shop: &Shop) {
    let stemcell = shop.site.file("other-line.tgz");
    let stemcell = stemcell.to_str().unwrap();
    shop.site.ok(&["stemcell", "build", "--output", stemcell, "--version", "9999.1"]);
    shop.site.ok(&["upload-stemcell", stemcell]);
    let manifest = shop.manifest("1", "{}");
    let said = shop.site.fails(&["-n", "-d", "example", "deploy", &manifest]);
    let expected = "Can't use release 'greeter/1'. It references packages without source code and are not compiled against stemcell";
    assert!(said.contains(expected) && said.contains("/9999.1") && said.contains(" - 'greeter/"), "{said}");
    assert!(shop.site.in_cloud("vms").is_empty(), "something changed");
    let name = shop.site.rows(&["stemcells"]).iter().find(|row| row["version"] == "9999.1").unwrap()["name"].clone();
    shop.site.ok(&["-n", "delete-stemcell", &format!("{}/9999.1", name.as_str().unwrap())]);
}

#[test]
fn two_deploys_at_once_compile_each_package_once() {
    if !is_own_machine("software::compiled::two_deploys_at_once_compile_each_package_once") {
        return;
    }
    let shop = Shop { site: crate::site::Site::ready_with_own_programs(""), os: "windlass-host" };
    shop.configure_cloud(true);
    shop.upload(&Sources {
        packaging: "set -e\nsleep 2\ncp /var/vcap/packages/words/word $BOSH_INSTALL_TARGET/word\n\
        cp greet $BOSH_INSTALL_TARGET/greet\nchmod 755 $BOSH_INSTALL_TARGET/greet\n",
        ..Sources::default()
    });
    shop.manifest("1", "{}");
    let first = fs::read_to_string(shop.site.manifest()).unwrap();
    let group = first.find("- name: back").unwrap();
    let deploys: Vec<_> = ["one", "two"]
        .map(|name| {
            let path = shop.site.file(&format!("{name}.yml"));
            fs::write(&path, first[..group].replace("name: example", &format!("name: {name}"))).unwrap();
            let path = path.to_str().unwrap().to_owned();
            let mut deploy = shop.site.verb(&["-n", "-d", name, "deploy", &path]);
            deploy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .into();
    for deploy in deploys {
        let output = deploy.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(shop.compilations(), 2, "{}", shop.site.director_log());
    assert_eq!(shop.site.in_cloud("vms").len(), 2, "a worker is left");
    for name in ["one", "two"] {
        shop.site.ok(&["-n", "-d", name, "delete-deployment"]);
    }
}

/// What is not compiled yet is compiled; then what was killed is gone, and the next one finds everything.
#[test]
fn an_export_that_is_killed_anywhere_goes_on_and_leaves_no_worker_and_no_blob() {
    if !is_own_machine("software::compiled::an_export_that_is_killed_anywhere_goes_on_and_leaves_no_worker_and_no_blob")
    {
        return;
    }
    let mut shop = Shop::in_containers();
    shop.deploy_nothing();
    let release = shop.site.file("release-1.tgz").to_str().unwrap().to_owned();
    let (slug, into) = (shop.slug(), shop.site.file("killed").to_str().unwrap().to_owned());
    fs::create_dir(&into).unwrap();
    let export = ["-d", "example", "export-release", "greeter/1", &slug, "--dir", &into];
    let mut kills = 0;
    for point in Points::sampled(61) {
        shop.site.kill_director();
        shop.site.start_director(Some(point));
        let survived = shop.site.try_while_director_runs(&export);
        shop.site.kill_director();
        shop.site.start_director(None);
        if !survived {
            kills += 1;
            shop.site.sees_killed_task_go_on();
        }
        let (_, tarball) = shop.export(&[]);
        shop.site.ok(&["inspect-local-release", tarball.to_str().unwrap()]);
        assert!(shop.site.in_cloud("vms").is_empty() && shop.site.vm_processes().is_empty(), "point {point}: a worker");
        assert!(shop.site.rows(&["leaks"]).is_empty(), "killed at point {point}: a possible leak");
        shop.site.ok(&["-n", "clean-up"]);
        assert_eq!(shop.made_blobs(), 0, "killed at point {point}: an exported release is left");
        // Its packages are to be compiled again.
        shop.site.ok(&["upload-release", "--fix", &release]);
        let archives = fs::read_dir(shop.site.state_dir().join("releases")).unwrap().count();
        assert_eq!(archives, 3, "killed at point {point}: a compiled package is left");
        if survived {
            println!("an export: {kills} kills, and none at point {point}");
            return;
        }
    }
}
