//! Which local variable a name means.

use crate::tree::Slot;

/// The scopes around an expression, the innermost last.
#[derive(Debug, Default)]
pub(super) struct Scopes(Vec<Scope>);

#[derive(Debug)]
struct Scope {
    names: Vec<String>,
    /// Methods do not see what is around them.
    closed: bool,
}

impl Scopes {
    pub(super) fn enter(&mut self, closed: bool) {
        self.0.push(Scope { names: Vec::new(), closed });
    }

    /// Leaves the innermost scope; answers how many variables it had.
    pub(super) fn leave(&mut self) -> usize {
        self.0.pop().map_or(0, |scope| scope.names.len())
    }

    pub(super) fn find(&self, name: &str) -> Option<Slot> {
        for (up, scope) in self.0.iter().rev().enumerate() {
            if let Some(index) = scope.names.iter().position(|known| known == name) {
                return Some(Slot { up, index });
            }
            if scope.closed {
                return None;
            }
        }
        None
    }

    /// The variable of this name, which is made where there is none.
    pub(super) fn assign(&mut self, name: &str) -> Slot {
        self.find(name).unwrap_or_else(|| Slot { up: 0, index: self.declare(name) })
    }

    /// A new variable in the innermost scope, as parameters are.
    pub(super) fn declare(&mut self, name: &str) -> usize {
        let Some(scope) = self.0.last_mut() else { return 0 };
        scope.names.push(name.to_owned());
        scope.names.len() - 1
    }

    /// Whether a method is being read.
    pub(super) fn in_method(&self) -> bool {
        self.0.iter().skip(1).any(|scope| scope.closed)
    }
}
