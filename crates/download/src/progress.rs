//! How far a download came, and what an answer means for it.

use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, LAST_MODIFIED};

/// What is known of the file at the other end.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) received: u64,
    /// How long it is, where the server said so.
    pub(crate) total: Option<u64>,
    /// By what the server would know that it is still the same file.
    validator: Option<HeaderValue>,
}

/// The part that a server sends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// From the start.
    All,
    /// What is missing.
    Rest,
    /// Something that nobody asked for.
    Other,
}

impl Progress {
    /// What to ask for to get the rest; nothing if the whole file must come again, because it may be another one by now.
    pub(crate) fn rest(&self) -> Option<(String, HeaderValue)> {
        let validator = self.validator.clone().filter(|_| self.received > 0)?;
        Some((format!("bytes={}-", self.received), validator))
    }

    /// Begins with a whole file.
    pub(crate) fn start(&mut self, headers: &HeaderMap) {
        *self = Self { received: 0, total: length(headers), validator: validator(headers) };
    }

    /// Which part an answer to a request for the rest has.
    pub(crate) fn part(&self, headers: &HeaderMap) -> Part {
        let Some((first, total)) = range(headers) else { return Part::Other };
        let is_same = total.is_none() || self.total.is_none() || total == self.total;
        match first {
            first if first == self.received && is_same => Part::Rest,
            0 => Part::All,
            _ => Part::Other,
        }
    }

    /// Whether everything is here, as far as anybody can tell.
    pub(crate) fn is_whole(&self) -> bool {
        self.total.is_none_or(|total| self.received == total)
    }
}

fn text(headers: &HeaderMap, name: reqwest::header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn length(headers: &HeaderMap) -> Option<u64> {
    text(headers, CONTENT_LENGTH)?.trim().parse().ok()
}

/// A weak tag says that two files mean the same, which is not enough to put them together.
fn validator(headers: &HeaderMap) -> Option<HeaderValue> {
    let strong = headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
    strong.or_else(|| headers.get(LAST_MODIFIED)).cloned()
}

/// `bytes 5-9/10`: the first byte, and how many there are.
fn range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let (range, total) = text(headers, CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.trim().parse().ok()?, total.trim().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_what_is_certainly_the_same_file_is_continued() {
        let mut progress = Progress::default();
        for (tag, continues) in
            [(("etag", "\"a\""), true), (("etag", "W/\"a\""), false), (("last-modified", "x"), true)]
        {
            progress.start(&headers(&[tag, ("content-length", "10")]));
            progress.received = 5;
            assert_eq!(progress.rest().is_some(), continues, "{tag:?}");
        }
        assert_eq!(progress.part(&headers(&[("content-range", "bytes 5-9/10")])), Part::Rest);
        assert_eq!(progress.part(&headers(&[("content-range", "bytes 5-9/*")])), Part::Rest);
        assert_eq!(progress.part(&headers(&[("content-range", "bytes 0-9/10")])), Part::All);
        for wrong in ["bytes 6-9/10", "bytes 5-11/12", "5-9/10", ""] {
            assert_eq!(progress.part(&headers(&[("content-range", wrong)])), Part::Other, "{wrong}");
        }
    }
}
