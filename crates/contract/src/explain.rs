//! Errors in words.

use std::error::Error;

/// An error with all its causes in one line, each said once: an error that is no more than its cause has the same words.
pub fn explain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// What somebody else said, with no more than `most` bytes and a few, and no zero byte, which PostgreSQL does not take. The end stays, because output of programs ends with what went
/// wrong, and a quarter from the beginning.
pub fn shortened(said: String, most: usize) -> String {
    let said = if said.contains('\0') { said.replace('\0', "\u{fffd}") } else { said };
    if said.len() <= most {
        return said;
    }
    let head = said.floor_char_boundary(most / 4);
    let tail = said.ceil_char_boundary(said.len() - (most - head));
    format!("{} … {} bytes are left out … {}", &said[..head], tail - head, &said[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_keep_their_beginning_and_their_end() {
        assert_eq!(shortened("short".into(), 5), "short");
        assert_eq!(shortened("a\0b".into(), 10), "a\u{fffd}b");
        let long = format!("begin{}end", "ü".repeat(1000));
        let short = shortened(long, 100);
        assert!(short.starts_with("begin") && short.ends_with("üend") && short.len() < 140, "{short}");
        assert!(short.contains(" … 19") && short.contains("bytes are left out"), "{short}");
    }

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("cannot read the settings")]
        Settings(#[source] Box<Failed>),
        #[error("{0}")]
        SaysItsCause(#[source] Box<Failed>),
        #[error("no such file")]
        Missing,
    }

    /// A message has every cause, and none of them twice.
    #[test]
    fn every_cause_is_said_once() {
        let missing = || Box::new(Failed::Missing);
        let settings = Failed::Settings(Box::new(Failed::SaysItsCause(missing())));
        assert_eq!(explain(&settings), "cannot read the settings: no such file");
        assert_eq!(explain(&Failed::Missing), "no such file");
    }
}
