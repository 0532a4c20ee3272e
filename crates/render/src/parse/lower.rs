//! Expressions of the parser become ours. What is not listed here needs Ruby.

use std::sync::Arc;

use lib_ruby_parser::{Node, nodes};

use super::scopes::Scopes;
use super::{Lines, Parsed, Refusal};
use crate::erb;
use crate::tree::{Begin, Expression, Kind, Operator, Rescue, Target, When};

/// How deep expressions may be within each other. Evaluation goes as deep.
const DEEPEST: usize = 150;

pub(super) type Lowered = Result<Expression, Refusal>;

/// The place in a program.
#[derive(Debug)]
pub(super) struct Lower<'a> {
    pub(super) scopes: Scopes,
    pub(super) lines: &'a Lines,
    pub(super) depth: usize,
    /// How many there were.
    pub(super) expressions: usize,
    /// Whether `break` leaves a loop and not a block.
    pub(super) in_loop: bool,
    /// Whether `return` leaves a lambda.
    pub(super) in_lambda: bool,
}

/// A whole program. Its last statement says that no comment hid the end.
pub(super) fn program(statements: &[Node], lines: &Lines) -> Result<Parsed, Refusal> {
    let mut lower =
        Lower { scopes: Scopes::default(), lines, depth: 0, expressions: 0, in_loop: false, in_lambda: false };
    lower.scopes.enter(true);
    let Some((Node::Send(nodes::Send { method_name, recv: None, .. }), statements)) = statements.split_last() else {
        return Err(lower.hidden_end());
    };
    if method_name != erb::END {
        return Err(lower.hidden_end());
    }
    let body = lower.all(statements)?;
    let body = Expression { line: 1, kind: Kind::Sequence(body) };
    Ok(Parsed { body, slots: lower.scopes.leave(), expressions: lower.expressions })
}

impl Lower<'_> {
    fn hidden_end(&self) -> Refusal {
        Refusal::new(self.lines.0.len().max(1), "a comment that hides the end of the template")
    }

    pub(super) fn line(&self, node: &Node) -> usize {
        self.lines.line(node.expression().begin)
    }

    pub(super) fn refuse<T>(&self, node: &Node, construct: impl Into<String>) -> Result<T, Refusal> {
        Err(Refusal::new(self.line(node), construct))
    }

    pub(super) fn all(&mut self, nodes: &[Node]) -> Result<Vec<Expression>, Refusal> {
        nodes.iter().map(|node| self.expression(node)).collect()
    }

    pub(super) fn boxed(&mut self, node: &Node) -> Result<Box<Expression>, Refusal> {
        self.expression(node).map(Box::new)
    }

    /// An expression that may be left out, which is `nil`.
    pub(super) fn optional(&mut self, node: Option<&Node>, line: usize) -> Lowered {
        node.map_or(Ok(Expression { line, kind: Kind::Nil }), |node| self.expression(node))
    }

    pub(super) fn expression(&mut self, node: &Node) -> Lowered {
        self.depth += 1;
        self.expressions += 1;
        if self.depth > DEEPEST {
            return self.refuse(node, "an expression that is nested too deeply");
        }
        let line = self.line(node);
        let kind = self.kind(node, line);
        self.depth -= 1;
        let kind = kind?;
        // Ruby's errors name the line of a method's name, which may be below that of its receiver.
        let line = match node {
            Node::Send(send) => send.selector_l.map_or(line, |selector| self.lines.line(selector.begin)),
            _ => line,
        };
        Ok(Expression { line, kind })
    }

    fn kind(&mut self, node: &Node, line: usize) -> Result<Kind, Refusal> {
        Ok(match node {
            Node::Nil(_) => Kind::Nil,
            Node::True(_) => Kind::Bool(true),
            Node::False(_) => Kind::Bool(false),
            Node::Int(_)
            | Node::Float(_)
            | Node::Str(_)
            | Node::Sym(_)
            | Node::Dstr(_)
            | Node::Heredoc(_)
            | Node::Regexp(_)
            | Node::Array(_)
            | Node::Hash(_)
            | Node::Kwargs(_)
            | Node::Irange(_)
            | Node::Erange(_) => self.literal(node, line)?,
            Node::Splat(nodes::Splat { value: Some(value), .. }) => Kind::Splat(self.boxed(value)?),
            Node::Lvar(variable) => match self.scopes.find(&variable.name) {
                Some(slot) => Kind::Local(slot),
                None => return self.refuse(node, format!("variable '{}'", variable.name)),
            },
            Node::NthRef(group) => match group.name.parse() {
                Ok(group) => Kind::LastMatch(Some(group)),
                Err(_) => return self.refuse(node, format!("'${}'", group.name)),
            },
            Node::Gvar(variable) if variable.name == "$~" => Kind::LastMatch(None),
            Node::Const(_) => Kind::Constant(self.constant(node)?),
            Node::Lvasgn(_) | Node::IndexAsgn(_) => {
                let target = Box::new(self.target(node)?);
                let value = match node {
                    Node::Lvasgn(nodes::Lvasgn { value, .. }) | Node::IndexAsgn(nodes::IndexAsgn { value, .. }) => {
                        value
                    }
                    _ => &None,
                };
                Kind::Assign(target, Box::new(self.optional(value.as_deref(), line)?))
            }
            Node::Masgn(many) => match self.target(&many.lhs)? {
                Target::Many(targets) => Kind::AssignMany(targets, self.boxed(&many.rhs)?),
                _ => return self.refuse(node, "this assignment"),
            },
            Node::OpAsgn(asgn) => {
                self.assign_with(&asgn.recv, Operator::Method(asgn.operator.as_str().into()), &asgn.value)?
            }
            Node::OrAsgn(asgn) => self.assign_with(&asgn.recv, Operator::Or, &asgn.value)?,
            Node::AndAsgn(asgn) => self.assign_with(&asgn.recv, Operator::And, &asgn.value)?,
            Node::And(and) => Kind::And(self.boxed(&and.lhs)?, self.boxed(&and.rhs)?),
            Node::Or(or) => Kind::Or(self.boxed(&or.lhs)?, self.boxed(&or.rhs)?),
            Node::Begin(begin) => self.sequence(&begin.statements)?,
            Node::KwBegin(begin) => self.sequence(&begin.statements)?,
            Node::If(_) | Node::IfMod(_) | Node::IfTernary(_) | Node::Case(_) | Node::While(_) | Node::Until(_) => {
                self.control(node, line)?
            }
            Node::Rescue(_) | Node::Ensure(_) => self.rescued(node, line)?,
            Node::Send(_) | Node::CSend(_) | Node::Index(_) | Node::Block(_) | Node::Def(_) | Node::Yield(_) => {
                self.call(node, line)?
            }
            Node::Next(next) => Kind::Next(self.answer(&next.args, line)?),
            Node::Break(_) if self.in_loop => Kind::LeaveLoop,
            Node::Break(found) => Kind::Break(self.answer(&found.args, line)?),
            Node::Return(found) if self.in_lambda || self.scopes.in_method() => {
                Kind::Return(self.answer(&found.args, line)?)
            }
            _ => return self.refuse(node, format!("'{}'", node.str_type())),
        })
    }

    fn sequence(&mut self, statements: &[Node]) -> Result<Kind, Refusal> {
        Ok(match statements {
            [] => Kind::Nil,
            [one] => self.expression(one)?.kind,
            many => Kind::Sequence(self.all(many)?),
        })
    }

    /// What `next`, `break` and `return` give.
    fn answer(&mut self, arguments: &[Node], line: usize) -> Result<Box<Expression>, Refusal> {
        match arguments {
            [] => Ok(Box::new(Expression { line, kind: Kind::Nil })),
            [one] if !matches!(one, Node::Splat(_)) => self.boxed(one),
            many => Ok(Box::new(Expression { line, kind: Kind::Array(self.all(many)?) })),
        }
    }

    fn assign_with(&mut self, target: &Node, operator: Operator, value: &Node) -> Result<Kind, Refusal> {
        let target = match target {
            // `x[i] += 1` has `x[i]` here.
            Node::Index(index) => Target::Index(self.expression(&index.recv)?, self.all(&index.indexes)?),
            _ => self.target(target)?,
        };
        Ok(Kind::AssignWith { target: Box::new(target), operator, value: self.boxed(value)? })
    }

    pub(super) fn target(&mut self, node: &Node) -> Result<Target, Refusal> {
        Ok(match node {
            Node::Lvasgn(asgn) => Target::Local(self.scopes.assign(&asgn.name)),
            Node::IndexAsgn(asgn) => Target::Index(self.expression(&asgn.recv)?, self.all(&asgn.indexes)?),
            Node::Splat(splat) => {
                let target = splat.value.as_ref().map(|value| self.target(value)).transpose()?;
                Target::Rest(target.map(Box::new))
            }
            Node::Mlhs(many) => {
                Target::Many(many.items.iter().map(|item| self.target(item)).collect::<Result<_, Refusal>>()?)
            }
            _ => return self.refuse(node, format!("an assignment to '{}'", node.str_type())),
        })
    }

    fn control(&mut self, node: &Node, line: usize) -> Result<Kind, Refusal> {
        Ok(match node {
            Node::If(found) => Kind::If {
                condition: self.condition(&found.cond)?,
                then: Box::new(self.optional(found.if_true.as_deref(), line)?),
                otherwise: Box::new(self.optional(found.if_false.as_deref(), line)?),
            },
            Node::IfMod(found) => {
                // The body comes first and decides what is a variable in the condition.
                let then = Box::new(self.optional(found.if_true.as_deref(), line)?);
                let otherwise = Box::new(self.optional(found.if_false.as_deref(), line)?);
                Kind::If { condition: self.condition(&found.cond)?, then, otherwise }
            }
            Node::IfTernary(found) => Kind::If {
                condition: self.condition(&found.cond)?,
                then: self.boxed(&found.if_true)?,
                otherwise: self.boxed(&found.if_false)?,
            },
            Node::Case(found) => self.case(found, line)?,
            Node::While(found) => self.repeat(node, &found.cond, found.body.as_deref(), false)?,
            Node::Until(found) => self.repeat(node, &found.cond, found.body.as_deref(), true)?,
            _ => return self.refuse(node, format!("'{}'", node.str_type())),
        })
    }

    /// Ranges and regular expressions mean something else in conditions.
    fn condition(&mut self, node: &Node) -> Result<Box<Expression>, Refusal> {
        if has_literal(node) {
            return self.refuse(node, "a condition that is a range or a regular expression");
        }
        self.boxed(node)
    }

    fn case(&mut self, case: &nodes::Case, line: usize) -> Result<Kind, Refusal> {
        let subject = case.expr.as_ref().map(|subject| self.boxed(subject)).transpose()?;
        let mut whens = Vec::new();
        for when in &case.when_bodies {
            let Node::When(found) = when else { return self.refuse(when, "this 'when'") };
            let patterns = self.all(&found.patterns)?;
            whens.push(When { patterns, body: self.optional(found.body.as_deref(), line)? });
        }
        Ok(Kind::Case { subject, whens, otherwise: Box::new(self.optional(case.else_body.as_deref(), line)?) })
    }

    fn repeat(&mut self, node: &Node, condition: &Node, body: Option<&Node>, until: bool) -> Result<Kind, Refusal> {
        if body.is_some_and(|body| body.expression().begin < condition.expression().begin) {
            return self.refuse(node, "a loop with its condition behind");
        }
        let condition = self.condition(condition)?;
        let around = std::mem::replace(&mut self.in_loop, true);
        let body = self.optional(body, self.line(node));
        self.in_loop = around;
        Ok(Kind::While { condition, body: Box::new(body?), until })
    }

    fn rescued(&mut self, node: &Node, line: usize) -> Result<Kind, Refusal> {
        let (inner, ensure) = match node {
            Node::Ensure(found) => (found.body.as_deref(), found.ensure.as_deref()),
            _ => (Some(node), None),
        };
        let (body, rescues, otherwise) = match inner {
            Some(Node::Rescue(found)) => {
                let body = self.optional(found.body.as_deref(), line)?;
                let rescues = found.rescue_bodies.iter().map(|body| self.rescue(body)).collect::<Result<_, _>>()?;
                (body, rescues, found.else_.as_ref().map(|body| self.expression(body)).transpose()?)
            }
            other => (self.optional(other, line)?, Vec::new(), None),
        };
        let ensure = ensure.map(|ensure| self.expression(ensure)).transpose()?;
        Ok(Kind::Begin(Box::new(Begin { body, rescues, otherwise, ensure })))
    }

    fn rescue(&mut self, node: &Node) -> Result<Rescue, Refusal> {
        let Node::RescueBody(found) = node else { return self.refuse(node, "this 'rescue'") };
        let classes = match found.exc_list.as_deref() {
            Some(Node::Array(list)) => self.all(&list.elements)?,
            None => Vec::new(),
            Some(_) => return self.refuse(node, "this 'rescue'"),
        };
        let variable = found.exc_var.as_ref().map(|variable| self.target(variable)).transpose()?;
        let body = self.optional(found.body.as_deref(), self.line(node))?;
        Ok(Rescue { classes, variable, body })
    }

    /// The whole name of a constant, such as `Base64` or `OpenSSL::X509`.
    fn constant(&self, node: &Node) -> Result<Arc<str>, Refusal> {
        let Node::Const(constant) = node else { return self.refuse(node, "a computed constant") };
        match constant.scope.as_deref() {
            None => Ok(constant.name.as_str().into()),
            Some(Node::Cbase(_)) => Ok(constant.name.as_str().into()),
            Some(scope) => Ok(format!("{}::{}", self.constant(scope)?, constant.name).into()),
        }
    }
}

/// Whether a condition is made of a range or a regular expression. What is nested without an end is refused elsewhere.
fn has_literal(node: &Node) -> bool {
    let mut left = vec![node];
    while let Some(node) = left.pop() {
        match node {
            Node::Irange(_) | Node::Erange(_) | Node::Regexp(_) | Node::MatchCurrentLine(_) => return true,
            Node::Begin(begin) => left.extend(begin.statements.last()),
            Node::And(and) => left.extend([&*and.lhs, &*and.rhs]),
            Node::Or(or) => left.extend([&*or.lhs, &*or.rhs]),
            Node::Send(send) if send.method_name == "!" => left.extend(send.recv.as_deref()),
            _ => {}
        }
    }
    false
}
