//! Paths such as `/instance_groups/name=web/networks/0:after`.

use std::fmt;
use std::str::FromStr;

/// Leads from the root of a document to a value, or to a place for one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path(Vec<Token>);

/// One part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// `name`, `name?`: a key of an object.
    Key { key: String, optional: bool },
    /// `0`, `-1`: an element of a list, from its start or its end.
    Index { index: i64, steps: Vec<Step> },
    /// `name=web`: the element of a list that has this text under this key.
    Matching { key: String, value: String, optional: bool, steps: Vec<Step> },
    /// `-`: behind the last element of a list.
    AfterLast,
}

/// From an element of a list to another, or to a place beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Previous,
    Next,
    Before,
    After,
}

/// a path that cannot be understood
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// no slash in front
    #[error("the path '{0}' does not start with '/'")]
    NoSlash(String),
    /// something else behind a colon
    #[error(
        "':{step}' in the path '{path}' is none of ':prev', ':next', ':before' and ':after'; a colon in a key is '~7'"
    )]
    Step {
        path: String,
        /// What stands behind the colon.
        step: String,
    },
    /// a place beside a key
    #[error("only elements of lists have neighbours, so '{token}' in the path '{path}' can have no ':'")]
    StepOfKey {
        path: String,
        /// The part of it.
        token: String,
    },
}

impl FromStr for Path {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let body = text.strip_prefix('/').ok_or_else(|| PathError::NoSlash(text.to_owned()))?;
        let parts: Vec<&str> = body.split('/').collect();
        let mut tokens = Vec::new();
        // Below something that may be missing, everything may be.
        let mut optional = false;
        for (index, part) in parts.iter().enumerate() {
            let is_last = index + 1 == parts.len();
            tokens.push(token(text, part, is_last, &mut optional)?);
        }
        Ok(Self(tokens))
    }
}

fn token(path: &str, part: &str, is_last: bool, optional: &mut bool) -> Result<Token, PathError> {
    let mut pieces = part.split(':');
    let name = unescape(pieces.next().unwrap_or_default());
    let steps = pieces
        .map(|step| match step {
            "prev" => Ok(Step::Previous),
            "next" => Ok(Step::Next),
            "before" => Ok(Step::Before),
            "after" => Ok(Step::After),
            other => Err(PathError::Step { path: path.to_owned(), step: other.to_owned() }),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let no_steps = |token: Token| match steps.is_empty() {
        true => Ok(token),
        false => Err(PathError::StepOfKey { path: path.to_owned(), token: part.to_owned() }),
    };
    if is_last && name == "-" {
        return no_steps(Token::AfterLast);
    }
    if let Ok(index) = name.parse() {
        return Ok(Token::Index { index, steps });
    }
    *optional |= name.ends_with('?');
    let optional = *optional;
    let bare = |text: &str| text.strip_suffix('?').unwrap_or(text).to_owned();
    match name.split_once('=') {
        Some((key, value)) => Ok(Token::Matching { key: key.to_owned(), value: bare(value), optional, steps }),
        None => no_steps(Token::Key { key: bare(&name), optional }),
    }
}

fn unescape(part: &str) -> String {
    let mut text = String::new();
    let mut rest = part;
    while let Some(at) = rest.find('~') {
        text.push_str(&rest[..at]);
        let (plain, length) = match rest.as_bytes().get(at + 1) {
            Some(b'0') => ('~', 2),
            Some(b'1') => ('/', 2),
            Some(b'7') => (':', 2),
            _ => ('~', 1),
        };
        text.push(plain);
        rest = &rest[at + length..];
    }
    text + rest
}

fn escape(text: &str) -> String {
    text.replace('~', "~0").replace('/', "~1").replace(':', "~7")
}

impl Path {
    pub(crate) fn tokens(&self) -> &[Token] {
        &self.0
    }

    pub(crate) fn from_tokens(tokens: Vec<Token>) -> Self {
        Self(tokens)
    }

    /// The first `length` parts.
    pub(crate) fn start(&self, length: usize) -> Self {
        Self(self.0[..length.min(self.0.len())].to_vec())
    }

    /// The same with numbers as keys, for objects that have such keys.
    pub(crate) fn with_numbers_as_keys(self) -> Self {
        let key = |token| match token {
            Token::Index { index, .. } => Token::Key { key: index.to_string(), optional: false },
            other => other,
        };
        Self(self.0.into_iter().map(key).collect())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut marked = false;
        let mut mark = |optional: &bool| {
            let first = *optional && !marked;
            marked |= optional;
            if first { "?" } else { "" }
        };
        if self.0.is_empty() {
            return f.write_str("/");
        }
        for token in &self.0 {
            f.write_str("/")?;
            match token {
                Token::Key { key, optional } => write!(f, "{}{}", escape(key), mark(optional))?,
                Token::Index { index, .. } => write!(f, "{index}")?,
                Token::Matching { key, value, optional, .. } => {
                    write!(f, "{}={}{}", escape(key), escape(value), mark(optional))?;
                }
                Token::AfterLast => f.write_str("-")?,
            }
            if let Token::Index { steps, .. } | Token::Matching { steps, .. } = token {
                for step in steps {
                    write!(f, ":{step}")?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Previous => "prev",
            Self::Next => "next",
            Self::Before => "before",
            Self::After => "after",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_printed_as_they_are_written() {
        for text in [
            "/a/0/-1/name=x/-",
            "/a?/b/name=x/c",
            "/a/name=x?/b",
            "/a/0:prev:next:after",
            "/a/name=x:before",
            "/a~1b~7c~0d=e~1f",
            "/-/a",
        ] {
            assert_eq!(text.parse::<Path>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn mistakes_in_paths_are_named() {
        let refusal = |text: &str| text.parse::<Path>().unwrap_err().to_string();
        assert_eq!(refusal("a"), "the path 'a' does not start with '/'");
        assert!(refusal("/a/0:behind").contains("':behind' in the path '/a/0:behind'"));
        assert!(refusal("/a:after").contains("'a:after'"));
        assert!(refusal("/a/-:after").contains("'-:after'"));
    }
}
