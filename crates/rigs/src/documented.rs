//! The examples of the contract's documents, to the letter.
//!
//! `documented/examples.txt` has them as they are printed: some lack a comma or have one too many, leave something out with
//! `...`, or are written in Ruby. [`example`] reads over that and changes nothing else.

use serde_json::Value;

const TEXT: &str = include_str!("documented/examples.txt");

/// All examples, by what they are an example of.
pub fn examples() -> impl Iterator<Item = (&'static str, Value)> {
    TEXT.split("=== ").skip(1).map(|part| {
        let (name, text) = part.split_once('\n').unwrap();
        (name, read(text))
    })
}

/// The example of that name.
pub fn example(name: &str) -> Value {
    examples().find(|(found, _)| *found == name).unwrap_or_else(|| panic!("no document has '{name}'")).1
}

fn read(text: &str) -> Value {
    let mut json = String::new();
    for token in tokens(text) {
        match token {
            "..." => continue,
            "}" | "]" | ")" => json.truncate(json.trim_end_matches(',').len()),
            "," | ":" | "=>" => {}
            _ if json.ends_with(['"', '}', ']']) => json.push(','),
            _ => {}
        }
        json.push_str(match token {
            "(" => "[",
            ")" => "]",
            "=>" => ":",
            token => token,
        });
    }
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error} in {json}"))
}

/// Strings with their quotes, punctuation, and what stands between them.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim_start();
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let length = match first {
            '"' => 2 + rest[1..].find('"').unwrap(),
            '{' | '}' | '[' | ']' | '(' | ')' | ',' | ':' => 1,
            _ => {
                rest.find(|letter: char| letter.is_whitespace() || "{}[](),:\"".contains(letter)).unwrap_or(rest.len())
            }
        };
        let (token, after) = rest.split_at(length);
        rest = after.trim_start();
        Some(token)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_printed_wrong_is_read_and_what_is_printed_right_is_not_changed() {
        assert_eq!(
            read(r#"("a", {"b": { ... } "c" => [1, true,], "d": "...",}]"#),
            json!(["a", {"b": {}, "c": [1, true], "d": "..."}])
        );
        assert_eq!(read(r#" {"a": "x, y: z", "b": [ "c" ]} "#), json!({"a": "x, y: z", "b": ["c"]}));
        assert_eq!(examples().count(), 30);
    }
}
