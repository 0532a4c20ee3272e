//! `windlass update-cloud-config`: what the cloud offers to deployments.

use std::path::Path;

use windlass_manifest::interpolate::Strictness;

use crate::diff_view;
use crate::director_answers::Diff;
use crate::director_client::escape;
use crate::failure::Failure;
use crate::interpolation::InterpolationArgs;
use crate::session::{Session, While};
use crate::verbs::read_yaml;

pub(crate) async fn run(
    session: &mut Session<'_>,
    file: &Path,
    changes: &InterpolationArgs,
    name: &str,
) -> Result<(), Failure> {
    let (text, _) = read_yaml(file, changes, Strictness::default())?;
    let name = escape(name);
    let diff = session.director.post_yaml::<Diff>(&format!("/cloud_configs/diff?name={name}"), &text).await;
    diff_view::show(session.screen, &diff.while_("comparing the cloud config")?.diff);
    session.confirm()?;
    let stored = session.director.store_yaml(&format!("/cloud_configs?name={name}&verbatim=true"), &text).await;
    stored.while_("updating the cloud config")
}
