//! The Ruby backend: what is not native is rendered by the Ruby of this machine, in a cage.
//!
//! A process has the secrets of one deployment, serves one purpose and there one job ([`Ruby::apart`]), and ends soon after nobody
//! asks it any more. It is this program first (`windlass render-cage`), which confines itself and then becomes Ruby.
//!
//! - [`installation`]: which files are Ruby's. [`cage`], [`syscalls`]: what it can do.
//! - [`helper`]: one process, and the lines that go to it and come from it.
//! - `context.rb`: what templates see; `helper.rb`: Ruby's side of the conversation.

mod cage;
mod helper;
mod installation;
mod syscalls;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use windlass_release::Job;

pub use cage::render_cage;
use helper::{Answer, Helper, Silence, Sources};
use installation::Installation;

use crate::error::{JobErrors, RenderError, TemplateError, Unsupported};
use crate::templates::{self, Template};
use crate::{LARGEST_JOB, MONIT, RenderedJob, Renderer};

/// Without gems, which are slow to start with and are not BOSH's.
const FLAGS: [&str; 4] = ["--disable-gems", "-W0", "-E", "UTF-8"];
const LIBRARIES: &str = include_str!("libraries.rb");
const SCRIPT: &str = concat!(include_str!("libraries.rb"), include_str!("context.rb"), include_str!("helper.rb"));

/// Whether Ruby is kept from the rest of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Cage {
    /// Namespaces, a root of Ruby's own files, and few system calls; refused where that cannot be.
    #[default]
    Closed,
    /// Few system calls alone: templates can read what this user can read.
    Open,
}

/// How Ruby is started.
#[derive(Debug, Clone)]
pub struct RubySetup {
    /// This program: with `render-cage` it is what [`render_cage`] does.
    pub program: PathBuf,
    pub cage: Cage,
    /// How long a job may take.
    pub patience: Duration,
    /// The interpreter; the `ruby` of the `PATH` if none is given.
    pub interpreter: Option<PathBuf>,
    /// What else can be done where the machine allows no cage, as the end of a sentence.
    pub instead_of_cage: &'static str,
}

impl RubySetup {
    /// Ruby in a cage.
    pub fn caged(program: PathBuf) -> Self {
        let patience = Duration::from_secs(10);
        Self { program, cage: Cage::Closed, patience, interpreter: None, instead_of_cage: "" }
    }
}

/// why Ruby cannot be asked
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RubyError {
    #[error("there is no Ruby on this machine; install it (Debian and Ubuntu: apt-get install ruby)")]
    NotFound,
    /// the operator does not want it
    #[error("the director's settings say 'ruby: none'")]
    Forbidden,
    /// the machine does not allow what keeps it from everything else
    #[error("this machine does not let Ruby be caged: {why}; allow user namespaces{instead}")]
    NoCage { why: String, instead: &'static str },
    /// it does not work
    #[error("{} cannot be used: {why}", program.display())]
    Unusable { program: PathBuf, why: String },
}

/// Renders templates with Ruby, for one user's purpose: templates can change the process that renders them, so what has
/// another purpose is rendered [apart](Self::apart).
#[derive(Debug)]
pub struct Ruby {
    machine: Arc<Machine>,
    /// Processes that wait to be asked, the one that waits longest first.
    idle: Mutex<VecDeque<Helper>>,
    /// Whether what the templates of one job do to a process is kept from other jobs.
    by_job: bool,
}

/// So many processes wait to be asked.
const MOST_IDLE: usize = 4;
/// With no more memory than this; Ruby itself takes some 20 MiB.
const LARGEST_IDLE: u64 = 128 << 20;

/// What all have in common.
#[derive(Debug)]
struct Machine {
    setup: RubySetup,
    found: Mutex<Option<Arc<Installation>>>,
    /// How many more may work at once.
    turns: Mutex<usize>,
    turn_over: Condvar,
}

impl Ruby {
    pub fn new(setup: RubySetup) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let turns = Mutex::new((processors / 2).max(1));
        let machine = Machine { setup, found: Mutex::default(), turns, turn_over: Condvar::new() };
        Self { machine: Arc::new(machine), idle: Mutex::default(), by_job: false }
    }

    /// The same Ruby with processes of its own, one for each job, which nobody else asks and which end with it.
    pub fn apart(&self) -> Self {
        Self { machine: self.machine.clone(), idle: Mutex::default(), by_job: true }
    }

    /// The version of Ruby, if there is one.
    pub fn version(&self) -> Result<String, RubyError> {
        Ok(self.installation()?.version.clone())
    }

    /// Starts a process and ends it, to see whether that can be; answers the version of Ruby.
    pub fn attempt(&self) -> Result<String, RubyError> {
        drop(self.new_helper("")?);
        self.version()
    }

    fn installation(&self) -> Result<Arc<Installation>, RubyError> {
        let mut found = lock(&self.machine.found);
        if let Some(known) = found.as_ref().filter(|known| known.program.is_file()) {
            return Ok(known.clone());
        }
        // One that was installed since is found.
        let installation = Arc::new(Installation::find(self.machine.setup.interpreter.as_deref())?);
        *found = Some(installation.clone());
        Ok(installation)
    }

    /// A process that knows no other deployment, and no other job where that matters.
    fn helper(&self, deployment: &str, job: &str) -> Result<Helper, RubyError> {
        let mut idle = lock(&self.idle);
        idle.retain_mut(Helper::is_alive);
        let serves = |helper: &Helper| helper.deployment == deployment && (!self.by_job || helper.knows(job));
        if let Some(helper) = idle.iter().position(serves).and_then(|at| idle.remove(at)) {
            return Ok(helper);
        }
        drop(idle);
        self.new_helper(deployment)
    }

    fn keep(&self, helper: Helper) {
        if helper.memory() > LARGEST_IDLE {
            return;
        }
        let mut idle = lock(&self.idle);
        idle.push_back(helper);
        let surplus = if idle.len() > MOST_IDLE { idle.pop_front() } else { None };
        drop(idle);
        // It is ended while nobody waits for the others.
        drop(surplus);
    }

    fn new_helper(&self, deployment: &str) -> Result<Helper, RubyError> {
        Helper::start(&self.machine.setup, &*self.installation()?, deployment)
    }

    /// What Ruby makes of templates.
    fn ask(&self, job: &Job, templates: &[Template<'_>], spec: &Value) -> Result<Answer, RubyError> {
        let deployment = spec["deployment"].as_str().unwrap_or_default();
        let sources = Sources::new(&job.spec.name, templates);
        let _turn = Turn::take(&self.machine);
        let mut helper = self.helper(deployment, sources.key())?;
        let was_used = helper.is_used();
        let mut answer = helper.render(&sources, spec, self.machine.setup.patience);
        if was_used && matches!(answer, Answer::Stopped { at: None, .. }) {
            // It ended while nobody asked.
            helper = self.new_helper(deployment)?;
            answer = helper.render(&sources, spec, self.machine.setup.patience);
        }
        if !matches!(answer, Answer::Stopped { .. }) {
            self.keep(helper);
        }
        Ok(answer)
    }

    fn why_stopped(&self, why: Silence) -> String {
        match why {
            Silence::TookTooLong => {
                format!("the template was stopped after {} s", self.machine.setup.patience.as_secs_f32())
            }
            Silence::WroteTooMuch => format!("the job was stopped when its files had {} MiB", LARGEST_JOB >> 20),
            Silence::Ended => {
                "Ruby ended at this template, which may have taken too much memory or ended it".to_owned()
            }
        }
    }

    /// Renders a job, whatever is in its templates.
    pub fn render_job(&self, job: &Job, spec: &Value) -> Result<Result<RenderedJob, JobErrors>, RubyError> {
        let templates = templates::of(job);
        let error = |at: usize, line, message| {
            let template = templates.get(at).map_or(MONIT, |template| template.source).to_owned();
            TemplateError { template, line, message }
        };
        let errors = match self.ask(job, &templates, spec)? {
            Answer::Texts(texts) => return Ok(Ok(templates::rendered(&templates, texts))),
            Answer::Errors(errors) => {
                errors.into_iter().map(|failed| error(failed.at, failed.line, failed.message)).collect()
            }
            Answer::Stopped { at, why } => vec![error(at.unwrap_or_default(), None, self.why_stopped(why))],
        };
        Ok(Err(JobErrors { job: job.spec.name.clone(), errors }))
    }
}

impl Renderer for Ruby {
    fn check(&self, _: &Job) -> Result<(), Unsupported> {
        Ok(())
    }

    fn render(&self, job: &Job, spec: &Value) -> Result<RenderedJob, RenderError> {
        match self.render_job(job, spec) {
            Ok(rendered) => rendered.map_err(RenderError::Failed),
            Err(error) => Err(RenderError::Ruby(error)),
        }
    }
}

/// One of the processes that may work at once.
struct Turn<'a>(&'a Machine);

impl<'a> Turn<'a> {
    fn take(machine: &'a Machine) -> Self {
        let turns = lock(&machine.turns);
        let waited = machine.turn_over.wait_while(turns, |turns| *turns == 0);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
        Self(machine)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.turns) += 1;
        self.0.turn_over.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_where_ruby_cannot_be_caged_is_that_of_the_program_that_asks() {
        let said = |instead| RubyError::NoCage { why: "no namespaces".to_owned(), instead }.to_string();
        assert_eq!(RubySetup::caged("windlass".into()).instead_of_cage, "", "only a director has a setting for it");
        assert_eq!(said(""), "this machine does not let Ruby be caged: no namespaces; allow user namespaces");
        assert!(
            said(", or set 'ruby: uncaged' in director.yml")
                .ends_with("namespaces, or set 'ruby: uncaged' in director.yml")
        );
    }
}
