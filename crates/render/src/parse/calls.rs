//! Calls, blocks, methods and their parameters.

use std::sync::Arc;

use lib_ruby_parser::{Node, nodes};

use super::Refusal;
use super::lower::Lower;
use crate::erb;
use crate::tree::{Block, Call, Given, Keyword, Kind, Method, Parameter, Parameters, Target};

impl Lower<'_> {
    pub(super) fn call(&mut self, node: &Node, line: usize) -> Result<Kind, Refusal> {
        match node {
            Node::Send(send) if send.recv.is_none() && send.method_name.starts_with(erb::RESERVED) => {
                self.own(node, send)
            }
            Node::Send(send) => {
                let receiver = send.recv.as_deref();
                if send.method_name.ends_with('=') && !matches!(&*send.method_name, "==" | "===" | "!=" | "<=" | ">=") {
                    return self.refuse(node, format!("an assignment to '{}'", send.method_name.trim_end_matches('=')));
                }
                self.plain(receiver, &send.method_name, &send.args, false)
            }
            Node::CSend(send) => self.plain(Some(&send.recv), &send.method_name, &send.args, true),
            Node::Index(index) => self.plain(Some(&index.recv), "[]", &index.indexes, false),
            Node::Block(block) => self.with_block(node, block),
            Node::Def(def) => self.define(node, def, line),
            Node::Yield(found) if self.scopes.in_method() => Ok(Kind::Yield(self.all(&found.args)?)),
            _ => self.refuse(node, format!("'{}'", node.str_type())),
        }
    }

    /// The calls that stand for the template's text.
    fn own(&mut self, node: &Node, send: &nodes::Send) -> Result<Kind, Refusal> {
        match (send.method_name.as_str(), send.args.as_slice()) {
            (erb::TEXT, [Node::Int(number)]) => match number.value.parse() {
                Ok(number) => Ok(Kind::Text(number)),
                Err(_) => self.refuse(node, "this text"),
            },
            // `(…).to_s` is done by printing.
            (erb::PRINT, [Node::Send(to_s)]) => match to_s.recv.as_deref() {
                Some(printed) => Ok(Kind::Print(self.boxed(printed)?)),
                None => self.refuse(node, "this tag"),
            },
            _ => self.refuse(node, "this tag"),
        }
    }

    fn plain(&mut self, receiver: Option<&Node>, name: &str, args: &[Node], safe: bool) -> Result<Kind, Refusal> {
        let receiver = receiver.map(|receiver| self.expression(receiver)).transpose()?;
        let (passed, args) = match args.split_last() {
            Some((Node::BlockPass(pass), rest)) => (Some(pass), rest),
            _ => (None, args),
        };
        let keywords = matches!(args.last(), Some(Node::Kwargs(_)));
        let arguments = self.all(args)?;
        let block = match passed.and_then(|pass| pass.value.as_deref()) {
            Some(value) => Some(Given::Passed(self.expression(value)?)),
            None => None,
        };
        Ok(Kind::Call(Box::new(Call { receiver, safe, name: name.into(), arguments, keywords, block })))
    }

    fn with_block(&mut self, node: &Node, block: &nodes::Block) -> Result<Kind, Refusal> {
        let is_lambda = match &*block.call {
            Node::Lambda(_) => true,
            Node::Send(send) => send.recv.is_none() && send.method_name == "lambda" && send.args.is_empty(),
            Node::CSend(_) | Node::Index(_) => false,
            other => return self.refuse(other, format!("a block for '{}'", other.str_type())),
        };
        if is_lambda {
            let around = std::mem::replace(&mut self.in_lambda, true);
            let lowered = self.block(block.args.as_deref(), block.body.as_deref(), false);
            self.in_lambda = around;
            return Ok(Kind::Lambda(Arc::new(lowered?)));
        }
        let mut kind = self.expression(&block.call)?.kind;
        let Kind::Call(call) = &mut kind else { return self.refuse(node, "a block here") };
        if call.block.is_some() {
            return self.refuse(node, "two blocks");
        }
        call.block = Some(Given::Literal(Arc::new(self.block(block.args.as_deref(), block.body.as_deref(), false)?)));
        Ok(kind)
    }

    fn block(&mut self, args: Option<&Node>, body: Option<&Node>, closed: bool) -> Result<Block, Refusal> {
        self.scopes.enter(closed);
        let around = std::mem::replace(&mut self.in_loop, false);
        let line = body.or(args).map_or(1, |node| self.line(node));
        let lowered = self.parameters(args).and_then(|parameters| Ok((parameters, self.optional(body, line)?)));
        self.in_loop = around;
        let slots = self.scopes.leave();
        let (parameters, body) = lowered?;
        Ok(Block { parameters, body, slots })
    }

    fn define(&mut self, node: &Node, def: &nodes::Def, line: usize) -> Result<Kind, Refusal> {
        if self.scopes.in_method() {
            return self.refuse(node, "a method within a method");
        }
        let around = std::mem::replace(&mut self.in_lambda, false);
        let block = self.block(def.args.as_deref(), def.body.as_deref(), true);
        self.in_lambda = around;
        Ok(Kind::Define(Arc::new(Method { name: def.name.as_str().into(), block: Arc::new(block?), line })))
    }

    fn parameters(&mut self, args: Option<&Node>) -> Result<Parameters, Refusal> {
        let mut parameters = Parameters::default();
        let args = match args {
            None => return Ok(parameters),
            Some(Node::Args(args)) => &args.args,
            Some(other) => return self.refuse(other, format!("parameters of '{}'", other.str_type())),
        };
        for arg in args {
            self.parameter(arg, &mut parameters)?;
        }
        Ok(parameters)
    }

    fn parameter(&mut self, node: &Node, parameters: &mut Parameters) -> Result<(), Refusal> {
        let mut position = |parameter| {
            let plain_only = parameters.rest.is_none() && parameters.optional.is_empty();
            if plain_only { &mut parameters.required } else { &mut parameters.last }.push(parameter);
        };
        match node {
            Node::Arg(arg) => position(Parameter::Plain(self.scopes.declare(&arg.name))),
            Node::Procarg0(procarg) => match procarg.args.as_slice() {
                [Node::Arg(arg)] => {
                    position(Parameter::Plain(self.scopes.declare(&arg.name)));
                    parameters.single = true;
                }
                // `|(a, b)|`
                many => position(Parameter::Many(self.nested(many)?)),
            },
            Node::Mlhs(many) => position(Parameter::Many(self.nested(&many.items)?)),
            Node::Optarg(arg) => {
                let slot = self.scopes.declare(&arg.name);
                parameters.optional.push((slot, self.expression(&arg.default)?));
            }
            Node::Restarg(arg) => {
                parameters.rest = Some(arg.name.as_ref().map(|name| self.scopes.declare(name)));
            }
            Node::Kwarg(arg) => {
                let slot = self.scopes.declare(&arg.name);
                parameters.keywords.push(Keyword { name: arg.name.as_str().into(), slot, default: None });
            }
            Node::Kwoptarg(arg) => {
                let slot = self.scopes.declare(&arg.name);
                let default = Some(self.expression(&arg.default)?);
                parameters.keywords.push(Keyword { name: arg.name.as_str().into(), slot, default });
            }
            Node::Blockarg(nodes::Blockarg { name: Some(name), .. }) => {
                parameters.block = Some(self.scopes.declare(name));
            }
            Node::Shadowarg(arg) => {
                self.scopes.declare(&arg.name);
            }
            _ => return self.refuse(node, format!("a parameter '{}'", node.str_type())),
        }
        Ok(())
    }

    fn nested(&mut self, items: &[Node]) -> Result<Vec<Target>, Refusal> {
        let mut local = |name: &str| Target::Local(crate::tree::Slot { up: 0, index: self.scopes.declare(name) });
        let mut targets = Vec::new();
        for item in items {
            targets.push(match item {
                Node::Arg(arg) => local(&arg.name),
                Node::Restarg(arg) => Target::Rest(arg.name.as_ref().map(|name| Box::new(local(name)))),
                _ => return self.refuse(item, "parameters within parameters"),
            });
        }
        Ok(targets)
    }
}
