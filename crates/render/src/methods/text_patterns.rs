//! Strings and regular expressions.

use std::rc::Rc;

use crate::evaluate::{Answer, Arguments, Closure, Evaluator, LastMatch};
use crate::memory::{Content, Kept, Text};
use crate::pattern::{Captures, Found, Pattern};
use crate::value::Value;

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
        text: &Kept<Text>,
        content: &Content,
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
                if !name.ends_with('!') {
                    return self.text(changed).map(Some);
                }
                self.changeable(text)?;
                self.replace(text, changed)?;
                if count == 0 { Value::Nil } else { Value::Str(text.clone()) }
            }
            ("=~", [Value::Pattern(pattern)]) => match self.found(pattern, content)? {
                Some(found) => Value::Int(found.before().chars().count() as i128),
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
            Some(group) => match found.group(group) {
                Some(text) => self.text(text),
                None => Ok(Value::Nil),
            },
        }
    }

    /// What a pattern finds first, which is `$~` then.
    pub(crate) fn found(&mut self, pattern: &Pattern, content: &Content) -> Answer<Option<Kept<Captures>>> {
        let found = self.first(pattern, content)?;
        let found = found.map(|found| self.keep(pattern.captures(found, content))).transpose()?;
        self.scope.remember(found.clone().map_or(LastMatch::Nothing, LastMatch::Found));
        Ok(found)
    }

    pub(crate) fn first(&mut self, pattern: &Pattern, content: &str) -> Answer<Option<Found>> {
        self.work(content.len())?;
        match pattern.first(content, &mut self.searched) {
            Some(found) => Ok(found),
            None => self.refuse("this regular expression with this string"),
        }
    }

    fn group(&mut self, pattern: &Pattern, content: &Content, group: usize) -> Answer {
        let found = self.found(pattern, content)?;
        match found.as_ref().and_then(|found| found.group(group)) {
            Some(text) => self.text(text),
            None => Ok(Value::Nil),
        }
    }

    fn all(&mut self, pattern: &Pattern, content: &str) -> Answer<Vec<Found>> {
        self.work(content.len())?;
        self.scope.remember(LastMatch::Unknown);
        match self.searched_all(pattern, content)? {
            Some(found) => Ok(found),
            None => self.refuse("this regular expression with this string"),
        }
    }

    fn scanned(&mut self, pattern: &Pattern, content: &str) -> Answer {
        let all = self.all(pattern, content)?;
        let mut results = self.places(all.len())?;
        for found in all {
            let group = |number: usize| match found.group(number) {
                Some(group) => self.text(&content[group]),
                None => Ok(Value::Nil),
            };
            results.push(if found.groups() > 1 {
                let groups = (1..found.groups()).map(group).collect::<Answer<_>>()?;
                self.list(groups)?
            } else {
                group(0)?
            });
        }
        self.list(results)
    }

    fn split_by(&mut self, pattern: &Pattern, content: &str) -> Answer {
        let found = self.all(pattern, content)?;
        self.take((found.len() + 1) * size_of::<&str>())?;
        let mut parts = Vec::with_capacity(found.len() + 1);
        let mut from = 0;
        for found in &found {
            let whole = found.whole();
            if whole.is_empty() || found.groups() > 1 {
                return self.refuse("'split' by this regular expression");
            }
            parts.push(&content[from..whole.start]);
            from = whole.end;
        }
        parts.push(&content[from..]);
        while parts.last() == Some(&"") {
            parts.pop();
        }
        self.texts(parts)
    }

    /// The changed string, and how often something was replaced.
    fn substituted(
        &mut self,
        content: &Content,
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
            Value::Pattern(pattern) => pattern.clone(),
            Value::Str(text) => match Pattern::literal(&text.get()) {
                Some(pattern) => self.keep(pattern)?,
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
            let whole = found.whole();
            if is_pattern {
                last = LastMatch::Found(self.keep(pattern.captures(found.clone(), content))?);
            }
            self.scope.remember(last.clone());
            self.write(&mut changed, &content[from..whole.start])?;
            let instead = match (rest, block) {
                ([Value::Str(text)], _) => {
                    self.replacement(&text.get(), content, found, &mut changed)?;
                    from = whole.end;
                    continue;
                }
                ([Value::Hash(map)], _) => {
                    let value = map.named(&content[whole.clone()]);
                    self.display(&value.unwrap_or(Value::Nil))?
                }
                ([], Some(block)) => {
                    let part = self.text(&content[whole.clone()])?;
                    let value = self.invoke(block, vec![part])?;
                    self.display(&value)?
                }
                _ => return Ok(None),
            };
            self.write(&mut changed, &instead)?;
            from = whole.end;
        }
        self.write(&mut changed, &content[from..])?;
        self.scope.remember(last);
        Ok(Some((changed, matches.len())))
    }

    /// Writes a replacement with `\1` and `\\`.
    fn replacement(&self, text: &str, content: &str, found: &Found, changed: &mut String) -> Answer<()> {
        if !text.contains('\\') {
            return self.write(changed, text);
        }
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            if letter != '\\' {
                self.write_letter(changed, letter)?;
                continue;
            }
            match letters.next() {
                Some(digit @ '0'..='9') => {
                    let group = found.group(digit.to_digit(10).unwrap_or(0) as usize);
                    self.write(changed, group.map_or("", |group| &content[group]))?;
                }
                Some('\\') | None => self.write(changed, "\\")?,
                Some('&' | '`' | '\'' | 'k') => return self.refuse("this replacement"),
                Some(other) => {
                    self.write(changed, "\\")?;
                    self.write_letter(changed, other)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn pattern_method(
        &mut self,
        pattern: &Kept<Pattern>,
        name: &str,
        arguments: &Arguments,
    ) -> Answer<Option<Value>> {
        Ok(match (name, arguments.values.as_slice()) {
            ("match?" | "match" | "=~" | "!~", [Value::Str(text)]) => {
                let content = text.get();
                self.text_with_pattern(text, &content, name, &[Value::Pattern(pattern.clone())], None)?
            }
            ("source", []) if !pattern.source.contains('/') => Some(self.text(pattern.source.as_str())?),
            _ => None,
        })
    }

    pub(crate) fn match_method(
        &mut self,
        found: &Kept<Captures>,
        name: &str,
        arguments: &Arguments,
    ) -> Answer<Option<Value>> {
        let value = |group: usize| match found.group(group) {
            Some(text) => self.text(text),
            None => Ok(Value::Nil),
        };
        Ok(match (name, arguments.values.as_slice()) {
            ("[]", [Value::Int(index @ 0..)]) => Some(value(usize::try_from(*index).unwrap_or(usize::MAX))?),
            ("[]", [name]) => match name.as_name().and_then(|name| found.named(&name)) {
                Some(group) => Some(value(group)?),
                None => None,
            },
            ("captures", []) => {
                let groups = (1..found.groups()).map(value).collect::<Answer<_>>()?;
                Some(self.list(groups)?)
            }
            ("to_a", []) => {
                let groups = (0..found.groups()).map(value).collect::<Answer<_>>()?;
                Some(self.list(groups)?)
            }
            ("pre_match", []) => Some(self.text(found.before())?),
            ("post_match", []) => Some(self.text(found.after())?),
            ("to_s", []) => Some(value(0)?),
            _ => None,
        })
    }
}
