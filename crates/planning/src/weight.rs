//! How much memory things take that are copied for every group or instance. A document of two megabytes may say that its largest part
//! belongs to each of ten thousand groups, or to each of a hundred thousand instances.

use serde_json::Value;
use windlass_contract::Object;

/// What the copies in a plan may take together, in bytes, roughly. An instance takes some thousand of them.
const MOST: usize = 64 << 20;
/// The same for a team. While its plan is stored, it is in memory several times.
const MOST_OF_A_TEAM: usize = 40 << 20;
/// What the copies for groups may take: a plan has them more than once.
const MOST_OF_GROUPS: usize = 24 << 20;

/// What a value takes where it stands, and what a member of an object takes: its key, its value and a hash.
const VALUE: usize = size_of::<Value>();
const MEMBER: usize = VALUE + size_of::<String>() + size_of::<u64>();

pub(crate) fn of(value: &Value) -> usize {
    VALUE
        + match value {
            Value::String(text) => of_text(text),
            Value::Array(elements) => elements.iter().map(of).sum(),
            Value::Object(members) => of_object(members),
            _ => 0,
        }
}

/// An object has a table of its keys, and room for as many members as the table: four objects with a member each take far more than one
/// with four.
pub(crate) fn of_object(object: &Object) -> usize {
    let places = match object.len() {
        0 => return 0,
        1..=3 => 4,
        4..=7 => 8,
        members => (members * 8 / 7).next_power_of_two(),
    };
    let members: usize = object.iter().map(|(key, member)| of_text(key) + of(member) - VALUE).sum();
    16 + places * (9 + MEMBER * 7 / 8) + members
}

/// Memory is given out in pieces of sixteen bytes.
fn of_text(text: &str) -> usize {
    text.len().next_multiple_of(16)
}

/// The room for copies.
#[derive(Debug)]
pub(crate) struct Room {
    most: usize,
    left: usize,
    is_spent: bool,
}

impl Room {
    fn of(most: usize) -> Self {
        Self { most, left: most, is_spent: false }
    }

    pub(crate) fn for_instances(is_of_team: bool) -> Self {
        Self::of(if is_of_team { MOST_OF_A_TEAM } else { MOST })
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

    /// 440 instances with a thousand small objects each were thought to take a third of what they took: 324 MiB.
    #[test]
    fn values_weigh_what_they_take_in_memory() {
        let resident = || {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let wide: Object = (0..100).map(|number| (format!("key {number}"), json!(number))).collect();
        let mut kept = Vec::new();
        for value in [
            json!({"x": vec![json!({"a": 0}); 970]}),
            json!([[0, 1, 2], ["some text", "a little longer text"], [true, null]]),
            json!({"a": {"b": {"c": {"d": {"e": {}}}}}}),
            json!({"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}),
            Value::Object(wide),
        ] {
            let before = resident();
            let copies = vec![value.clone(); (32 << 20) / of(&value)];
            let taken = resident().saturating_sub(before) as f64 / (copies.len() * of(&value)) as f64;
            assert!((0.5..1.5).contains(&taken), "{taken:.2} of its weight: {value:.80}");
            // What is freed would be taken again.
            kept.push(copies);
        }
    }

    #[test]
    fn room_ends_once_and_for_all() {
        assert!(Room::for_instances(true).take(MOST).unwrap_err().contains("more than 40 MiB"));
        let mut room = Room::for_instances(false);
        room.take(MOST).unwrap();
        assert!(!room.is_spent());
        let told = room.take(1).unwrap_err();
        assert!(told.contains("more than 64 MiB") && told.contains("smaller parts"), "{told}");
        room.take(1).unwrap_err();
        assert!(room.is_spent());
    }
}
