//! Releases of strangers: hostile ones, and ones that take long to check.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use windlass_planning::records::CompilationKey;
use windlass_render::{Backends, Renderer};

use super::*;

fn tgz(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, content) in files {
        append(&mut builder, name, tar::EntryType::Regular, content);
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// With any name, also those that `tar` refuses to write.
fn append(builder: &mut tar::Builder<impl std::io::Write>, name: &str, kind: tar::EntryType, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    builder.append(&header, content).unwrap();
}

fn with(name: &str, kind: tar::EntryType, content: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    append(&mut builder, name, kind, content);
    builder.into_inner().unwrap().finish().unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A release with one job and one package, whatever those are.
fn of(job: &[u8], package: &[u8], dependencies: &str) -> Vec<u8> {
    let manifest = format!(
        "name: bad\nversion: '1'\njobs: [{{name: j, version: f, fingerprint: f, sha1: 'sha256:{}'}}]\npackages: [{{name: p, \
         version: g, fingerprint: g, sha1: 'sha256:{}', dependencies: [{dependencies}]}}]\n",
        sha256(job),
        sha256(package)
    );
    tgz(&[("release.MF", manifest.into_bytes()), ("jobs/j.tgz", job.to_vec()), ("packages/p.tgz", package.to_vec())])
}

/// A package in which `a` leads elsewhere, and has a file behind it.
fn linked(kind: tar::EntryType, target: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_path("a").unwrap();
    header.set_link_name(target).unwrap();
    header.set_entry_type(kind);
    header.set_size(0);
    header.set_cksum();
    builder.append(&header, std::io::empty()).unwrap();
    append(&mut builder, "a/passwd", tar::EntryType::Regular, b"root::0:0");
    builder.into_inner().unwrap()
}

/// The same release with other words in its manifest.
fn changed(tarball: &[u8], from: &str, to: &str) -> Vec<u8> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(tarball));
    let mut files = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        if name == "release.MF" {
            content = String::from_utf8(content).unwrap().replace(from, to).into_bytes();
        }
        files.push((name, content));
    }
    tgz(&files.iter().map(|(name, content)| (name.as_str(), content.clone())).collect::<Vec<_>>())
}

const UPLOADER: ReleaseUpload = ReleaseUpload { fix: false, rebase: false, replaces: false };

/// The uploader chooses versions and fingerprints: with those of another's job, its defaults, its templates and its packages
/// would be chosen by a user who may upload, and no more.
#[tokio::test]
async fn who_may_only_upload_changes_nothing_that_others_deploy() {
    let site = Site::new().await;
    let package = tgz(&[("./packaging", b"true".to_vec())]);
    let job = |default: &str| {
        let spec = format!("name: j\nproperties: {{command: {{default: {default}}}}}\n");
        tgz(&[("./job.MF", spec.into_bytes()), ("./monit", Vec::new())])
    };
    let evil = |version: &str| changed(&of(&job("evil"), &package, ""), "version: '1'", version);
    site.upload(&of(&job("good"), &package, ""), false).await.unwrap();
    let on_record = async || {
        let job = site.bench.director.store.job_of_release("bad", "j", "f").await.unwrap().unwrap();
        (job.spec["properties"]["command"]["default"].clone(), job.blob, job.sha1)
    };
    let before = on_record().await;
    assert_eq!(before.0, "good");
    site.upload_as(&evil("version: '2'"), UPLOADER).await.unwrap();
    assert_eq!(on_record().await, before, "a job of the same version stays as it is");
    let path = OutputKind::Event.path(&site.bench.director.folders.tasks(), site.tasks.get());
    assert!(std::fs::read_to_string(path).unwrap().contains("is here with other bytes"));
    for version in ["version: '1'", "version: '3'"] {
        let refused =
            site.upload_as(&evil(version), ReleaseUpload { fix: true, ..UPLOADER }).await.unwrap_err().to_string();
        assert!(refused.starts_with("job 'j/f' is here with other bytes"), "{refused}");
        assert!(refused.ends_with("only an admin may replace them with --fix"), "{refused}");
    }
    let other_package = of(&job("good"), &tgz(&[("./packaging", b"evil".to_vec())]), "");
    let refused =
        site.upload_as(&other_package, ReleaseUpload { fix: true, ..UPLOADER }).await.unwrap_err().to_string();
    assert!(refused.starts_with("package 'p/g' is here with other bytes"), "{refused}");
    assert_eq!(on_record().await, before);
    // The same bytes are mended, and an admin replaces what there is.
    site.upload_as(&of(&job("good"), &package, ""), ReleaseUpload { fix: true, ..UPLOADER }).await.unwrap();
    assert_eq!((on_record().await.0, on_record().await.2), (before.0, before.2));
    site.upload(&evil("version: '1'"), true).await.unwrap();
    assert_eq!(on_record().await.0, "evil");
}

/// The release of [`of`] with a second package, which the first one needs.
fn with_another_package(version: &str, job: &[u8], package: &[u8]) -> Vec<u8> {
    let sha256 = sha256(package);
    let manifest = format!(
        "name: bad\nversion: '{version}'\njobs: [{{name: j, version: f, fingerprint: f, sha1: 'sha256:{}'}}]\npackages:\n\
         - {{name: p, version: g, fingerprint: g, sha1: 'sha256:{sha256}', dependencies: [q]}}\n\
         - {{name: q, version: h, fingerprint: h, sha1: 'sha256:{sha256}', dependencies: []}}\n",
        self::sha256(job)
    );
    let archives = ["packages/p.tgz", "packages/q.tgz"].map(|name| (name, package.to_vec()));
    tgz(&[&[("release.MF", manifest.into_bytes()), ("jobs/j.tgz", job.to_vec())], &archives[..]].concat())
}

/// The list of a release says what its packages need. To mend a package was to say so for all who deploy it, and to have it compiled again.
#[tokio::test]
async fn who_may_only_upload_does_not_say_what_packages_of_others_need_nor_adds_to_their_releases() {
    let site = Site::new().await;
    let store = &site.bench.director.store;
    let package = tgz(&[("./packaging", b"true".to_vec())]);
    let job = tgz(&[("./job.MF", b"name: j\n".to_vec()), ("./monit", Vec::new())]);
    let release = of(&job, &package, "");
    site.upload(&release, false).await.unwrap();
    let key = CompilationKey {
        release: "bad".into(),
        package: "p".into(),
        version: "g".into(),
        os: "os".into(),
        stemcell: "1".into(),
        dependency_key: "[]".into(),
    };
    let compiled = CompiledPackage { key, build: 1, sha1: "0".into(), blob: "compiled".into() };
    store.add_compiled_package(&compiled).await.unwrap();
    let on_record = async || {
        let package = store.package_of_release("bad", "p", "g").await.unwrap().unwrap();
        (package.dependencies, package.source.unwrap().blob, store.compiled_packages().await.unwrap().len())
    };
    let before = on_record().await;
    assert_eq!((before.0.len(), before.2), (0, 1));
    let fix = ReleaseUpload { fix: true, ..UPLOADER };
    let refused = site.upload_as(&with_another_package("1", &job, &package), fix).await.unwrap_err().to_string();
    assert_eq!(refused, "release 'bad/1' is here without the package 'q'; only an admin may add to it");
    site.upload_as(&with_another_package("2", &job, &package), fix).await.unwrap();
    assert_eq!(on_record().await, before);

    // What is damaged is mended, with the same bytes.
    std::fs::write(site.folder().join(&before.1), "damaged").unwrap();
    site.upload_as(&with_another_package("2", &job, &package), fix).await.unwrap();
    let mended = on_record().await;
    assert!(mended.0.is_empty() && mended.1 != before.1, "{mended:?}");
    site.upload(&with_another_package("2", &job, &package), true).await.unwrap();
    assert_eq!(on_record().await.0, ["q"], "an admin may");
}

/// A release that was downloaded brings the packages that its author made, whatever fingerprints others gave to theirs.
#[tokio::test]
async fn packages_of_other_releases_are_taken_for_the_same_only_with_the_same_bytes() {
    let site = Site::new().await;
    let (good, evil) = (tgz(&[("./packaging", b"true".to_vec())]), tgz(&[("./packaging", b"evil".to_vec())]));
    let job = tgz(&[("./job.MF", b"name: j\n".to_vec()), ("./monit", Vec::new())]);
    site.upload_as(&changed(&of(&job, &evil, ""), "name: bad", "name: evil"), UPLOADER).await.unwrap();
    // As clients send what a director says that it has.
    let manifest = |package: &[u8]| {
        let text = format!(
            "name: good\nversion: '1'\njobs: [{{name: j, version: f, fingerprint: f, sha1: 'sha256:{}'}}]\npackages: [{{name: p, \
             version: g, fingerprint: g, sha1: 'sha256:{}', dependencies: []}}]\n",
            sha256(&job),
            sha256(package)
        );
        tgz(&[("release.MF", text.into_bytes()), ("jobs/j.tgz", job.clone())])
    };
    let refused = site.upload(&manifest(&good), false).await.unwrap_err().to_string();
    assert!(refused.contains("upload the whole release"), "{refused}");
    site.upload(&manifest(&evil), false).await.unwrap();
}

/// Each is refused with a reason, and nothing of it stays: neither in the temporary folder, nor as a blob, nor on record.
#[tokio::test]
async fn hostile_releases_are_refused_with_a_reason_and_leave_nothing() {
    use tar::EntryType;
    let job = |spec: &str| tgz(&[("./job.MF", spec.as_bytes().to_vec()), ("./monit", Vec::new())]);
    let (good_job, good_package) = (job("name: j\n"), tgz(&[("./packaging", b"true".to_vec())]));
    let spec = |text: &str| of(&job(&format!("name: j\n{text}\n")), &good_package, "");
    let package = |package: &[u8]| of(&good_job, package, "");
    let inside = |name: &str, kind: EntryType| package(&with(name, kind, b""));
    let bomb = tgz(&[("./job.MF", b"name: j".to_vec()), ("./monit", vec![0; 20 << 20])]);
    let twice = tgz(&[("./job.MF", b"name: j".to_vec()), ("./monit", Vec::new()), ("monit", b"x".to_vec())]);
    let mut many = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for number in 0..20_001 {
        append(&mut many, &format!("{number}"), EntryType::Regular, b"");
    }
    let many = many.into_inner().unwrap().finish().unwrap();
    let two_manifests = tgz(&[("release.MF", b"name: a\nversion: 1".to_vec()), ("./release.MF", Vec::new())]);
    let wrong_digest = {
        let mut files =
            vec![("release.MF", b"name: bad\nversion: 1\njobs: [{name: j, version: f, sha1: aa}]".to_vec())];
        files.push(("jobs/j.tgz", good_job.clone()));
        tgz(&files)
    };
    // A header that promises 65 GiB.
    let endless = {
        let mut header = tar::Header::new_gnu();
        header.set_path("zeros").unwrap();
        header.set_size(65 << 30);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let no_monit = of(&tgz(&[("./job.MF", b"name: j".to_vec())]), &good_package, "");
    const AGAIN: &str = "create the release again";
    let cases: Vec<(&str, Vec<u8>, &str, &str)> = vec![
        ("traversal", with("../release.MF", EntryType::Regular, b""), "'../release.MF', which leads out of it", AGAIN),
        ("a device", with("release.MF", EntryType::Char, b""), "'release.MF', which is a device or a pipe", AGAIN),
        ("a pipe", with("jobs/x.tgz", EntryType::Fifo, b""), "which is a device or a pipe", AGAIN),
        ("two manifests", two_manifests, "'./release.MF', which is there twice", AGAIN),
        (
            "a link in place of the manifest",
            with("release.MF", EntryType::Symlink, b""),
            "Release manifest not found",
            "create-release --tarball",
        ),
        ("very many entries", many, "more than 20000 entries", AGAIN),
        (
            "traversal in a package",
            inside("../../etc/passwd", EntryType::Regular),
            "package 'p' has '../../etc/passwd', which leads out",
            AGAIN,
        ),
        (
            "a device in a package",
            inside("dev/sda", EntryType::Block),
            "package 'p' has 'dev/sda', which is a device",
            AGAIN,
        ),
        (
            "a file through a link in a package",
            package(&linked(EntryType::Symlink, "/etc")),
            "package 'p' has 'a/passwd', which would be written through a link",
            AGAIN,
        ),
        (
            "a second name for a file of the machine",
            package(&linked(EntryType::Link, "../../../etc/shadow")),
            "package 'p' has 'a', which is a link that leads out of it",
            AGAIN,
        ),
        ("a job that is no archive", of(b"nothing", &good_package, ""), "job 'j' is not a usable archive", AGAIN),
        ("a package that is no archive", package(b"nothing"), "package 'p' is not a usable archive", AGAIN),
        ("a bomb", of(&bomb, &good_package, ""), "more than the 16 MiB that are left for it", AGAIN),
        ("a bomb of a package", package(&endless), "it takes more than the 65536 MiB that are left for it", AGAIN),
        ("a job with a file twice", of(&twice, &good_package, ""), "'monit', which is there twice", AGAIN),
        (
            "wrong digest of a job",
            wrong_digest,
            "job 'j' is not the one that release.MF describes",
            "copy or create the release again",
        ),
        (
            "wrong digest of a package",
            changed(&of(&good_job, &good_package, ""), &sha256(&good_package), &sha256(b"another")),
            "package 'p' is not the one that release.MF describes",
            "copy or create the release again",
        ),
        ("no monit", no_monit, "Job 'j' is missing monit file", "add one to the job"),
        ("templates that are a list", spec("templates: [a]"), "templates", "correct it"),
        ("packages that are text", spec("packages: p"), "packages", "correct it"),
        ("properties that are a list", spec("properties: [a]"), "properties", "correct it"),
        ("a template that is a map", spec("templates: {a: {b: c}}"), "templates", "correct it"),
        ("a job that is a list", of(&job("[]"), &good_package, ""), "job 'j'", "correct it"),
        ("a release that is a list", tgz(&[("release.MF", b"[]".to_vec())]), "release.MF", "correct it"),
        ("a package that is missing", spec("packages: [q]"), "needs the package 'q'", "add it, or remove it"),
        (
            "a package that needs itself",
            of(&good_job, &good_package, "p"),
            "packages need each other: p => p",
            "remove one of these dependencies",
        ),
        (
            "a package that needs nobody",
            of(&good_job, &good_package, "q"),
            "package 'p' needs 'q', which the release does not have",
            "add it, or remove it from 'dependencies'",
        ),
    ];
    let site = Site::new().await;
    for (what, tarball, expected, remedy) in cases {
        // It looks itself that nothing stays in the temporary folder.
        let error = windlass_contract::explain(&site.upload(&tarball, false).await.expect_err(what));
        assert!(error.contains(expected) && error.contains(remedy), "{what}: {error}");
        assert_eq!(site.blobs(), 0, "{what}");
    }
    assert!(site.bench.director.store.releases().await.unwrap().is_empty());
    // What is refused last has archives already that are fine.
    site.upload(&of(&good_job, &good_package, ""), false).await.unwrap();
    assert_eq!(site.blobs(), 2);
}

/// A job whose templates take this long to check, as files and as it is read.
fn slow_to_check(at_least: Duration) -> (Vec<u8>, Duration) {
    // No two are the same, because one that is known costs nothing.
    let template = |number: u32| format!("<%= p('a') + {number}.to_s %>\n").repeat(1000);
    for doubled in 0..10 {
        let templates: BTreeMap<String, String> =
            (0..1 << doubled).map(|number| (format!("t{number}.erb"), template(number))).collect();
        let listed: Vec<String> = templates.keys().map(|name| format!("{name}: {name}")).collect();
        let spec = format!("name: j\ntemplates: {{{}}}\n", listed.join(", "));
        let monit = BTreeMap::from([("monit".to_owned(), String::new())]);
        let parsed = windlass_release::JobSpec::parse(&spec, "j").unwrap();
        let job = windlass_release::Job { spec: parsed, templates, monit };
        let begun = Instant::now();
        Backends::new(None).check(&job).unwrap();
        let took = begun.elapsed();
        if took >= at_least {
            let path = |name: &String| format!("./templates/{name}");
            let files: Vec<_> =
                job.templates.iter().map(|(name, text)| (path(name), text.clone().into_bytes())).collect();
            let mut all = vec![("./job.MF", spec.into_bytes()), ("./monit", Vec::new())];
            all.extend(files.iter().map(|(path, text)| (path.as_str(), text.clone())));
            return (tgz(&all), took);
        }
    }
    panic!("nothing is slow to check");
}

/// There is one thread for requests, which somebody else's templates must not keep.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn others_are_served_while_the_templates_of_a_release_are_checked() {
    let (job, took) = slow_to_check(Duration::from_secs(1));
    let bench = Arc::new(TestDirector::new().await);
    let path = bench.director.folders.temporary().join("upload");
    std::fs::write(&path, of(&job, &tgz(&[("./packaging", b"true".to_vec())]), "")).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn({
        let (bench, is_over) = (bench.clone(), is_over.clone());
        async move {
            let (mut longest, mut served) = (Duration::ZERO, Instant::now());
            while !is_over.load(Ordering::SeqCst) {
                assert_eq!(bench.send(None, Method::GET, "/info", "").await.0, StatusCode::OK);
                longest = longest.max(served.elapsed());
                served = Instant::now();
                tokio::task::yield_now().await;
            }
            longest
        }
    });
    let uploading = tokio::spawn(async move {
        let log = TaskLog::open(&bench.director, 1).unwrap();
        run(&bench.director, &log, &path, ReleaseUpload::default()).await
    });
    assert_eq!(uploading.await.unwrap().unwrap(), "Created release 'bad/1'");
    is_over.store(true, Ordering::SeqCst);
    let longest = asking.await.unwrap();
    assert!(longest < took / 2, "somebody waited {longest:?}; the templates take {took:?}");
}

/// Fingerprints of releases are published before everybody has them.
#[tokio::test]
async fn what_an_uploader_brought_before_an_admin_makes_room_unless_somebody_runs_it() {
    let package = |script: &str| tgz(&[("./packaging", script.as_bytes().to_vec())]);
    let job = |default: &str| {
        let spec = format!("name: j\nproperties: {{command: {{default: {default}}}}}\n");
        tgz(&[("./job.MF", spec.into_bytes()), ("./monit", Vec::new())])
    };
    for is_used in [false, true] {
        let site = Site::new().await;
        let store = &site.bench.director.store;
        let early = of(&job("evil"), &package("evil"), "");
        site.upload_as(&early, UPLOADER).await.unwrap();
        let digests = async || {
            let package = store.package_of_release("bad", "p", "g").await.unwrap().unwrap();
            (store.job_of_release("bad", "j", "f").await.unwrap().unwrap().sha1, package.source.unwrap().sha1)
        };
        let before = digests().await;
        if is_used {
            store.add_deployment(&"shop".into(), &[]).await.unwrap();
            let ids: Vec<i64> = store.releases().await.unwrap().iter().map(|release| release.id).collect();
            store.also_use_releases(&"shop".into(), &ids).await.unwrap();
        }
        let real = changed(&of(&job("good"), &package("good"), ""), "version: '1'", "version: '2'");
        let admin = ReleaseUpload { replaces: true, ..UPLOADER };
        site.upload_as(&changed(&real, "version: '2'", "version: '3'"), UPLOADER).await.unwrap();
        assert_eq!(digests().await, before, "another uploader's does not count");
        site.upload_as(&real, admin).await.unwrap();
        let after = digests().await;
        assert_eq!((after.0 == before.0, after.1 == before.1), (is_used, is_used));
        let path = OutputKind::Event.path(&site.bench.director.folders.tasks(), site.tasks.get());
        let told = std::fs::read_to_string(path).unwrap();
        assert_eq!(told.contains("is here with other bytes"), is_used, "{told}");
        assert_eq!(told.contains("was here from another upload"), !is_used, "{told}");
    }
}

/// A list of 30 KB with ten thousand packages, whose archives are here, took 12 MiB in every plan and list of anybody.
#[test]
fn who_may_only_upload_brings_no_more_packages_than_everybody_can_list() {
    use windlass_planning::records::{PackageRecord, ReleaseRecord};
    use windlass_release::ReleaseManifest;

    let manifest = |packages: usize| {
        let listed: String = (0..packages).map(|it| format!("- {{name: p{it}, version: 1, sha1: aa}}\n")).collect();
        ReleaseManifest::parse(&format!("name: flood\nversion: 1\npackages:\n{listed}")).unwrap()
    };
    let (text, dependencies) = (String::new, Vec::new());
    let (name, version, fingerprint) = (text(), text(), text());
    let package = PackageRecord { id: 0, name, version, fingerprint, source: None, dependencies };
    let packages = vec![package; MOST_IN_A_VERSION];
    let release = ReleaseRecord { name: "here".into(), packages, ..ReleaseRecord::default() };
    let known = vec![release; MOST_IN_ALL / MOST_IN_A_VERSION];
    let (uploader, admin) = (
        ReleaseUpload { fix: true, ..ReleaseUpload::default() },
        ReleaseUpload { replaces: true, ..ReleaseUpload::default() },
    );
    for (known, packages, refused) in [
        (&[][..], 2000, false),
        (&[][..], 2001, true),
        (&known, 1, true),
        (&known[2..], 2000, false),
        (&known[1..], 2000, true),
    ] {
        let manifest = manifest(packages);
        assert_eq!(check_size(known, &manifest, uploader).is_err(), refused, "{packages}");
        check_size(known, &manifest, admin).unwrap();
    }
    // Versions without anything are listed as well.
    let empty = |number: usize| ReleaseRecord { version: number.to_string(), ..ReleaseRecord::default() };
    let known: Vec<_> = (0..MOST_IN_ALL).map(empty).collect();
    assert!(check_size(&known, &manifest(0), uploader).is_err());
    check_size(&known[1..], &manifest(0), uploader).unwrap();
    // Each may need all others.
    for (needs, refused) in [(50, false), (200, true)] {
        let needed: String = (0..needs).map(|it| format!("p{it}, ")).collect();
        let needing: String =
            (0..100).map(|it| format!("- {{name: n{it}, version: 1, sha1: aa, dependencies: [{needed}]}}\n")).collect();
        let listed: String = (0..needs).map(|it| format!("- {{name: p{it}, version: 1, sha1: aa}}\n")).collect();
        let manifest =
            ReleaseManifest::parse(&format!("name: flood\nversion: 1\npackages:\n{listed}{needing}")).unwrap();
        assert_eq!(check_size(&[], &manifest, uploader).is_err(), refused, "{needs}");
        check_size(&[], &manifest, admin).unwrap();
    }
}
