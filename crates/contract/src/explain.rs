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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("cannot read the settings")]
        Settings(#[source] Box<Failed>),
        #[error("{0}")]
        SaysItsCause(#[source] Box<Failed>),
        #[error("no such file")]
        Missing,
    }

    /// Whoever reads a message finds every cause, and none of them twice.
    #[test]
    fn every_cause_is_said_once() {
        let missing = || Box::new(Failed::Missing);
        let settings = Failed::Settings(Box::new(Failed::SaysItsCause(missing())));
        assert_eq!(explain(&settings), "cannot read the settings: no such file");
        assert_eq!(explain(&Failed::Missing), "no such file");
    }
}
