//! `windlass stemcell`: what an operator builds runs where there is nothing else.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use tempfile::TempDir;

use crate::site;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");

/// A folder with the one binary and nothing beside it, as `cargo run` leaves it.
struct Site(TempDir);

impl Site {
    fn new() -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        if fs::hard_link(WINDLASS, site.path("windlass")).is_err() {
            fs::copy(WINDLASS, site.path("windlass")).unwrap();
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.path("windlass"));
        command.current_dir(self.0.path()).arg("stemcell").args(words);
        command
    }

    fn ok(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The root file system of a stemcell, unpacked.
    fn root_of(&self, stemcell: &str) -> PathBuf {
        let (unpacked, root) = (self.path("unpacked"), self.path("root"));
        fs::create_dir(&unpacked).unwrap();
        fs::create_dir(&root).unwrap();
        windlass_stemcell::unpack(&self.path(stemcell), &unpacked).unwrap();
        let tar = Command::new("tar").arg("-xzf").arg(unpacked.join("image")).arg("-C").arg(&root).status();
        assert!(tar.unwrap().success());
        root
    }

    /// A folder with this script as `mmdebstrap`, to stand before all others on the path.
    fn mmdebstrap(&self, script: &str) -> String {
        let bin = self.path("bin");
        fs::create_dir_all(&bin).unwrap();
        fs::write(bin.join("mmdebstrap"), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(bin.join("mmdebstrap"), fs::Permissions::from_mode(0o755)).unwrap();
        format!("{}:/usr/bin:/bin", bin.display())
    }

    /// What is there, besides the binary and the folder of scripts.
    fn made(&self) -> Vec<String> {
        let names = fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name != "windlass" && name != "bin");
        names.sort();
        names
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("needs root: only root may change its root");
    }
    is_root
}

/// Runs a program in a root file system, with a network and mounts of its own.
fn inside(root: &Path, words: &[&str]) -> Output {
    Command::new("unshare")
        .args(["--mount", "--net", "--propagation", "private", "chroot"])
        .arg(root)
        .args(words)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .unwrap()
}

#[test]
fn the_one_binary_is_an_agent_in_a_root_with_nothing_else() {
    let site = Site::new();
    site.ok(&["build", "--output", "stemcell.tgz"]);
    if !is_root() {
        return;
    }
    let root = site.root_of("stemcell.tgz");
    let version = inside(&root, &["/var/vcap/bosh/bin/bosh-agent", "-v"]);
    assert!(version.status.success() && version.stdout.starts_with(b"windlass-agent "), "{version:?}");
}

#[test]
fn the_one_binary_is_an_agent_beside_the_libraries_of_a_system() {
    let Some(busybox) = windlass_stemcell::find_busybox() else {
        println!("needs a static busybox: install the package busybox-static");
        return;
    };
    let site = Site::new();
    let system = site.path("system");
    fs::create_dir_all(system.join("bin")).unwrap();
    fs::copy(busybox, system.join("bin/busybox")).unwrap();
    symlink("busybox", system.join("bin/sh")).unwrap();
    // A C library that no program of ours could use.
    fs::create_dir_all(system.join("lib64")).unwrap();
    fs::write(system.join("lib64/libc.so.6"), "another").unwrap();
    site.ok(&["build", "--output", "stemcell.tgz", "--rootfs", "system"]);
    if !is_root() {
        return;
    }
    let root = site.root_of("stemcell.tgz");
    assert_eq!(fs::read_to_string(root.join("lib64/libc.so.6")).unwrap(), "another");
    let version = inside(&root, &["/var/vcap/bosh/bin/bosh-agent", "-v"]);
    assert!(version.status.success() && version.stdout.starts_with(b"windlass-agent "), "{version:?}");
    // Without containers it is called from outside.
    let version = Command::new(root.join("var/vcap/bosh/bin/bosh-agent")).arg("-v").output().unwrap();
    assert!(version.status.success(), "{version:?}");
}

#[test]
fn every_version_is_built_and_shown() {
    let site = Site::new();
    for (version, needs) in
        [("1", "1 (needs a registry)"), ("2", "2 (needs no registry)"), ("3", "3 (needs no registry)")]
    {
        site.ok(&["build", "--output", "s.tgz", "--api-version", version, "--version", "7.1", "--name", "mine"]);
        let shown = site.ok(&["inspect", "s.tgz"]);
        let cells: Vec<&str> = shown.trim_end().split('\t').map(str::trim).collect();
        assert!(cells.contains(&"mine") && cells.contains(&"7.1") && cells.contains(&needs), "{shown}");
        assert!(shown.contains("matches the manifest"), "{shown}");
    }
    let output = site.command(&["build", "--output", "s4.tgz", "--api-version", "4"]).output().unwrap();
    assert!(!output.status.success());
    assert_eq!(site.made(), ["s.tgz"]);
}

#[test]
fn a_stemcell_is_repacked_as_asked() {
    let site = Site::new();
    fs::write(site.path("agent"), "#!/bin/sh\n").unwrap();
    site.ok(&["build", "--output", "heavy.tgz", "--agent", "agent"]);
    let properties = "{image_reference: 'registry/image:1', n: 3}";
    site.ok(&[
        "repack",
        "heavy.tgz",
        "light.tgz",
        "--empty-image",
        "--format",
        "docker-light",
        "--cloud-properties",
        properties,
    ]);
    let light = windlass_stemcell::inspect(&site.path("light.tgz"), |_, _| {}).unwrap();
    assert_eq!(light.manifest.stemcell_formats, ["docker-light"]);
    assert_eq!(light.manifest.cloud_properties["image_reference"], "registry/image:1");
    let shown = site.ok(&["inspect", "light.tgz"]);
    assert!(shown.contains("light: the cloud has the image") && shown.contains("registry/image:1"), "{shown}");
    let output = site.command(&["repack", "heavy.tgz", "x.tgz", "--cloud-properties", "[]"]).output().unwrap();
    assert!(
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("--cloud-properties"),
        "{output:?}"
    );
    assert_eq!(site.made(), ["agent", "heavy.tgz", "light.tgz"]);
}

/// A stemcell of these parts; the manifest gets the digest of the image.
pub(crate) fn tarball_of(manifest: &str, image: &[u8]) -> Vec<u8> {
    let digest: String = Sha1::digest(image).iter().map(|byte| format!("{byte:02x}")).collect();
    let manifest = format!("{manifest}sha1: {digest}\n");
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for (name, content) in [("stemcell.MF", manifest.as_bytes()), ("updates.txt", b"KB1\r\n"), ("image", image)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

/// Takes the stemcells of two clouds that have Windows, and notes what it is asked.
const WINDOWS_CPI: &str = r#"#!/bin/sh
request=$(cat)
case "$request" in
*'"method":"info"'*)
    echo '{"result":{"api_version":2,"stemcell_formats":["aws-light","vsphere-ovf","vsphere-ova"]},"error":null,"log":""}' ;;
*) echo "$request" >> "$0.requests"; echo '{"result":"sc-1","error":null,"log":""}' ;;
esac
"#;

#[test]
fn stemcells_of_windows_are_inspected_repacked_and_uploaded() {
    let site = Site::new();
    let light = "name: bosh-aws-xen-hvm-windows2019-go_agent\nversion: '2019.71'\napi_version: 3\n\
        operating_system: windows2019\nstemcell_formats: [aws-light]\ncloud_properties: {ami: {us-east-1: ami-1}}\n";
    let regular = "---\nname: bosh-vsphere-esxi-windows2019-go_agent\nversion: \"2019.71\"\napi_version: 2\n\
        bosh_protocol: '1'\noperating_system: windows2019\nstemcell_formats:\n- vsphere-ovf\n- vsphere-ova\n\
        cloud_properties:\n  infrastructure: vsphere\n  hypervisor: esxi\n";
    fs::write(site.path("light.tgz"), tarball_of(light, b"")).unwrap();
    fs::write(site.path("regular.tgz"), tarball_of(regular, b"an image of Windows")).unwrap();
    for (file, formats) in [("light.tgz", json!(["aws-light"])), ("regular.tgz", json!(["vsphere-ovf", "vsphere-ova"]))]
    {
        assert!(site.ok(&["inspect", file]).contains("windows2019"));
        let patched = format!("patched-{file}");
        site.ok(&["repack", file, &patched, "--version", "2019.71.1"]);
        let (before, after) = (parts(&site.path(file)), parts(&site.path(&patched)));
        assert_eq!(after["manifest"]["version"], "2019.71.1");
        assert_eq!((&after["manifest"]["stemcell_formats"], &after["image"]), (&formats, &before["image"]));
        assert_eq!(
            (&after["updates"], &after["manifest"]["operating_system"]),
            (&json!("KB1\r\n"), &json!("windows2019"))
        );
        assert_eq!(after["manifest"]["cloud_properties"], before["manifest"]["cloud_properties"]);
    }

    let director = site::Site::start_with_settings("isolation: process\n");
    let upload = |file: &str| director.windlass(&["upload-stemcell", site.path(file).to_str().unwrap()]);
    let refused = upload("light.tgz");
    let said = String::from_utf8_lossy(&refused.stdout).into_owned() + &String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("no CPI takes stemcells of format aws-light"), "{said}");

    let cpi = director.file("windows-cpi");
    fs::write(&cpi, WINDOWS_CPI).unwrap();
    fs::set_permissions(&cpi, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(director.file("cpis.yml"), format!("cpis: [{{name: w, type: w, exec_path: {}}}]", cpi.display()))
        .unwrap();
    director.ok(&["-n", "update-cpi-config", director.file("cpis.yml").to_str().unwrap()]);
    for file in ["light.tgz", "patched-regular.tgz"] {
        let uploaded = upload(file);
        assert!(uploaded.status.success(), "{file}: {uploaded:?}");
    }
    let rows = director.rows(&["stemcells"]);
    assert!(rows.len() == 2 && rows.iter().all(|row| row["os"] == "windows2019"), "{rows:?}");
    let requests = fs::read_to_string(director.file("windows-cpi.requests")).unwrap();
    assert!(requests.contains(r#"{"ami":{"us-east-1":"ami-1"}}"#), "{requests}");
}

/// The manifest, the image and what Windows stemcells have beside them.
fn parts(stemcell: &Path) -> Value {
    let mut parts = json!({});
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(fs::File::open(stemcell).unwrap()));
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
        match name.trim_start_matches("./") {
            "stemcell.MF" => {
                let document = windlass_manifest::Document::parse(&text).unwrap();
                parts["manifest"] = document.root().decode().unwrap();
            }
            "updates.txt" => parts["updates"] = json!(text),
            "image" => parts["image"] = json!(text),
            other => panic!("{other}"),
        }
    }
    parts
}

#[test]
fn a_debian_release_is_made_by_mmdebstrap_and_its_failures_are_told() {
    let site = Site::new();
    fs::write(site.path("agent"), "#!/bin/sh\n").unwrap();
    let build = |path: &str, words: &[&str]| {
        let mut command = site.command(&["build", "--agent", "agent", "--output", "debian.tgz", "--debian"]);
        command.args(words).env("PATH", path).output().unwrap()
    };
    let missing = build("/nowhere", &["bookworm"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("install the package 'mmdebstrap'"), "{missing:?}");
    let failing = site.mmdebstrap("echo 'I: starting' >&2; echo 'E: no such suite' >&2; exit 25");
    let failed = build(&failing, &["bookworm"]);
    let words = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(
        !failed.status.success() && words.contains("it said: E: no such suite") && !words.contains("I: "),
        "{words}"
    );
    let wrong = build(&failing, &["a,b"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("neither a suite"), "{wrong:?}");
    assert_eq!(site.made(), ["agent"], "nothing is left");

    let script = "echo \"$@\" > words; mkdir -p debian/etc; echo 12 > debian/etc/debian_version; \
        tar -cf - -C debian .; rm -r debian";
    let path = site.mmdebstrap(script);
    let made = build(&path, &["bookworm", "--package", "jq", "--mirror", "http://127.0.0.1:1/debian"]);
    assert!(made.status.success(), "{made:?}");
    let asked = fs::read_to_string(site.path("words")).unwrap();
    assert!(asked.contains("procps,jq bookworm - http://127.0.0.1:1/debian"), "{asked}");
    let stemcell = windlass_stemcell::inspect(&site.path("debian.tgz"), |_, _| {}).unwrap();
    assert_eq!(
        (stemcell.manifest.name.as_str(), stemcell.manifest.os()),
        ("windlass-debian-bookworm", "debian-bookworm")
    );
    let root = site.root_of("debian.tgz");
    assert_eq!(fs::read_to_string(root.join("etc/debian_version")).unwrap(), "12\n");
    assert!(root.join("var/vcap/bosh/agent.json").is_file());
}

#[test]
fn a_stemcell_with_the_programs_of_this_machine_is_small_and_holds_nothing_of_it() {
    let site = Site::new();
    for output in ["host.tgz", "again.tgz"] {
        site.ok(&["build", "--userland", "host", "--output", output]);
    }
    assert_eq!(fs::read(site.path("host.tgz")).unwrap(), fs::read(site.path("again.tgz")).unwrap());
    assert!(fs::metadata(site.path("host.tgz")).unwrap().len() < 16 * 1024);
    let inspection = windlass_stemcell::inspect(&site.path("host.tgz"), |_, _| {}).unwrap();
    let manifest = inspection.manifest;
    assert!(manifest.version.starts_with('p'), "{}", manifest.version);
    assert_eq!(
        (manifest.os(), manifest.stemcell_formats.as_slice()),
        ("windlass-host", &["windlass-host".to_owned()][..])
    );
    assert_eq!(manifest.cloud_properties["userland"], "host");
    assert_eq!(manifest.cloud_properties["export_compiled_packages"], false);
    let shown = site.ok(&["inspect", "host.tgz"]);
    assert!(shown.contains("userland: host") && shown.contains("matches the manifest"), "{shown}");
    let root = site.root_of("host.tgz");
    let names = |folder: &str| {
        let entries = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names("etc"), ["group", "hosts", "nsswitch.conf", "passwd", "resolv.conf", "shadow"]);
    assert!(!root.join("usr").exists() && !root.join("var/vcap/bosh/bin/bosh-agent").exists());
    let passwd = fs::read_to_string(root.join("etc/passwd")).unwrap();
    assert_eq!(passwd.lines().map(|line| line.split(':').next().unwrap()).collect::<Vec<_>>(), ["root", "vcap"]);

    fs::write(site.path("agent"), "#!/bin/sh\n").unwrap();
    let own = ["build", "--userland", "host", "--agent", "agent", "--version", "7", "--output", "own.tgz"];
    site.ok(&own);
    let own = windlass_stemcell::inspect(&site.path("own.tgz"), |_, _| {}).unwrap().manifest;
    assert_eq!((own.name.as_str(), own.version.as_str()), ("windlass-host", "7"));
    let both =
        site.command(&["build", "--userland", "host", "--debian", "bookworm", "--output", "x.tgz"]).output().unwrap();
    assert!(!both.status.success() && !site.path("x.tgz").exists());
}
