//! What may name something: names stand in paths, tables, terminals and other people's systems.

/// Letters of the longest name.
const LONGEST: usize = 255;

/// why something cannot have this name
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// it has no letters, or too many
    #[error("a name has 1 to {LONGEST} letters, not {0}")]
    Length(usize),
    #[error("'.' and '..' are no names")]
    Folder,
    #[error("a name must not contain '/'")]
    Slash,
    #[error("a name needs a letter that can be seen")]
    Blank,
    /// nobody sees it, or it changes how others look
    #[error("a name must not contain the letter U+{0:04X}, which cannot be printed")]
    Unprintable(u32),
}

/// Whether something new may have this name. What has one already keeps it.
pub fn check(name: &str) -> Result<(), NameError> {
    let length = name.chars().count();
    if !(1..=LONGEST).contains(&length) {
        return Err(NameError::Length(length));
    }
    if matches!(name, "." | "..") {
        return Err(NameError::Folder);
    }
    match name.chars().find(|letter| *letter == '/' || is_unprintable(*letter)) {
        Some('/') => Err(NameError::Slash),
        Some(letter) => Err(NameError::Unprintable(u32::from(letter))),
        None if name.chars().all(char::is_whitespace) => Err(NameError::Blank),
        None => Ok(()),
    }
}

/// Control characters, what turns the direction of text, line separators, what has no width, and what has one and shows nothing.
fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(letter, '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_deceive_or_break_something_are_refused() {
        for good in ["db", "my db", " db", "my\u{a0}db", "redis_z1.2", "größe", "数据库", "a..b", &"a".repeat(255)]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", NameError::Length(0)),
            (&*"a".repeat(5000), NameError::Length(5000)),
            ("..", NameError::Folder),
            (".", NameError::Folder),
            ("a/b", NameError::Slash),
            ("n\0ul", NameError::Unprintable(0)),
            ("a\nb", NameError::Unprintable(10)),
            ("e\u{1b}[31mvil", NameError::Unprintable(0x1b)),
            ("\u{202e}abc", NameError::Unprintable(0x202e)),
            ("a\u{7f}", NameError::Unprintable(0x7f)),
            ("a\u{9b}m", NameError::Unprintable(0x9b)),
            (" ", NameError::Blank),
            (" \u{a0}\u{3000} ", NameError::Blank),
            ("d\u{ad}b", NameError::Unprintable(0xad)),
            ("\u{34f}", NameError::Unprintable(0x34f)),
            ("\u{115f}", NameError::Unprintable(0x115f)),
            ("\u{1160}", NameError::Unprintable(0x1160)),
            ("\u{2800}", NameError::Unprintable(0x2800)),
            ("\u{3164}", NameError::Unprintable(0x3164)),
            ("\u{ffa0}", NameError::Unprintable(0xffa0)),
        ] {
            assert_eq!(check(bad), Err(why), "{bad:?}");
        }
    }
}
