//! `format`, as far as templates use it: `%s`, `%d`, `%x`, `%f` and `%<name>s`, with width and precision.

use crate::evaluate::{Answer, Evaluator};
use crate::value::{Key, Value};

/// One `%…` of a format.
#[derive(Default)]
struct Directive {
    left: bool,
    zero: bool,
    plus: bool,
    width: usize,
    precision: Option<usize>,
}

impl Evaluator<'_> {
    pub(crate) fn formatted(&mut self, template: &str, values: &[Value]) -> Answer<String> {
        let mut text = String::new();
        let mut letters = template.chars().peekable();
        let mut next = values.iter();
        let mut by_name = false;
        while let Some(letter) = letters.next() {
            if letter != '%' {
                text.push(letter);
                continue;
            }
            let mut directive = Directive::default();
            let mut named = None;
            let kind = loop {
                match letters.next() {
                    Some('-') => directive.left = true,
                    Some('0') if directive.width == 0 => directive.zero = true,
                    Some('+') => directive.plus = true,
                    Some(digit @ '0'..='9') => {
                        directive.width = directive.width * 10 + digit.to_digit(10).unwrap_or(0) as usize;
                        self.take(directive.width)?;
                    }
                    Some('.') => {
                        let mut precision = 0_usize;
                        while let Some(digit) = letters.peek().and_then(|digit| digit.to_digit(10)) {
                            letters.next();
                            precision = precision.saturating_mul(10).saturating_add(digit as usize);
                        }
                        directive.precision = Some(precision);
                    }
                    Some(open @ ('<' | '{')) if named.is_none() => {
                        let close = if open == '<' { '>' } else { '}' };
                        let name: String = letters.by_ref().take_while(|letter| *letter != close).collect();
                        named = Some(self.named(values, &name)?);
                        by_name = true;
                        if open == '{' {
                            break 's';
                        }
                    }
                    Some(kind) => break kind,
                    None => return self.refuse("this format"),
                }
            };
            if kind == '%' {
                text.push('%');
                continue;
            }
            let Some(value) = named.or_else(|| next.next().cloned()) else {
                return self.refuse("a format without values");
            };
            let part = self.directed(&directive, kind, &value)?;
            text.push_str(&part);
        }
        // Too many values are an error only when Ruby is asked to look for errors.
        if !by_name && next.next().is_some() {
            return self.refuse("a format with too many values");
        }
        Ok(text)
    }

    fn named(&mut self, values: &[Value], name: &str) -> Answer {
        let found = match values {
            [Value::Hash(map)] => map.entries.borrow().get(&Key::Symbol(name.into())).cloned(),
            _ => None,
        };
        match found {
            Some(value) => Ok(value),
            None => self.refuse("a format with this name"),
        }
    }

    fn directed(&mut self, directive: &Directive, kind: char, value: &Value) -> Answer<String> {
        let sign = |negative: bool| match (negative, directive.plus) {
            (true, _) => "-",
            (false, true) => "+",
            (false, false) => "",
        };
        let (sign, body) = match (kind, value) {
            ('s', value) if !directive.zero && !directive.plus => {
                let shown = self.display(value)?;
                let cut = directive.precision.map(|precision| shown.chars().take(precision).collect());
                ("", cut.unwrap_or(shown))
            }
            ('d' | 'i', Value::Int(int)) if directive.precision.is_none() => {
                (sign(*int < 0), int.unsigned_abs().to_string())
            }
            ('x', Value::Int(int @ 0..)) if directive.precision.is_none() => (sign(false), format!("{int:x}")),
            ('X', Value::Int(int @ 0..)) if directive.precision.is_none() => (sign(false), format!("{int:X}")),
            ('o', Value::Int(int @ 0..)) if directive.precision.is_none() => (sign(false), format!("{int:o}")),
            ('f', Value::Float(float)) if float.is_finite() && float.abs() < 1e15 => {
                let precision = directive.precision.unwrap_or(6).min(100);
                (sign(float.is_sign_negative()), format!("{:.precision$}", float.abs()))
            }
            ('f', Value::Int(int)) if int.abs() < 1 << 53 => {
                let precision = directive.precision.unwrap_or(6).min(100);
                (sign(*int < 0), format!("{:.precision$}", int.unsigned_abs() as f64))
            }
            _ => return self.refuse(format!("'%{kind}' of {}", value.class_name())),
        };
        let missing = directive.width.saturating_sub(sign.len() + body.chars().count());
        self.take(missing)?;
        Ok(match (directive.left, directive.zero) {
            (true, _) => format!("{sign}{body}{}", " ".repeat(missing)),
            (false, true) => format!("{sign}{}{body}", "0".repeat(missing)),
            (false, false) => format!("{}{sign}{body}", " ".repeat(missing)),
        })
    }
}
