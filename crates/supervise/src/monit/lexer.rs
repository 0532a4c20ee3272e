//! Text to tokens.

/// A token with the line on which it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) text: Text,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Text {
    /// A keyword, name, path or number, perhaps with a unit glued to it.
    Word(String),
    /// What stands in quotes.
    Quoted(String),
    /// A comparison or `=`.
    Operator(&'static str),
    /// One of `,{}()[]:;`.
    Mark(char),
}

/// The quotes that begin on this line have no end.
#[derive(Debug)]
pub(super) struct OpenQuotes(pub(super) usize);

const OPERATORS: [&str; 7] = [">=", "<=", "==", "!=", ">", "<", "="];

/// All tokens of `text`. `#` starts a comment, unless it stands in a word or in quotes.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, OpenQuotes> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        match first {
            '\n' => {
                line += 1;
                rest = &rest[1..];
            }
            _ if first.is_whitespace() => rest = &rest[first.len_utf8()..],
            '#' => rest = rest.find('\n').map_or("", |end| &rest[end..]),
            '"' | '\'' => {
                let (content, length) = quoted(rest, first).ok_or(OpenQuotes(line))?;
                let lines = rest[..length].matches('\n').count();
                tokens.push(Token { line, text: Text::Quoted(content) });
                line += lines;
                rest = &rest[length..];
            }
            _ => {
                if let Some(operator) = OPERATORS.into_iter().find(|operator| rest.starts_with(operator)) {
                    tokens.push(Token { line, text: Text::Operator(operator) });
                    rest = &rest[operator.len()..];
                } else if ",{}()[];:".contains(first) {
                    tokens.push(Token { line, text: Text::Mark(first) });
                    rest = &rest[1..];
                } else {
                    let end = rest.find(ends_word(first)).unwrap_or(rest.len()).max(first.len_utf8());
                    tokens.push(Token { line, text: Text::Word(rest[..end].to_owned()) });
                    rest = &rest[end..];
                }
            }
        }
    }
    Ok(tokens)
}

/// Paths end at blanks alone; other words also where an operator or a mark begins. `it's` is one word.
fn ends_word(first: char) -> impl Fn(char) -> bool {
    move |next| {
        next.is_whitespace() || next == '"' || (first != '/' && (",{}()[];".contains(next) || "<>=!".contains(next)))
    }
}

/// What stands in quotes, and how long it is with them. A backslash takes the quote after it into the text.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut content = String::new();
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => match letters.peek() {
                Some(&(_, next)) if next == quote || next == '\\' => {
                    content.push(next);
                    letters.next();
                }
                _ => content.push('\\'),
            },
            _ if letter == quote => return Some((content, at + 1)),
            _ => content.push(letter),
        }
    }
    None
}

/// A command line, split at blanks; quotes hold words together. No shell reads it.
pub(super) fn split_command(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut open: Option<char> = None;
    for letter in text.chars() {
        match open {
            Some(quote) if letter == quote => open = None,
            Some(_) => word.get_or_insert_default().push(letter),
            None if letter == '"' || letter == '\'' => {
                open = Some(letter);
                word.get_or_insert_default();
            }
            None if letter.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let texts = tokens(text).unwrap().into_iter().map(|token| match token.text {
            Text::Word(word) => word,
            Text::Quoted(content) => format!("<{content}>"),
            Text::Operator(operator) => operator.to_owned(),
            Text::Mark(mark) => mark.to_string(),
        });
        texts.collect()
    }

    #[test]
    fn words_quotes_operators_and_comments_are_told_apart() {
        assert_eq!(
            words("start program=\"/bin/a b\" # no\n depends on a,b"),
            ["start", "program", "=", "</bin/a b>", "depends", "on", "a", ",", "b"]
        );
        assert_eq!(words("totalmem>200Mb"), ["totalmem", ">", "200Mb"]);
        assert_eq!(words("pidfile /a/b,c=d.pid"), ["pidfile", "/a/b,c=d.pid"]);
        assert_eq!(words(r#""say \"hi\" \n""#), [r#"<say "hi" \n>"#]);
        assert_eq!(tokens("a\n'b\nc' d").unwrap().last().unwrap().line, 3);
        assert_eq!(tokens("\n\"open").unwrap_err().0, 2);
    }

    #[test]
    fn a_command_is_split_at_blanks_and_quotes_hold_words_together() {
        assert_eq!(split_command("/bin/sh -c 'a b'  \"\" c"), ["/bin/sh", "-c", "a b", "", "c"]);
    }
}
