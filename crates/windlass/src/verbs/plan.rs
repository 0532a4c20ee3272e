//! `windlass plan`: what a deploy would do, and why.

use crate::cli::PlanArgs;
use crate::director_answers::Plan;
use crate::director_client::query;
use crate::failure::Failure;
use crate::interpolation::InterpolationArgs;
use crate::session::{Session, While};
use crate::verbs::read_yaml;

pub(crate) async fn run(session: &mut Session<'_>, arguments: &PlanArgs) -> Result<(), Failure> {
    let manifest = Manifest::read(session, arguments, &arguments.changes.to_look())?;
    let text = ask(session, &manifest, arguments).await?;
    session.screen.block(&text);
    Ok(())
}

/// A manifest and the deployment that it is for.
pub(super) struct Manifest {
    pub(super) deployment: String,
    /// As it is in the file if no flag changes it, so that the director can name lines of it.
    pub(super) text: String,
    /// Whether it is as it is in the file.
    pub(super) verbatim: bool,
    pub(super) document: windlass_manifest::Document,
}

impl Manifest {
    /// Reads the manifest and tells the user which deployment it is for.
    pub(super) fn read(
        session: &mut Session<'_>,
        arguments: &PlanArgs,
        changes: &InterpolationArgs,
    ) -> Result<Self, Failure> {
        let path = &arguments.manifest;
        let (text, document) = read_yaml(path, changes, arguments.strictness())?;
        let name = document.root().field("name").and_then(|name| name.string());
        let name = name.map_err(|problem| Failure::Yaml { path: path.clone(), source: problem.into() })?.to_owned();
        if let Some(flag) = session.named_deployment().filter(|flag| *flag != name) {
            return Err(Failure::OtherDeployment { manifest: name, flag: flag.to_owned() });
        }
        session.screen.context(&format!("Using deployment '{name}'"));
        let verbatim = arguments.changes.is_empty() && !arguments.var_errs;
        Ok(Self { deployment: name, text, verbatim, document })
    }
}

/// The plan in words.
pub(super) async fn ask(session: &Session<'_>, manifest: &Manifest, arguments: &PlanArgs) -> Result<String, Failure> {
    let name = &manifest.deployment;
    let mut asked = vec![("deployment", name.clone())];
    asked.extend(arguments.query());
    let path = format!("/windlass/plan{}", query(asked));
    let answer = session.director.post_yaml::<Plan>(&path, &manifest.text).await;
    Ok(answer.while_(format!("planning deployment '{name}'"))?.text)
}
