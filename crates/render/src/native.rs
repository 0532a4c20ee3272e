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
use crate::tree::Expression;
use crate::{LARGEST_JOB, MONIT, RenderedJob, Renderer, check};

/// How long the templates of a job may take together, as with Ruby. Each has a limit of its own; a job may have ten thousand.
const PATIENCE: Duration = Duration::from_secs(10);

/// Renders templates without Ruby.
#[derive(Debug, Clone, Copy, Default)]
pub struct Native;

impl Renderer for Native {
    fn check(&self, job: &Job) -> Result<(), Unsupported> {
        on_large_stack(|| check_all(job, PATIENCE)).unwrap_or_else(|| Err(gave_up(job)))
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

fn check_all(job: &Job, patience: Duration) -> Result<(), Unsupported> {
    let begun = Instant::now();
    for template in templates::of(job) {
        if begun.elapsed() > patience {
            let construct = format!("templates that take more than {} s to read", patience.as_secs_f32());
            return Err(template.unsupported(Refusal::new(1, construct)));
        }
        template.check()?;
    }
    Ok(())
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
        match template.render(spec, begun + patience) {
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
static READ: Mutex<Known> = Mutex::new(Known { templates: BTreeMap::new(), bytes: 0 });
/// How many bytes of memory they take together, roughly: most are a hundred times their text.
const KEPT: usize = 48 << 20;
/// What an expression takes, with its names.
const OF_AN_EXPRESSION: usize = size_of::<Expression>() + 64;

#[derive(Debug)]
struct Known {
    templates: BTreeMap<String, Arc<Compiled>>,
    bytes: usize,
}

/// A template that was read, or what in it needs Ruby.
#[derive(Debug)]
struct Compiled {
    program: Program,
    parsed: Result<(Parsed, Uses), Refusal>,
}

impl Known {
    /// Keeps what is not too large by itself, and forgets all others if there is no room beside them.
    fn keep(&mut self, content: &str, compiled: &Arc<Compiled>) {
        let bytes = compiled.weight() + content.len();
        if bytes > KEPT / 8 || self.templates.contains_key(content) {
            return;
        }
        if self.bytes + bytes > KEPT {
            self.templates.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.templates.insert(content.to_owned(), Arc::clone(compiled));
    }
}

impl Compiled {
    fn read(content: &str) -> Arc<Self> {
        if let Some(compiled) = READ.lock().unwrap_or_else(PoisonError::into_inner).templates.get(content) {
            return Arc::clone(compiled);
        }
        let program = erb::compile(content);
        let parsed = parse::parse(&program).and_then(|parsed| check::check(&parsed).map(|uses| (parsed, uses)));
        let compiled = Arc::new(Self { program, parsed });
        READ.lock().unwrap_or_else(PoisonError::into_inner).keep(content, &compiled);
        compiled
    }

    /// What it takes of memory, roughly.
    fn weight(&self) -> usize {
        let texts: usize = self.program.texts.iter().map(|text| text.len() + size_of::<String>()).sum();
        let expressions = self.parsed.as_ref().map_or(0, |(parsed, _)| parsed.expressions);
        self.program.source.len() + texts + expressions * OF_AN_EXPRESSION
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

    fn render(&self, spec: &Value, until: Instant) -> Result<String, Failed> {
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
        evaluate::run(parsed, *uses, &program.texts, spec, until).map_err(|flow| match *flow {
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

    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    /// Two releases of thirty kilobytes took 1.3 GB for as long as the director ran.
    #[test]
    fn templates_that_were_read_take_little_memory_whatever_they_are() {
        let read = |number: usize| {
            for expression in ["[],", "p,", "p{},", "x+1,"] {
                let code = expression.repeat(10_000 / expression.len());
                Compiled::read(&format!("<% if false %><% x = 0; [{code}{number}] %><% end %>"));
            }
        };
        read(0);
        let before = resident();
        (1..250).for_each(read);
        let taken = resident().saturating_sub(before) >> 20;
        assert!(taken < 150, "{taken} MiB");
        let known = READ.lock().unwrap();
        assert!(known.bytes <= KEPT && known.templates.len() > 10, "{} of {}", known.templates.len(), known.bytes);
    }

    /// Eighty letters took a processor for hours, and neither a limit nor who cancelled the task ended it.
    #[test]
    fn a_template_whose_steps_are_long_is_stopped() {
        let template = r#"<% s = ("a" * 4_000_000).to_sym %><% g = {} %><% 100000.times { g[s] = 1 } %>ok"#;
        let job = Job {
            spec: JobSpec::parse("name: app\ntemplates: {t: t}\n", "app").unwrap(),
            templates: BTreeMap::from([("t".to_owned(), template.to_owned())]),
            monit: BTreeMap::from([(MONIT.to_owned(), String::new())]),
        };
        let begun = Instant::now();
        let stopped = on_large_stack(|| render(&job, &json!({}), Duration::from_millis(100))).unwrap().unwrap_err();
        assert!(stopped.to_string().contains("was stopped"), "{stopped}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    #[test]
    fn reading_a_jobs_templates_ends() {
        let code = "p,".repeat(30_000);
        let templates =
            (0..20).map(|number| (format!("t{number}"), format!("<% if false %><% [{code}{number}] %><% end %>")));
        let templates: BTreeMap<String, String> = templates.collect();
        let listed: Vec<String> = templates.keys().map(|name| format!("{name}: {name}")).collect();
        let job = Job {
            spec: JobSpec::parse(&format!("name: app\ntemplates: {{{}}}\n", listed.join(", ")), "app").unwrap(),
            templates,
            monit: BTreeMap::from([(MONIT.to_owned(), String::new())]),
        };
        let found = on_large_stack(|| check_all(&job, Duration::from_millis(50))).unwrap().unwrap_err();
        assert_eq!(found.construct, "templates that take more than 0.05 s to read");
    }

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
