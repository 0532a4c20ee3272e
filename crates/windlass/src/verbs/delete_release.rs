//! `windlass delete-release`.

use reqwest::Method;
use windlass_director_client::answers::Release;
use windlass_director_client::escape;

use crate::failure::Failure;
use crate::session::{Session, While};
use crate::task_view;

pub(crate) async fn run(session: &mut Session<'_>, release: &str, force: bool) -> Result<(), Failure> {
    session.confirm()?;
    let (name, version) = match release.split_once('/') {
        Some((name, version)) => (name, Some(version)),
        None => (release, None),
    };
    let there: Vec<Release> = session.director.get("/releases").await.while_("listing releases")?;
    let mut versions = there.iter().filter(|found| found.name == name).flat_map(|found| &found.release_versions);
    if !versions.any(|found| version.is_none_or(|version| found.version == version)) {
        session.was_not_there(&format!("There is no release '{release}'"));
        return Ok(());
    }
    let doing = format!("deleting release '{release}'");
    let version = version.map(|version| format!("version={}", escape(version)));
    let force = force.then(|| "force=true".to_owned());
    let query: Vec<String> = [version, force].into_iter().flatten().collect();
    let path = format!("/releases/{}?{}", escape(name), query.join("&"));
    let task = session.director.begin(Method::DELETE, &path, None).await.while_(&doing)?;
    task_view::follow(session, task, &doing).await
}
