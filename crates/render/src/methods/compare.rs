//! Equality and order.

use std::cmp::Ordering;

use crate::evaluate::{Answer, Evaluator, LastMatch};
use crate::value::{DEEPEST_DATA, Value};

impl Evaluator<'_> {
    /// `==`
    pub(crate) fn equal(&mut self, left: &Value, right: &Value) -> Answer<bool> {
        self.equal_within(left, right, 0)
    }

    fn equal_within(&mut self, left: &Value, right: &Value, depth: usize) -> Answer<bool> {
        self.work(1)?;
        if depth > DEEPEST_DATA {
            return self.refuse("data that is nested this deeply");
        }
        Ok(match (left, right) {
            (Value::Nil, Value::Nil) => true,
            (Value::Bool(left), Value::Bool(right)) => left == right,
            (Value::Int(left), Value::Int(right)) => left == right,
            (Value::Float(left), Value::Float(right)) => left == right,
            (Value::Int(int), Value::Float(float)) | (Value::Float(float), Value::Int(int)) => {
                compare_mixed(*int, *float) == Some(Ordering::Equal)
            }
            (Value::Str(left), Value::Str(right)) => {
                self.work(left.get().len() / 64)?;
                left.get() == right.get()
            }
            (Value::Symbol(left), Value::Symbol(right)) => left == right,
            (Value::Class(left), Value::Class(right)) => left == right,
            (Value::Array(left), Value::Array(right)) => {
                let (left, right) = (left.items(), right.items());
                if left.len() != right.len() {
                    return Ok(false);
                }
                for (left, right) in left.iter().zip(right.iter()) {
                    if !self.equal_within(left, right, depth + 1)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Value::Hash(left), Value::Hash(right)) => {
                let (left, right) = (left.entries(), right.entries());
                if left.len() != right.len() {
                    return Ok(false);
                }
                for (key, value) in left.iter() {
                    match right.get(key) {
                        Some(other) if self.equal_within(value, other, depth + 1)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            (Value::Range(left), Value::Range(right)) => {
                left.exclusive == right.exclusive
                    && self.equal_within(&left.from, &right.from, depth + 1)?
                    && self.equal_within(&left.to, &right.to, depth + 1)?
            }
            (Value::Struct(left), Value::Struct(right)) => {
                let (left, right) = (Value::Hash(left.table.clone()), Value::Hash(right.table.clone()));
                self.equal_within(&left, &right, depth + 1)?
            }
            (Value::Proc(_) | Value::Error(_) | Value::Link(_) | Value::Instance(_) | Value::Else(_), _) => {
                if std::mem::discriminant(left) == std::mem::discriminant(right) {
                    return self.refuse(format!("a comparison of {}", left.class_name()));
                }
                false
            }
            _ => false,
        })
    }

    /// `===` and `case`, after which there is `$~`.
    pub(crate) fn case_matches(&mut self, pattern: &Value, value: &Value) -> Answer<bool> {
        let is_equal = self.case_equal(pattern, value)?;
        if let (Value::Pattern(pattern), Value::Str(text)) = (pattern, value) {
            self.found(pattern, &text.get())?;
        } else if matches!(pattern, Value::Pattern(_)) {
            self.scope.remember(LastMatch::Nothing);
        }
        Ok(is_equal)
    }

    /// `===` of what goes through lists.
    pub(crate) fn case_equal(&mut self, pattern: &Value, value: &Value) -> Answer<bool> {
        match (pattern, value) {
            (Value::Class(class), value) => self.is_a(value, class),
            (Value::Range(range), value) => self.covers(range, value),
            (Value::Pattern(pattern), Value::Str(text)) => {
                // Some of Ruby's methods that ask so set `$~`, and others do not.
                self.scope.remember(LastMatch::Unknown);
                Ok(self.first(pattern, &text.get())?.is_some())
            }
            (Value::Pattern(_), Value::Symbol(_)) => self.refuse("a regular expression for a symbol"),
            (Value::Pattern(_), _) => Ok(false),
            (Value::Proc(_), _) => self.refuse("'when' with a lambda"),
            _ => self.equal(pattern, value),
        }
    }

    /// `<=>`
    pub(crate) fn order(&mut self, left: &Value, right: &Value) -> Answer<Ordering> {
        self.order_within(left, right, 0)
    }

    fn order_within(&mut self, left: &Value, right: &Value, depth: usize) -> Answer<Ordering> {
        self.work(1)?;
        if depth > DEEPEST_DATA {
            return self.refuse("data that is nested this deeply");
        }
        let order = match (left, right) {
            (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
            (Value::Float(left), Value::Float(right)) => left.partial_cmp(right),
            (Value::Int(int), Value::Float(float)) => compare_mixed(*int, *float),
            (Value::Float(float), Value::Int(int)) => compare_mixed(*int, *float).map(Ordering::reverse),
            (Value::Str(left), Value::Str(right)) => {
                self.work(left.get().len() / 64)?;
                Some(left.get().cmp(&right.get()))
            }
            (Value::Symbol(left), Value::Symbol(right)) => Some(left.cmp(right)),
            (Value::Array(left), Value::Array(right)) => {
                let (left, right) = (left.items(), right.items());
                for (left, right) in left.iter().zip(right.iter()) {
                    match self.order_within(left, right, depth + 1)? {
                        Ordering::Equal => {}
                        other => return Ok(other),
                    }
                }
                Some(left.len().cmp(&right.len()))
            }
            _ => None,
        };
        match order {
            Some(order) => Ok(order),
            None => self.refuse(format!("a comparison of {} with {}", left.class_name(), right.class_name())),
        }
    }

    /// Sorts as Ruby does where that is defined: equal elements must not be told apart.
    pub(crate) fn sorted(&mut self, mut pairs: Vec<(Value, Value)>) -> Answer<Vec<Value>> {
        self.work(pairs.len() * (usize::BITS - pairs.len().leading_zeros()) as usize)?;
        let mut failure = None;
        let mut tied = false;
        pairs.sort_by(|left, right| match self.order(&left.0, &right.0) {
            Ok(Ordering::Equal) => {
                tied = true;
                Ordering::Equal
            }
            Ok(order) => order,
            Err(flow) => {
                failure.get_or_insert(flow);
                Ordering::Equal
            }
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        if tied {
            self.no_difference(&pairs)?;
        }
        Ok(pairs.into_iter().map(|(_, value)| value).collect())
    }

    /// Ruby's sort is not stable, so that elements with equal keys may come in any order.
    fn no_difference(&mut self, pairs: &[(Value, Value)]) -> Answer<()> {
        for two in pairs.windows(2) {
            if let [left, right] = two {
                let tied = self.order(&left.0, &right.0)? == Ordering::Equal;
                if tied && self.key(&left.1)? != self.key(&right.1)? {
                    return self.refuse("an order of equal elements");
                }
            }
        }
        Ok(())
    }

    pub(crate) fn is_a(&mut self, value: &Value, class: &str) -> Answer<bool> {
        let own = value.class_name();
        Ok(match (value, class) {
            (_, "Object" | "BasicObject" | "Kernel") => true,
            (Value::Int(_) | Value::Float(_), "Numeric") => true,
            (Value::Int(_) | Value::Float(_) | Value::Str(_), "Comparable") => true,
            (Value::Array(_) | Value::Hash(_) | Value::Range(_), "Enumerable") => true,
            (Value::Error(_), _) => crate::evaluate::is_a(own, class),
            (Value::Link(_) | Value::Instance(_) | Value::Else(_), _) => {
                return self.refuse(format!("the class of {own}"));
            }
            _ => own == class,
        })
    }
}

/// Compares exactly: no number is rounded.
fn compare_mixed(int: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float.abs() >= 1e37 {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let whole = float.trunc() as i128;
    Some(int.cmp(&whole).then_with(|| 0.0_f64.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal)))
}
