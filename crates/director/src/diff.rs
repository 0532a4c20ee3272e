//! What changes between two documents, line by line, as clients show it.

use serde_json::Value;
use similar::{ChangeTag, TextDiff};
use windlass_contract::secret::REDACTED;
use windlass_manifest::{Document, to_yaml};

/// A line, and `added`, `removed` or nothing.
pub(crate) type Line = (String, Option<&'static str>);

/// How many unchanged lines are shown around a change.
const AROUND: usize = 3;

/// The difference; empty when the documents mean the same.
pub(crate) fn diff(before: Option<&str>, after: &str, redact: bool) -> Result<Vec<Line>, String> {
    let canonical = |text: &str| -> Result<String, String> {
        let mut value = Document::parse(text).map_err(|error| error.to_string())?.node().to_json();
        if redact {
            hide(&mut value, false);
        }
        Ok(if value.is_null() { String::new() } else { to_yaml(&value) })
    };
    let (before, after) = (canonical(before.unwrap_or_default())?, canonical(after)?);
    let diff = TextDiff::from_lines(&before, &after);
    let mut lines = Vec::new();
    for group in diff.grouped_ops(AROUND) {
        for change in group.iter().flat_map(|operation| diff.iter_changes(operation)) {
            let status = match change.tag() {
                ChangeTag::Insert => Some("added"),
                ChangeTag::Delete => Some("removed"),
                ChangeTag::Equal => None,
            };
            lines.push((change.value().trim_end_matches('\n').to_owned(), status));
        }
    }
    Ok(lines)
}

/// Values below `properties` and `bosh` are often secrets.
fn hide(value: &mut Value, hidden: bool) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                hide(value, hidden || key == "properties" || key == "bosh");
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| hide(value, hidden)),
        Value::Null => {}
        leaf if hidden => *leaf = Value::String(REDACTED.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_shown_and_secrets_are_not() {
        let before = "name: a\nenv: {bosh: {password: old}}\ninstances: 1\n";
        assert_eq!(diff(Some(before), before, true).unwrap(), []);
        let lines = diff(Some(before), "name: a\nenv: {bosh: {password: new}}\ninstances: 2\n", true).unwrap();
        assert!(lines.contains(&("instances: 1".into(), Some("removed"))), "{lines:?}");
        assert!(lines.contains(&("instances: 2".into(), Some("added"))), "{lines:?}");
        assert!(!format!("{lines:?}").contains("new"), "{lines:?}");
    }

    #[test]
    fn everything_of_a_new_document_is_added() {
        assert_eq!(diff(None, "name: a\n", true).unwrap(), [("name: a".to_owned(), Some("added"))]);
        assert!(diff(None, "a: [", true).is_err());
    }
}
