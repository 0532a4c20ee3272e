//! The release of the demo, packed from the sources in `examples/hello`.

use std::io;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use windlass_durable::file;

/// A file of an archive: its path there, and its text.
type Source = (&'static str, &'static str);

const JOB: [Source; 4] = [
    ("job.MF", include_str!("../../../../examples/hello/jobs/hello/spec")),
    ("monit", include_str!("../../../../examples/hello/jobs/hello/monit")),
    ("templates/ctl.erb", include_str!("../../../../examples/hello/jobs/hello/templates/ctl.erb")),
    ("templates/greeting.erb", include_str!("../../../../examples/hello/jobs/hello/templates/greeting.erb")),
];
const PACKAGE: [Source; 2] = [
    ("packaging", include_str!("../../../../examples/hello/packages/hello/packaging")),
    ("hello/hello", include_str!("../../../../examples/hello/src/hello/hello")),
];

/// Writes the release's tarball.
pub(super) fn write(path: &Path) -> io::Result<()> {
    let (job, package) = (archive(&texts(&JOB))?, archive(&texts(&PACKAGE))?);
    let entry = |sources: &[Source], archive: &[u8], rest: &str| {
        let together: String = sources.iter().map(|(name, text)| format!("{name}\n{text}")).collect();
        let (fingerprint, digest) = (digest(together.as_bytes()), digest(archive));
        format!(
            "- name: hello\n  version: {fingerprint}\n  fingerprint: {fingerprint}\n  sha1: sha256:{digest}\n  {rest}\n"
        )
    };
    let manifest = format!(
        "name: hello\nversion: \"1\"\ncommit_hash: demo\nuncommitted_changes: false\njobs:\n{}packages:\n{}",
        entry(&JOB, &job, "packages: [hello]"),
        entry(&PACKAGE, &package, "dependencies: []")
    );
    let release =
        archive(&[("release.MF", manifest.as_bytes()), ("jobs/hello.tgz", &job), ("packages/hello.tgz", &package)])?;
    file::write(path, &release, 0o644)
}

fn texts(sources: &[Source]) -> Vec<(&'static str, &'static [u8])> {
    sources.iter().map(|(name, text)| (*name, text.as_bytes())).collect()
}

fn archive(files: &[(&str, &[u8])]) -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *content)?;
    }
    builder.into_inner()?.finish()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
