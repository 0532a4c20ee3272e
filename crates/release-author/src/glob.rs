//! Patterns of files as BOSH's command line reads them: `*`, `?`, `[a-z]`, `{a,b}` and `**`.
//!
//! Fingerprints depend on which files match, so this follows the original's library (doublestar 1) step by step: names with a dot in
//! front match as others do, and `**` goes through links to folders.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// How many folders are looked at behind more than this many links. Links that lead to each other make any number of ways, each
/// of them up to 40 links long.
const MANY_LINKS: usize = 3;
const MOST_FOLDERS: usize = 2_000;

/// why a pattern means nothing
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadPattern {
    /// Brackets or braces do not end.
    Unfinished,
    /// There are too many ways.
    Circles,
}

impl BadPattern {
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Unfinished => "has brackets or braces that do not end, or a range without one end",
            Self::Circles => {
                "leads in circles through links to folders; name folders instead of **, or remove the links"
            }
        }
    }
}

/// The paths below `folder` that match. What cannot be read matches nothing.
pub(crate) fn glob(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, BadPattern> {
    let mut found = Vec::new();
    match pattern.strip_prefix('{').map(alternatives) {
        None => walk(folder, pattern, &mut found, 0, &mut 0)?,
        Some(None) => return Err(BadPattern::Unfinished),
        Some(Some((options, end))) => {
            for option in options {
                found.extend(glob(folder, &format!("{option}{}", &pattern[1 + end..]))?);
            }
        }
    }
    Ok(found)
}

/// `links` are those on the way here, `far` the folders that were looked at behind many of them.
fn walk(
    folder: &Path,
    pattern: &str,
    found: &mut Vec<PathBuf>,
    links: usize,
    far: &mut usize,
) -> Result<(), BadPattern> {
    let links = links + usize::from(folder.is_symlink());
    *far += usize::from(links > MANY_LINKS);
    if *far > MOST_FOLDERS {
        return Err(BadPattern::Circles);
    }
    let plain_end = match find(pattern, |letter| "*?[{\\".contains(letter)) {
        Some(0) => None,
        Some(special) => rfind_slash(&pattern[..special]),
        None => rfind_slash(pattern),
    };
    let (folder, pattern) = match plain_end {
        Some(end) if end > 0 => (folder.join(&pattern[..end]), &pattern[end + 1..]),
        _ => (folder.to_owned(), pattern),
    };
    if fs::symlink_metadata(&folder).is_err() {
        return Ok(());
    }
    if pattern.is_empty() {
        found.push(folder);
        return Ok(());
    }
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
    let mut names: Vec<Vec<u8>> =
        entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name().into_vec())).collect();
    names.sort_unstable();
    let (first, rest) = match find(pattern, |letter| letter == '/') {
        Some(slash) => (&pattern[..slash], Some(&pattern[slash + 1..])),
        None => (pattern, None),
    };
    let at = |name: &[u8]| folder.join(OsStr::from_bytes(name));
    let mut pattern = pattern;
    if first == "**" {
        for name in &names {
            let Ok(metadata) = fs::metadata(at(name)) else { continue };
            if rest.is_none() {
                found.push(at(name));
            }
            if metadata.is_dir() {
                walk(&at(name), pattern, found, links, far)?;
            }
        }
        let Some(rest) = rest else { return Ok(()) };
        pattern = rest;
    }
    for name in &names {
        match matches(pattern, name)? {
            None => {}
            Some(rests) if rests.is_empty() => found.push(at(name)),
            Some(rests) => {
                for rest in rests {
                    walk(&at(name), &rest, found, links, far)?;
                }
            }
        }
    }
    Ok(())
}

/// The first place of such a letter that is not escaped.
fn find(text: &str, wanted: impl Fn(char) -> bool) -> Option<usize> {
    let mut start = 0;
    loop {
        let at = start + text[start..].find(&wanted)?;
        if at == start || text.as_bytes()[at - 1] != b'\\' {
            return Some(at);
        }
        start = at + text[at..].chars().next().map_or(1, char::len_utf8);
    }
}

fn rfind_slash(text: &str) -> Option<usize> {
    let at = text.rfind('/')?;
    if at > 0 && text.as_bytes()[at - 1] == b'\\' { rfind_slash(&text[..at - 1]) } else { Some(at) }
}

/// What stands between braces, without the first one, and where they end.
fn alternatives(text: &str) -> Option<(Vec<&str>, usize)> {
    let (mut options, mut depth, mut escaped, mut start) = (Vec::new(), 1, false, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => {
                options.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        if depth == 0 {
            options.push(&text[start..at]);
            return Some((options, at + 1));
        }
    }
    None
}

/// A letter of a name, and how many bytes it has. A byte that is no UTF-8 counts as one letter.
fn letter(name: &[u8]) -> (char, usize) {
    let whole = |length: usize| name.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
    let found = (1..=4).find_map(|length| whole(length)?.chars().next().map(|letter| (letter, length)));
    found.unwrap_or((char::REPLACEMENT_CHARACTER, 1))
}

/// Whether a name matches the pattern's first part: none if not, otherwise the patterns for what is below it.
fn matches(pattern: &str, name: &[u8]) -> Result<Option<Vec<String>>, BadPattern> {
    let (mut pattern, mut name) = (pattern, name);
    while !name.is_empty() {
        let Some(wanted) = pattern.chars().next() else { break };
        let (found, width) = letter(name);
        let rest = &pattern[wanted.len_utf8()..];
        match wanted {
            '/' => {
                pattern = rest;
                break;
            }
            '\\' => {
                let escaped = rest.chars().next().ok_or(BadPattern::Unfinished)?;
                if escaped != found {
                    return Ok(None);
                }
                (pattern, name) = (&rest[escaped.len_utf8()..], &name[width..]);
            }
            '*' if rest.is_empty() => return Ok(Some(Vec::new())),
            '*' if rest.starts_with('/') => return Ok(Some(vec![rest[1..].to_owned()])),
            '*' => {
                while !name.is_empty() {
                    if let Some(found) = matches(rest, name)? {
                        return Ok(Some(found));
                    }
                    name = &name[letter(name).1..];
                }
                return Ok(None);
            }
            '[' => {
                let end = find(rest, |letter| letter == ']').ok_or(BadPattern::Unfinished)?;
                if !in_class(&rest[..end], found)? {
                    return Ok(None);
                }
                (pattern, name) = (&rest[end + 1..], &name[width..]);
            }
            '{' => {
                let (options, end) = alternatives(rest).ok_or(BadPattern::Unfinished)?;
                let mut all: Option<Vec<String>> = None;
                for option in options {
                    if let Some(found) = matches(&format!("{option}{}", &rest[end..]), name)? {
                        all.get_or_insert_default().extend(found);
                    }
                }
                return Ok(all);
            }
            '?' => (pattern, name) = (rest, &name[width..]),
            _ if wanted == found => (pattern, name) = (rest, &name[width..]),
            _ => return Ok(None),
        }
    }
    if !name.is_empty() {
        return Ok(None);
    }
    if pattern.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let slash = find(pattern, |letter| letter == '/');
    match may_be_empty(&pattern[..slash.unwrap_or(pattern.len())])? {
        false => Ok(None),
        true => Ok(Some(slash.map(|slash| pattern[slash + 1..].to_owned()).into_iter().collect())),
    }
}

fn in_class(class: &str, found: char) -> Result<bool, BadPattern> {
    let (negated, class) = class.strip_prefix('^').map_or((false, class), |rest| (true, rest));
    if class.is_empty() && !negated {
        return Err(BadPattern::Unfinished);
    }
    let mut letters = class.chars().peekable();
    let one = |letters: &mut std::iter::Peekable<std::str::Chars<'_>>| match letters.next() {
        None | Some('-') => Err(BadPattern::Unfinished),
        Some('\\') => letters.next().ok_or(BadPattern::Unfinished),
        Some(letter) => Ok(letter),
    };
    let mut is_in = false;
    while letters.peek().is_some() {
        let low = one(&mut letters)?;
        let high = if letters.next_if_eq(&'-').is_some() { one(&mut letters)? } else { low };
        is_in |= (low..=high).contains(&found);
    }
    Ok(is_in != negated)
}

/// Whether a pattern matches nothing, too.
fn may_be_empty(pattern: &str) -> Result<bool, BadPattern> {
    if matches!(pattern, "" | "*" | "**") {
        return Ok(true);
    }
    let Some(rest) = pattern.strip_prefix('{') else { return Ok(false) };
    let (options, end) = alternatives(rest).ok_or(BadPattern::Unfinished)?;
    if !may_be_empty(&rest[end..])? {
        return Ok(false);
    }
    for option in options {
        if may_be_empty(option)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        folder
    }

    #[test]
    fn patterns_match_what_they_match_for_the_original() {
        let folder = tree(&["a/b/c.txt", "a/b/.hidden", "a/x.go", "a/y.rb", "a-1.tgz", "a-2.tgz", "deep/er/still/z"]);
        std::os::unix::fs::symlink("nowhere", folder.path().join("a/broken")).unwrap();
        std::os::unix::fs::symlink("../deep", folder.path().join("a/linked")).unwrap();
        let found = |pattern: &str| {
            let paths = glob(folder.path(), pattern).unwrap();
            let relative = paths.iter().map(|path| path.strip_prefix(folder.path()).unwrap().display().to_string());
            let mut names: Vec<String> = relative.collect();
            names.sort();
            names.dedup();
            names.join(" ")
        };
        for (pattern, names) in [
            ("a/*", "a/b a/broken a/linked a/x.go a/y.rb"),
            (
                "a/**",
                "a/b a/b/.hidden a/b/c.txt a/linked a/linked/er a/linked/er/still a/linked/er/still/z a/x.go a/y.rb",
            ),
            ("a/b/**/*", "a/b/.hidden a/b/c.txt"),
            ("**/z", "a/linked/er/still/z deep/er/still/z"),
            ("a-[0-9].tgz", "a-1.tgz a-2.tgz"),
            ("a-[^1].tgz", "a-2.tgz"),
            ("{a,deep}/{x.go,er/still}", "a/x.go deep/er/still"),
            ("a/{x,y}.{go,rb}", "a/x.go a/y.rb"),
            ("a-?.tgz", "a-1.tgz a-2.tgz"),
            ("a/\\x.go", "a/x.go"),
            ("none/*", ""),
            ("a/b/c.txt", "a/b/c.txt"),
        ] {
            assert_eq!(found(pattern), names, "{pattern}");
        }
        for wrong in ["a/[x", "a/{x,y", "a/[]", "a/[a-]", "{a"] {
            assert_eq!(glob(folder.path(), wrong), Err(BadPattern::Unfinished), "{wrong}");
        }
    }

    #[test]
    fn a_link_to_its_own_folder_ends() {
        let folder = tree(&["a/file"]);
        std::os::unix::fs::symlink(".", folder.path().join("a/loop")).unwrap();
        assert!(glob(folder.path(), "**/file").unwrap().contains(&folder.path().join("a/file")));
        std::os::unix::fs::symlink("../a", folder.path().join("a/again")).unwrap();
        assert_eq!(glob(folder.path(), "**/file"), Err(BadPattern::Circles));
    }
}
