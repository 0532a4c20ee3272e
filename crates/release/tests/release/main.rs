//! Releases as BOSH's command line makes them, and as strangers might.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha1::{Digest, Sha1};
use windlass_release::{Job, PackageGraph, Release, ReleaseError};

fn read(tarball: &Path) -> Result<Release, ReleaseError> {
    let folder = tempfile::tempdir().unwrap();
    windlass_release::read(tarball, folder.path())
}

fn explained(error: &ReleaseError) -> String {
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        said.push_str(&format!(": {error}"));
        cause = error.source();
    }
    said
}

#[test]
fn a_release_of_the_original_command_line_is_read() {
    let release = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/release/data/shop-1.tgz")).unwrap();
    let manifest = &release.manifest;
    assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("shop", "1"));
    assert_eq!((manifest.commit_hash.as_deref(), manifest.uncommitted_changes), (Some("non-git"), false));
    let jobs: Vec<&Job> = release.jobs.iter().map(|job| &job.job).collect();
    let names: Vec<&str> = jobs.iter().map(|job| job.spec.name.as_str()).collect();
    assert_eq!(names, ["smoke", "web"]);
    assert!(jobs[0].is_errand() && !jobs[1].is_errand());
    assert_eq!(jobs[1].spec.templates["conf.yml.erb"], "config/conf.yml");
    assert_eq!(jobs[1].spec.properties["port"].default, Some(8080.into()));
    assert_eq!(jobs[1].spec.packages, ["app"]);
    assert_eq!(jobs[1].monit["monit"], "# empty\n");
    assert_eq!(jobs[1].templates.len(), 8);
    assert_eq!(release.packages.keys().collect::<Vec<_>>(), ["app", "base"]);
    let graph = PackageGraph::new(manifest.all_packages()).unwrap();
    let base = &manifest.packages[1].version;
    assert_eq!(graph.dependency_key("app").unwrap(), format!(r#"[["base","{base}"]]"#));
}

type Files<'a> = Vec<(&'a str, Vec<u8>)>;

fn tgz(files: &Files<'_>) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, content.as_slice()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn sha1(bytes: &[u8]) -> String {
    Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A release with one job and one package, after `change` had its way with the job's files and the manifest.
fn release(folder: &Path, change: impl FnOnce(&mut Files<'_>, &mut String)) -> PathBuf {
    let spec = b"name: web\ntemplates: {a.erb: config/a}\npackages: [app]\nproperties: {port: {default: 1}, bare: }\n";
    let mut job: Files<'_> =
        vec![("./job.MF", spec.to_vec()), ("./monit", b"".to_vec()), ("./templates/a.erb", b"x".to_vec())];
    let package = tgz(&vec![("./packaging", b"true".to_vec())]);
    let mut manifest = format!(
        "name: shop\nversion: 1\njobs: [{{name: web, version: f, fingerprint: f, sha1: JOB}}]\npackages: [{{name: app, \
         version: g, fingerprint: g, sha1: {}, dependencies: []}}]\n",
        sha1(&package)
    );
    change(&mut job, &mut manifest);
    let job = tgz(&job);
    let manifest = manifest.replace("JOB", &sha1(&job)).into_bytes();
    let path = folder.join("release.tgz");
    let files = vec![("./release.MF", manifest), ("jobs/web.tgz", job), ("packages/app.tgz", package)];
    std::fs::write(&path, tgz(&files)).unwrap();
    path
}

#[test]
fn what_is_wrong_with_a_release_is_named_and_has_the_number_that_clients_know() {
    let folder = tempfile::tempdir().unwrap();
    read(&release(folder.path(), |_, _| {})).unwrap();
    type Change = fn(&mut Files<'_>, &mut String);
    let cases: [(Change, u32, &str); 11] = [
        (|job, _| job.retain(|(name, _)| *name != "./monit"), 80004, "Job 'web' is missing monit file"),
        (|job, _| job.retain(|(name, _)| *name != "./job.MF"), 80001, "has no job.MF"),
        (
            |job, _| job.retain(|(name, _)| !name.contains("a.erb")),
            80002,
            "Missing template file 'a.erb' for job 'web'",
        ),
        (|job, _| job[0].1 = b"name: other".to_vec(), 80016, "its job.MF calls it 'other'"),
        (|job, _| job[0].1 = b"name: web\npackages: [nobody]".to_vec(), 80006, "needs the package 'nobody'"),
        (|job, _| job[0].1 = b"name: web\ntemplates: {a.erb: ../../etc/passwd}".to_vec(), 100, "not inside of the job"),
        (|job, _| job[2].1 = vec![0xff, 0xfe], 100, "'templates/a.erb' of job 'web' is not UTF-8"),
        (
            |job, _| job[0].1 = format!("name: web\nproperties: {{{}: {{default: 1}}}}", "a.".repeat(32) + "a").into(),
            100,
            "32 parts, and this one has more",
        ),
        (
            |job, _| job[0].1 = format!("name: web\nproperties: {{{}: {{default: 1}}}}", "a".repeat(256)).into(),
            100,
            "255 bytes and",
        ),
        (|_, manifest| *manifest = manifest.replace("JOB", "00"), 30015, "is not the one that release.MF describes"),
        (|_, manifest| *manifest = manifest.replace("name: web", "name: ../web"), 40005, "Invalid job name"),
    ];
    for (change, code, words) in cases {
        let error = read(&release(folder.path(), change)).unwrap_err();
        assert!(explained(&error).contains(words), "{}", explained(&error));
        assert_eq!(error.code(), code, "{error}");
    }
}

#[test]
fn many_jobs_that_are_large_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let template = vec![b'x'; 15 << 20];
    let spec = |name: &str| format!("name: {name}\ntemplates: {{a.erb: config/a}}\n").into_bytes();
    let names = ["a", "b", "c", "d", "e"];
    let jobs = names.map(|name| {
        tgz(&vec![("./job.MF", spec(name)), ("./monit", Vec::new()), ("./templates/a.erb", template.clone())])
    });
    let listed: Vec<String> = names
        .iter()
        .zip(&jobs)
        .map(|(name, job)| format!("{{name: {name}, version: f, fingerprint: f, sha1: {}}}", sha1(job)))
        .collect();
    let manifest = format!("name: shop\nversion: 1\njobs: [{}]\npackages: []\n", listed.join(", "));
    let [a, b, c, d, e] = jobs;
    let files = vec![
        ("./release.MF", manifest.into_bytes()),
        ("jobs/a.tgz", a),
        ("jobs/b.tgz", b),
        ("jobs/c.tgz", c),
        ("jobs/d.tgz", d),
        ("jobs/e.tgz", e),
    ];
    let path = folder.path().join("release.tgz");
    std::fs::write(&path, tgz(&files)).unwrap();
    let error = explained(&read(&path).unwrap_err());
    assert!(error.contains("with job 'c' the templates and descriptions of all jobs take more than 32 MiB"), "{error}");
}

#[test]
fn what_is_no_release_leaves_a_clear_word_and_little_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.tgz");
    let garbage: [(Vec<u8>, &str); 4] = [
        (b"not a tar".repeat(200), "the tarball is not a usable archive"),
        (tgz(&vec![("x", b"y".to_vec())]), "Release manifest not found"),
        (tgz(&vec![("release.MF", vec![0xff])]), "not UTF-8"),
        (
            tgz(&vec![("release.MF", b"name: a\nversion: 1\njobs: [{name: x, version: 1, sha1: 00}]".to_vec())]),
            "no jobs/x.tgz",
        ),
    ];
    for (content, words) in garbage {
        std::fs::write(&path, content).unwrap();
        let error = read(&path).unwrap_err();
        assert!(explained(&error).contains(words), "{}", explained(&error));
    }
    // A job that would fill the memory.
    let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
    let mut header = tar::Header::new_gnu();
    header.set_path("./templates/bomb").unwrap();
    header.set_size(64 << 20);
    header.set_cksum();
    bomb.write_all(header.as_bytes()).unwrap();
    for _ in 0..64 {
        bomb.write_all(&vec![0; 1 << 20]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    let manifest = format!("name: a\nversion: 1\njobs: [{{name: x, version: 1, sha1: {}}}]", sha1(&bomb));
    std::fs::write(&path, tgz(&vec![("release.MF", manifest.into_bytes()), ("jobs/x.tgz", bomb)])).unwrap();
    let error = read(&path).unwrap_err();
    assert!(explained(&error).contains("16 MiB"), "{}", explained(&error));
}

#[test]
fn a_tarball_that_was_cut_off_anywhere_is_called_damaged_and_not_the_disk() {
    let whole = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/release/data/shop-1.tgz")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let tarball = folder.path().join("cut.tgz");
    for length in (0..whole.len()).step_by(97) {
        std::fs::write(&tarball, &whole[..length]).unwrap();
        let said = explained(&read(&tarball).unwrap_err());
        assert!(!said.contains("cannot write") && !said.contains("cannot read"), "cut after {length}: {said}");
    }
}

/// A compiled release as directors export it, or as `change` makes its manifest; `prefix` is before each name.
fn compiled(folder: &Path, prefix: &str, compressed: bool, change: impl FnOnce(String) -> String) -> PathBuf {
    let job =
        tgz(&vec![("./job.MF", b"name: web\ntemplates: {}\npackages: [app]\n".to_vec()), ("./monit", b"".to_vec())]);
    let (app, base) = (tgz(&vec![("./bin/app", b"app".to_vec())]), tgz(&vec![("./lib", b"base".to_vec())]));
    let package = |name: &str, archive: &[u8], needs: &str| {
        let digest = sha1(archive);
        format!(
            "- name: {name}\n  version: f{name}\n  fingerprint: f{name}\n  sha1: {digest}\n  stemcell: toronto-os/1\n  \
             dependencies: {needs}\n"
        )
    };
    let manifest = format!(
        "---\ncompiled_packages:\n{}{}jobs:\n- name: web\n  version: f\n  fingerprint: f\n  sha1: {}\ncommit_hash: abc\n\
         uncommitted_changes: false\nname: shop\nversion: '1'\n",
        package("app", &app, "[base]"),
        package("base", &base, "[]"),
        sha1(&job)
    );
    let files = [
        ("release.MF", change(manifest).into_bytes()),
        ("jobs/web.tgz", job),
        ("compiled_packages/app.tgz", app),
        ("compiled_packages/base.tgz", base),
    ];
    let names: Vec<String> = files.iter().map(|(name, _)| format!("{prefix}{name}")).collect();
    let files: Files<'_> =
        names.iter().map(String::as_str).zip(files.into_iter().map(|(_, content)| content)).collect();
    let path = folder.join("compiled.tgz");
    let packed = tgz(&files);
    let content = match compressed {
        true => packed,
        false => {
            let mut plain = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed.as_slice()), &mut plain).unwrap();
            plain
        }
    };
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn a_compiled_release_is_read_with_and_without_compression_and_prefix() {
    let folder = tempfile::tempdir().unwrap();
    for (prefix, compressed) in [("./", true), ("", true), ("./", false), ("", false)] {
        let release = read(&compiled(folder.path(), prefix, compressed, |text| text)).unwrap();
        let manifest = &release.manifest;
        assert!(manifest.is_compiled && manifest.packages.is_empty(), "{manifest:?}");
        let listed: Vec<_> = manifest
            .compiled_packages
            .iter()
            .map(|found| (found.package.name.as_str(), found.stemcell.os.as_str(), found.stemcell.version.as_str()))
            .collect();
        assert_eq!(listed, [("app", "toronto-os", "1"), ("base", "toronto-os", "1")]);
        assert_eq!(release.packages.keys().collect::<Vec<_>>(), ["app", "base"]);
        let graph = PackageGraph::new(manifest.all_packages()).unwrap();
        assert_eq!(graph.dependency_key("app").unwrap(), r#"[["base","fbase"]]"#);
    }
}

#[test]
fn what_is_wrong_with_a_compiled_release_is_named() {
    let folder = tempfile::tempdir().unwrap();
    type Change = fn(String) -> String;
    let cases: [(Change, u32, &str); 7] = [
        (|text| text.replace("toronto-os/1", "toronto-os"), 100, "{os_name}/{stemcell_version}"),
        (|text| text.replace("stemcell: toronto-os/1", "stemcell: [1]"), 100, "compiled_packages[0].stemcell"),
        (|text| text.replace("name: base", "name: other"), 100, "the package 'app' needs 'base'"),
        (|text| text.replace("dependencies: []", "dependencies: [app]"), 100, "packages need each other"),
        (
            |text| text.replace("jobs:\n", "packages:\n- {name: p, version: 1, sha1: '00'}\njobs:\n"),
            100,
            "release.MF has both 'packages' and 'compiled_packages'",
        ),
        (
            |text| {
                let at = text.find("sha1: ").unwrap() + 6;
                format!("{}{}{}", &text[..at], "0".repeat(40), &text[at + 40..])
            },
            30015,
            "the archive of the compiled package 'app' is not the one that release.MF describes",
        ),
        (
            |text| text.replace("name: app", "name: absent").replace("[base]", "[]"),
            80006,
            "the job 'web' needs the package 'app', which the release does not have",
        ),
    ];
    for (change, code, words) in cases {
        let error = read(&compiled(folder.path(), "./", true, change)).unwrap_err();
        assert!(explained(&error).contains(words), "{}", explained(&error));
        assert_eq!(error.code(), code, "{error}");
    }
}
