//! Values as YAML that every reader reads back to the same value.

use serde_json::{Number, Value};

use crate::{Object, scalar};

/// A key longer than this needs the explicit form: readers stop looking for the `:` after 1024 characters.
const LONGEST_PLAIN_KEY: usize = 512;

/// Block style, keys in their order, text quoted wherever some reader would take it for something else.
pub fn to_yaml(value: &Value) -> String {
    Blocks(&Cautious).document(value)
}

/// How scalars and keys look in block style; what is around them is the same for all.
pub(crate) trait Style {
    /// What a text block or a folded line of the root is indented by.
    const ROOT_INDENT: usize;

    /// The entries in the order in which they are written.
    fn in_order<'a>(&self, entries: &'a Object) -> Vec<(&'a String, &'a Value)>;

    /// A key before its `:`.
    fn key(&self, key: &str) -> String;

    /// Whether a key needs a `?` before it, and a line of its own for the `:`.
    fn is_explicit(&self, key: &str) -> bool;

    /// Writes such a key. Further lines start at column `indent`.
    fn explicit_key(&self, yaml: &mut String, key: &str, indent: usize);

    /// Writes anything but a list or object with something in it. Further lines start at column `indent`.
    fn scalar(&self, yaml: &mut String, value: &Value, indent: usize);
}

/// Writes lists and objects line by line, in a style.
pub(crate) struct Blocks<'a, S>(pub(crate) &'a S);

impl<S: Style> Blocks<'_, S> {
    pub(crate) fn document(&self, value: &Value) -> String {
        let mut yaml = String::new();
        match value {
            Value::Object(entries) if !entries.is_empty() => self.object(&mut yaml, entries, 0),
            Value::Array(values) if !values.is_empty() => self.list(&mut yaml, values, 0),
            other => {
                self.0.scalar(&mut yaml, other, S::ROOT_INDENT);
                end_line(&mut yaml);
            }
        }
        yaml
    }

    /// Writes entries; the cursor is already at column `indent` of the first line.
    fn object(&self, yaml: &mut String, entries: &Object, indent: usize) {
        for (index, (key, value)) in self.0.in_order(entries).into_iter().enumerate() {
            if index > 0 {
                yaml.extend(std::iter::repeat_n(' ', indent));
            }
            if self.0.is_explicit(key) {
                yaml.push_str("? ");
                self.0.explicit_key(yaml, key, indent + 2);
                end_line(yaml);
                yaml.extend(std::iter::repeat_n(' ', indent));
                yaml.push_str(": ");
                self.beside(yaml, value, indent);
                continue;
            }
            yaml.push_str(&self.0.key(key));
            yaml.push(':');
            match value {
                Value::Object(entries) if !entries.is_empty() => {
                    start_line(yaml, indent + 2);
                    self.object(yaml, entries, indent + 2);
                }
                // Lists stand at the level of their key, as people in the ecosystem write them.
                Value::Array(values) if !values.is_empty() => {
                    start_line(yaml, indent);
                    self.list(yaml, values, indent);
                }
                other => {
                    yaml.push(' ');
                    self.0.scalar(yaml, other, indent + 2);
                    end_line(yaml);
                }
            }
        }
    }

    /// Writes elements; the cursor is already at column `indent` of the first line.
    fn list(&self, yaml: &mut String, values: &[Value], indent: usize) {
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                yaml.extend(std::iter::repeat_n(' ', indent));
            }
            yaml.push_str("- ");
            self.beside(yaml, value, indent);
        }
    }

    /// Writes what stands behind two letters on the same line.
    fn beside(&self, yaml: &mut String, value: &Value, indent: usize) {
        match value {
            Value::Object(entries) if !entries.is_empty() => self.object(yaml, entries, indent + 2),
            Value::Array(values) if !values.is_empty() => self.list(yaml, values, indent + 2),
            other => {
                self.0.scalar(yaml, other, indent + 2);
                end_line(yaml);
            }
        }
    }
}

fn start_line(yaml: &mut String, indent: usize) {
    yaml.push('\n');
    yaml.extend(std::iter::repeat_n(' ', indent));
}

/// A text block that keeps its last line breaks has ended its line already.
fn end_line(yaml: &mut String) {
    if !yaml.ends_with('\n') {
        yaml.push('\n');
    }
}

/// Our own style: nothing that any reader could misread.
struct Cautious;

impl Style for Cautious {
    const ROOT_INDENT: usize = 1;

    fn in_order<'a>(&self, entries: &'a Object) -> Vec<(&'a String, &'a Value)> {
        entries.iter().collect()
    }

    fn key(&self, key: &str) -> String {
        if is_plain(key) { key.to_owned() } else { quote(key) }
    }

    fn is_explicit(&self, key: &str) -> bool {
        self.key(key).len() > LONGEST_PLAIN_KEY
    }

    fn explicit_key(&self, yaml: &mut String, key: &str, _indent: usize) {
        yaml.push_str(&self.key(key));
    }

    fn scalar(&self, yaml: &mut String, value: &Value, indent: usize) {
        match value {
            Value::Null => yaml.push_str("null"),
            Value::Bool(boolean) => yaml.push_str(if *boolean { "true" } else { "false" }),
            Value::Number(number) => yaml.push_str(&number_text(number)),
            Value::String(text) if is_plain(text) => yaml.push_str(text),
            Value::String(text) if is_block(text) => block(yaml, text, indent),
            Value::String(text) => yaml.push_str(&quote(text)),
            Value::Array(_) => yaml.push_str("[]"),
            Value::Object(_) => yaml.push_str("{}"),
        }
    }
}

/// Floats get a dot and their exponent a sign, because some readers take them for text otherwise.
fn number_text(number: &Number) -> String {
    let text = number.to_string();
    if !number.is_f64() {
        return text;
    }
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, ""));
    let dot = if mantissa.contains('.') { "" } else { ".0" };
    let sign = if exponent.is_empty() || exponent.starts_with(['-', '+']) { "" } else { "+" };
    let e = if exponent.is_empty() { "" } else { "e" };
    format!("{mantissa}{dot}{e}{sign}{exponent}")
}

fn is_plain(text: &str) -> bool {
    let first = |c: char| c.is_ascii_alphanumeric() || "/_.($".contains(c);
    let rest = |c: char| c.is_alphanumeric() || "/_.()$-+@=,;:~<>^*&!? ".contains(c);
    text.starts_with(first)
        && text.chars().all(rest)
        && !text.starts_with("...")
        && !text.contains(": ")
        && !text.ends_with([' ', ':'])
        && text.len() <= LONGEST_PLAIN_KEY
        && !scalar::is_ambiguous(text)
}

/// Whether a literal block keeps the text as it is, without tricks at its start or end.
fn is_block(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let odd_line = |line: &str| line.starts_with([' ', '\t']) && line.trim().is_empty();
    body.contains('\n')
        && !body.ends_with('\n')
        && !body.starts_with([' ', '\t', '\n'])
        && !body.lines().any(odd_line)
        && body.chars().all(|c| c == '\n' || is_printable(c))
}

fn block(yaml: &mut String, text: &str, indent: usize) {
    yaml.push_str(if text.ends_with('\n') { "|" } else { "|-" });
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        yaml.push('\n');
        if !line.is_empty() {
            yaml.extend(std::iter::repeat_n(' ', indent));
            yaml.push_str(line);
        }
    }
}

/// Characters that may stand in YAML as they are, except line breaks, which readers normalise.
fn is_printable(c: char) -> bool {
    matches!(c, '\t' | ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..)
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if is_printable(c) => quoted.push(c),
            c => quoted.push_str(&format!("\\u{:04x}", c as u32)),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::Document;

    use super::*;

    #[test]
    fn yaml_is_written_as_people_write_it() {
        let value = json!({
            "name": "shop", "version": "1.10", "on": true, "enabled": "yes", "ip": "10.0.0.1", "range": "10.0.0.0/24",
            "none": null, "list": ["a", ["b"], {"c": 1, "d": []}, {}], "script": "#!/bin/sh\necho: hi\n",
            "password": "((admin_password))", "note": "it's: \"x\" # y", "float": 1e300, "size": 3.0,
            "nested": {"key": "-----BEGIN\nabc\n\n-----END"}
        });
        let yaml = to_yaml(&value);
        assert_eq!(
            yaml,
            "name: shop\nversion: \"1.10\"\n\"on\": true\nenabled: \"yes\"\nip: 10.0.0.1\nrange: 10.0.0.0/24\nnone: null\n\
             list:\n- a\n- - b\n- c: 1\n  d: []\n- {}\nscript: |\n  #!/bin/sh\n  echo: hi\n\
             password: ((admin_password))\nnote: \"it's: \\\"x\\\" # y\"\nfloat: 1.0e+300\nsize: 3.0\n\
             nested:\n  key: |-\n    -----BEGIN\n    abc\n\n    -----END\n"
        );
        assert_eq!(Document::parse(&yaml).unwrap().node().to_json(), value);
    }

    fn texts() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            "[a-z:#\\-?|>&*!%@`'\"{}\\[\\], \t\n\\\\~<=.0-9]{0,12}",
            "[0-9+\\-.:_,exobTZ ]{0,8}",
            "(yes|no|on|off|y|n|null|~|true|<<|=|0o7|08|1e3|\\.inf|2024-01-01|1:30|---|\\.\\.\\.)",
            "([ \t]?[a-z#-]{0,3}\n){1,4}[a-z]?",
        ]
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaves = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(|float| Number::from_f64(float).map_or(Value::Null, Value::Number)),
            texts().prop_map(Value::from),
        ];
        leaves.prop_recursive(5, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((texts(), inner), 0..5)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn what_is_written_is_read_back(value in values()) {
            let yaml = to_yaml(&value);
            let read = Document::parse(&yaml).map_err(|error| TestCaseError::fail(format!("{error}\n{yaml}")))?;
            prop_assert_eq!(read.node().to_json(), value, "{}", yaml);
        }
    }

    #[test]
    fn a_very_long_key_is_read_back() {
        let value = json!({"a": {"k".repeat(3000): {"b": [1]}, "c": 2}});
        assert_eq!(Document::parse(&to_yaml(&value)).unwrap().node().to_json(), value);
    }
}
