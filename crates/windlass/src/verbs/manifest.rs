//! `windlass manifest`: the manifest of the last successful deploy.

use windlass_director_client::answers::Manifest;
use windlass_director_client::escape;

use crate::failure::Failure;
use crate::session::{Session, While};

pub(crate) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let name = session.using_deployment()?;
    let answer = session.director.get::<Manifest>(&format!("/deployments/{}", escape(&name))).await;
    let manifest = answer.while_(format!("reading the manifest of deployment '{name}'"))?.manifest;
    session.screen.block(&manifest.ok_or(Failure::NoManifest(name))?);
    Ok(())
}
