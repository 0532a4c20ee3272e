//! Which checks did not pass for one and the same cause, so that it is told once.

use crate::answer::Answer;

/// The same for all checks that one answer of the CPI kept from passing, whatever they asked for. None without an answer.
pub(crate) fn cause(what: &str, calls: &[Answer]) -> Option<String> {
    let last = calls.last()?;
    let error = last.response.as_ref().ok().and_then(|response| response.error.as_ref());
    let error = error.filter(|error| !error.message.is_empty() && what.contains(&error.message));
    Some(match error {
        Some(error) => format!("{} {} {}", last.method(), error.kind, without_ids(&error.message)),
        None => without_ids(what),
    })
}

/// Words with digits in them are ids, addresses and sizes, which differ from call to call.
fn without_ids(text: &str) -> String {
    let is_of_word = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
    let words = text.split_inclusive(|letter| !is_of_word(letter));
    words
        .map(|word| {
            let (word, end) = word.split_at(word.trim_end_matches(|letter| !is_of_word(letter)).len());
            let word = if word.contains(|letter: char| letter.is_ascii_digit()) { "#" } else { word };
            format!("{word}{end}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_numbers_do_not_make_another_cause() {
        let one = without_ids("no network 'net' for vm-8d2f-aaaa at 10.0.0.5, in 3 s");
        assert_eq!(one, without_ids("no network 'net' for vm-77ab-bbbb at 10.0.0.16, in 12 s"));
        assert_ne!(one, without_ids("no network 'other' for vm-8d2f-aaaa at 10.0.0.5, in 3 s"));
    }
}
