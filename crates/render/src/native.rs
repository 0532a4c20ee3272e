//! The native backend: a job's templates one after the other, on a stack that is large enough.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use windlass_release::Job;

use crate::check::Uses;
use crate::erb::{self, Program};
use crate::error::{JobErrors, RenderError, TemplateError, Unsupported};
use crate::evaluate::{self, Flow};
use crate::parse::{self, Parsed, Refusal};
use crate::{MONIT, RenderedFile, RenderedJob, Renderer, Support, check};

/// Where links say what a job provides.
const LINKS: &str = ".bosh/links.json";

/// Renders templates without Ruby.
#[derive(Debug, Clone, Copy, Default)]
pub struct Native;

impl Renderer for Native {
    fn check(&self, job: &Job) -> Support {
        let refused = on_large_stack(|| templates(job).into_iter().find_map(|template| template.check().err()));
        match refused.unwrap_or_else(|| Some(gave_up(job))) {
            None => Support::Native,
            Some(unsupported) => Support::NeedsRuby(unsupported),
        }
    }

    fn render(&self, job: &Job, spec: &Value) -> Result<RenderedJob, RenderError> {
        on_large_stack(|| render(job, spec)).unwrap_or_else(|| Err(RenderError::NeedsRuby(gave_up(job))))
    }
}

/// Trees are walked by recursion, which needs more stack than callers have. Nothing comes back if the work panicked: the
/// parser is not ours, and no template may take the director down.
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("render".to_owned()).stack_size(evaluate::STACK);
        thread.spawn_scoped(scope, work).ok()?.join().ok()
    })
}

fn gave_up(job: &Job) -> Unsupported {
    let template = job.spec.name.clone();
    Unsupported { template, line: 1, construct: "a template that the parser gives up on".to_owned() }
}

/// One template of a job.
struct Template<'a> {
    source: &'a str,
    destination: &'a str,
    content: &'a str,
}

/// `monit`, then the others in the order of `job.MF`.
fn templates(job: &Job) -> Vec<Template<'_>> {
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

fn render(job: &Job, spec: &Value) -> Result<RenderedJob, RenderError> {
    let mut errors = Vec::new();
    let mut monit = String::new();
    let mut files = Vec::new();
    for template in templates(job) {
        match template.render(spec) {
            Ok(content) if template.source == MONIT => monit = content,
            Ok(content) => files.push(RenderedFile {
                source: template.source.to_owned(),
                destination: template.destination.to_owned(),
                content,
            }),
            Err(Failed::NeedsRuby(unsupported)) => return Err(RenderError::NeedsRuby(unsupported)),
            Err(Failed::Template(error)) => {
                errors.push(error);
                if template.source == MONIT {
                    break;
                }
            }
        }
    }
    if !errors.is_empty() {
        return Err(RenderError::Failed(JobErrors { job: job.spec.name.clone(), errors }));
    }
    files.push(RenderedFile { source: LINKS.to_owned(), destination: LINKS.to_owned(), content: "[]\n".to_owned() });
    Ok(RenderedJob { monit, files })
}

enum Failed {
    NeedsRuby(Unsupported),
    Template(TemplateError),
}

/// Templates that were read lately, by their text. The same ones are rendered for every instance; there are no secrets in them.
static READ: Mutex<BTreeMap<String, Arc<Compiled>>> = Mutex::new(BTreeMap::new());
/// How many are kept, and up to which length.
const KEPT: usize = 500;
const KEPT_LENGTH: usize = 64 << 10;

/// A template that was read, or what in it needs Ruby.
#[derive(Debug)]
struct Compiled {
    program: Program,
    parsed: Result<(Parsed, Uses), Refusal>,
}

impl Compiled {
    fn read(content: &str) -> Arc<Self> {
        let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = read.get(content) {
            return Arc::clone(compiled);
        }
        drop(read);
        let program = erb::compile(content);
        let parsed = parse::parse(&program).and_then(|parsed| check::check(&parsed).map(|uses| (parsed, uses)));
        let compiled = Arc::new(Self { program, parsed });
        if content.len() > KEPT_LENGTH {
            return compiled;
        }
        read = READ.lock().unwrap_or_else(PoisonError::into_inner);
        if read.len() >= KEPT {
            read.clear();
        }
        read.insert(content.to_owned(), Arc::clone(&compiled));
        compiled
    }
}

impl Template<'_> {
    fn unsupported(&self, refusal: Refusal) -> Unsupported {
        let Refusal { line, construct } = refusal;
        Unsupported { template: self.source.to_owned(), line, construct }
    }

    fn check(&self) -> Result<(), Unsupported> {
        if !self.content.contains("<%") {
            return Ok(());
        }
        let compiled = Compiled::read(self.content);
        match &compiled.parsed {
            Err(refusal) if compiled.program.has_code => Err(self.unsupported(refusal.clone())),
            _ => Ok(()),
        }
    }

    fn render(&self, spec: &Value) -> Result<String, Failed> {
        if !self.content.contains("<%") {
            return Ok(self.content.to_owned());
        }
        let compiled = Compiled::read(self.content);
        let Compiled { program, parsed } = &*compiled;
        if !program.has_code {
            return Ok(program.texts.concat());
        }
        let (parsed, uses) = parsed.as_ref().map_err(|refusal| Failed::NeedsRuby(self.unsupported(refusal.clone())))?;
        let error = |line, message| Failed::Template(TemplateError { template: self.source.to_owned(), line, message });
        evaluate::run(parsed, *uses, &program.texts, spec).map_err(|flow| match *flow {
            Flow::NeedsRuby(refusal) => Failed::NeedsRuby(self.unsupported(refusal)),
            Flow::Raise(failure) => error(failure.line, failure.message),
            Flow::Stopped(refusal) => error(refusal.line, refusal.construct),
            Flow::Next(_) | Flow::Break { .. } | Flow::LeaveLoop | Flow::Return { .. } => {
                let construct = "a jump out of the template".to_owned();
                Failed::NeedsRuby(self.unsupported(Refusal { line: 1, construct }))
            }
        })
    }
}
