//! The templates of a job, and the files that they become.

use serde_json::Value;
use windlass_release::Job;

use crate::{MONIT, RenderedFile, RenderedJob};

/// Where a job says which links it provides.
const LINKS: &str = ".bosh/links.json";

/// One template of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Template<'a> {
    pub(crate) source: &'a str,
    pub(crate) destination: &'a str,
    pub(crate) content: &'a str,
}

/// `monit`, then the others in the order of `job.MF`.
pub(crate) fn of(job: &Job) -> Vec<Template<'_>> {
    let monit = job.monit.get(MONIT).map_or("", String::as_str);
    let mut templates = vec![Template { source: MONIT, destination: MONIT, content: monit }];
    let listed = job.spec.raw.get("templates").and_then(Value::as_object);
    let mut sources: Vec<&str> = listed.into_iter().flat_map(|listed| listed.keys()).map(String::as_str).collect();
    sources.extend(job.templates.keys().map(String::as_str).filter(|_| listed.is_none()));
    for source in sources {
        if let (Some(content), Some(destination)) = (job.templates.get(source), job.spec.templates.get(source)) {
            templates.push(Template { source, destination, content });
        }
    }
    templates
}

/// A job whose templates became these texts.
pub(crate) fn rendered(templates: &[Template<'_>], texts: Vec<String>) -> RenderedJob {
    let mut monit = String::new();
    let mut files = Vec::new();
    for (template, content) in templates.iter().zip(texts) {
        match template.source {
            MONIT => monit = content,
            source => files.push(RenderedFile {
                source: source.to_owned(),
                destination: template.destination.to_owned(),
                content,
            }),
        }
    }
    files.push(RenderedFile { source: LINKS.to_owned(), destination: LINKS.to_owned(), content: "[]\n".to_owned() });
    RenderedJob { monit, files }
}

/// A link that a job provides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvidedLink {
    /// What consumers call it: the provider's alias, or its name.
    pub name: String,
    pub kind: String,
    /// The number of its group of instances in DNS.
    pub group: u64,
}

impl RenderedJob {
    /// What its files have together.
    pub fn bytes(&self) -> usize {
        self.monit.len() + self.files.iter().map(|file| file.content.len()).sum::<usize>()
    }

    /// Says in `.bosh/links.json` which links the job provides.
    pub fn provide(&mut self, links: &[ProvidedLink]) {
        let mut links: Vec<_> = links.iter().map(|link| (link.group.to_string(), link)).collect();
        links.sort_by(|left, right| left.0.cmp(&right.0));
        let entry = |(group, link): (String, &ProvidedLink)| {
            let [name, kind] = [&link.name, &link.kind].map(|text| Value::from(text.as_str()));
            format!("  {{\n    \"name\": {name},\n    \"type\": {kind},\n    \"group\": \"{group}\"\n  }}")
        };
        let entries: Vec<_> = links.into_iter().map(entry).collect();
        let content = if entries.is_empty() { "[]\n".to_owned() } else { format!("[\n{}\n]\n", entries.join(",\n")) };
        self.files.iter_mut().filter(|file| file.source == LINKS).for_each(|file| file.content.clone_from(&content));
    }
}
