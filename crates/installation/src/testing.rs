//! Releases for tests, made here.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};
use windlass_release::Release;

/// A release that is being written.
#[derive(Debug)]
pub(crate) struct TestRelease {
    name: String,
    folder: tempfile::TempDir,
    packages: Vec<String>,
    jobs: Vec<String>,
    members: Vec<(String, Vec<u8>)>,
    compiled: bool,
}

fn hex(bytes: &[u8]) -> String {
    Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// `job.MF` of a CPI whose program says which cloud it was given.
pub(crate) fn cpi_job(name: &str, packages: &[&str]) -> String {
    format!(
        "name: {name}\ntemplates: {{cpi.erb: bin/cpi, cpi.json.erb: config/cpi.json}}\npackages: [{}]\n\
         properties: {{password: {{}}}}\n",
        packages.join(", ")
    )
}

const PROGRAM: &str =
    "#!/bin/sh\ncat \"$BOSH_JOBS_DIR/<%= spec.job.name %>/config/cpi.json\"\nls \"$BOSH_PACKAGES_DIR\"\n";
const CONFIG: &str = "{\"password\": \"<%= p('password') %>\"}\n";

impl TestRelease {
    pub(crate) fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { name: name.to_owned(), folder, packages: vec![], jobs: vec![], members: vec![], compiled: false }
    }

    /// Its packages are archives of what was compiled.
    pub(crate) fn compiled(mut self) -> Self {
        self.compiled = true;
        self
    }

    /// A package with this packaging script, or compiled with a file `script` of this content.
    pub(crate) fn package(mut self, name: &str, needs: &[&str], script: &str) -> Self {
        let (file, place) = if self.compiled { ("script", "compiled_packages") } else { ("packaging", "packages") };
        let archive = archive(&[(file, script)]);
        let stemcell = if self.compiled { ", stemcell: any/1" } else { "" };
        self.packages.push(format!(
            "{{name: {name}, version: {fp}, fingerprint: {fp}, sha1: {sha1}, dependencies: [{needs}]{stemcell}}}",
            fp = hex(format!("{name}{script}").as_bytes()),
            sha1 = hex(&archive),
            needs = needs.join(", "),
        ));
        self.members.push((format!("{place}/{name}.tgz"), archive));
        self
    }

    /// A job with this `job.MF`, and the templates that it names.
    pub(crate) fn job(mut self, manifest: &str) -> Self {
        let name = manifest.lines().next().unwrap().trim_start_matches("name: ");
        let archive = archive(&[
            ("job.MF", manifest),
            ("monit", ""),
            ("templates/cpi.erb", PROGRAM),
            ("templates/cpi.json.erb", CONFIG),
        ]);
        let sha1 = hex(&archive);
        self.jobs.push(format!("{{name: {name}, version: {sha1}, fingerprint: {sha1}, sha1: {sha1}}}"));
        self.members.push((format!("jobs/{name}.tgz"), archive));
        self
    }

    pub(crate) fn tarball(&self) -> PathBuf {
        let list = if self.compiled { "compiled_packages" } else { "packages" };
        let manifest = format!(
            "name: {}\nversion: 1\njobs: [{}]\n{list}: [{}]\n",
            self.name,
            self.jobs.join(", "),
            self.packages.join(", ")
        );
        let path = self.folder.path().join("release.tgz");
        let mut builder = tar::Builder::new(Vec::new());
        let members = self.members.iter().map(|(path, content)| (path.as_str(), content.as_slice()));
        for (path, content) in std::iter::once(("release.MF", manifest.as_bytes())).chain(members) {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, path, content).unwrap();
        }
        fs::File::create(&path).unwrap().write_all(&builder.into_inner().unwrap()).unwrap();
        path
    }

    pub(crate) fn read(&self) -> Release {
        let folder = self.folder.path().join("read");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        windlass_release::read(&self.tarball(), &folder).unwrap()
    }
}

/// The permission bits of a file.
pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}
