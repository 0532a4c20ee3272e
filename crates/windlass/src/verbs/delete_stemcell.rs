//! `windlass delete-stemcell`.

use reqwest::Method;
use windlass_director_client::answers::Stemcell;
use windlass_director_client::escape;

use crate::cli::Slug;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::task_view;

pub(crate) async fn run(session: &mut Session<'_>, stemcell: &Slug, force: bool) -> Result<(), Failure> {
    session.confirm()?;
    let Err(failure) = delete(session, stemcell, force).await else { return Ok(()) };
    match session.director.get::<Vec<Stemcell>>("/stemcells").await {
        Ok(left) if !left.iter().any(|s| s.name == stemcell.name && s.version == stemcell.version) => {
            session.was_not_there(&format!("There is no stemcell '{stemcell}'"));
            Ok(())
        }
        _ => Err(failure),
    }
}

async fn delete(session: &mut Session<'_>, stemcell: &Slug, force: bool) -> Result<(), Failure> {
    let doing = format!("deleting stemcell '{stemcell}'");
    let force = if force { "?force=true" } else { "" };
    let path = format!("/stemcells/{}/{}{force}", escape(&stemcell.name), escape(&stemcell.version));
    let task = session.director.begin(Method::DELETE, &path, None).await.while_(&doing)?;
    task_view::follow(session, task, &doing).await
}
