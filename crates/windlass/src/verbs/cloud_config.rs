//! `windlass cloud-config`.

use crate::director_answers::CloudConfig;
use crate::director_client::escape;
use crate::failure::Failure;
use crate::session::{Session, While};

pub(crate) async fn run(session: &mut Session<'_>, name: &str) -> Result<(), Failure> {
    let path = format!("/cloud_configs?name={}&limit=1", escape(name));
    let found: Vec<CloudConfig> = session.director.get(&path).await.while_("reading the cloud config")?;
    let newest = found.into_iter().next().ok_or(Failure::NoCloudConfig)?;
    session.screen.block(&newest.properties);
    Ok(())
}
