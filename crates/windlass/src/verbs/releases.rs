//! `windlass releases`.

use windlass_director_client::answers::Release;

use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;
use crate::verbs::stemcells::compare_versions;

pub(super) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let releases = session.director.get("/releases").await.while_("listing releases")?;
    session.screen.table(&table(releases));
    Ok(())
}

fn table(mut releases: Vec<Release>) -> Table {
    releases.sort_by(|a, b| a.name.cmp(&b.name));
    let mut rows = Vec::new();
    for mut release in releases {
        release.release_versions.sort_by(|a, b| compare_versions(&b.version, &a.version));
        rows.extend(release.release_versions.into_iter().map(|version| {
            let deployed = if version.currently_deployed { "*" } else { "" };
            let uncommitted = if version.uncommitted_changes { "+" } else { "" };
            let commit = format!("{}{uncommitted}", version.commit_hash);
            vec![release.name.clone(), format!("{}{deployed}", version.version), commit]
        }));
    }
    Table {
        content: "releases",
        header: vec!["Name", "Version", "Commit Hash"],
        rows,
        notes: vec!["(*) Currently deployed", "(+) Uncommitted changes"],
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_shown_as_by_the_original() {
        let releases = r#"[{"name":"shop","release_versions":[
            {"version":"1","commit_hash":"abc","uncommitted_changes":true,"currently_deployed":false,"job_names":[]},
            {"version":"2","commit_hash":"def","uncommitted_changes":false,"currently_deployed":true,"job_names":[]}]}]"#;
        assert_eq!(table(serde_json::from_str(releases).unwrap()).for_scripts(), "shop\t2*\tdef\t\nshop\t1 \tabc+\t\n");
    }
}
