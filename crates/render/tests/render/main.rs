//! What becomes of templates.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod backends;
mod bosh;
mod caged;
mod cases;
mod corpus;
mod cpi_release;
mod errors;
mod hidden;
mod hostile;
mod mutated;
mod programs;
mod ruby;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass_release::{Job, JobSpec};
use windlass_render::{Native, RenderError, RenderedJob, Renderer as _};

/// A job with templates, whose sources are their destinations, too.
fn job(name: &str, monit: &str, templates: &[(&str, &str)]) -> Job {
    let listed: serde_json::Map<String, Value> =
        templates.iter().map(|(source, _)| ((*source).to_owned(), json!(format!("config/{source}")))).collect();
    let spec = JobSpec {
        name: name.to_owned(),
        templates: listed.iter().map(|(source, to)| (source.clone(), to.as_str().unwrap().to_owned())).collect(),
        packages: Vec::new(),
        properties: BTreeMap::new(),
        raw: json!({ "name": name, "templates": listed }),
    };
    let owned = |(source, content): &(&str, &str)| ((*source).to_owned(), (*content).to_owned());
    Job {
        spec,
        templates: templates.iter().map(owned).collect(),
        monit: BTreeMap::from([("monit".to_owned(), monit.to_owned())]),
    }
}

/// The spec that the cases are rendered with.
fn spec() -> Value {
    serde_json::from_str(include_str!("spec.json")).unwrap()
}

fn render(template: &str) -> Result<RenderedJob, RenderError> {
    Native.render(&job("app", "", &[("t.erb", template)]), &spec())
}

/// The text that a template becomes.
fn text(template: &str) -> String {
    render(template).unwrap_or_else(|error| panic!("{template}: {error}")).files[0].content.clone()
}
