//! Runs a checked program: a walk over its tree, without any way to the machine.
//!
//! - `expression`: what each kind of expression does.
//! - `assign`: assignments.
//! - `blocks`: blocks, lambdas and methods get their arguments.
//! - `calls`: which method answers a call.
//! - `binding`: `spec`, `p`, `if_p`, `link` and the others that templates see.
//!
//! What is not listed for a value answers [`Flow::NeedsRuby`]. The limits hold for every program.

mod assign;
mod binding;
mod blocks;
mod calls;
mod expression;
mod links;
mod scope;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) use binding::NAMES as BOUND;
pub(crate) use blocks::Arguments;
pub(crate) use expression::is_a;
pub(crate) use scope::{Closure, LastMatch, Scope};

use crate::check::Uses;
use crate::parse::{Parsed, Refusal};
use crate::pattern::Searched;
use crate::tree::Method;
use crate::value::{Failure, Heap, Value};

/// What one template may take.
const STEPS: usize = 5_000_000;
const BYTES: usize = 128 << 20;
const OUTPUT: usize = 16 << 20;
/// The longest string.
pub(crate) const LARGEST_TEXT: usize = 32 << 20;
/// How many bytes a key may take.
const LARGEST_KEY: usize = 4 << 20;
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
    pub(crate) heap: Heap,
    pub(crate) line: usize,
    texts: &'a [String],
    output: String,
    methods: HashMap<Arc<str>, Arc<Method>>,
    binding: binding::Binding<'a>,
    steps: usize,
    pub(crate) searched: Searched,
    bytes: usize,
    depth: usize,
    next_tag: u64,
    pub(crate) scope: Rc<Scope>,
}

/// Runs a template's program with its spec.
pub(crate) fn run<'a>(
    program: &Parsed,
    uses: Uses,
    texts: &'a [String],
    spec: &'a serde_json::Value,
) -> Answer<String> {
    let heap = Heap::default();
    let binding = binding::Binding::new(&heap, spec, uses);
    let scope = Scope::top(program.slots);
    let mut evaluator = Evaluator {
        heap,
        line: 1,
        texts,
        output: String::new(),
        methods: HashMap::new(),
        binding,
        steps: 0,
        searched: Searched::default(),
        bytes: 0,
        depth: 0,
        next_tag: 1,
        scope,
    };
    evaluator.expression(&program.body)?;
    Ok(std::mem::take(&mut evaluator.output))
}

impl Evaluator<'_> {
    /// Says that this needs Ruby.
    pub(crate) fn refuse<T>(&self, construct: impl Into<String>) -> Answer<T> {
        Err(Box::new(Flow::NeedsRuby(Refusal::new(self.line, construct))))
    }

    /// Counts work.
    pub(crate) fn work(&mut self, steps: usize) -> Answer<()> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > STEPS { self.stop(format!("the template was stopped after {STEPS} steps")) } else { Ok(()) }
    }

    /// Counts memory. What was given back counts, too.
    pub(crate) fn take(&mut self, bytes: usize) -> Answer<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > BYTES {
            return self.stop(format!("the template was stopped when it had taken {} MiB of memory", BYTES >> 20));
        }
        Ok(())
    }

    fn stop<T>(&self, construct: String) -> Answer<T> {
        Err(Box::new(Flow::Stopped(Refusal::new(self.line, construct))))
    }

    pub(crate) fn raise<T>(&self, class: &'static str, message: impl Into<String>) -> Answer<T> {
        Err(Box::new(Flow::Raise(Failure { class, message: message.into(), line: self.line, name: None })))
    }

    pub(crate) fn text(&mut self, content: impl Into<String>) -> Answer {
        let content = content.into();
        self.take(content.len() + 48)?;
        Ok(Value::text(content))
    }

    pub(crate) fn list(&mut self, items: Vec<Value>) -> Answer {
        self.take(items.len() * 32 + 64)?;
        Ok(self.heap.list(items))
    }

    pub(crate) fn map(&mut self, entries: indexmap::IndexMap<crate::value::Key, Value>) -> Answer {
        self.take(entries.len() * 96 + 128)?;
        Ok(self.heap.hash(entries))
    }

    pub(crate) fn key(&mut self, value: &Value) -> Answer<crate::value::Key> {
        let mut room = LARGEST_KEY;
        let key = value.key(0, &mut room);
        self.work((LARGEST_KEY - room) / 64)?;
        self.take(LARGEST_KEY - room)?;
        match key {
            Some(key) => Ok(key),
            None => self.refuse(format!("a key of class {}", value.class_name())),
        }
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
