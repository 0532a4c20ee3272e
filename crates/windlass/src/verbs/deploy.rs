//! `windlass deploy`: shows the difference and the plan, asks, and follows the task that carries it out.

use reqwest::Method;

use crate::cli::DeployArgs;
use crate::diff_view;
use crate::director_answers::Diff;
use crate::director_client::escape;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::task_view;
use crate::verbs::plan::{self, Manifest};

pub(crate) async fn run(session: &mut Session<'_>, arguments: &DeployArgs) -> Result<(), Failure> {
    let manifest = Manifest::read(session, &arguments.plan)?;
    let name = &manifest.deployment;
    let path = format!("/deployments/{}/diff?redact=true", escape(name));
    let diff = session.director.post_yaml::<Diff>(&path, &manifest.text).await;
    let diff = diff.while_(format!("comparing deployment '{name}'"))?;
    diff_view::show(session.screen, &diff.diff);
    if let Some(error) = &diff.error {
        session.screen.line(&format!("The director cannot show the difference: {error}"));
    }

    let planned = plan::ask(session, &manifest, &arguments.plan).await?;
    if arguments.dry_run {
        session.screen.block(&planned);
        return Ok(());
    }
    session.screen.line(planned.trim_end());
    session.confirm()?;

    let doing = format!("updating deployment '{name}'");
    // As it is in the file, so that problems are told with their lines.
    let mut query = vec!["verbatim=true".to_owned()];
    query.extend(arguments.plan.recreate.then(|| "recreate=true".to_owned()));
    query.extend(arguments.plan.fix.then(|| "fix=true".to_owned()));
    query.extend(diff.context.map(|context| format!("context={}", escape(&context.to_string()))));
    let path = format!("/deployments?{}", query.join("&"));
    let task = session.director.begin(Method::POST, &path, Some(&manifest.text)).await.while_(&doing)?;
    task_view::follow(session, task, &doing).await
}
