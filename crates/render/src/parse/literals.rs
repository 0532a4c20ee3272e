//! Numbers, strings, arrays, maps and ranges.

use std::sync::Arc;

use lib_ruby_parser::Node;

use super::Refusal;
use super::lower::Lower;
use crate::erb;
use crate::tree::{Expression, Kind, Pair};

impl Lower<'_> {
    pub(super) fn literal(&mut self, node: &Node, line: usize) -> Result<Kind, Refusal> {
        Ok(match node {
            Node::Int(int) => Kind::Int(self.int(node, &int.value)?),
            Node::Float(float) => match float.value.replace('_', "").parse::<f64>() {
                Ok(value) if value.is_finite() => Kind::Float(value),
                _ => return self.refuse(node, "this number"),
            },
            Node::Str(text) => Kind::Str(self.text(node, &text.value.raw)?),
            Node::Sym(name) => Kind::Symbol(self.text(node, &name.name.raw)?),
            Node::Dstr(text) => Kind::Interpolated(self.parts(&text.parts)?),
            Node::Heredoc(text) => Kind::Interpolated(self.parts(&text.parts)?),
            Node::Regexp(found) => {
                let options = match found.options.as_deref() {
                    Some(Node::RegOpt(options)) => options.options.clone().unwrap_or_default(),
                    _ => String::new(),
                };
                Kind::Pattern(self.parts(&found.parts)?, options)
            }
            Node::Array(array) => Kind::Array(self.all(&array.elements)?),
            Node::Hash(hash) => self.pairs(&hash.pairs)?,
            Node::Kwargs(hash) => self.pairs(&hash.pairs)?,
            Node::Irange(range) => self.range(range.left.as_deref(), range.right.as_deref(), false)?,
            Node::Erange(range) => self.range(range.left.as_deref(), range.right.as_deref(), true)?,
            _ => return self.refuse(node, format!("'{}' (line {line})", node.str_type())),
        })
    }

    fn int(&self, node: &Node, text: &str) -> Result<i128, Refusal> {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let digits = digits.replace('_', "").to_ascii_lowercase();
        let (radix, digits) = match digits.get(..2) {
            Some("0x") => (16, &digits[2..]),
            Some("0b") => (2, &digits[2..]),
            Some("0o") => (8, &digits[2..]),
            Some("0d") => (10, &digits[2..]),
            Some(octal) if octal.starts_with('0') => (8, &digits[1..]),
            _ => (10, digits.as_str()),
        };
        match i128::from_str_radix(digits, radix) {
            Ok(value) => Ok(sign * value),
            Err(_) => self.refuse(node, "this number"),
        }
    }

    fn text(&self, node: &Node, raw: &[u8]) -> Result<Arc<str>, Refusal> {
        match std::str::from_utf8(raw) {
            // A string that runs over the end of its tag holds what stands for the template's text.
            Ok(text) if text.contains(erb::RESERVED) => self.refuse(node, "a string across tags"),
            Ok(text) => Ok(text.into()),
            Err(_) => self.refuse(node, "a string that is not UTF-8"),
        }
    }

    fn parts(&mut self, parts: &[Node]) -> Result<Vec<Expression>, Refusal> {
        self.all(parts)
    }

    fn pairs(&mut self, pairs: &[Node]) -> Result<Kind, Refusal> {
        let mut lowered = Vec::with_capacity(pairs.len());
        for pair in pairs {
            lowered.push(match pair {
                Node::Pair(pair) => Pair::Entry(self.expression(&pair.key)?, self.expression(&pair.value)?),
                Node::Kwsplat(splat) => Pair::All(self.expression(&splat.value)?),
                _ => return self.refuse(pair, format!("'{}' in a map", pair.str_type())),
            });
        }
        Ok(Kind::Hash(lowered))
    }

    fn range(&mut self, from: Option<&Node>, to: Option<&Node>, exclusive: bool) -> Result<Kind, Refusal> {
        let mut end = |node: Option<&Node>| node.map(|node| self.boxed(node)).transpose();
        Ok(Kind::Range { from: end(from)?, to: end(to)?, exclusive })
    }
}
