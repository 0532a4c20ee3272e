//! The order in which the original writes keys: numbers first, then text, in which numbers count as numbers.

use std::cmp::Ordering;

use super::key;

/// Compares two keys of an object.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    match (key::scalar(a), key::scalar(b)) {
        (Some(a), Some(b)) => rank(a).total_cmp(&rank(b)).then_with(|| a.cmp(b)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => compare_text(a, b),
    }
}

/// Booleans count as 0 and 1, and null comes after all numbers.
fn rank(scalar: &str) -> f64 {
    match scalar {
        "true" => 1.0,
        "false" => 0.0,
        number => number.parse().unwrap_or(f64::INFINITY),
    }
}

fn compare_text(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(a, b)| a != b) else { return a.len().cmp(&b.len()) };
    match (a[at].is_alphabetic(), b[at].is_alphabetic()) {
        (true, true) => return a[at].cmp(&b[at]),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // A zero in the middle of a number does not lead it.
    let digits_before = a[..at].iter().rev().take_while(|letter| letter.is_ascii_digit());
    let continues = (a[at] == '0' || b[at] == '0') && digits_before.clone().any(|digit| *digit != '0');
    let start = u64::from(continues);
    let ((a_value, a_end), (b_value, b_end)) = (number(&a, at, start), number(&b, at, start));
    a_value.cmp(&b_value).then(a_end.cmp(&b_end)).then(a[at].cmp(&b[at]))
}

fn number(text: &[char], from: usize, start: u64) -> (u64, usize) {
    let digits = text[from..].iter().map_while(|letter| letter.to_digit(10));
    let (mut value, mut length) = (start, 0);
    for digit in digits {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        length += 1;
    }
    (value, from + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_where_the_original_puts_them() {
        let mut keys =
            ["b", "a10", "a2", "a", "_x", "B", "1", "\u{0}10", "\u{0}9", "a-b", "a_b", "\u{0}true", "x100", "x20"];
        keys.sort_by(|a, b| compare(a, b));
        assert_eq!(
            keys,
            ["\u{0}true", "\u{0}9", "\u{0}10", "_x", "1", "B", "a", "a-b", "a_b", "a2", "a10", "b", "x20", "x100"]
        );
    }
}
