//! Assignments.

use super::{Answer, Evaluator};
use crate::tree::{Expression, Operator, Target};
use crate::value::Value;

impl Evaluator<'_> {
    pub(super) fn assign(&mut self, target: &Target, value: &Expression) -> Answer {
        match target {
            Target::Local(slot) => {
                let value = self.expression(value)?;
                self.scope.set(*slot, value.clone());
                Ok(value)
            }
            Target::Index(receiver, indexes) => {
                let receiver = self.expression(receiver)?;
                let mut arguments = self.expressions(indexes)?;
                let value = self.expression(value)?;
                arguments.push(value.clone());
                self.call_method(&receiver, "[]=", arguments.into(), None)?;
                Ok(value)
            }
            Target::Rest(_) | Target::Many(_) => self.refuse("this assignment"),
        }
    }

    pub(super) fn assign_with(&mut self, target: &Target, operator: &Operator, value: &Expression) -> Answer {
        match target {
            Target::Local(slot) => {
                let old = self.scope.get(*slot);
                let Some(new) = self.combined(&old, operator, value)? else { return Ok(old) };
                self.scope.set(*slot, new.clone());
                Ok(new)
            }
            Target::Index(receiver, indexes) => {
                let receiver = self.expression(receiver)?;
                let mut indexes = self.expressions(indexes)?;
                let old = self.call_method(&receiver, "[]", indexes.clone().into(), None)?;
                let Some(new) = self.combined(&old, operator, value)? else { return Ok(old) };
                indexes.push(new.clone());
                self.call_method(&receiver, "[]=", indexes.into(), None)?;
                Ok(new)
            }
            Target::Rest(_) | Target::Many(_) => self.refuse("this assignment"),
        }
    }

    /// The new value, if there is to be one.
    fn combined(&mut self, old: &Value, operator: &Operator, value: &Expression) -> Answer<Option<Value>> {
        Ok(match operator {
            Operator::Or if old.is_true() => None,
            Operator::And if !old.is_true() => None,
            Operator::Or | Operator::And => Some(self.expression(value)?),
            Operator::Method(name) => {
                let value = self.expression(value)?;
                Some(self.call_method(old, name, vec![value].into(), None)?)
            }
        })
    }

    /// `a, *b, c = value`
    pub(super) fn assign_many(&mut self, targets: &[Target], value: Value) -> Answer<()> {
        let values = match value {
            Value::Array(list) => list.items(),
            other => vec![other].into(),
        };
        let spare = values.len().saturating_sub(targets.len().saturating_sub(1));
        let mut values = values.iter().cloned();
        for target in targets {
            match target {
                Target::Local(slot) => self.scope.set(*slot, values.next().unwrap_or(Value::Nil)),
                Target::Rest(inner) => {
                    let mut kept = self.places(spare)?;
                    kept.extend(values.by_ref().take(spare));
                    let list = self.list(kept)?;
                    match inner.as_deref() {
                        Some(Target::Local(slot)) => self.scope.set(*slot, list),
                        None => {}
                        Some(_) => return self.refuse("this assignment"),
                    }
                }
                Target::Many(inner) => {
                    let value = values.next().unwrap_or(Value::Nil);
                    self.assign_many(inner, value)?;
                }
                Target::Index(..) => return self.refuse("several assignments at once to parts"),
            }
        }
        Ok(())
    }
}
