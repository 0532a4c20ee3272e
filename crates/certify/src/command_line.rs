//! A command line as an operator writes it, in words.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// An executable and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// An absolute path.
    pub executable: PathBuf,
    pub arguments: Vec<OsString>,
}

/// why a command line cannot be run
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CommandLineError {
    /// there are no words
    #[error("the command line is empty; give an executable and its arguments")]
    Empty,
    /// a quote has no end
    #[error("the command line has a quote without an end: {0}")]
    OpenQuote(String),
    /// no such executable
    #[error("'{0}' is neither an executable file nor found in PATH; correct the path or its permissions")]
    NotFound(String),
}

impl FromStr for CommandLine {
    type Err = CommandLineError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = words(text)?.into_iter();
        let name = words.next().ok_or(CommandLineError::Empty)?;
        let executable = find(&name).ok_or(CommandLineError::NotFound(name))?;
        Ok(Self { executable, arguments: words.map(OsString::from).collect() })
    }
}

/// Words as a shell splits them, without its expansions.
fn words(text: &str) -> Result<Vec<String>, CommandLineError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some('"') | None, '\\') => word.get_or_insert_default().extend(letters.next()),
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    if quote.is_some() { Err(CommandLineError::OpenQuote(text.to_owned())) } else { Ok(words) }
}

fn find(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return is_executable(Path::new(name)).then(|| std::path::absolute(name).ok()).flatten();
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_does() {
        let expected = ["a", "b c", "d'e", "", "f g"].map(str::to_owned);
        assert_eq!(words(r#" a 'b c'  "d'e" "" f\ g "#).unwrap(), expected);
        assert!(matches!(words("a 'b"), Err(CommandLineError::OpenQuote(_))));
    }

    #[test]
    fn a_missing_executable_is_named() {
        assert_eq!("".parse::<CommandLine>(), Err(CommandLineError::Empty));
        assert_eq!("no-such-cpi x".parse::<CommandLine>(), Err(CommandLineError::NotFound("no-such-cpi".into())));
        assert_eq!("sh -c x".parse::<CommandLine>().unwrap().arguments, ["-c", "x"]);
    }
}
