//! YAML exactly as the original's command line reads and writes it.
//!
//! What it interpolates is handed to others as text: directors compare it, state files keep its digest. So the same
//! input has to give the same bytes, with its order of keys, its way to quote, its line breaks, and with what it takes
//! an unquoted word for. Two things are refused here that it lets pass: a key that stands twice, and a second document.

pub mod key;
mod order;
mod scalar;
mod write;

use serde_json::Value;

use crate::parse::Dialect;
use crate::{Content, Document, ParseError};

pub(crate) use scalar::resolve;
pub use write::to_yaml;

/// Reads a document. Keys that are no text are marked, see [`key`].
pub fn parse(text: &str) -> Result<Value, ParseError> {
    Ok(Document::parse_as(text, Dialect::Original)?.node().to_json())
}

/// The key that a scalar makes; none if it cannot be one.
pub(crate) fn key_of(content: &Content) -> Option<String> {
    match content {
        Content::Null => Some(key::from_scalar("null")),
        Content::Boolean(boolean) => Some(key::from_scalar(&boolean.to_string())),
        Content::Number(number) => Some(key::from_scalar(&scalar::number_text(number))),
        Content::String(text) => key::is_possible(text).then(|| text.clone()),
        Content::List(_) | Content::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Each text is what the original prints for itself.
    #[test]
    fn what_the_original_wrote_is_written_again_byte_by_byte() {
        for text in [
            "null\n",
            "plain\n",
            "|\n  a\n  b\n",
            "a: 1\nb: 1.5\nc: true\nd: null\ne: \"\"\nf: []\ng: {}\n",
            "big: 1.234567e+06\nhuge: 1e+21\nsmall: 1e-05\n",
            "- a\n- - b\n  - c\n- d: 1\n  e:\n  - 2\n  - f: 3\n",
            "true: bool\n8080: int\n\"8080\": text\n\"yes\": text\n",
            "a: \"yes\"\nb: \"08\"\nc: \"2024-01-01\"\nd: \"1:30\"\ne: 1.2.3\nf: 10.0.0.1\ng: \"1e3\"\nh: \"0x1F\"\n",
            "a: ' lead'\nb: 'trail '\nc: 'x: y'\nd: 'x #y'\ne: '#x'\nf: '@x'\ng: '- x'\nh: -x\ni: '''q'\nj: a'b\n",
            "a: \"tab\\there\"\nb: \"\\U0001F600\"\nc: é\nd: \"\\x01\"\ne: \"a\\r\"\n",
            "a: |\n  x\n  y\nb: |-\n  x\n  y\nc: |+\n  x\n\nd: |2-\n    x\n  y\ne: \"x \\ny\"\n",
            "? |-\n  a\n  b\n: - 1\n  - 2\n? \"c\\r\"\n: d: e\n  f: g\nh: 1\n",
            "a: ((b))\nb: '((c)): d'\nc: '!x'\nd: '*x'\ne: x,y\nf: '[x'\ng: x[y\nh: '{x'\n",
        ] {
            assert_eq!(to_yaml(&parse(text).unwrap()), text);
        }
    }

    #[test]
    fn long_lines_break_where_the_original_breaks_them() {
        let (words, short) = ("word ".repeat(40), "w ".repeat(60));
        let value = json!({
            "a": words.trim(), "b": words, "c": format!("{words}\t  {words}x"), "d": format!("x'{}: x", " '".repeat(60)),
            "e": [{"f": {"g": format!("{short}x")}}],
        });
        let line = |count: usize| "word ".repeat(count).trim().to_owned();
        let (sixteen, eight) = (line(16), line(8));
        let expected = format!(
            "a: {sixteen}\n  {sixteen}\n  {eight}\nb: '{sixteen}\n  {sixteen}\n  {eight} '\n\
             c: \"{sixteen}\n  {sixteen}\n  {eight} \\t  {eight}\n  {sixteen}\n  {sixteen}\n  x\"\n\
             d: 'x''{}\n  ''{}\n  ''{}: x'\ne:\n- f:\n    g: {}\n      {}x\n",
            " ''".repeat(25),
            " ''".repeat(26),
            " ''".repeat(7),
            "w ".repeat(38).trim(),
            "w ".repeat(22),
        );
        assert_eq!(to_yaml(&value), expected);
    }
}
