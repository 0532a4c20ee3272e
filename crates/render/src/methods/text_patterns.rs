//! Strings and regular expressions.

use std::rc::Rc;

use crate::evaluate::{Answer, Arguments, Closure, Evaluator, LastMatch};
use crate::pattern::{Captures, Pattern};
use crate::value::{Key, Text, Value};

pub(crate) const NAMES: &[&str] = &[
    "gsub",
    "sub",
    "gsub!",
    "sub!",
    "match",
    "match?",
    "scan",
    "captures",
    "pre_match",
    "post_match",
    "source",
    "grep",
    "grep_v",
];

impl Evaluator<'_> {
    pub(crate) fn text_with_pattern(
        &mut self,
        text: &Rc<Text>,
        content: &str,
        name: &str,
        values: &[Value],
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        self.work(content.len())?;
        let found = match (name, values) {
            ("gsub" | "sub" | "gsub!" | "sub!", [pattern, rest @ ..]) => {
                let all = name.starts_with('g');
                let Some((changed, count)) = self.substituted(content, pattern, rest, block, all)? else {
                    return Ok(None);
                };
                self.take(changed.len())?;
                if !name.ends_with('!') {
                    return Ok(Some(Value::text(changed)));
                }
                self.changeable(text)?;
                text.content.replace(changed);
                if count == 0 { Value::Nil } else { Value::Str(Rc::clone(text)) }
            }
            ("=~", [Value::Pattern(pattern)]) => match self.found(pattern, content)? {
                Some(found) => Value::Int(found.before.chars().count() as i128),
                None => Value::Nil,
            },
            ("!~", [Value::Pattern(pattern)]) => Value::Bool(self.found(pattern, content)?.is_none()),
            ("match?", [Value::Pattern(pattern)]) => Value::Bool(self.first(pattern, content)?.is_some()),
            ("match", [Value::Pattern(pattern)]) if block.is_none() => {
                self.found(pattern, content)?.map_or(Value::Nil, Value::Match)
            }
            ("[]" | "slice", [Value::Pattern(pattern)]) => self.group(pattern, content, 0)?,
            ("[]" | "slice", [Value::Pattern(pattern), Value::Int(group)]) => {
                self.group(pattern, content, usize::try_from(*group).unwrap_or(usize::MAX))?
            }
            ("start_with?", [Value::Pattern(_)]) => return self.refuse("'start_with?' of a regular expression"),
            ("scan", [Value::Pattern(pattern)]) if block.is_none() => self.scanned(pattern, content)?,
            ("split", [Value::Pattern(pattern)]) => self.split_by(pattern, content)?,
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    /// `$~`, or a group of it.
    pub(crate) fn last_match(&mut self, group: Option<usize>) -> Answer {
        let found = match self.scope.last_match() {
            LastMatch::Nothing => return Ok(Value::Nil),
            LastMatch::Unknown => return self.refuse("what was found last"),
            LastMatch::Found(found) => found,
        };
        match group {
            None => Ok(Value::Match(found)),
            Some(group) => match found.groups.get(group).cloned().flatten() {
                Some(text) => self.text(text),
                None => Ok(Value::Nil),
            },
        }
    }

    /// What a pattern finds first, which is `$~` then.
    pub(crate) fn found(&mut self, pattern: &Pattern, content: &str) -> Answer<Option<Rc<Captures>>> {
        let found = self.first(pattern, content)?.map(Rc::new);
        self.scope.remember(found.clone().map_or(LastMatch::Nothing, LastMatch::Found));
        Ok(found)
    }

    pub(crate) fn first(&mut self, pattern: &Pattern, content: &str) -> Answer<Option<Captures>> {
        self.work(content.len())?;
        match pattern.first(content, &mut self.searched) {
            Some(found) => Ok(found.map(|found| pattern.captures(&found, content))),
            None => self.refuse("this regular expression with this string"),
        }
    }

    fn group(&mut self, pattern: &Pattern, content: &str, group: usize) -> Answer {
        let found = self.found(pattern, content)?;
        match found.and_then(|found| found.groups.get(group).cloned().flatten()) {
            Some(text) => self.text(text),
            None => Ok(Value::Nil),
        }
    }

    fn all<'t>(&mut self, pattern: &Pattern, content: &'t str) -> Answer<Vec<regex_lite::Captures<'t>>> {
        self.work(content.len())?;
        self.scope.remember(LastMatch::Unknown);
        match pattern.all(content, &mut self.searched) {
            Some(found) => {
                self.take(found.len() * 128)?;
                Ok(found)
            }
            None => self.refuse("this regular expression with this string"),
        }
    }

    fn scanned(&mut self, pattern: &Pattern, content: &str) -> Answer {
        let mut results = Vec::new();
        for found in self.all(pattern, content)? {
            let group =
                |group: Option<regex_lite::Match<'_>>| group.map_or(Value::Nil, |group| Value::text(group.as_str()));
            results.push(if found.len() > 1 {
                let groups = found.iter().skip(1).map(group).collect();
                self.list(groups)?
            } else {
                group(found.get(0))
            });
        }
        self.list(results)
    }

    fn split_by(&mut self, pattern: &Pattern, content: &str) -> Answer {
        let found = self.all(pattern, content)?;
        let mut parts = Vec::new();
        let mut from = 0;
        for whole in found.iter().filter_map(|found| found.get(0)) {
            if whole.is_empty() || found.iter().any(|found| found.len() > 1) {
                return self.refuse("'split' by this regular expression");
            }
            parts.push(content[from..whole.start()].to_owned());
            from = whole.end();
        }
        parts.push(content[from..].to_owned());
        while parts.last().is_some_and(String::is_empty) {
            parts.pop();
        }
        self.take(content.len() + parts.len() * 64)?;
        let parts = parts.into_iter().map(Value::text).collect();
        self.list(parts)
    }

    /// The changed string, and how often something was replaced.
    fn substituted(
        &mut self,
        content: &str,
        pattern: &Value,
        rest: &[Value],
        block: Option<&Rc<Closure>>,
        all: bool,
    ) -> Answer<Option<(String, usize)>> {
        if !matches!((rest, block), ([Value::Str(_) | Value::Hash(_)], _) | ([], Some(_))) {
            return Ok(None);
        }
        let is_pattern = matches!(pattern, Value::Pattern(_));
        let pattern = match pattern {
            Value::Pattern(pattern) => Rc::clone(pattern),
            Value::Str(text) => match Pattern::literal(&text.content.borrow()) {
                Some(pattern) => Rc::new(pattern),
                None => return self.refuse("this string as a pattern"),
            },
            _ => return Ok(None),
        };
        let matches = if all {
            self.all(&pattern, content)?
        } else {
            match pattern.first(content, &mut self.searched) {
                Some(found) => found.into_iter().collect(),
                None => return self.refuse("this regular expression with this string"),
            }
        };
        let mut changed = String::new();
        let mut from = 0;
        let mut last = if is_pattern { LastMatch::Nothing } else { LastMatch::Unknown };
        for found in &matches {
            let Some(whole) = found.get(0) else { continue };
            if is_pattern {
                last = LastMatch::Found(Rc::new(pattern.captures(found, content)));
            }
            self.scope.remember(last.clone());
            changed.push_str(&content[from..whole.start()]);
            let instead = match (rest, block) {
                ([Value::Str(text)], _) => self.replacement(&text.get(), found)?,
                ([Value::Hash(map)], _) => {
                    let value = map.entries.borrow().get(&Key::Str(whole.as_str().into())).cloned();
                    self.display(&value.unwrap_or(Value::Nil))?
                }
                ([], Some(block)) => {
                    let value = self.invoke(block, vec![Value::text(whole.as_str())])?;
                    self.display(&value)?
                }
                _ => return Ok(None),
            };
            self.take(instead.len())?;
            changed.push_str(&instead);
            from = whole.end();
        }
        changed.push_str(&content[from..]);
        self.scope.remember(last);
        Ok(Some((changed, matches.len())))
    }

    /// A replacement with `\1` and `\\`.
    fn replacement(&mut self, text: &str, found: &regex_lite::Captures<'_>) -> Answer<String> {
        let mut instead = String::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            if letter != '\\' {
                instead.push(letter);
                continue;
            }
            match letters.next() {
                Some(digit @ '0'..='9') => {
                    let group = found.get(digit.to_digit(10).unwrap_or(0) as usize);
                    instead.push_str(group.map_or("", |group| group.as_str()));
                }
                Some('\\') => instead.push('\\'),
                None => instead.push('\\'),
                Some('&' | '`' | '\'' | 'k') => return self.refuse("this replacement"),
                Some(other) => instead.extend(['\\', other]),
            }
        }
        Ok(instead)
    }

    pub(crate) fn pattern_method(
        &mut self,
        pattern: &Rc<Pattern>,
        name: &str,
        arguments: &Arguments,
    ) -> Answer<Option<Value>> {
        Ok(match (name, arguments.values.as_slice()) {
            ("match?" | "match" | "=~" | "!~", [Value::Str(text)]) => {
                let content = text.get();
                self.text_with_pattern(text, &content, name, &[Value::Pattern(Rc::clone(pattern))], None)?
            }
            ("source", []) if !pattern.source.contains('/') => Some(self.text(pattern.source.clone())?),
            _ => None,
        })
    }

    pub(crate) fn match_method(
        &mut self,
        found: &Rc<Captures>,
        name: &str,
        arguments: &Arguments,
    ) -> Answer<Option<Value>> {
        let value = |group: &Option<String>| group.as_ref().map_or(Value::Nil, Value::text);
        Ok(match (name, arguments.values.as_slice()) {
            ("[]", [Value::Int(index @ 0..)]) => {
                let index = usize::try_from(*index).unwrap_or(usize::MAX);
                Some(found.groups.get(index).map_or(Value::Nil, value))
            }
            ("[]", [name]) => {
                let name = name.as_name();
                match found.names.iter().position(|known| known.is_some() && *known == name) {
                    Some(index) => found.groups.get(index).map(value),
                    None => None,
                }
            }
            ("captures", []) => Some(self.list(found.groups.iter().skip(1).map(value).collect())?),
            ("to_a", []) => Some(self.list(found.groups.iter().map(value).collect())?),
            ("pre_match", []) => Some(self.text(found.before.clone())?),
            ("post_match", []) => Some(self.text(found.after.clone())?),
            ("to_s", []) => found.groups.first().map(value),
            _ => None,
        })
    }
}
