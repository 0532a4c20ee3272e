//! How many values JSON has, counted before any of them takes memory.

/// Whether JSON has more values than that, keys included.
pub fn has_more_values_than(json: &[u8], most: usize) -> bool {
    values_in(json) > most
}

/// How many values JSON has, keys included. Counts what separates them outside of texts. A value takes up to a hundred times the
/// memory of the two letters that can make it.
pub fn values_in(json: &[u8]) -> usize {
    let (mut values, mut in_text, mut escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b',' | b':' | b'[' | b'{' if !in_text => values += 1,
            _ => {}
        }
    }
    values
}

/// Where the next zero byte of a text stands in JSON, as six letters, from a place on that is not within an escape.
pub fn zero_byte_in(json: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(found) = json.get(at..)?.iter().position(|byte| *byte == b'\\') {
        at += found;
        if json[at..].starts_with(br"\u0000") {
            return Some(at);
        }
        // What follows may be a backslash itself.
        at += 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_the_letters_of_texts_are_not() {
        const MOST: usize = 1000;
        assert!(has_more_values_than(format!("[{}0]", "0,".repeat(MOST)).as_bytes(), MOST));
        assert!(has_more_values_than("[".repeat(MOST + 1).as_bytes(), MOST));
        let text = format!(r#"{{"value":"{}\"{}"}}"#, ",".repeat(MOST), ",[{:".repeat(MOST));
        assert!(!has_more_values_than(text.as_bytes(), MOST));
        assert!(!has_more_values_than(format!("[{}0]", "0,".repeat(MOST / 2)).as_bytes(), MOST));
    }

    #[test]
    fn zero_bytes_are_found_and_texts_that_look_like_one_are_none() {
        assert_eq!(zero_byte_in(br#"{"a\"b":"\u0000"}"#, 0), Some(9));
        assert_eq!(zero_byte_in(br#"{"a":"[^\\u0000]\\\\u0000"}"#, 0), None);
        assert_eq!(zero_byte_in(br#""\\\u0000\u0000""#, 4), Some(9));
        assert_eq!(zero_byte_in(b"\\", 0), None);
    }
}
