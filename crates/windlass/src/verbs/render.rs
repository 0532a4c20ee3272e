//! `windlass render`: the files of one job, or what is wrong with its templates, on the author's machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use windlass_contract::shortened;
use windlass_manifest::Document;
use windlass_planning::desired::bind_properties;
use windlass_release::{Job, JobSpec, ReleaseError};
use windlass_render::{
    Backends, Cage, JobErrors, RenderError, RenderedJob, Renderer as _, Ruby, RubySetup, TemplateError, excerpt,
};

use super::{read_document, read_file};
use crate::cli::RenderArgs;
use crate::failure::Failure;
use crate::screen::Screen;

const MONIT: &str = "monit";
/// How many bytes of errors are printed: a template may raise what it likes.
const LONGEST_ERRORS: usize = 64 << 10;
const INSTEAD_OF_CAGE: &str = ", or give --uncaged, which lets templates read every file that you can read";

pub(crate) fn run(screen: &mut Screen, arguments: &RenderArgs) -> Result<(), Failure> {
    // The command line has one, unless it compares.
    let job = arguments.job.as_deref().unwrap_or(Path::new("."));
    let job = match &arguments.release {
        Some(tarball) => of_release(tarball, job)?,
        None => of_folder(job)?,
    };
    let spec = spec(&job, arguments)?;
    let cage = if arguments.uncaged { Cage::Open } else { Cage::Closed };
    let program = std::env::current_exe().map_err(|source| Failure::File { path: "windlass".into(), source })?;
    let renderer = Backends::new(Some(Ruby::new(RubySetup {
        cage,
        instead_of_cage: INSTEAD_OF_CAGE,
        ..RubySetup::caged(program)
    })));
    if let Err(why) = renderer.check(&job) {
        screen.context(&format!("Rendered by Ruby: {why}"));
    }
    let rendered = match renderer.render(&job, &spec) {
        Ok(rendered) => rendered,
        Err(error) => {
            // As a document: its columns matter.
            screen.block(&format!("{}\n", shortened(explained(&job, &error), LONGEST_ERRORS)));
            return Err(Failure::Render(format!("job '{}' cannot be rendered", job.spec.name)));
        }
    };
    match &arguments.output {
        Some(folder) => write(screen, &rendered, folder),
        None => {
            for (path, content) in files(&rendered) {
                screen.block(&format!("==> {path} <==\n{content}"));
            }
            Ok(())
        }
    }
}

fn files(job: &RenderedJob) -> impl Iterator<Item = (&str, &str)> {
    let monit = (MONIT, job.monit.as_str());
    std::iter::once(monit).chain(job.files.iter().map(|file| (file.destination.as_str(), file.content.as_str())))
}

#[expect(clippy::disallowed_methods, reason = "files for a person to read; another run writes them again")]
fn write(screen: &mut Screen, job: &RenderedJob, folder: &Path) -> Result<(), Failure> {
    for (path, content) in files(job) {
        // Destinations stay inside: that is checked when a job is read.
        let path = folder.join(path);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, content));
        written.map_err(|source| Failure::Write { path: path.clone(), source })?;
        screen.line(&path.display().to_string());
    }
    Ok(())
}

/// A job as its author has it.
fn of_folder(folder: &Path) -> Result<Job, Failure> {
    let real = folder.canonicalize().map_err(|source| Failure::File { path: folder.to_owned(), source })?;
    let name = real.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let spec = JobSpec::parse(&read_file(&folder.join("spec"))?, name).map_err(failure)?;
    let template = |source: &String| Ok((source.clone(), read_file(&folder.join("templates").join(source))?));
    let templates = spec.templates.keys().map(template).collect::<Result<_, Failure>>()?;
    let monit = BTreeMap::from([(MONIT.to_owned(), read_file(&folder.join(MONIT))?)]);
    Ok(Job { spec, templates, monit })
}

fn of_release(tarball: &Path, job: &Path) -> Result<Job, Failure> {
    let name = job.to_string_lossy().into_owned();
    let folder = tempfile::tempdir().map_err(|source| Failure::Write { path: std::env::temp_dir(), source })?;
    let release = windlass_release::read(tarball, folder.path()).map_err(failure)?;
    let names: Vec<_> = release.jobs.iter().map(|job| job.job.spec.name.clone()).collect();
    let found = release.jobs.into_iter().find(|job| job.job.spec.name == name);
    Ok(found.ok_or_else(|| Failure::NoSuchJob { name, has: names.join(", ") })?.job)
}

fn failure(error: ReleaseError) -> Failure {
    Box::new(error).into()
}

/// What templates see: one instance of its own, and what the author says.
fn spec(job: &Job, arguments: &RenderArgs) -> Result<Value, Failure> {
    let name = &job.spec.name;
    let address = "127.0.0.1";
    let mut spec = json!({
        "deployment": name, "name": name, "index": 0, "id": "00000000-0000-0000-0000-000000000000", "az": "z1", "bootstrap": true,
        "job": { "name": name, "templates": [{ "name": name }], "template": name },
        "networks": { "default": { "type": "manual", "ip": address, "netmask": "255.0.0.0", "gateway": address,
            "default": ["dns", "gateway"], "dns_record_name": format!("0.{name}.default.{name}.bosh") } },
        "ip": address, "address": address, "persistent_disk": 0, "dns_domain_name": "bosh", "links": {},
        "release": { "name": name, "version": "0" },
    });
    let given = object(arguments.properties.as_deref())?;
    let bound = bind_properties(&job.spec, &given).map_err(|problems| Failure::Render(problems.join("\n")))?;
    spec["properties"] = bound;
    for (key, value) in object(arguments.spec.as_deref())? {
        spec[key] = value;
    }
    Ok(spec)
}

/// A YAML document with names and values.
fn object(path: Option<&Path>) -> Result<Map<String, Value>, Failure> {
    let Some(path) = path else { return Ok(Map::new()) };
    let yaml = |source| Failure::Yaml { path: path.to_owned(), source };
    let document = Document::parse(&read_document(path)?).map_err(|error| yaml(error.into()))?;
    match document.root().node().to_json() {
        Value::Object(object) => Ok(object),
        Value::Null => Ok(Map::new()),
        _ => Err(Failure::Render(format!("{} has no names with values", path.display()))),
    }
}

/// An error with the places in the templates.
fn explained(job: &Job, error: &RenderError) -> String {
    match error {
        RenderError::Failed(JobErrors { errors, .. }) => {
            errors.iter().map(|error| placed(job, error)).collect::<Vec<_>>().join("\n")
        }
        RenderError::NoRuby { why, .. } => {
            let place = content(job, &why.template).and_then(|content| excerpt(content, why.line));
            [Some(error.to_string()), place].into_iter().flatten().collect::<Vec<_>>().join("\n")
        }
        _ => error.to_string(),
    }
}

fn placed(job: &Job, error: &TemplateError) -> String {
    let line = error.line.or_else(|| line_in(&error.message, &job.spec.name, &error.template));
    let path = match error.template.as_str() {
        MONIT => PathBuf::from(MONIT),
        template => Path::new("templates").join(template),
    };
    let place = line.map_or_else(String::new, |line| format!(":{line}"));
    let shown = line.and_then(|line| excerpt(content(job, &error.template)?, line));
    let place = format!("{}{place}: {}", path.display(), error.message.trim_end());
    [Some(place), shown].into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// Ruby names the line of a mistake in the syntax in its message.
fn line_in(message: &str, job: &str, template: &str) -> Option<usize> {
    let after = message.strip_prefix(&format!("{job}/{template}:"))?;
    after.split(':').next()?.parse().ok()
}

fn content<'a>(job: &'a Job, template: &str) -> Option<&'a str> {
    let found = if template == MONIT { job.monit.get(MONIT) } else { job.templates.get(template) };
    found.map(String::as_str)
}
