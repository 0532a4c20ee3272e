//! `windlass plan`: what a deploy would do, and why.

use serde_json::Value;
use windlass_director_client::answers::ShownPlan;
use windlass_director_client::{ClientError, query};

use crate::cli::{LookArgs, PlanArgs};
use crate::failure::Failure;
use crate::interpolation::InterpolationArgs;
use crate::session::{Session, While};
use crate::table::Table;
use crate::verbs::read_yaml;

pub(crate) async fn run(session: &mut Session<'_>, look: &LookArgs) -> Result<(), Failure> {
    let arguments = &look.plan;
    let manifest = Manifest::read(session, arguments, &arguments.changes.to_look())?;
    let answer = ask(session, &manifest, arguments).await?;
    if session.screen.is_json() {
        let plan = read(answer.plan.as_ref())?;
        plan.warnings.iter().for_each(|warning| session.screen.line(warning));
        session.screen.table(&actions(&plan));
    } else {
        session.screen.prose(&answer.text);
    }
    if look.detailed_exitcode && !read(answer.plan.as_ref())?.is_empty() {
        session.screen.end_with(CHANGES);
    }
    Ok(())
}

/// The exit code of a plan that changes something, with `--detailed-exitcode`.
const CHANGES: u8 = 2;

fn read(plan: Option<&Value>) -> Result<windlass_planning::plan::Plan, Failure> {
    let plan = plan.cloned().unwrap_or_default();
    serde_json::from_value(plan).map_err(ClientError::from_json).while_("reading the plan")
}

/// What a plan does, as data: one row per action.
fn actions(plan: &windlass_planning::plan::Plan) -> Table {
    let packages = plan.compilation.iter().flat_map(|compilation| &compilation.packages);
    let compiled = packages.map(|package| {
        let what = format!("compile {}", package.label());
        [String::new(), String::new(), what, "compile_package".to_owned(), package.reason()].to_vec()
    });
    let instances = plan.removed.iter().chain(plan.groups.iter().flat_map(|group| &group.instances));
    let done = instances.flat_map(|instance| {
        instance.actions.iter().map(move |action| {
            let kind = serde_json::to_value(&action.what).unwrap_or_default();
            let kind = kind["what"].as_str().unwrap_or_default().to_owned();
            let slug = format!("{}/{}", instance.group, instance.id);
            vec![slug, instance.index.to_string(), action.what.describe(), kind, action.reason.clone()]
        })
    });
    Table {
        content: "actions",
        header: vec!["Instance", "Index", "Action", "Kind", "Reason"],
        rows: compiled.chain(done).collect(),
        ours: true,
        ..Table::default()
    }
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

/// The plan, in words and as data.
pub(super) async fn ask(
    session: &Session<'_>,
    manifest: &Manifest,
    arguments: &PlanArgs,
) -> Result<ShownPlan, Failure> {
    let name = &manifest.deployment;
    let mut asked = vec![("deployment", name.clone())];
    asked.extend(arguments.query());
    let path = format!("/windlass/plan{}", query(asked));
    let answer = session.director.post_yaml::<ShownPlan>(&path, &manifest.text).await;
    answer.while_(format!("planning deployment '{name}'"))
}
