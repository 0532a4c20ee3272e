//! `format`, as far as templates use it: `%s`, `%d`, `%x`, `%f` and `%<name>s`, with width and precision.

use crate::evaluate::{Answer, Evaluator};
use crate::memory::LARGEST_TEXT;
use crate::value::Value;

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
                self.write_letter(&mut text, letter)?;
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
                        if directive.width > LARGEST_TEXT {
                            return self.take(usize::MAX).map(|()| text);
                        }
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
                self.write(&mut text, "%")?;
                continue;
            }
            let Some(value) = named.or_else(|| next.next().cloned()) else {
                return self.refuse("a format without values");
            };
            self.directed(&directive, kind, &value, &mut text)?;
        }
        // Too many values are an error only when Ruby is asked to look for errors.
        if !by_name && next.next().is_some() {
            return self.refuse("a format with too many values");
        }
        Ok(text)
    }

    fn named(&mut self, values: &[Value], name: &str) -> Answer {
        let found = match values {
            [Value::Hash(map)] => map.member(name),
            _ => None,
        };
        match found {
            Some(value) => Ok(value),
            None => self.refuse("a format with this name"),
        }
    }

    fn directed(&mut self, directive: &Directive, kind: char, value: &Value, text: &mut String) -> Answer<()> {
        let sign = |negative: bool| match (negative, directive.plus) {
            (true, _) => "-",
            (false, true) => "+",
            (false, false) => "",
        };
        let (sign, body) = match (kind, value) {
            ('s', value) if !directive.zero && !directive.plus => {
                let shown = self.display(value)?;
                let cut = directive.precision.and_then(|precision| shown.char_indices().nth(precision));
                if let Some((end, _)) = cut {
                    return self.padded(directive, "", &shown[..end], text);
                }
                return self.padded(directive, "", &shown, text);
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
        self.padded(directive, sign, &body, text)
    }

    fn padded(&mut self, directive: &Directive, sign: &str, body: &str, text: &mut String) -> Answer<()> {
        let missing = directive.width.saturating_sub(sign.len() + body.chars().count());
        if !directive.left && !directive.zero {
            self.write_times(text, " ", missing)?;
        }
        self.write(text, sign)?;
        if !directive.left && directive.zero {
            self.write_times(text, "0", missing)?;
        }
        self.write(text, body)?;
        if directive.left {
            self.write_times(text, " ", missing)?;
        }
        Ok(())
    }
}
