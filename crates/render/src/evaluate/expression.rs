//! What each kind of expression does.

use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;

use super::blocks::Arguments;
use super::scope::Closure;
use super::{Answer, DEPTH, Evaluator, Flow};
use crate::memory::{ENTRY, PLACE, Symbol};
use crate::pattern::Pattern;
use crate::tree::{Begin, Call, Expression, Kind, Pair, Rescue, When};
use crate::value::{Failure, Span, Value};

impl Evaluator<'_> {
    pub(super) fn expression(&mut self, expression: &Expression) -> Answer {
        self.line = expression.line;
        self.work(1)?;
        if self.depth >= DEPTH {
            return self.refuse("calls that are nested this deeply");
        }
        self.depth += 1;
        let answer = self.evaluate(expression);
        self.depth -= 1;
        answer
    }

    pub(super) fn expressions(&mut self, expressions: &[Expression]) -> Answer<Vec<Value>> {
        let mut values = Vec::with_capacity(expressions.len());
        for expression in expressions {
            match &expression.kind {
                Kind::Splat(inner) => match self.expression(inner)? {
                    Value::Array(list) => {
                        let items = list.items();
                        self.take(items.len() * PLACE)?;
                        values.extend(items.iter().cloned());
                    }
                    Value::Nil => {}
                    Value::Range(range) => values.extend(self.elements(&range)?),
                    Value::Hash(map) => values.extend(self.pairs(&map)?),
                    other => values.push(other),
                },
                _ => values.push(self.expression(expression)?),
            }
        }
        self.take(values.len() * 32)?;
        Ok(values)
    }

    fn evaluate(&mut self, expression: &Expression) -> Answer {
        match &expression.kind {
            Kind::Nil => Ok(Value::Nil),
            Kind::Bool(value) => Ok(Value::Bool(*value)),
            Kind::Int(value) => Ok(Value::Int(*value)),
            Kind::Float(value) => Ok(Value::Float(*value)),
            Kind::Str(content) => self.text(&**content),
            Kind::Symbol(name) => Ok(Value::Symbol(Symbol::written(name))),
            Kind::Local(slot) => Ok(self.scope.get(*slot)),
            Kind::Text(number) => {
                let text = self.texts.get(*number).map_or("", String::as_str);
                self.put(text)?;
                Ok(Value::Nil)
            }
            Kind::Print(value) => {
                let value = self.expression(value)?;
                self.line = expression.line;
                let text = self.display(&value)?;
                self.put(&text)?;
                Ok(Value::Nil)
            }
            Kind::Sequence(expressions) => {
                let mut last = Value::Nil;
                for expression in expressions {
                    last = self.expression(expression)?;
                }
                Ok(last)
            }
            Kind::And(left, right) => {
                let left = self.expression(left)?;
                if left.is_true() { self.expression(right) } else { Ok(left) }
            }
            Kind::Or(left, right) => {
                let left = self.expression(left)?;
                if left.is_true() { Ok(left) } else { self.expression(right) }
            }
            Kind::If { condition, then, otherwise } => {
                if self.expression(condition)?.is_true() {
                    self.expression(then)
                } else {
                    self.expression(otherwise)
                }
            }
            Kind::Case { subject, whens, otherwise } => self.case(subject.as_deref(), whens, otherwise),
            Kind::While { condition, body, until } => self.repeat(condition, body, *until),
            Kind::Assign(target, value) => self.assign(target, value),
            Kind::AssignMany(targets, value) => {
                let value = self.expression(value)?;
                self.assign_many(targets, value.clone())?;
                Ok(value)
            }
            Kind::AssignWith { target, operator, value } => self.assign_with(target, operator, value),
            Kind::Call(call) => self.call(call, expression.line),
            Kind::Begin(begin) => self.begin(begin),
            _ => self.rarer(expression),
        }
    }

    fn rarer(&mut self, expression: &Expression) -> Answer {
        match &expression.kind {
            Kind::Interpolated(parts) => {
                let text = self.interpolated(parts)?;
                self.text(text)
            }
            Kind::Pattern(parts, options) => {
                let source = self.interpolated(parts)?;
                self.work(source.len())?;
                match Pattern::new(&source, options) {
                    Ok(pattern) if pattern.made(&mut self.searched).is_some() => self.keep(pattern).map(Value::Pattern),
                    Ok(_) => self.refuse("so many regular expressions"),
                    Err(construct) => self.refuse(construct),
                }
            }
            Kind::Array(elements) => {
                let elements = self.expressions(elements)?;
                self.list(elements)
            }
            Kind::Hash(pairs) => self.hash(pairs),
            Kind::Range { from, to, exclusive } => {
                let from = from.as_ref().map_or(Ok(Value::Nil), |end| self.expression(end))?;
                let to = to.as_ref().map_or(Ok(Value::Nil), |end| self.expression(end))?;
                // Others would hold each other without the heap's knowledge.
                let number = |end: &Value| matches!(end, Value::Nil | Value::Int(_) | Value::Float(_));
                let text = |end: &Value| matches!(end, Value::Nil | Value::Str(_));
                if !(number(&from) && number(&to) || text(&from) && text(&to)) {
                    return self.refuse("a range of such values");
                }
                self.keep(Span { from, to, exclusive: *exclusive }).map(Value::Range)
            }
            Kind::Constant(name) => self.constant(name),
            Kind::Define(method) => {
                self.methods.insert(method.name.clone(), Arc::clone(method));
                Ok(Value::Symbol(Symbol::written(&method.name)))
            }
            Kind::Lambda(block) => {
                let closure = self.closure(block, true, 0);
                self.procedure(closure)
            }
            Kind::Yield(arguments) => {
                let values = self.expressions(arguments)?;
                match self.scope.given_block() {
                    Some(block) => self.invoke(&block, values),
                    None => self.refuse("'yield' without a block"),
                }
            }
            Kind::Return(value) => {
                let value = self.expression(value)?;
                Err(Box::new(Flow::Return { home: self.scope.home(), value }))
            }
            Kind::Next(value) => {
                let value = self.expression(value)?;
                Err(Box::new(Flow::Next(value)))
            }
            Kind::Break(value) => {
                let value = self.expression(value)?;
                Err(Box::new(Flow::Break { tag: self.scope.tag, value }))
            }
            Kind::LastMatch(group) => self.last_match(*group),
            Kind::LeaveLoop => Err(Box::new(Flow::LeaveLoop)),
            _ => self.refuse("this expression"),
        }
    }

    fn interpolated(&mut self, parts: &[Expression]) -> Answer<String> {
        let mut text = String::new();
        for part in parts {
            match &part.kind {
                Kind::Str(content) => self.write(&mut text, content)?,
                _ => {
                    let value = self.expression(part)?;
                    let shown = self.display(&value)?;
                    self.write(&mut text, &shown)?;
                }
            }
        }
        Ok(text)
    }

    fn hash(&mut self, pairs: &[Pair]) -> Answer {
        let mut entries = IndexMap::new();
        for pair in pairs {
            match pair {
                Pair::Entry(key, value) => {
                    let key = self.expression(key)?;
                    let key = self.key(&key)?;
                    let value = self.expression(value)?;
                    entries.insert(key, value);
                }
                Pair::All(map) => match self.expression(map)? {
                    Value::Hash(map) => {
                        let others = map.entries();
                        self.take(others.len() * ENTRY)?;
                        entries.extend(others.iter().map(|(key, value)| (key.clone(), value.clone())));
                    }
                    other => return self.refuse(format!("'**' of {}", other.class_name())),
                },
            }
        }
        self.map(entries)
    }

    fn case(&mut self, subject: Option<&Expression>, whens: &[When], otherwise: &Expression) -> Answer {
        let subject = subject.map(|subject| self.expression(subject)).transpose()?;
        for when in whens {
            for pattern in &when.patterns {
                let values = self.expressions(std::slice::from_ref(pattern))?;
                for value in values {
                    let matches = match &subject {
                        Some(subject) => self.case_matches(&value, subject)?,
                        None => value.is_true(),
                    };
                    if matches {
                        return self.expression(&when.body);
                    }
                }
            }
        }
        self.expression(otherwise)
    }

    fn repeat(&mut self, condition: &Expression, body: &Expression, until: bool) -> Answer {
        while self.expression(condition)?.is_true() != until {
            match self.expression(body).map_err(|flow| *flow) {
                Ok(_) | Err(Flow::Next(_)) => {}
                Err(Flow::LeaveLoop) => break,
                Err(other) => return Err(Box::new(other)),
            }
        }
        Ok(Value::Nil)
    }

    pub(super) fn call(&mut self, call: &Call, line: usize) -> Answer {
        let receiver = call.receiver.as_ref().map(|receiver| self.expression(receiver)).transpose()?;
        if call.safe && receiver.as_ref().is_some_and(Value::is_nil) {
            return Ok(Value::Nil);
        }
        let values = self.expressions(&call.arguments)?;
        let arguments = Arguments { values, keywords: call.keywords };
        let (block, tag) = match &call.block {
            Some(given) => self.given(given)?,
            None => (None, 0),
        };
        self.line = line;
        let answer = match receiver {
            Some(receiver) => self.call_method(&receiver, &call.name, arguments, block),
            None => self.call_own(&call.name, arguments, block),
        };
        match answer {
            Err(flow) => match *flow {
                Flow::Break { tag: left, value } if tag != 0 && left == tag => Ok(value),
                other => Err(Box::new(other)),
            },
            answer => answer,
        }
    }

    fn begin(&mut self, begin: &Begin) -> Answer {
        let mut answer = self.expression(&begin.body);
        match answer {
            Ok(_) => {
                if let Some(otherwise) = &begin.otherwise {
                    answer = self.expression(otherwise);
                }
            }
            Err(flow) => {
                answer = match *flow {
                    Flow::Raise(failure) => self.rescue(&begin.rescues, failure),
                    other => Err(Box::new(other)),
                };
            }
        }
        if let Some(ensure) = &begin.ensure {
            // What has no answer here has none in what must be done afterwards either.
            if !matches!(answer.as_ref().map_err(|flow| &**flow), Err(Flow::NeedsRuby(_) | Flow::Stopped(_))) {
                self.expression(ensure)?;
            }
        }
        answer
    }

    fn rescue(&mut self, rescues: &[Rescue], failure: Failure) -> Answer {
        for rescue in rescues {
            let classes = self.expressions(&rescue.classes)?;
            let mut matches = classes.is_empty() && is_a(failure.class, "StandardError");
            for class in classes {
                match class {
                    Value::Class(name) => matches |= is_a(failure.class, name),
                    other => return self.refuse(format!("'rescue' of {}", other.class_name())),
                }
            }
            if !matches {
                continue;
            }
            match &rescue.variable {
                Some(crate::tree::Target::Local(slot)) => {
                    let error = self.keep(failure)?;
                    self.scope.set(*slot, Value::Error(error));
                }
                Some(_) => return self.refuse("this 'rescue'"),
                None => {}
            }
            return self.expression(&rescue.body);
        }
        Err(Box::new(Flow::Raise(failure)))
    }

    /// The block that a method needs.
    pub(crate) fn needed(&self, block: Option<Rc<Closure>>) -> Answer<Rc<Closure>> {
        match block {
            Some(block) => Ok(block),
            None => self.refuse("an enumerator"),
        }
    }
}

/// Whether errors of one class are of another.
pub(crate) fn is_a(class: &str, other: &str) -> bool {
    let parents: &[&str] = match class {
        "RuntimeError" | "ArgumentError" | "TypeError" | "NameError" | "IndexError" | "RangeError"
        | "ZeroDivisionError" | "IOError" | "UnknownProperty" | "UnknownLink" => &["StandardError", "Exception"],
        "NoMethodError" => &["NameError", "StandardError", "Exception"],
        "KeyError" => &["IndexError", "StandardError", "Exception"],
        "NotImplementedError" | "SystemExit" => &["Exception"],
        "StandardError" => &["Exception"],
        _ => &[],
    };
    class == other || parents.contains(&other)
}
