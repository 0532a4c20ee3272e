//! Whether a program is native, before any value is known: every method and constant must be listed.

use std::collections::HashSet;
use std::sync::Arc;

use crate::evaluate::BOUND;
use crate::methods::{self, classes, kernel};
use crate::parse::{Parsed, Refusal};
use crate::tree::{Block, Call, Expression, Given, Kind, Pair, Parameter, Parameters, Target};

/// Members of links and their instances, and what comes after `if_p`.
const OF_LINKS: &[&str] = &[
    "instances",
    "properties",
    "p",
    "if_p",
    "address",
    "name",
    "index",
    "id",
    "az",
    "bootstrap",
    "else",
    "else_if_p",
    "else_if_link",
];

/// Names that a template must not define: others than itself would call them.
const NOT_DEFINED: &[&str] = &[
    "initialize",
    "method_missing",
    "respond_to_missing?",
    "get_binding",
    "binding",
    "to_s",
    "openstruct",
    "lookup_property",
];

/// What a bare word can mean to Ruby itself. Others are mistakes that only show when they are reached.
const RUBYS_OWN: &[&str] = &[
    "__callee__",
    "__dir__",
    "__id__",
    "__method__",
    "abort",
    "at_exit",
    "autoload",
    "binding",
    "blank?",
    "caller",
    "caller_locations",
    "catch",
    "class",
    "clone",
    "display",
    "dup",
    "enum_for",
    "eval",
    "exec",
    "exit",
    "exit!",
    "extend",
    "fail",
    "fork",
    "freeze",
    "frozen?",
    "get_binding",
    "gets",
    "global_variables",
    "hash",
    "inspect",
    "instance_variables",
    "iterator?",
    "itself",
    "lambda",
    "load",
    "local_variables",
    "loop",
    "method",
    "methods",
    "nil?",
    "object_id",
    "open",
    "pp",
    "presence",
    "present?",
    "print",
    "printf",
    "private_methods",
    "proc",
    "protected_methods",
    "public_methods",
    "putc",
    "puts",
    "raise",
    "rand",
    "readline",
    "readlines",
    "select",
    "set_trace_func",
    "singleton_class",
    "singleton_methods",
    "sleep",
    "spawn",
    "srand",
    "syscall",
    "system",
    "taint",
    "tap",
    "test",
    "then",
    "throw",
    "to_enum",
    "to_json",
    "to_s",
    "to_yaml",
    "trace_var",
    "trap",
    "untrace_var",
    "warn",
    "yield_self",
    "_erbout",
];

/// Which parts of the spec a program asks for: what it does not ask for is not made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Uses {
    pub(crate) spec: bool,
    pub(crate) structs: bool,
    pub(crate) links: bool,
}

/// Looks through a program; answers the first thing that needs Ruby.
pub(crate) fn check(program: &Parsed) -> Result<Uses, Refusal> {
    let mut found = Found::default();
    found.expression(&program.body);
    let Found { calls, defined, .. } = found;
    let asks = |name: &str| calls.iter().any(|call| call.receiver == Root::None && *call.name == *name);
    let links = ["link", "if_link", "else_if_link"];
    let uses = Uses {
        spec: asks("spec"),
        structs: asks("properties"),
        links: calls.iter().any(|call| links.contains(&&*call.name)),
    };
    let has_structs = calls.iter().any(|call| call.receiver == Root::Struct);
    let refuse = |line: usize, construct: String| Err(Refusal::new(line, construct));
    for (name, line) in &defined {
        if BOUND.contains(&&**name) || NOT_DEFINED.contains(&&**name) || kernel::NAMES.contains(&&**name) {
            return refuse(*line, format!("a method named '{name}'"));
        }
    }
    let defined: HashSet<_> = defined.into_iter().map(|(name, _)| name).collect();
    for call in calls {
        let name = &*call.name;
        let is_known = match call.receiver {
            Root::None if call.is_plain && !RUBYS_OWN.contains(&name) => true,
            Root::None => BOUND.contains(&name) || kernel::NAMES.contains(&name) || defined.contains(&call.name),
            _ if methods::is_known(name) || OF_LINKS.contains(&name) => true,
            Root::Struct => call.is_plain,
            Root::Variable => call.is_plain && has_structs,
            Root::Other => false,
        };
        if !is_known {
            return refuse(call.line, format!("'{name}'"));
        }
    }
    match found.constants.into_iter().find(|(name, _)| classes::constant(name).is_none()) {
        Some((name, line)) => refuse(line, format!("the constant '{name}'")),
        None => Ok(uses),
    }
}

/// What a call's receiver is, as far as one can see.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Root {
    None,
    /// A part of `spec`, `properties` or a link, whose members have any name.
    Struct,
    Variable,
    Other,
}

struct FoundCall {
    receiver: Root,
    name: Arc<str>,
    line: usize,
    /// Without arguments and block, as members are read.
    is_plain: bool,
}

/// What a program has, in the order of its lines.
#[derive(Default)]
struct Found {
    calls: Vec<FoundCall>,
    constants: Vec<(Arc<str>, usize)>,
    defined: Vec<(Arc<str>, usize)>,
}

impl Found {
    fn all(&mut self, expressions: &[Expression]) {
        expressions.iter().for_each(|expression| self.expression(expression));
    }

    fn expression(&mut self, expression: &Expression) {
        match &expression.kind {
            Kind::Nil
            | Kind::Bool(_)
            | Kind::Int(_)
            | Kind::Float(_)
            | Kind::Str(_)
            | Kind::Symbol(_)
            | Kind::Local(_)
            | Kind::LeaveLoop
            | Kind::LastMatch(_)
            | Kind::Text(_) => {}
            Kind::Constant(name) => self.constants.push((name.clone(), expression.line)),
            Kind::Interpolated(parts) | Kind::Pattern(parts, _) | Kind::Array(parts) => self.all(parts),
            Kind::Sequence(parts) | Kind::Yield(parts) => self.all(parts),
            Kind::Hash(pairs) => pairs.iter().for_each(|pair| match pair {
                Pair::Entry(key, value) => {
                    self.expression(key);
                    self.expression(value);
                }
                Pair::All(map) => self.expression(map),
            }),
            Kind::Range { from, to, .. } => from.iter().chain(to).for_each(|end| self.expression(end)),
            Kind::Splat(one) | Kind::Return(one) | Kind::Next(one) | Kind::Break(one) | Kind::Print(one) => {
                self.expression(one);
            }
            Kind::And(left, right) | Kind::Or(left, right) => {
                self.expression(left);
                self.expression(right);
            }
            Kind::Assign(target, value) | Kind::AssignWith { target, value, .. } => {
                self.target(target);
                self.expression(value);
                if let Kind::AssignWith { operator: crate::tree::Operator::Method(name), .. } = &expression.kind {
                    self.operator(name, expression.line);
                }
            }
            Kind::AssignMany(targets, value) => {
                targets.iter().for_each(|target| self.target(target));
                self.expression(value);
            }
            Kind::If { condition, then, otherwise } => {
                [condition, then, otherwise].iter().for_each(|part| self.expression(part));
            }
            Kind::While { condition, body, .. } => [condition, body].iter().for_each(|part| self.expression(part)),
            Kind::Define(method) => {
                self.defined.push((method.name.clone(), method.line));
                self.block(&method.block);
            }
            Kind::Lambda(block) => self.block(block),
            Kind::Call(call) => self.call(call, expression.line),
            Kind::Case { .. } | Kind::Begin(_) => self.branches(&expression.kind),
        }
    }

    fn branches(&mut self, kind: &Kind) {
        match kind {
            Kind::Case { subject, whens, otherwise } => {
                subject.iter().for_each(|subject| self.expression(subject));
                for when in whens {
                    self.all(&when.patterns);
                    self.expression(&when.body);
                }
                self.expression(otherwise);
            }
            Kind::Begin(begin) => {
                self.expression(&begin.body);
                for rescue in &begin.rescues {
                    self.all(&rescue.classes);
                    rescue.variable.iter().for_each(|variable| self.target(variable));
                    self.expression(&rescue.body);
                }
                begin.otherwise.iter().chain(&begin.ensure).for_each(|part| self.expression(part));
            }
            _ => {}
        }
    }

    fn operator(&mut self, name: &Arc<str>, line: usize) {
        self.calls.push(FoundCall { receiver: Root::Other, name: name.clone(), line, is_plain: false });
    }

    fn call(&mut self, call: &Call, line: usize) {
        let receiver = call.receiver.as_ref().map_or(Root::None, root);
        let is_plain = call.arguments.is_empty() && call.block.is_none();
        call.receiver.iter().for_each(|receiver| self.expression(receiver));
        self.calls.push(FoundCall { receiver, name: call.name.clone(), line, is_plain });
        self.all(&call.arguments);
        match &call.block {
            Some(Given::Literal(block)) => self.block(block),
            Some(Given::Passed(passed)) => {
                self.expression(passed);
                // `&:name` calls that method.
                if let Kind::Symbol(name) = &passed.kind {
                    let receiver = if receiver == Root::None { Root::Other } else { receiver };
                    self.calls.push(FoundCall { receiver, name: name.clone(), line, is_plain: true });
                }
            }
            None => {}
        }
    }

    fn block(&mut self, block: &Block) {
        self.parameters(&block.parameters);
        self.expression(&block.body);
    }

    fn parameters(&mut self, parameters: &Parameters) {
        for parameter in parameters.required.iter().chain(&parameters.last) {
            if let Parameter::Many(targets) = parameter {
                targets.iter().for_each(|target| self.target(target));
            }
        }
        parameters.optional.iter().for_each(|(_, default)| self.expression(default));
        parameters.keywords.iter().flat_map(|keyword| &keyword.default).for_each(|default| self.expression(default));
    }

    fn target(&mut self, target: &Target) {
        match target {
            Target::Local(_) => {}
            Target::Index(receiver, indexes) => {
                self.expression(receiver);
                self.all(indexes);
            }
            Target::Rest(inner) => inner.iter().for_each(|inner| self.target(inner)),
            Target::Many(targets) => targets.iter().for_each(|target| self.target(target)),
        }
    }
}

fn root(expression: &Expression) -> Root {
    match &expression.kind {
        Kind::Local(_) => Root::Variable,
        Kind::Call(call) => match &call.receiver {
            None if matches!(&*call.name, "spec" | "properties" | "link") => Root::Struct,
            None => Root::Other,
            Some(receiver) => root(receiver),
        },
        Kind::Sequence(parts) => parts.last().map_or(Root::Other, root),
        Kind::Or(left, _) => root(left),
        _ => Root::Other,
    }
}
