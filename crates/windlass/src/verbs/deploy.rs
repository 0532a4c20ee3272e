//! `windlass deploy`: shows the difference and the plan, asks, and follows the task that carries it out.

use reqwest::Method;
use windlass_director_client::answers::Diff;
use windlass_director_client::{escape, query};

use crate::cli::DeployArgs;
use crate::diff_view;
use crate::failure::Failure;
use crate::session::{Call, Session, While};
use crate::verbs::plan::{self, Manifest};
use crate::verbs::releases_of_document;

pub(crate) async fn run(session: &mut Session<'_>, arguments: &DeployArgs) -> Result<(), Failure> {
    let changes = &arguments.plan.changes;
    let changes = if arguments.dry_run { changes.to_look() } else { changes.clone() };
    let mut manifest = Manifest::read(session, &arguments.plan, &changes)?;
    if !arguments.skip_upload_releases
        && let Some(text) = releases_of_document::upload(session, &manifest.document, arguments.fix_releases).await?
    {
        (manifest.text, manifest.verbatim) = (text, false);
    }
    let name = &manifest.deployment;
    let path = format!("/deployments/{}/diff?redact={}", escape(name), !arguments.no_redact);
    let diff = session.director.post_yaml::<Diff>(&path, &manifest.text).await;
    let diff = diff.while_(format!("comparing deployment '{name}'"))?;
    if !session.screen.is_brief() {
        diff_view::show(session.screen, &diff.diff);
    }
    if let Some(error) = &diff.error {
        session.screen.line(&format!("The director cannot show the difference: {error}"));
    }

    // What is wrong is said here, before there is a task.
    let planned = plan::ask(session, &manifest, &arguments.plan).await?;
    // Scripts get what BOSH's client prints, and 'windlass plan' if they want this.
    if session.screen.is_for_people() {
        session.screen.prose_context(planned.text.trim_end());
    }
    if !arguments.dry_run {
        session.confirm()?;
    }

    let doing = format!("updating deployment '{name}'");
    let mut asked = arguments.plan.query();
    // As it is in the file, so that problems are told with their lines.
    asked.extend(manifest.verbatim.then(|| ("verbatim", "true".to_owned())));
    asked.extend((!arguments.skip_drain.is_empty()).then(|| ("skip_drain", arguments.skip_drain.join(","))));
    asked.extend(arguments.dry_run.then(|| ("dry_run", "true".to_owned())));
    asked.extend(arguments.force_latest_variables.then(|| ("force_latest_variables", "true".to_owned())));
    asked.extend(diff.context.map(|context| ("context", context.to_string())));
    let path = format!("/deployments{}", query(asked));
    session.carry_out(Call::new(Method::POST, path).with_yaml(&manifest.text), &doing).await.map(|_| ())
}
