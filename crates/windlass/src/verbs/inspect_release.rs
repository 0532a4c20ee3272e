//! `windlass inspect-release`: the jobs and packages of a release that the director has.

use serde_json::Value;
use windlass_director_client::answers::{ReleaseContents, ReleaseJob, ReleasePackage};
use windlass_director_client::{escape, query};
use windlass_manifest::to_yaml;

use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;

pub(super) async fn run(session: &mut Session<'_>, release: &str) -> Result<(), Failure> {
    let (name, version) = release.split_once('/').ok_or_else(|| Failure::NoReleaseVersion(release.to_owned()))?;
    let path = format!("/releases/{}{}", escape(name), query(vec![("version", version.to_owned())]));
    let inspected: ReleaseContents =
        session.director.get(&path).await.while_(format!("inspecting release '{release}'"))?;
    let as_bosh = session.screen.is_as_bosh();
    let mut jobs = jobs(&inspected.jobs, as_bosh);
    if as_bosh {
        jobs.header.pop();
        jobs.rows.iter_mut().for_each(|row| drop(row.pop()));
    }
    session.screen.table(&jobs);
    session.screen.table(&packages(&inspected.packages));
    Ok(())
}

/// `name/fingerprint`, as BOSH's client shows it.
fn label(name: &str, fingerprint: &str) -> String {
    if fingerprint.is_empty() { name.to_owned() } else { format!("{name}/{fingerprint}") }
}

/// BOSH's client says of links no more than `name`, `type` and that they are optional.
fn without_more(link: &Value) -> Value {
    let told =
        |(key, value): &(&String, &Value)| matches!(key.as_str(), "name" | "type") || **value == Value::Bool(true);
    let keys = link.as_object().into_iter().flatten().filter(told);
    keys.map(|(key, value)| (key.clone(), value.clone())).collect::<serde_json::Map<_, _>>().into()
}

fn jobs(jobs: &[ReleaseJob], as_bosh: bool) -> Table {
    let shown = |link: &Value| if as_bosh { without_more(link) } else { link.clone() };
    let links = |links: &Value| match links.as_array() {
        Some(links) if !links.is_empty() => {
            to_yaml(&links.iter().map(shown).collect::<Vec<_>>().into()).trim_end().to_owned()
        }
        _ => String::new(),
    };
    let row = |job: &ReleaseJob| {
        let (consumed, provided) = (links(&job.consumes), links(&job.provides));
        let name = label(&job.name, &job.fingerprint);
        let needs_ruby = job.needs_ruby.clone().unwrap_or_default();
        vec![name, job.blobstore_id.clone(), job.sha1.clone(), consumed, provided, needs_ruby]
    };
    Table {
        content: "jobs",
        header: vec!["Job", "Blobstore ID", "Digest", "Links Consumed", "Links Provided", "Needs Ruby"],
        rows: jobs.iter().map(row).collect(),
        ..Table::default()
    }
}

fn packages(packages: &[ReleasePackage]) -> Table {
    let rows = packages.iter().flat_map(|package| {
        let row = |stemcell: &str, blob: &str, sha1: &str| {
            let name = label(&package.name, &package.fingerprint);
            vec![name, stemcell.to_owned(), blob.to_owned(), sha1.to_owned()]
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
        let told = r#"{"jobs":[{"name":"web","fingerprint":"f0","blobstore_id":"b","sha1":"s","consumes":[{"name":"db","type":"pg","optional":true}],
            "provides":[{"name":"web","type":"http","optional":false,"properties":["port"]}],
            "needs_ruby":"template 'x.erb' (line 3) needs Ruby for 'class'"}],
            "packages":[{"name":"app","fingerprint":"f1","blobstore_id":"c","sha1":"d","compiled_packages":[{"stemcell":"os/1","blobstore_id":"e","sha1":"f"}]}]}"#;
        let told: ReleaseContents = serde_json::from_str(told).unwrap();
        let shown = jobs(&told.jobs, false).for_scripts();
        assert!(shown.starts_with("web/f0\tb\ts\t") && shown.contains("name: db"), "{shown}");
        assert!(shown.contains("template 'x.erb' (line 3) needs Ruby for 'class'"), "{shown}");
        let told_by_bosh = jobs(&told.jobs, true).for_scripts();
        assert!(told_by_bosh.contains("optional: true") && !told_by_bosh.contains("port"), "{told_by_bosh}");
        assert!(shown.contains("- port"), "{shown}");
        assert_eq!(packages(&told.packages).for_scripts(), "app/f1\t(source)\tc\td\t\napp/f1\tos/1    \te\tf\t\n");
    }
}
