//! One job of a release: what it is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Component, Path};

use serde_json::Value;
use windlass_archive::{Budget, Limits, Tarball, decompressed, first_bytes};
use windlass_manifest::{At, Document, Problem};

use crate::error::ReleaseError;
use crate::members::Members;

/// The name of the description in a job's archive.
const NAME: &str = "job.MF";

/// How deep a property may lie, and how long its name may be; those of public releases have up to eight parts.
const DEEPEST_PROPERTY: usize = 32;
const LONGEST_PROPERTY: usize = 255;

/// How many properties a job may have; those of public releases have up to five hundred. Each group with the job has a value for each.
const MOST_PROPERTIES: usize = 5000;

/// What the files of a job may have together: they are held in memory, and the largest templates have some hundred KiB.
const LARGEST_MIB: u64 = 16;

/// A job: its description and its files.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// `job.MF`.
    pub spec: JobSpec,
    /// The templates by their name below `templates/`.
    pub templates: BTreeMap<String, String>,
    /// The files that say how its processes run: `monit` and others that end in `.monit`.
    pub monit: BTreeMap<String, String>,
}

/// `job.MF`, as far as a director reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSpec {
    /// The job's name.
    pub name: String,
    /// Where each template's result goes, below the job's folder.
    pub templates: BTreeMap<String, String>,
    /// The packages that it needs.
    pub packages: Vec<String>,
    /// What can be set, by dotted name.
    pub properties: BTreeMap<String, Property>,
    /// All of it, for what is read elsewhere: links, logs.
    pub raw: Value,
}

/// What can be set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Property {
    /// The value where nobody sets one.
    pub default: Option<Value>,
}

impl Job {
    /// Reads a job's archive, which `name` says what it should be.
    pub fn read(archive: &Path, name: &str) -> Result<Self, ReleaseError> {
        let files = files(archive, name)?;
        let text = |file: &str| -> Result<Option<String>, ReleaseError> {
            let Some(bytes) = files.get(file) else { return Ok(None) };
            let not_text = || ReleaseError::NotText { job: name.to_owned(), file: file.to_owned() };
            String::from_utf8(bytes.clone()).map(Some).map_err(|_| not_text())
        };
        let manifest = text(NAME)?.ok_or_else(|| ReleaseError::NoJobManifest(name.to_owned()))?;
        let spec = JobSpec::parse(&manifest, name)?;
        let mut monit = BTreeMap::new();
        for file in files.keys().filter(|file| *file == "monit" || (file.ends_with(".monit") && !file.contains('/'))) {
            monit.extend(text(file)?.map(|text| (file.clone(), text)));
        }
        if monit.is_empty() {
            return Err(ReleaseError::NoMonit(name.to_owned()));
        }
        let mut templates = BTreeMap::new();
        for template in spec.templates.keys() {
            let missing = || ReleaseError::NoTemplate { job: name.to_owned(), template: template.clone() };
            let content = text(&format!("templates/{template}"))?.ok_or_else(missing)?;
            templates.insert(template.clone(), content);
        }
        Ok(Self { spec, templates, monit })
    }

    /// How much memory its files and its description take, roughly.
    pub fn size(&self) -> usize {
        let files: usize = self.templates.values().chain(self.monit.values()).map(String::len).sum();
        let defaults = self.spec.properties.values().filter_map(|property| property.default.as_ref());
        files + weight(&self.spec.raw) + defaults.map(weight).sum::<usize>()
    }

    /// Whether it runs once, when somebody asks for it.
    pub fn is_errand(&self) -> bool {
        self.spec.templates.values().any(|destination| matches!(destination.as_str(), "bin/run" | "bin/run.ps1"))
    }
}

/// What a key takes in a map, beside its letters.
const KEY: usize = 48;

fn weight(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(elements) => elements.iter().map(weight).sum(),
            Value::Object(members) => members.iter().map(|(key, member)| KEY + key.len() + weight(member)).sum(),
            _ => 0,
        }
}

/// All files of a job, by their path.
fn files(archive: &Path, job: &str) -> Result<BTreeMap<String, Vec<u8>>, ReleaseError> {
    let failed = |source| ReleaseError::Read { path: archive.to_owned(), source };
    let damaged = |source| ReleaseError::Archive(format!("the archive of job '{job}'"), source);
    let mut file = File::open(archive).map_err(failed)?;
    let start = first_bytes(&mut file).map_err(failed)?;
    let limits = Limits { bytes: LARGEST_MIB << 20, entries: 10_000, ..Limits::default() };
    let tarball = Tarball::within(decompressed(&start, BufReader::new(file)), &Budget::new(limits));
    let mut members = Members::of(&format!("the archive of job '{job}'"));
    let mut files = BTreeMap::new();
    tarball.each(damaged, |entry| {
        if let Some(path) = members.file(entry)?.and_then(|path| path.to_str().map(str::to_owned)) {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(damaged)?;
            files.insert(path, content);
        }
        Ok(())
    })?;
    Ok(files)
}

impl JobSpec {
    /// Reads the text of a `job.MF`.
    pub fn parse(text: &str, name: &str) -> Result<Self, ReleaseError> {
        let what = || format!("job.MF of job '{name}'");
        let document = Document::parse(text).map_err(|error| ReleaseError::Yaml(what(), error))?;
        let spec = Self::of(&document.root()).map_err(|problem| ReleaseError::Document(what(), problem))?;
        if spec.name != name {
            return Err(ReleaseError::JobName { listed: name.to_owned(), found: spec.name });
        }
        for (template, destination) in &spec.templates {
            let stays = |path: &str| {
                !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
            };
            if !stays(template) || !stays(destination) {
                let (job, template, destination) = (name.to_owned(), template.clone(), destination.clone());
                return Err(ReleaseError::Destination { job, template, destination });
            }
        }
        Ok(spec)
    }

    fn of(root: &At<'_>) -> Result<Self, Problem> {
        let entries = |name: &str| root.optional(name)?.map_or(Ok(Vec::new()), |field| field.entries());
        let templates = entries("templates")?
            .into_iter()
            .map(|(source, destination)| Ok((source.to_owned(), destination.string()?.to_owned())))
            .collect::<Result<_, Problem>>()?;
        let packages = root.optional_list("packages")?;
        let property = |(name, at): (&str, At<'_>)| {
            if name.len() > LONGEST_PROPERTY || name.split('.').count() > DEEPEST_PROPERTY {
                return Err(root.problem(format!(
                    "properties: a name may have {LONGEST_PROPERTY} bytes and {DEEPEST_PROPERTY} parts, and this one has more: '{}…'",
                    name.chars().take(40).collect::<String>()
                )));
            }
            let default = match &at.node().content {
                windlass_manifest::Content::Null => None,
                _ => at.optional("default")?.map(|default| default.node().to_json()),
            };
            Ok((name.to_owned(), Property { default }))
        };
        let name = root.field("name")?.string()?.to_owned();
        check_links(root, &name)?;
        let count = entries("properties")?.len();
        if count > MOST_PROPERTIES {
            let message = format!("properties: a job may have {MOST_PROPERTIES}, and this one has {count}");
            return Err(root.problem(message));
        }
        Ok(Self {
            name,
            templates,
            packages: packages.iter().map(|name| Ok(name.string()?.to_owned())).collect::<Result<_, Problem>>()?,
            properties: entries("properties")?.into_iter().map(property).collect::<Result<_, Problem>>()?,
            raw: root.node().to_json(),
        })
    }
}
/// Refuses links that BOSH's director would not take.
fn check_links(root: &At<'_>, job: &str) -> Result<(), Problem> {
    for section in ["provides", "consumes"] {
        let mut names = BTreeSet::new();
        for link in root.optional_list(section)? {
            let (Some(name), Some(kind)) = (link.optional("name")?, link.optional("type")?) else {
                return Err(link.problem(format!(
                    "Each {section} item in the {section} section of the release spec must contain 'name' and 'type'"
                )));
            };
            let (name, kind) = (name.string()?, kind.string()?);
            if section == "provides" && link.optional("optional")?.is_some() {
                return Err(link.problem(format!(
                    "Link '{name}' of type '{kind}' is a provides link, not allowed to have 'optional' key"
                )));
            }
            if !names.insert(name.to_owned()) {
                let message = format!("Job '{job}' specifies duplicate {section} link with name '{name}'");
                return Err(link.problem(message));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 30 KB of a release became hundreds of megabytes.
    #[test]
    fn a_job_with_very_many_properties_is_refused_and_its_description_counts() {
        let spec = |count: usize| {
            let properties: String = (0..count).map(|number| format!("  p{number}: {{}}\n")).collect();
            JobSpec::parse(&format!("name: app\ntemplates: {{}}\nproperties:\n{properties}"), "app")
        };
        let refused = spec(MOST_PROPERTIES + 1).unwrap_err();
        let told = std::error::Error::source(&refused).unwrap().to_string();
        assert!(told.contains("may have 5000, and this one has 5001"), "{told}");
        let spec = spec(MOST_PROPERTIES).unwrap();
        let job = Job { spec, templates: BTreeMap::new(), monit: BTreeMap::new() };
        assert!(job.size() > MOST_PROPERTIES * (KEY + size_of::<Value>()));
        let text = format!("name: app\nproperties: {{p: {{default: [{}]}}}}\n", "1,".repeat(1000));
        let spec = JobSpec::parse(&text, "app").unwrap();
        let job = Job { spec, ..job };
        assert!(job.size() > 2 * 1000 * size_of::<Value>(), "a default is there twice: {}", job.size());
    }
}
