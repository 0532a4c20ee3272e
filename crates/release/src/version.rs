//! Versions of releases: `release[-pre][+post]`, each part of components between dots.

use std::cmp::Ordering;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    release: Segment,
    pre: Option<Segment>,
    post: Option<Segment>,
}

/// why there is no next version
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the version '{0}' ends in a word, so nothing comes next; give --version")]
pub struct NoNext(pub String);

/// why a text is no version
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Release version invalid: {0}")]
pub struct NoVersion(pub String);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment(Vec<Component>);

/// Numbers are less than words. One with a leading zero is a word.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Component {
    Number(u64),
    Word(String),
}

impl Version {
    /// Reads a version. `10.2-dev` is the old form of `10+dev.2`.
    pub fn parse(text: &str) -> Result<Self, NoVersion> {
        let invalid = || NoVersion(text.to_owned());
        if let Some((release, number)) = text.strip_suffix("-dev").and_then(|old| old.rsplit_once('.'))
            && number.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Self::parse(&format!("{release}+dev.{number}"));
        }
        let (rest, post) = match text.split_once('+') {
            Some((rest, post)) => (rest, Some(post)),
            None => (text, None),
        };
        let (release, pre) = match rest.split_once('-') {
            Some((release, pre)) => (release, Some(pre)),
            None => (rest, None),
        };
        let optional = |text: Option<&str>| text.map(|text| Segment::parse(text, true)).transpose();
        let parsed = Segment::parse(release, false)
            .and_then(|release| Ok(Self { release, pre: optional(pre)?, post: optional(post)? }));
        parsed.map_err(|()| invalid())
    }

    /// The final version after this one: its last number and one, without what stands behind.
    pub fn next_final(&self) -> Result<Self, NoNext> {
        let release = self.release.next().ok_or_else(|| NoNext(self.to_string()))?;
        Ok(Self { release, pre: None, post: None })
    }

    /// The dev version after this one: `1+dev.1` after `1`, `1+dev.3` after `1+dev.2`.
    pub fn next_dev(&self) -> Result<Self, NoNext> {
        let post = match &self.post {
            None => Segment(vec![Component::Word("dev".to_owned()), Component::Number(1)]),
            Some(post) => post.next().ok_or_else(|| NoNext(self.to_string()))?,
        };
        Ok(Self { post: Some(post), ..self.clone() })
    }

    /// The version that a dev version gets where others of its release are known: the one after the last of them, or the first. None
    /// if it is no dev version.
    pub fn rebased<'a>(&self, known: impl IntoIterator<Item = &'a Self>) -> Option<Result<Self, NoNext>> {
        self.post.as_ref()?;
        let is_like_it = |other: &&Self| other.release.cmp(&self.release).is_eq() && other.pre == self.pre;
        let first = Self { post: None, ..self.clone() };
        Some(known.into_iter().filter(is_like_it).max().unwrap_or(&first).next_dev())
    }

    /// The same version, made at this time in seconds since 1970: `1+dev.1700000000`.
    pub fn dev_at(&self, seconds: u64) -> Self {
        let post = Segment(vec![Component::Word("dev".to_owned()), Component::Number(seconds)]);
        Self { post: Some(post), ..self.clone() }
    }
}

/// The line of a stemcell's version: `621` of `621.5`. A package that was compiled for one version of a line runs on all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StemcellLine(Option<Component>);

impl StemcellLine {
    /// Old stemcells have `_` for `.`.
    pub fn of(version: &str) -> Self {
        let first = Version::parse(&version.replace('_', ".")).ok().map(|version| version.release.0);
        Self(first.and_then(|components| components.into_iter().next()))
    }

    /// Whether another version is of this line. What is no version is of none.
    pub fn has(&self, version: &str) -> bool {
        self.0.is_some() && Self::of(version) == *self
    }
}

impl Version {
    /// The newest of some versions of one line: the one with the greatest second number.
    pub fn newest_of_line<'a, T: 'a>(
        candidates: impl IntoIterator<Item = &'a T>,
        version: impl Fn(&T) -> &str,
    ) -> Option<&'a T> {
        let rank = |candidate: &&T| {
            let parsed = Self::parse(version(candidate)).ok();
            let second = parsed.as_ref().and_then(|version| version.release.0.get(1).cloned());
            (second.unwrap_or(Component::Number(0)), parsed)
        };
        candidates.into_iter().max_by_key(rank)
    }
}

impl Segment {
    fn parse(text: &str, has_dashes: bool) -> Result<Self, ()> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || (has_dashes && byte == b'-');
        let component = |part: &str| match part.is_empty() || !part.bytes().all(is_allowed) {
            true => Err(()),
            false => Ok(Component::parse(part)),
        };
        text.split('.').map(component).collect::<Result<_, _>>().map(Self)
    }
}

impl Segment {
    fn next(&self) -> Option<Self> {
        let mut next = self.clone();
        match next.0.last_mut()? {
            Component::Number(last) => *last = last.checked_add(1)?,
            Component::Word(_) => return None,
        }
        Some(next)
    }
}

impl Component {
    fn parse(text: &str) -> Self {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
        match text.parse() {
            Ok(number) if is_number => Self::Number(number),
            _ => Self::Word(text.to_owned()),
        }
    }
}

impl Ord for Segment {
    /// What one has more than the other counts, unless it is all 0.
    fn cmp(&self, other: &Self) -> Ordering {
        let common = self.0.len().min(other.0.len());
        let is_more = |rest: &[Component]| rest.iter().any(|component| *component != Component::Number(0));
        self.0[..common]
            .cmp(&other.0[..common])
            .then_with(|| is_more(&self.0[common..]).cmp(&is_more(&other.0[common..])))
    }
}

impl PartialOrd for Segment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    /// A version before its release is less than it, one after it more.
    fn cmp(&self, other: &Self) -> Ordering {
        let pre = match (&self.pre, &other.pre) {
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (one, other) => one.cmp(other),
        };
        self.release.cmp(&other.release).then(pre).then_with(|| self.post.cmp(&other.post))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, component) in self.0.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            match component {
                Component::Number(number) => write!(f, "{dot}{number}")?,
                Component::Word(word) => write!(f, "{dot}{word}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.release)?;
        if let Some(pre) = &self.pre {
            write!(f, "-{pre}")?;
        }
        match &self.post {
            Some(post) => write!(f, "+{post}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn versions_have_the_order_of_bosh() {
        let ascending =
            ["1-rc.1", "1-rc.2", "1", "1+dev.1", "1+dev.2", "1+dev.10", "1.1", "1.2", "1.10", "1.a", "2", "10", "a"];
        for pair in ascending.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
        }
        assert_eq!(version("1").cmp(&version("1.0")), Ordering::Equal);
        assert_eq!(version("10.2-dev"), version("10+dev.2"));
        assert!(version("1.9") < version("1.007"), "a leading zero makes a word");
        for wrong in ["", "1 2", "1..2", "1-", "1+", "a/b", "1+a+b", "ü"] {
            assert_eq!(Version::parse(wrong), Err(NoVersion(wrong.to_owned())));
        }
    }

    #[test]
    fn a_line_of_stemcells_has_the_same_first_number_and_its_newest_the_greatest_second() {
        let line = StemcellLine::of("621.5");
        for (other, is_of_line) in [("621.5", true), ("621", true), ("621_9", true), ("62.5", false), ("6215", false)] {
            assert_eq!(line.has(other), is_of_line, "{other}");
        }
        assert!(!StemcellLine::of("a/b").has("a/b"), "what is no version is of no line");
        let newest = |versions: &[&'static str]| Version::newest_of_line(versions, |version| version).copied();
        assert_eq!(newest(&["621.9", "621.10", "621"]), Some("621.10"));
        assert_eq!(newest(&["621"]), Some("621"));
        assert_eq!(newest(&[]), None);
    }

    #[test]
    fn the_next_version_is_that_of_bosh() {
        for (last, final_, dev) in [
            ("0+dev.0", "1", "0+dev.1"),
            ("1", "2", "1+dev.1"),
            ("1+dev.9", "2", "1+dev.10"),
            ("2.5.9", "2.5.10", "2.5.9+dev.1"),
            ("1-rc.1", "2", "1-rc.1+dev.1"),
        ] {
            let last = version(last);
            assert_eq!(
                (last.next_final().unwrap().to_string(), last.next_dev().unwrap().to_string()),
                (final_.into(), dev.into())
            );
        }
        assert_eq!(version("1+dev.3").dev_at(1_700_000_000).to_string(), "1+dev.1700000000");
        let known = ["1", "1+dev.3", "1-rc.1+dev.8", "2+dev.9"].map(version);
        let rebased = |text: &str| version(text).rebased(&known).map(|rebased| rebased.unwrap().to_string());
        assert_eq!(rebased("1+dev.1").as_deref(), Some("1+dev.4"));
        assert_eq!(rebased("3+dev.7").as_deref(), Some("3+dev.1"));
        assert_eq!(rebased("1-rc.1+dev.1").as_deref(), Some("1-rc.1+dev.9"));
        assert_eq!(rebased("1"), None);
        assert_eq!(version("1.a").next_final(), Err(NoNext("1.a".to_owned())));
        assert_eq!(version("1+dev.007").next_dev(), Err(NoNext("1+dev.007".to_owned())));
    }

    proptest! {
        #[test]
        fn a_version_is_written_as_it_was_read(text in "[0-9a-z_]{1,4}(\\.[0-9a-z]{1,3}){0,2}(-rc\\.[1-9])?(\\+[a-z-]{1,4})?") {
            let is_old = text.ends_with("-dev");
            prop_assume!(!is_old);
            prop_assert_eq!(version(&text).to_string(), text);
        }

        #[test]
        fn no_text_makes_it_fail(text in ".*") {
            let _ = Version::parse(&text);
        }
    }
}
