//! Runs of base64 in free text. Headers with a password and user data hold secrets in this form.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::secret::REDACTED;

/// Shorter runs are words.
const SHORTEST: usize = 12;

/// Text may be cut off anywhere, so what stands at its end need not be whole.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// `text` without the runs that say something secret; none if there are none.
pub(super) fn without_encoded(text: &str, is_secret: impl Fn(&str) -> bool) -> Option<String> {
    let mut kept = String::new();
    let mut end_of_last = 0;
    let runs = Runs { text: text.as_bytes(), at: 0 };
    for run in runs {
        if run.letters.len() >= SHORTEST && readings(&run.letters).any(|said| is_secret(&said)) {
            kept.push_str(&text[end_of_last..run.start]);
            kept.push_str(REDACTED);
            end_of_last = run.end;
        }
    }
    (end_of_last > 0).then(|| kept + &text[end_of_last..])
}

/// What a run says; of one whose beginning is cut off, one of these is right.
fn readings(letters: &[u8]) -> impl Iterator<Item = String> {
    (0..4).filter_map(move |skipped| {
        let letters = letters.get(skipped..)?;
        // One letter alone says nothing.
        let whole = letters.len() - usize::from(letters.len() % 4 == 1);
        let said = LENIENT.decode(&letters[..whole]).ok()?;
        Some(String::from_utf8_lossy(&said).into_owned())
    })
}

/// A run of base64 in a text.
struct Run {
    start: usize,
    end: usize,
    /// Without line breaks.
    letters: Vec<u8>,
}

struct Runs<'a> {
    text: &'a [u8],
    at: usize,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        while !is_letter(*self.text.get(self.at)?) {
            // The letter behind a backslash is no part of what follows.
            self.at += if self.text[self.at] == b'\\' { 2 } else { 1 };
        }
        let mut run = Run { start: self.at, end: self.at, letters: Vec::new() };
        while let Some(letter) = self.text.get(self.at) {
            if is_letter(*letter) {
                run.letters.push(*letter);
                self.at += 1;
                run.end = self.at;
                continue;
            }
            // Ruby and `base64` break lines, and JSON writes that as two letters.
            match (letter, self.text.get(self.at + 1)) {
                (b'\n' | b'\r', _) => self.at += 1,
                (b'\\', Some(b'n' | b'r')) => self.at += 2,
                _ => break,
            }
        }
        while self.text.get(run.end) == Some(&b'=') {
            run.end += 1;
        }
        self.at = self.at.max(run.end);
        Some(run)
    }
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/'
}

#[cfg(test)]
mod tests {
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    fn cleaned(text: &str) -> Option<String> {
        without_encoded(text, |said| said.contains("hunter2"))
    }

    #[test]
    fn what_holds_a_secret_goes_and_other_words_stay() {
        let header = BASE64_STANDARD.encode("writer:hunter2");
        let text = format!("\"Authorization\"=>\"Basic {header}\", \"Accept\"=>\"application/json\"");
        let expected = "\"Authorization\"=>\"Basic <redacted>\", \"Accept\"=>\"application/json\"";
        assert_eq!(cleaned(&text).unwrap(), expected);
        for harmless in ["", "\\", "x\\", "internationalization/of/all/words", "grüße\nundnocheinmalgrüße", "d3JpdGVy"]
        {
            assert_eq!(cleaned(harmless), None, "{harmless}");
        }
    }

    #[test]
    fn broken_lines_and_texts_that_are_cut_off_are_read_as_well() {
        let data = format!("{{\"a\": \"{}\", \"b\": \"hunter2\", \"c\": \"and more\"}}", "x".repeat(50));
        let data = BASE64_STANDARD.encode(data);
        for at in [4, 60, 63, 75] {
            for line_break in ["\n", "\r\n", "\\n"] {
                let broken = format!("data: {}{line_break}{}, end", &data[..at], &data[at..]);
                assert_eq!(cleaned(&broken).unwrap(), "data: <redacted>, end", "{broken}");
            }
        }
        for cut in 0..8 {
            let text = format!("{} and more", &data[cut..]);
            assert_eq!(cleaned(&text).unwrap(), "<redacted> and more", "{text}");
            assert_eq!(cleaned(&data[..data.len() - cut]).unwrap(), "<redacted>", "{cut}");
        }
    }
}
