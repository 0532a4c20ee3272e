//! `((placeholders))` as a director reads them: what stands between the parentheses, and what it may be called.
//!
//! The command line's [`interpolate`](mod@crate::interpolate) is more lenient; what is left after it is for the director.

use serde_json::Value;

/// A variable in a document, and which part of its value is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placeholder<'t> {
    /// As it is written, without `!`.
    pub text: &'t str,
}

impl<'t> Placeholder<'t> {
    /// The variable, without parts.
    pub fn name(self) -> &'t str {
        let folder = self.text.rfind('/').map_or(0, |slash| slash + 1);
        let end = self.text[folder..].find('.').map_or(self.text.len(), |dot| folder + dot);
        &self.text[..end]
    }

    /// What leads to the part of the value that is meant; empty for all of it.
    pub fn parts(self) -> impl Iterator<Item = &'t str> {
        let rest = &self.text[self.name().len()..];
        rest.split('.').skip(1)
    }

    /// What is wrong with its name, in BOSH's rules.
    pub fn problem(self) -> Option<&'static str> {
        let (folder, last) = self.text.rsplit_once('/').unwrap_or(("", self.text));
        if last.is_empty() {
            Some("its name must not end with '/'")
        } else if self.text.contains("//") {
            Some("its name must not have '//'")
        } else if folder.contains('.') {
            Some("dots may only follow the last '/' of its name")
        } else if last.starts_with('.') || last.ends_with('.') || last.contains("..") {
            Some("its name must not begin or end with a dot, or have two in a row")
        } else {
            None
        }
    }
}

/// Text between placeholders, or one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'t> {
    Text(&'t str),
    Placeholder(Placeholder<'t>),
}

/// The pieces of a text, in their order.
pub fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut begin, mut from, mut close) = (0, 0, 0);
    while let Some(open) = text[from..].find("((").map(|at| from + at) {
        let inside = open + 2;
        // Looked for only when it was passed: a text may have a million "((" and one "))".
        if close < inside {
            let Some(length) = text[inside..].find("))") else { break };
            close = inside + length;
        }
        let Some(name) = Some(&text[inside..close]).filter(|name| is_name(name)) else {
            from = open + 1;
            continue;
        };
        if begin < open {
            pieces.push(Piece::Text(&text[begin..open]));
        }
        pieces.push(Piece::Placeholder(Placeholder { text: name.trim_start_matches('!') }));
        begin = inside + name.len() + 2;
        from = begin;
    }
    if begin < text.len() {
        pieces.push(Piece::Text(&text[begin..]));
    }
    pieces
}

/// The placeholders of a text.
pub fn in_text(text: &str) -> impl Iterator<Item = Placeholder<'_>> {
    pieces(text).into_iter().filter_map(|piece| match piece {
        Piece::Placeholder(placeholder) => Some(placeholder),
        Piece::Text(_) => None,
    })
}

/// Calls `found` for each placeholder in a value, keys of objects included.
pub fn each<'v>(value: &'v Value, found: &mut dyn FnMut(Placeholder<'v>)) {
    match value {
        Value::String(text) => in_text(text).for_each(found),
        Value::Array(elements) => elements.iter().for_each(|element| each(element, found)),
        Value::Object(members) => {
            for (key, member) in members {
                in_text(key).for_each(&mut *found);
                each(member, found);
            }
        }
        _ => {}
    }
}

fn is_name(name: &str) -> bool {
    let bare = name.trim_start_matches('!');
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '!');
    name.chars().all(allowed) && !bare.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_falls_into_pieces() {
        let found = pieces("a((b))((!/c/d.e))((no name))(((f)))");
        let shown: Vec<_> = found
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => format!("'{text}'"),
                Piece::Placeholder(placeholder) => placeholder.text.to_owned(),
            })
            .collect();
        assert_eq!(shown, ["'a'", "b", "/c/d.e", "'((no name))('", "f", "')'"]);
    }

    /// Where each "((" was followed to the end of the text, 2 MiB of them took minutes.
    #[test]
    fn brackets_that_are_never_closed_take_no_longer_than_others() {
        let open = "(".repeat(2 << 20);
        let begun = std::time::Instant::now();
        assert_eq!(pieces(&open).len(), 1);
        assert_eq!(pieces(&format!("{open} ))")).len(), 1);
        assert_eq!(pieces(&format!("{open}a))((b))")).len(), 3);
        assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
    }

    #[test]
    fn parts_begin_after_the_last_slash() {
        for (text, name, parts) in [("a", "a", vec![]), ("a.b.c", "a", vec!["b", "c"]), ("/x/y.z", "/x/y", vec!["z"])] {
            let placeholder = Placeholder { text };
            assert_eq!((placeholder.name(), placeholder.parts().collect::<Vec<_>>()), (name, parts));
            assert_eq!(placeholder.problem(), None);
        }
        for text in ["a/", "a//b", "/a.b/c", "a..b", ".a", "a."] {
            assert!(Placeholder { text }.problem().is_some(), "{text}");
        }
    }
}
