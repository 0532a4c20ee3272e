//! `windlass delete-deployment`: its VMs are deleted, its disks become orphans.

use reqwest::Method;
use windlass_director_client::answers::Deployment;
use windlass_director_client::escape;

use crate::failure::Failure;
use crate::session::{Session, While};
use crate::task_view;

pub(crate) async fn run(session: &mut Session<'_>, force: bool) -> Result<(), Failure> {
    let name = session.using_deployment()?;
    session.confirm()?;
    let Err(failure) = delete(session, &name, force).await else { return Ok(()) };
    match session.director.get::<Vec<Deployment>>("/deployments").await {
        Ok(left) if !left.iter().any(|deployment| deployment.name == name) => {
            session.was_not_there(&format!("There is no deployment '{name}'"));
            Ok(())
        }
        _ => Err(failure),
    }
}

async fn delete(session: &mut Session<'_>, name: &str, force: bool) -> Result<(), Failure> {
    let doing = format!("deleting deployment '{name}'");
    let force = if force { "?force=true" } else { "" };
    let path = format!("/deployments/{}{force}", escape(name));
    let task = session.director.begin(Method::DELETE, &path, None).await.while_(&doing)?;
    task_view::follow(session, task, &doing).await
}
