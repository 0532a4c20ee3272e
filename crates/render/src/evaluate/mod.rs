//! Runs a checked program: a walk over its tree, without any way to the machine.
//!
//! - `expression`: what each kind of expression does.
//! - `assign`: assignments.
//! - `blocks`: blocks, lambdas and methods get their arguments.
//! - `calls`: which method answers a call.
//! - `keep`: what makes values, and counts them.
//! - `binding`: `spec`, `p`, `if_p`, `link` and the others that templates see.
//!
//! What is not listed for a value answers [`Flow::NeedsRuby`]. The limits hold for every program.

mod assign;
mod binding;
mod blocks;
mod calls;
mod expression;
mod keep;
mod links;
mod scope;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use binding::NAMES as BOUND;
pub(crate) use blocks::Arguments;
pub(crate) use expression::is_a;
pub(crate) use scope::{Closure, LastMatch, Scope};

use crate::check::Uses;
use crate::memory::Heap;
use crate::parse::{Parsed, Refusal};
use crate::pattern::Searched;
use crate::tree::Method;
use crate::value::{Failure, Value};

/// What one template may take.
const STEPS: usize = 5_000_000;
pub(crate) const BYTES: usize = 128 << 20;
const OUTPUT: usize = 16 << 20;
/// How deep evaluations may be within each other.
const DEPTH: usize = 600;
/// The stack for that depth, with room for builds that optimise nothing.
pub(crate) const STACK: usize = 256 << 20;

/// What ends an evaluation early.
#[derive(Debug)]
pub(crate) enum Flow {
    NeedsRuby(Refusal),
    Raise(Failure),
    /// A limit was reached.
    Stopped(Refusal),
    Next(Value),
    Break {
        tag: u64,
        value: Value,
    },
    LeaveLoop,
    Return {
        home: u64,
        value: Value,
    },
}

pub(crate) type Answer<T = Value> = Result<T, Box<Flow>>;

/// A running program.
pub(crate) struct Evaluator<'a> {
    heap: Heap,
    pub(crate) line: usize,
    texts: &'a [String],
    output: String,
    methods: HashMap<Arc<str>, Arc<Method>>,
    binding: binding::Binding<'a>,
    steps: usize,
    /// When it is stopped, however few steps that are: a step may work on millions of letters.
    until: Instant,
    pub(crate) searched: Searched,
    depth: usize,
    next_tag: u64,
    pub(crate) scope: Rc<Scope>,
}

/// Runs a template's program with its spec, until then at the latest.
pub(crate) fn run<'a>(
    program: &Parsed,
    uses: Uses,
    texts: &'a [String],
    spec: &'a serde_json::Value,
    until: Instant,
) -> Answer<String> {
    let mut evaluator = started(program, uses, texts, spec, until);
    evaluator.expression(&program.body)?;
    Ok(std::mem::take(&mut evaluator.output))
}

/// How many bytes a program counted that it took.
#[cfg(test)]
pub(crate) fn taken(program: &Parsed, uses: Uses, texts: &[String], spec: &serde_json::Value) -> (Answer<()>, usize) {
    let until = Instant::now() + std::time::Duration::from_secs(3600);
    let mut evaluator = started(program, uses, texts, spec, until);
    let answer = evaluator.expression(&program.body).map(|_| ());
    (answer, BYTES - evaluator.heap.left())
}

fn started<'a>(
    program: &Parsed,
    uses: Uses,
    texts: &'a [String],
    spec: &'a serde_json::Value,
    until: Instant,
) -> Evaluator<'a> {
    let heap = Heap::new(BYTES);
    let binding = binding::Binding::new(&heap, spec, uses);
    let scope = Scope::top(program.slots);
    Evaluator {
        heap,
        line: 1,
        texts,
        output: String::new(),
        methods: HashMap::new(),
        binding,
        steps: 0,
        until,
        searched: Searched::default(),
        depth: 0,
        next_tag: 1,
        scope,
    }
}

impl Evaluator<'_> {
    /// Says that this needs Ruby.
    pub(crate) fn refuse<T>(&self, construct: impl Into<String>) -> Answer<T> {
        Err(Box::new(Flow::NeedsRuby(Refusal::new(self.line, construct))))
    }

    /// Counts work.
    pub(crate) fn work(&mut self, steps: usize) -> Answer<()> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > STEPS {
            return self.stop(format!("the template was stopped after {STEPS} steps"));
        }
        if Instant::now() > self.until {
            return self.stop("the template was stopped because the job's time was over".to_owned());
        }
        Ok(())
    }

    fn stop<T>(&self, construct: String) -> Answer<T> {
        Err(Box::new(Flow::Stopped(Refusal::new(self.line, construct))))
    }

    fn put(&mut self, text: &str) -> Answer<()> {
        if self.output.len() + text.len() > OUTPUT {
            return self.stop(format!("the template was stopped when it had written {} MiB", OUTPUT >> 20));
        }
        self.output.push_str(text);
        Ok(())
    }

    fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }
}
