//! `windlass recreate`: new VMs for the same instances.

use reqwest::Method;

use crate::director_client::escape;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::task_view;

pub(crate) async fn run(session: &mut Session<'_>, instances: Option<&str>, fix: bool) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    session.confirm()?;
    let fix = if fix { "&fix=true" } else { "" };
    let path = format!("/deployments/{}/jobs/{}?state=recreate{fix}", escape(&deployment), group_and_id(instances));
    let doing = format!("recreating instances of deployment '{deployment}'");
    // Without a manifest, the stored one counts.
    let task = session.director.begin(Method::PUT, &path, Some("")).await.while_(&doing)?;
    task_view::follow(session, task, &doing).await
}

fn group_and_id(instances: Option<&str>) -> String {
    match instances.map(|slug| slug.split_once('/').ok_or(slug)) {
        None => "*".to_owned(),
        Some(Err(group)) => escape(group),
        Some(Ok((group, id))) => format!("{}/{}", escape(group), escape(id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_a_group_or_one_instance_can_be_recreated() {
        assert_eq!(group_and_id(None), "*");
        assert_eq!(group_and_id(Some("db")), "db");
        assert_eq!(group_and_id(Some("db/3f")), "db/3f");
        assert_eq!(group_and_id(Some("db/../x")), "db/..%2Fx");
    }
}
