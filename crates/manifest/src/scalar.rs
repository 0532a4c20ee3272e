//! What an unquoted word means.
//!
//! The ecosystem reads YAML with Psych (the original director) and Go's yaml (the original command line). Where they
//! agree we follow; where they differ a word stays text, because text loses nothing: `y`, `08`, `1:30`, `2024-01-01`,
//! `1,000`, `1e3`, `.inf`, and integers beyond 64 bits. The one exception is `0o17`, which YAML 1.2 made an integer.

use serde_json::Number;

use crate::Content;

/// Resolves a plain scalar.
pub fn resolve(text: &str) -> Content {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Content::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Content::Boolean(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Content::Boolean(false),
        _ => match integer(text).or_else(|| float(text)) {
            Some(number) => Content::Number(number),
            None => Content::String(text.to_owned()),
        },
    }
}

fn integer(text: &str) -> Option<Number> {
    let (negative, unsigned) = split_sign(text);
    let (radix, digits) = match unsigned.as_bytes() {
        [b'0', b'x', ..] => (16, &unsigned[2..]),
        [b'0', b'b', ..] => (2, &unsigned[2..]),
        [b'0', b'o', ..] => (8, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    let digits = digits_of(digits, |digit| digit.is_digit(radix))?;
    let magnitude = u64::from_str_radix(&digits, radix).ok()?;
    if !negative {
        return Some(magnitude.into());
    }
    0_i64.checked_sub_unsigned(magnitude).map(Number::from)
}

/// Digits without the `_` that may stand between them.
fn digits_of(text: &str, is_digit: impl Fn(char) -> bool) -> Option<String> {
    let plausible = text.starts_with(&is_digit) && !text.ends_with('_');
    if !plausible || !text.chars().all(|c| c == '_' || is_digit(c)) {
        return None;
    }
    Some(text.replace('_', ""))
}

/// A float needs a dot: without one, `1e3` or a commit such as `12e4567` would turn into a number.
fn float(text: &str) -> Option<Number> {
    let (_, unsigned) = split_sign(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.')?;
    let is_digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let exponent_is_number = exponent.is_none_or(|exponent| {
        let (_, digits) = split_sign(exponent);
        !digits.is_empty() && is_digits(digits)
    });
    if !has_digits || !is_digits(whole) || !is_digits(fraction) || !exponent_is_number {
        return None;
    }
    // A number too big for a float is infinite, which JSON cannot say.
    text.parse().ok().and_then(Number::from_f64)
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

/// Whether some reader takes the plain word `text` for something else than text.
pub(crate) fn is_ambiguous(text: &str) -> bool {
    if !matches!(resolve(text), Content::String(_)) || matches!(text, "y" | "Y" | "n" | "N" | "=" | "<<") {
        return true;
    }
    // Times, dates, base 60, thousands separators, infinities: no reader agrees with another on these. With two dots
    // and no colon it is an address or a version, which all readers take for text.
    let is_dotted = text.matches('.').count() > 1 && !text.contains(':');
    let numeric = |c: char| c.is_ascii_hexdigit() || "_,:.+- xobinftTZN".contains(c);
    !is_dotted && text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) && text.chars().all(numeric)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(text: &str) -> Value {
        match resolve(text) {
            Content::Null => Value::Null,
            Content::Boolean(boolean) => json!(boolean),
            Content::Number(number) => Value::Number(number),
            Content::String(text) => json!(text),
            other => panic!("a scalar cannot be {other:?}"),
        }
    }

    #[test]
    fn numbers_and_booleans_mean_what_the_original_reads() {
        for (text, value) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("12", json!(12)),
            ("-12", json!(-12)),
            ("+12", json!(12)),
            ("0", json!(0)),
            ("1_000", json!(1000)),
            ("0x1F", json!(31)),
            ("0644", json!(420)),
            ("0o17", json!(15)),
            ("0b101", json!(5)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("1.5", json!(1.5)),
            ("-.5", json!(-0.5)),
            ("1.", json!(1.0)),
            ("1.5e+3", json!(1500.0)),
        ] {
            assert_eq!(read(text), value, "{text:?}");
        }
    }

    #[test]
    fn words_that_readers_disagree_on_stay_text() {
        for text in [
            "y",
            "n",
            "yEs",
            "tRUE",
            "08",
            "1:30",
            "2024-01-01",
            "1,000",
            "1e3",
            "12e4567",
            ".inf",
            ".nan",
            ".",
            "-",
            "+",
            "0x",
            "0xg",
            "1_",
            "_1",
            "1.2.3",
            "10.0.0.1",
            "18446744073709551616",
            "1.0e+400",
            "0o",
            "--1",
            "+-1",
        ] {
            assert_eq!(read(text), json!(text));
        }
    }
}
