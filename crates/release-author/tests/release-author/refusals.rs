//! What is wrong with a release directory.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use windlass_release_author::Create;

use crate::shop::Site;

fn explained(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files(&path));
        } else {
            found.push(path.display().to_string());
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_wrong_with_a_directory_is_told_and_nothing_stays() {
    let cases: [(&str, &str, &str); 15] = [
        ("jobs/web/spec", "name: other\n", "Job directory 'web' does not match job name 'other' in spec; rename one"),
        (
            "jobs/web/spec",
            "name: web\ntemplates: {no.erb: bin/no}\n",
            "lists the template 'no.erb', but there is no file",
        ),
        ("jobs/web/spec", "name: web\ntemplates: [a]\n", "jobs/web/spec' is not valid: templates: expected"),
        ("jobs/web/spec", "name: [\n", "jobs/web/spec' is not valid YAML"),
        ("jobs/web/spec", "name: web\ntemplates: {../../../etc/passwd: x}\n", "is not inside of the job"),
        (
            "jobs/web/spec",
            "name: web\npackages: [nobody]\n",
            "Expected to find package 'nobody' since it's a dependency of job 'web'",
        ),
        ("packages/base/spec", "name: base\ndependencies: [app]\n", "packages need each other: app => base => app"),
        ("packages/base/spec", "name: base\ndependencies: [x]\n", "'x' since it's a dependency of package 'base'"),
        ("packages/base/spec", "name: base\nfiles: [none/*]\n", "Missing files for pattern 'none/*' of package 'base'"),
        (
            "packages/base/spec",
            "name: base\nfiles: [../config/*]\n",
            "'../config/*' of package 'base' leads out of the release",
        ),
        ("packages/base/spec", "name: base\nfiles: ['a[']\n", "brackets or braces that do not end"),
        ("packages/base/spec", "name: ../../x\n", "Invalid package name in release manifest: '../../x'"),
        ("packages/base/spec", "name: app\n", "the release has two packages 'app'"),
        ("config/final.yml", "name: a/b\n", "Invalid release name"),
        ("config/blobs.yml", "../../etc/x: {size: 1, sha: a}\n", "Invalid blob path '../../etc/x'"),
    ];
    for (file, content, words) in cases {
        let site = Site::shop();
        site.write(file, content.as_bytes());
        let before = files(&site.path());
        let refused = explained(&site.create(&Create::default()).unwrap_err());
        assert!(refused.contains(words), "{file} with {content:?}: {refused}");
        assert_eq!(files(&site.path()), before, "{file} with {content:?}");
        assert_eq!(files(&site.cache()), Vec::<String>::new(), "{file} with {content:?}");
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let site = Site::shop();
    site.write("jobs/web/spec", b"name: other\n");
    fs::remove_file(site.path().join("packages/app/packaging")).unwrap();
    let refused = explained(&site.create(&Create::default()).unwrap_err());
    assert!(refused.contains("packages/app/packaging' for package 'app'"), "{refused}");
    assert!(refused.contains("Job directory 'web'"), "{refused}");
}

#[test]
fn changes_without_a_commit_are_refused_unless_forced() {
    let site = Site::shop();
    let git = |arguments: &[&str]| {
        let who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"];
        let output = Command::new("git").args(who).args(arguments).current_dir(site.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "-q", "."]);
    let refused = site.create(&Create::default()).unwrap_err().to_string();
    assert!(
        refused.starts_with("Git repository has local modifications:\n\n?? ") && refused.contains("--force"),
        "{refused}"
    );
    let (release, _) = site.create(&Create { force: true, ..Create::default() }).unwrap();
    assert_eq!(release.commit(), "empty+");
    site.directory().reset(&mut |_| {}).unwrap();
    site.write(".gitignore", b".dev_builds\ndev_releases\n");
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "x"]);
    let (release, _) = site.create(&Create::default()).unwrap();
    assert_eq!(release.commit(), git(&["rev-parse", "--short", "HEAD"]));
}
