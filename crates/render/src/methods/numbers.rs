//! Whole numbers and numbers with fractions.

use std::cmp::Ordering;
use std::rc::Rc;

use crate::evaluate::{Answer, Arguments, Closure, Evaluator};
use crate::value::Value;

pub(crate) const NAMES: &[&str] = &[
    "+",
    "-",
    "*",
    "/",
    "%",
    "**",
    "-@",
    "+@",
    "<",
    ">",
    "<=",
    ">=",
    "abs",
    "to_i",
    "to_f",
    "to_int",
    "times",
    "upto",
    "downto",
    "even?",
    "odd?",
    "zero?",
    "positive?",
    "negative?",
    "succ",
    "pred",
    "next",
    "floor",
    "ceil",
    "round",
    "truncate",
    "div",
    "modulo",
    "divmod",
    "min",
    "max",
    "clamp",
    "between?",
    "integer?",
    "&",
    "|",
    "^",
    "<<",
    ">>",
    "pow",
    "fdiv",
];

impl Evaluator<'_> {
    pub(crate) fn int_method(
        &mut self,
        int: i128,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let whole = |value: Option<i128>| value.map(Value::Int);
        let found = match (name, arguments.values.as_slice()) {
            ("+", [Value::Int(other)]) => whole(int.checked_add(*other)),
            ("-", [Value::Int(other)]) => whole(int.checked_sub(*other)),
            ("*", [Value::Int(other)]) => whole(int.checked_mul(*other)),
            // Ruby rounds down, and raises an error for zero.
            ("/" | "div", [Value::Int(other)]) if *other != 0 => whole(floor_div(int, *other)),
            ("%" | "modulo", [Value::Int(other)]) if *other != 0 => whole(
                int.checked_rem(*other)
                    .map(|rest| if rest != 0 && (rest < 0) != (*other < 0) { rest + other } else { rest }),
            ),
            ("**" | "pow", [Value::Int(other @ 0..=127)]) => whole(int.checked_pow(*other as u32)),
            ("+" | "-" | "*" | "/" | "%" | "<" | ">" | "<=" | ">=" | "==" | "<=>", [Value::Float(_)])
                if int.abs() < 1 << 53 =>
            {
                return self.float_method(int as f64, name, arguments);
            }
            ("<" | ">" | "<=" | ">=", [Value::Int(other)]) => Some(Value::Bool(holds(name, int.cmp(other)))),
            ("&", [Value::Int(other)]) => Some(Value::Int(int & other)),
            ("|", [Value::Int(other)]) => Some(Value::Int(int | other)),
            ("^", [Value::Int(other)]) => Some(Value::Int(int ^ other)),
            ("<<", [Value::Int(by @ 0..=64)]) if int.abs() < 1 << 60 => Some(Value::Int(int << by)),
            (">>", [Value::Int(by @ 0..=64)]) => Some(Value::Int(int >> by)),
            ("-@", []) => whole(int.checked_neg()),
            ("abs", []) => whole(int.checked_abs()),
            ("to_i" | "to_int" | "floor" | "ceil" | "round" | "truncate" | "+@", []) => Some(Value::Int(int)),
            ("to_f", []) if int.abs() < 1 << 53 => Some(Value::Float(int as f64)),
            ("succ" | "next", []) => whole(int.checked_add(1)),
            ("pred", []) => whole(int.checked_sub(1)),
            ("even?", []) => Some(Value::Bool(int % 2 == 0)),
            ("odd?", []) => Some(Value::Bool(int % 2 != 0)),
            ("zero?", []) => Some(Value::Bool(int == 0)),
            ("positive?", []) => Some(Value::Bool(int > 0)),
            ("negative?", []) => Some(Value::Bool(int < 0)),
            ("integer?", []) => Some(Value::Bool(true)),
            ("between?", [Value::Int(low), Value::Int(high)]) => Some(Value::Bool((low..=high).contains(&&int))),
            ("clamp", [Value::Int(low), Value::Int(high)]) if low <= high => Some(Value::Int(int.clamp(*low, *high))),
            ("to_s", [Value::Int(radix @ (2 | 8 | 16))]) => Some(self.text(in_radix(int, *radix))?),
            ("divmod", [Value::Int(other)]) if *other != 0 => {
                let quotient = floor_div(int, *other);
                match quotient.and_then(|quotient| Some((quotient, int.checked_sub(quotient.checked_mul(*other)?)?))) {
                    Some((quotient, rest)) => Some(self.list(vec![Value::Int(quotient), Value::Int(rest)])?),
                    None => None,
                }
            }
            ("times" | "upto" | "downto", _) => return self.stepped(int, name, arguments, block),
            _ => None,
        };
        Ok(found)
    }

    fn stepped(
        &mut self,
        int: i128,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer<Option<Value>> {
        let (from, to, step) = match (name, arguments.values.as_slice()) {
            ("times", []) => (0, int - 1, 1),
            ("upto", [Value::Int(to)]) => (int, *to, 1),
            ("downto", [Value::Int(to)]) => (int, *to, -1),
            _ => return Ok(None),
        };
        let Some(block) = block else {
            let numbers = self.numbers(from, to, step)?;
            return self.enumerator(&Value::Int(int), &numbers.into(), "each", &[]);
        };
        let mut at = from;
        while (step > 0 && at <= to) || (step < 0 && at >= to) {
            self.invoke(block, vec![Value::Int(at)])?;
            at += step;
        }
        Ok(Some(Value::Int(int)))
    }

    pub(crate) fn numbers(&mut self, from: i128, to: i128, step: i128) -> Answer<Vec<Value>> {
        let count = usize::try_from(((to - from) / step + 1).max(0)).unwrap_or(usize::MAX);
        self.work(count)?;
        let mut numbers = self.places(count)?;
        numbers.extend((0..count).map(|index| Value::Int(from + step * index as i128)));
        Ok(numbers)
    }

    pub(crate) fn float_method(&mut self, float: f64, name: &str, arguments: &Arguments) -> Answer<Option<Value>> {
        let other = match arguments.values.as_slice() {
            [Value::Float(other)] => Some(*other),
            [Value::Int(other)] if other.abs() < 1 << 53 => Some(*other as f64),
            _ => None,
        };
        let small = float.abs() < 1e15;
        Ok(match (name, other, arguments.values.as_slice()) {
            ("+", Some(other), _) => Some(Value::Float(float + other)),
            ("-", Some(other), _) => Some(Value::Float(float - other)),
            ("*", Some(other), _) => Some(Value::Float(float * other)),
            ("/" | "fdiv", Some(other), _) => Some(Value::Float(float / other)),
            ("<" | ">" | "<=" | ">=", Some(other), _) => {
                float.partial_cmp(&other).map(|order| Value::Bool(holds(name, order)))
            }
            ("-@", _, []) => Some(Value::Float(-float)),
            ("abs", _, []) => Some(Value::Float(float.abs())),
            ("to_f", _, []) => Some(Value::Float(float)),
            ("to_i" | "to_int" | "truncate", _, []) if small => Some(Value::Int(float.trunc() as i128)),
            ("floor", _, []) if small => Some(Value::Int(float.floor() as i128)),
            ("ceil", _, []) if small => Some(Value::Int(float.ceil() as i128)),
            ("round", _, []) if small => Some(Value::Int(float.round() as i128)),
            ("zero?", _, []) => Some(Value::Bool(float == 0.0)),
            ("positive?", _, []) => Some(Value::Bool(float > 0.0)),
            ("negative?", _, []) => Some(Value::Bool(float < 0.0)),
            ("integer?", _, []) => Some(Value::Bool(false)),
            _ => None,
        })
    }
}

/// Whether an order is what `<` and the others ask for.
pub(crate) fn holds(name: &str, order: Ordering) -> bool {
    match name {
        "<" => order.is_lt(),
        ">" => order.is_gt(),
        "<=" => order.is_le(),
        _ => order.is_ge(),
    }
}

fn floor_div(left: i128, right: i128) -> Option<i128> {
    let (quotient, rest) = (left.checked_div(right)?, left.checked_rem(right)?);
    if rest != 0 && (rest < 0) != (right < 0) { quotient.checked_sub(1) } else { Some(quotient) }
}

fn in_radix(int: i128, radix: i128) -> String {
    let sign = if int < 0 { "-" } else { "" };
    let digits = int.unsigned_abs();
    match radix {
        2 => format!("{sign}{digits:b}"),
        8 => format!("{sign}{digits:o}"),
        _ => format!("{sign}{digits:x}"),
    }
}
