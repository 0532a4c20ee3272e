//! How much memory things take that are copied for every group or instance. A document of two megabytes may say that its largest part
//! belongs to each of ten thousand groups, or to each of a hundred thousand instances.

use serde_json::Value;
use windlass_contract::Object;

/// What the copies in a plan may take together, in bytes, roughly. An instance takes some thousand of them.
const MOST: usize = 64 << 20;
/// What the copies for groups may take: a plan has them more than once.
const MOST_OF_GROUPS: usize = 24 << 20;

/// A value and a key take so much beside their text.
const NODE: usize = 48;

pub(crate) fn of(value: &Value) -> usize {
    NODE + match value {
        Value::String(text) => text.len(),
        Value::Array(elements) => elements.iter().map(of).sum(),
        Value::Object(members) => of_object(members),
        _ => 0,
    }
}

pub(crate) fn of_object(object: &Object) -> usize {
    object.iter().map(|(key, member)| NODE + key.len() + of(member)).sum()
}

/// The room for copies.
#[derive(Debug)]
pub(crate) struct Room {
    most: usize,
    left: usize,
    is_spent: bool,
}

impl Default for Room {
    fn default() -> Self {
        Self::of(MOST)
    }
}

impl Room {
    fn of(most: usize) -> Self {
        Self { most, left: most, is_spent: false }
    }

    pub(crate) fn for_groups() -> Self {
        Self::of(MOST_OF_GROUPS)
    }

    /// Whether somebody wanted more than there was.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// Takes some of it, or says why there is none left.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), String> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                (self.left, self.is_spent) = (0, true);
                Err(format!(
                    "what all groups and instances have of properties, env, tags, links and cloud properties takes more than {} \
                     MiB; make those smaller, or deploy in smaller parts",
                    self.most >> 20
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn many_small_values_weigh_more_than_their_text() {
        let numbers = of(&json!([1, 2, 3]));
        assert_eq!(numbers, 4 * NODE);
        assert_eq!(of(&json!({"key": "text"})), 3 * NODE + 7);
    }

    #[test]
    fn room_ends_once_and_for_all() {
        let mut room = Room::default();
        room.take(MOST).unwrap();
        assert!(!room.is_spent());
        let told = room.take(1).unwrap_err();
        assert!(told.contains("more than 64 MiB") && told.contains("smaller parts"), "{told}");
        room.take(1).unwrap_err();
        assert!(room.is_spent());
    }
}
