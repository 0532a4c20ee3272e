//! `windlass inspect-release`: the jobs and packages of a release that the director has.

use serde::Deserialize;
use serde_json::Value;
use windlass_director_client::{escape, query};
use windlass_manifest::to_yaml;

use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;

#[derive(Debug, Deserialize)]
struct Inspected {
    #[serde(default)]
    jobs: Vec<Job>,
    #[serde(default)]
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Job {
    name: String,
    fingerprint: Option<String>,
    blobstore_id: Option<String>,
    sha1: Option<String>,
    #[serde(default)]
    consumes: Value,
    #[serde(default)]
    provides: Value,
    /// BOSH's director does not say.
    needs_ruby: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    fingerprint: Option<String>,
    blobstore_id: Option<String>,
    sha1: Option<String>,
    #[serde(default)]
    compiled_packages: Vec<Compiled>,
}

#[derive(Debug, Deserialize)]
struct Compiled {
    stemcell: String,
    blobstore_id: Option<String>,
    sha1: Option<String>,
}

pub(super) async fn run(session: &mut Session<'_>, release: &str) -> Result<(), Failure> {
    let (name, version) = release.split_once('/').ok_or_else(|| Failure::NoReleaseVersion(release.to_owned()))?;
    let path = format!("/releases/{}{}", escape(name), query(vec![("version", version.to_owned())]));
    let inspected: Inspected = session.director.get(&path).await.while_(format!("inspecting release '{release}'"))?;
    let mut jobs = jobs(&inspected.jobs);
    if session.screen.is_as_bosh() {
        jobs.header.pop();
        jobs.rows.iter_mut().for_each(|row| drop(row.pop()));
    }
    session.screen.table(&jobs);
    session.screen.table(&packages(&inspected.packages));
    Ok(())
}

/// `name/fingerprint`, as BOSH's client shows it.
fn label(name: &str, fingerprint: Option<&String>) -> String {
    fingerprint.map_or_else(|| name.to_owned(), |fingerprint| format!("{name}/{fingerprint}"))
}

fn jobs(jobs: &[Job]) -> Table {
    let links = |links: &Value| match links.as_array() {
        Some(links) if !links.is_empty() => to_yaml(&Value::from(links.clone())).trim_end().to_owned(),
        _ => String::new(),
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let row = |job: &Job| {
        let (consumed, provided) = (links(&job.consumes), links(&job.provides));
        let name = label(&job.name, job.fingerprint.as_ref());
        vec![name, text(&job.blobstore_id), text(&job.sha1), consumed, provided, text(&job.needs_ruby)]
    };
    Table {
        content: "jobs",
        header: vec!["Job", "Blobstore ID", "Digest", "Links Consumed", "Links Provided", "Needs Ruby"],
        rows: jobs.iter().map(row).collect(),
        ..Table::default()
    }
}

fn packages(packages: &[Package]) -> Table {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let rows = packages.iter().flat_map(|package| {
        let row = |stemcell: &str, blob: &Option<String>, sha1: &Option<String>| {
            let name = label(&package.name, package.fingerprint.as_ref());
            vec![name, stemcell.to_owned(), text(blob), text(sha1)]
        };
        let source = row("(source)", &package.blobstore_id, &package.sha1);
        let compiled = package.compiled_packages.iter();
        let compiled = compiled.map(|found| row(&found.stemcell, &found.blobstore_id, &found.sha1)).collect::<Vec<_>>();
        std::iter::once(source).chain(compiled)
    });
    Table {
        content: "packages",
        header: vec!["Package", "Compiled for", "Blobstore ID", "Digest"],
        rows: rows.collect(),
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_ruby_stands_beside_each_job() {
        let told = r#"{"jobs":[{"name":"web","fingerprint":"f0","blobstore_id":"b","sha1":"s","consumes":[{"name":"db","type":"pg"}],"provides":[],
            "needs_ruby":"template 'x.erb' (line 3) needs Ruby for 'class'"}],
            "packages":[{"name":"app","fingerprint":"f1","blobstore_id":"c","sha1":"d","compiled_packages":[{"stemcell":"os/1","blobstore_id":"e","sha1":"f"}]}]}"#;
        let told: Inspected = serde_json::from_str(told).unwrap();
        let shown = jobs(&told.jobs).for_scripts();
        assert!(shown.starts_with("web/f0\tb\ts\t") && shown.contains("name: db"), "{shown}");
        assert!(shown.contains("template 'x.erb' (line 3) needs Ruby for 'class'"), "{shown}");
        assert_eq!(packages(&told.packages).for_scripts(), "app/f1\t(source)\tc\td\t\napp/f1\tos/1    \te\tf\t\n");
    }
}
