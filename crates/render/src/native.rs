//! The native backend: a job's templates one after the other, on a stack that is large enough.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use windlass_release::Job;

use crate::check::Uses;
use crate::erb::{self, Program};
use crate::error::{JobErrors, RenderError, TemplateError, Unsupported};
use crate::evaluate::{self, Flow};
use crate::parse::{self, Parsed, Refusal};
use crate::templates::{self, Template};
use crate::{LARGEST_JOB, MONIT, RenderedJob, Renderer, check};

/// How long the templates of a job may take together, as with Ruby. Each has a limit of its own; a job may have ten thousand.
const PATIENCE: Duration = Duration::from_secs(10);

/// Renders templates without Ruby.
#[derive(Debug, Clone, Copy, Default)]
pub struct Native;

impl Renderer for Native {
    fn check(&self, job: &Job) -> Result<(), Unsupported> {
        let checked = on_large_stack(|| templates::of(job).iter().try_for_each(Template::check));
        checked.unwrap_or_else(|| Err(gave_up(job)))
    }

    fn render(&self, job: &Job, spec: &Value) -> Result<RenderedJob, RenderError> {
        on_large_stack(|| render(job, spec, PATIENCE)).unwrap_or_else(|| Err(RenderError::NeedsRuby(gave_up(job))))
    }
}

thread_local! {
    /// Whether this thread has the stack that rendering needs.
    static HAS_LARGE_STACK: Cell<bool> = const { Cell::new(false) };
}

/// Trees are walked by recursion, which needs more stack than callers have. Nothing comes back if the work panicked: the
/// parser is not ours, and no template may take the director down.
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    if HAS_LARGE_STACK.get() {
        return catch_unwind(AssertUnwindSafe(work)).ok();
    }
    with_large_stack(|| catch_unwind(AssertUnwindSafe(work)).ok())?
}

/// Works in a thread with a large stack: callers that render much do it there, and not in a thread for each job. None without such
/// a thread.
fn with_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let work = || {
        HAS_LARGE_STACK.set(true);
        work()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("render".to_owned()).stack_size(evaluate::STACK);
        match thread.spawn_scoped(scope, work).ok()?.join() {
            Ok(done) => Some(done),
            Err(panic) => resume_unwind(panic),
        }
    })
}

impl Native {
    /// Renders much: for as long as `work` takes, there is one thread for it all. What panics there, panics here.
    pub fn for_many<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        let mut work = Some(work);
        let done = with_large_stack(|| work.take().map(|work| work())).flatten();
        // Without that thread, each job has one of its own, or says that it has none.
        done.unwrap_or_else(|| match work.take() {
            Some(work) => work(),
            None => resume_unwind(Box::new("the work was done and gave nothing")),
        })
    }
}

fn gave_up(job: &Job) -> Unsupported {
    let (template, construct) = (job.spec.name.clone(), "a template that the parser gives up on".to_owned());
    Unsupported { template, line: 1, construct, is_syntax: false }
}

fn render(job: &Job, spec: &Value, patience: Duration) -> Result<RenderedJob, RenderError> {
    let templates = templates::of(job);
    let mut errors = Vec::new();
    let mut texts = Vec::new();
    let mut bytes = 0;
    let begun = Instant::now();
    for template in &templates {
        if begun.elapsed() > patience {
            let message = format!("the job was stopped after {} s", patience.as_secs_f32());
            errors.push(TemplateError { template: template.source.to_owned(), line: None, message });
            break;
        }
        match template.render(spec) {
            Ok(text) => {
                bytes += text.len();
                if bytes > LARGEST_JOB {
                    let message = format!("the job was stopped when its files had {} MiB", LARGEST_JOB >> 20);
                    errors.push(TemplateError { template: template.source.to_owned(), line: None, message });
                    break;
                }
                texts.push(text);
            }
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
    Ok(templates::rendered(&templates, texts))
}

/// How many bytes of a template's own message are told: a job may have ten thousand templates, and each a message as long as strings
/// may be.
const LONGEST_MESSAGE: usize = 64 << 10;

fn shortened(message: &str) -> String {
    match message.char_indices().map(|(at, _)| at).take_while(|at| *at <= LONGEST_MESSAGE).last() {
        Some(end) if message.len() > LONGEST_MESSAGE => format!("{}…", &message[..end]),
        _ => message.to_owned(),
    }
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
        let Refusal { line, construct, is_syntax } = refusal;
        Unsupported { template: self.source.to_owned(), line, construct, is_syntax }
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
        let error = |line, message| {
            Failed::Template(TemplateError { template: self.source.to_owned(), line: Some(line), message })
        };
        evaluate::run(parsed, *uses, &program.texts, spec).map_err(|flow| match *flow {
            Flow::NeedsRuby(refusal) => Failed::NeedsRuby(self.unsupported(refusal)),
            Flow::Raise(failure) => error(failure.line, shortened(&failure.message)),
            Flow::Stopped(refusal) => error(refusal.line, refusal.construct),
            Flow::Next(_) | Flow::Break { .. } | Flow::LeaveLoop | Flow::Return { .. } => {
                let construct = "a jump out of the template".to_owned();
                Failed::NeedsRuby(self.unsupported(Refusal::new(1, construct)))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_release::JobSpec;

    use super::*;

    #[test]
    fn many_templates_that_each_take_their_time_are_stopped_together() {
        let names: Vec<String> = (0..10_000).map(|number| format!("t{number}")).collect();
        let listed: Vec<String> = names.iter().map(|name| format!("{name}: {name}")).collect();
        let job = Job {
            spec: JobSpec::parse(&format!("name: app\ntemplates: {{{}}}\n", listed.join(", ")), "app").unwrap(),
            templates: names.into_iter().map(|name| (name, "<% 100000.times { 1 } %>".to_owned())).collect(),
            monit: BTreeMap::from([(MONIT.to_owned(), String::new())]),
        };
        let begun = Instant::now();
        let stopped = on_large_stack(|| render(&job, &json!({}), Duration::from_millis(100))).unwrap().unwrap_err();
        assert!(stopped.to_string().contains("the job was stopped after 0.1 s"), "{stopped}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}
