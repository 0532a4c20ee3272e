//! One Ruby process, and the conversation with it: a line of JSON each way, by a deadline.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::cage::{KEEP, OPEN, VERB};
use super::installation::Installation;
use super::{Cage, RubyError, RubySetup};
use crate::LARGEST_JOB;
use crate::templates::Template;

/// How long a process may take until it can be asked.
const START: Duration = Duration::from_secs(30);
/// How long a line may be: what a job becomes, as JSON.
const LONGEST_LINE: usize = 2 * LARGEST_JOB;
/// So often one process is asked: what templates leave behind in it is gone then.
const MOST_RENDERED: u64 = 2000;
/// And so long it may have worked, which is less than the processor time that it may take: no template pays for those before it.
const LONGEST_WORK: Duration = Duration::from_secs(60);

/// What Ruby says. A template may talk in its place, so that nothing here takes more than the line has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    ready: Option<String>,
    failed: Option<String>,
    /// The request that it is about.
    id: u64,
    at: Option<usize>,
    texts: Option<Few<String>>,
    errors: Option<Few<TemplateFailure>>,
}

/// A list that is no longer than a job has templates.
#[derive(Debug)]
struct Few<T>(Vec<T>);

const MOST_TEMPLATES: usize = 10_000;

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counted<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Counted<T> {
            type Value = Few<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "at most {MOST_TEMPLATES} entries")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Few<T>, A::Error> {
                let mut few = Vec::new();
                while let Some(entry) = entries.next_element()? {
                    if few.len() == MOST_TEMPLATES {
                        return Err(A::Error::invalid_length(few.len() + 1, &self));
                    }
                    few.push(entry);
                }
                Ok(Few(few))
            }
        }
        deserializer.deserialize_seq(Counted(PhantomData))
    }
}

/// A template that failed.
#[derive(Debug, Deserialize)]
pub(super) struct TemplateFailure {
    pub(super) at: usize,
    pub(super) line: Option<usize>,
    pub(super) message: String,
}

/// What became of the templates.
#[derive(Debug)]
pub(super) enum Answer {
    Texts(Vec<String>),
    Errors(Vec<TemplateFailure>),
    /// The process had to be ended, or ended by itself, at this template.
    Stopped {
        at: Option<usize>,
        why: Silence,
    },
}

/// Why nothing more is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    TookTooLong,
    WroteTooMuch,
    Ended,
}

/// A Ruby process. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Helper {
    /// Whose secrets it has seen.
    pub(super) deployment: String,
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    heard: Vec<u8>,
    asked: u64,
    worked: Duration,
    /// The jobs whose templates it has.
    jobs: HashSet<String>,
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Helper {
    pub(super) fn start(setup: &RubySetup, ruby: &Installation, deployment: &str) -> Result<Self, RubyError> {
        let unusable = |why: String| RubyError::Unusable { program: ruby.program.clone(), why };
        let failed = |error: io::Error| unusable(error.to_string());
        let part = if setup.cage == Cage::Open { OPEN } else { KEEP };
        let installation = serde_json::to_string(ruby).map_err(|error| failed(error.into()))?;
        let mut child = Command::new(&setup.program)
            .args([VERB, part, &installation])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(unusable("it has no pipes".to_owned()));
        };
        let (heard, deployment, jobs) = (Vec::new(), deployment.to_owned(), HashSet::new());
        let mut helper = Self { deployment, child, to, from, heard, asked: 0, worked: Duration::ZERO, jobs };
        rustix::io::ioctl_fionbio(&helper.to, true).map_err(|error| failed(error.into()))?;
        rustix::io::ioctl_fionbio(&helper.from, true).map_err(|error| failed(error.into()))?;
        match helper.hear(&mut &[][..], Instant::now() + START) {
            Ok(Said { ready: Some(_), .. }) => Ok(helper),
            Ok(Said { failed: Some(why), .. }) if setup.cage == Cage::Closed => {
                Err(RubyError::NoCage { why, instead: setup.instead_of_cage })
            }
            Ok(Said { failed: Some(why), .. }) => Err(unusable(why)),
            Ok(_) => Err(unusable("it answered before it was asked".to_owned())),
            Err(Silence::TookTooLong) => Err(unusable(format!("it did not start within {} s", START.as_secs()))),
            Err(_) => Err(unusable("it ended as soon as it was started".to_owned())),
        }
    }

    /// Whether it was asked before.
    pub(super) fn is_used(&self) -> bool {
        self.asked > 0
    }

    /// Whether it has these templates, and no others.
    pub(super) fn knows(&self, key: &str) -> bool {
        self.jobs.iter().all(|known| known == key)
    }

    /// Whether it can be asked again.
    pub(super) fn is_alive(&mut self) -> bool {
        self.asked < MOST_RENDERED && self.worked < LONGEST_WORK && matches!(self.child.try_wait(), Ok(None))
    }

    /// How many bytes of memory its processes have: the cage, and Ruby in it.
    pub(super) fn memory(&self) -> u64 {
        resident(self.child.id())
    }

    /// Has a job's templates rendered.
    pub(super) fn render(&mut self, sources: &Sources<'_>, spec: &Value, within: Duration) -> Answer {
        let begun = Instant::now();
        let answer = self.answer(sources, spec, within);
        self.worked += begun.elapsed();
        answer
    }

    fn answer(&mut self, sources: &Sources<'_>, spec: &Value, within: Duration) -> Answer {
        self.asked += 1;
        let (id, templates) = (self.asked, sources.templates);
        let is_new = self.jobs.insert(sources.key.clone());
        let line = format!("{}\n", sources.request(id, spec, is_new));
        let (mut unsent, deadline) = (line.as_bytes(), Instant::now() + within);
        let mut at = None;
        loop {
            match self.hear(&mut unsent, deadline) {
                Ok(Said { id: of, at: Some(now), .. }) if of == id => at = Some(now),
                Ok(Said { id: of, texts: Some(Few(texts)), .. }) if of == id && texts.len() == templates.len() => {
                    return Answer::Texts(texts);
                }
                Ok(Said { id: of, errors: Some(Few(errors)), .. }) if of == id => return Answer::Errors(errors),
                // It says what it was not asked: a template talks in its place.
                Ok(_) => return Answer::Stopped { at, why: Silence::Ended },
                Err(why) => return Answer::Stopped { at, why },
            }
        }
    }

    /// The next line, while what is unsent is sent.
    fn hear(&mut self, unsent: &mut &[u8], deadline: Instant) -> Result<Said, Silence> {
        let mut looked_at = 0;
        loop {
            if let Some(end) = self.heard[looked_at..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=looked_at + end).collect();
                return serde_json::from_slice(&line).map_err(|_| Silence::Ended);
            }
            looked_at = self.heard.len();
            if looked_at > LONGEST_LINE {
                return Err(Silence::WroteTooMuch);
            }
            self.wait(!unsent.is_empty(), deadline)?;
            self.send(unsent)?;
            self.receive()?;
        }
    }

    fn wait(&self, sends: bool, deadline: Instant) -> Result<(), Silence> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Silence::TookTooLong);
        }
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut watched = vec![PollFd::new(&self.from, PollFlags::IN)];
        if sends {
            watched.push(PollFd::new(&self.to, PollFlags::OUT));
        }
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(_) => Err(Silence::Ended),
        }
    }

    fn send(&mut self, unsent: &mut &[u8]) -> Result<(), Silence> {
        while !unsent.is_empty() {
            match self.to.write(unsent) {
                Ok(sent) => *unsent = &unsent[sent..],
                Err(error) if is_not_yet(&error) => break,
                Err(_) => return Err(Silence::Ended),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Silence> {
        let mut piece = [0; 64 << 10];
        match self.from.read(&mut piece) {
            Ok(0) => Err(Silence::Ended),
            Ok(read) => {
                self.heard.extend_from_slice(&piece[..read]);
                Ok(())
            }
            Err(error) if is_not_yet(&error) => Ok(()),
            Err(_) => Err(Silence::Ended),
        }
    }
}

/// The memory of a process and its children; nothing of what is gone.
fn resident(process: u32) -> u64 {
    let read = |name: String| std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
    let pages = read("statm".to_owned()).split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let children = read(format!("task/{process}/children"));
    let children = children.split_whitespace().filter_map(|child| child.parse().ok()).map(resident);
    pages.unwrap_or_default() * rustix::param::page_size() as u64 + children.sum::<u64>()
}

fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The templates of a job, under a key that stands for them.
#[derive(Debug)]
pub(super) struct Sources<'a> {
    job: &'a str,
    templates: &'a [Template<'a>],
    key: String,
}

impl<'a> Sources<'a> {
    pub(super) fn new(job: &'a str, templates: &'a [Template<'a>]) -> Self {
        let mut hasher = Sha256::new();
        for part in [job].into_iter().chain(templates.iter().flat_map(|template| [template.source, template.content])) {
            hasher.update(part.len().to_be_bytes());
            hasher.update(part);
        }
        Self { job, templates, key: hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect() }
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// What Ruby is asked; it gets the templates themselves once.
    fn request(&self, id: u64, spec: &Value, with_templates: bool) -> String {
        let named = |template: &Template<'a>| (format!("{}/{}", self.job, template.source), template.content);
        let templates = with_templates.then(|| self.templates.iter().map(named).collect::<Vec<_>>());
        // Texts and what JSON can say already: this cannot fail.
        serde_json::to_string(&Request { id, job: &self.key, spec, templates }).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Request<'a> {
    id: u64,
    job: &'a str,
    spec: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    templates: Option<Vec<(String, &'a str)>>,
}
