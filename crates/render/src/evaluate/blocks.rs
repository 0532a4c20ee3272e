//! Blocks, lambdas and methods get their arguments.

use std::rc::Rc;
use std::sync::Arc;

use super::scope::{Closure, Place, Scope};
use super::{Answer, Evaluator, Flow};
use crate::memory::PLACE;
use crate::tree::{Block, Given, Method, Parameter, Parameters, Slot};
use crate::value::Value;

/// What a call was given.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) values: Vec<Value>,
    /// The last one is a map without braces.
    pub(crate) keywords: bool,
}

impl From<Vec<Value>> for Arguments {
    fn from(values: Vec<Value>) -> Self {
        Self { values, keywords: false }
    }
}

impl Evaluator<'_> {
    /// The block that a call gets, and the tag by which `break` finds the call.
    pub(super) fn given(&mut self, given: &Given) -> Answer<(Option<Rc<Closure>>, u64)> {
        match given {
            Given::Literal(block) => {
                let tag = self.tag();
                Ok((Some(self.closure(block, false, tag)), tag))
            }
            Given::Passed(expression) => match self.expression(expression)? {
                Value::Proc(closure) => Ok((Some(Rc::clone(&closure)), 0)),
                Value::Symbol(name) => Ok((Some(Rc::new(Closure::Name(name.name().clone()))), 0)),
                Value::Nil => Ok((None, 0)),
                other => self.refuse(format!("a block from {}", other.class_name())),
            },
        }
    }

    pub(super) fn closure(&mut self, block: &Arc<Block>, is_lambda: bool, tag: u64) -> Rc<Closure> {
        Rc::new(Closure::Block { block: Arc::clone(block), scope: Rc::clone(&self.scope), is_lambda, tag })
    }

    /// A block as a value, which keeps the variables around it.
    pub(crate) fn procedure(&mut self, closure: Rc<Closure>) -> Answer {
        if let Closure::Block { scope, .. } = &*closure {
            self.heap.captured(scope);
        }
        self.keep(closure).map(Value::Proc)
    }

    /// Calls a block, as `yield` does.
    pub(crate) fn invoke(&mut self, closure: &Rc<Closure>, values: Vec<Value>) -> Answer {
        self.invoke_with(closure, values.into())
    }

    pub(crate) fn invoke_with(&mut self, closure: &Rc<Closure>, arguments: Arguments) -> Answer {
        let (block, parent, is_lambda, tag) = match &**closure {
            Closure::Name(name) => {
                let mut values = arguments.values.into_iter();
                let Some(receiver) = values.next() else { return self.refuse("a block without a value") };
                return self.call_method(&receiver, name, values.collect::<Vec<_>>().into(), None);
            }
            Closure::Block { block, scope, is_lambda, tag } => (block, scope, *is_lambda, *tag),
        };
        let place = if is_lambda { Place::Lambda } else { Place::Block };
        let tag = if is_lambda { self.tag() } else { tag };
        let scope = Scope::new(block.slots, Some(Rc::clone(parent)), place, tag, None);
        match self.within(scope, block, arguments, is_lambda) {
            Err(flow) => match *flow {
                Flow::Next(value) => Ok(value),
                Flow::Return { home, value } if is_lambda && home == tag => Ok(value),
                Flow::Break { tag: left, value } if is_lambda && left == tag => Ok(value),
                other => Err(Box::new(other)),
            },
            answer => answer,
        }
    }

    /// Calls a method that the template defined.
    pub(super) fn call_defined(&mut self, method: &Method, arguments: Arguments, block: Option<Rc<Closure>>) -> Answer {
        let tag = self.tag();
        let scope = Scope::new(method.block.slots, None, Place::Method, tag, block);
        match self.within(scope, &method.block, arguments, true) {
            Err(flow) => match *flow {
                Flow::Return { home, value } if home == tag => Ok(value),
                other => Err(Box::new(other)),
            },
            answer => answer,
        }
    }

    fn within(&mut self, scope: Rc<Scope>, block: &Block, arguments: Arguments, strict: bool) -> Answer {
        self.work(1)?;
        self.take(block.slots * 32 + 96)?;
        let around = std::mem::replace(&mut self.scope, scope);
        let answer = self.bind(&block.parameters, arguments, strict).and_then(|()| self.expression(&block.body));
        self.scope = around;
        answer
    }

    fn local(&self, index: usize, value: Value) {
        self.scope.set(Slot { up: 0, index }, value);
    }

    fn bind(&mut self, parameters: &Parameters, arguments: Arguments, strict: bool) -> Answer<()> {
        let Arguments { mut values, keywords } = arguments;
        self.bind_keywords(parameters, &mut values, keywords)?;
        let fixed = parameters.required.len() + parameters.last.len();
        if !strict {
            values = self.spread(parameters, values)?;
        }
        let most = fixed + parameters.optional.len();
        if strict && (values.len() < fixed || (parameters.rest.is_none() && values.len() > most)) {
            return self.refuse("a wrong number of arguments");
        }
        if let Some(slot) = parameters.block {
            let block = self.scope.given_block().filter(|_| self.scope.place == Place::Method);
            let block = block.map_or(Ok(Value::Nil), |block| self.procedure(block))?;
            self.local(slot, block);
        }
        let mut spare = values.len().saturating_sub(fixed);
        let mut values = values.into_iter();
        for parameter in &parameters.required {
            self.bind_one(parameter, values.next())?;
        }
        for (slot, default) in &parameters.optional {
            let value = match values.next().filter(|_| spare > 0) {
                Some(value) => value,
                None => self.expression(default)?,
            };
            spare = spare.saturating_sub(1);
            self.local(*slot, value);
        }
        if let Some(rest) = parameters.rest {
            let mut rested = self.places(spare)?;
            rested.extend(values.by_ref().take(spare));
            let list = self.list(rested)?;
            if let Some(slot) = rest {
                self.local(slot, list);
            }
        }
        for parameter in &parameters.last {
            self.bind_one(parameter, values.next())?;
        }
        Ok(())
    }

    fn bind_one(&mut self, parameter: &Parameter, value: Option<Value>) -> Answer<()> {
        let value = value.unwrap_or(Value::Nil);
        match parameter {
            Parameter::Plain(slot) => self.local(*slot, value),
            Parameter::Many(targets) => self.assign_many(targets, value)?,
        }
        Ok(())
    }

    /// A block with several parameters takes one array apart.
    fn spread(&mut self, parameters: &Parameters, values: Vec<Value>) -> Answer<Vec<Value>> {
        let fixed = parameters.required.len() + parameters.last.len();
        let spreads = !parameters.single && (fixed > 0 || parameters.optional.len() > 1);
        match values.as_slice() {
            [Value::Array(_)] if !parameters.keywords.is_empty() => self.refuse("a block with keywords for an array"),
            // Ruby versions differ in what a block with one optional parameter does.
            [Value::Array(_)] if parameters.optional.len() == 1 && parameters.rest.is_some() && fixed == 0 => {
                self.refuse("a block with an optional parameter for an array")
            }
            [Value::Array(list)] if spreads => {
                let items = list.items();
                self.take(items.len() * PLACE)?;
                Ok(items.to_vec())
            }
            _ => Ok(values),
        }
    }

    fn bind_keywords(&mut self, parameters: &Parameters, values: &mut Vec<Value>, given: bool) -> Answer<()> {
        if parameters.keywords.is_empty() {
            return Ok(());
        }
        let map = match values.last() {
            Some(Value::Hash(map)) if given => Some(map.clone()),
            _ => None,
        };
        if map.is_some() {
            values.pop();
        }
        let mut used = 0;
        for keyword in &parameters.keywords {
            let found = map.as_ref().and_then(|map| map.member(&keyword.name));
            used += usize::from(found.is_some());
            let value = match (found, &keyword.default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.expression(default)?,
                (None, None) => return self.refuse("a missing keyword"),
            };
            self.local(keyword.slot, value);
        }
        if map.is_some_and(|map| map.len() > used) {
            return self.refuse("an unknown keyword");
        }
        Ok(())
    }
}
