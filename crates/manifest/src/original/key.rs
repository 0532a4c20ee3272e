//! Keys that are no text.
//!
//! To the original the key in `8080: a` is a number, which the text "8080" in the path of an operation does not find and
//! which is written without quotes. In a JSON tree all keys are text, so such a key carries a mark: a NUL before it,
//! which no key of a YAML document can contain.

const MARK: char = '\0';

/// The key for a number, a boolean or null, from its text as the original writes it.
pub fn from_scalar(text: &str) -> String {
    format!("{MARK}{text}")
}

/// The text of a key that is no text.
pub fn scalar(key: &str) -> Option<&str> {
    key.strip_prefix(MARK)
}

/// A key as people know it.
pub fn name(key: &str) -> &str {
    scalar(key).unwrap_or(key)
}

/// Whether text can be a key at all.
pub(crate) fn is_possible(text: &str) -> bool {
    !text.contains(MARK)
}
