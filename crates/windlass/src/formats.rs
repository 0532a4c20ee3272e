//! Times and sizes as the original prints them, ids as the demo does, and texts of others so that they cannot steer a terminal.

use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};
use windlass_contract::MiB;

const UNIX_DATE: &[BorrowedFormatItem<'_>] = format_description!(
    "[weekday repr:short] [month repr:short] [day padding:space] [hour]:[minute]:[second] UTC [year]"
);
const CLOCK: &[BorrowedFormatItem<'_>] = format_description!("[hour]:[minute]:[second]");
const DIRECTOR: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");

/// A text of somebody else without what steers a terminal: control characters and what turns the direction of writing are shown
/// as `\u{1b}`. Lines stay lines.
pub(crate) fn plain(text: &str) -> String {
    let mut rest = text.chars().peekable();
    let mut shown = String::with_capacity(text.len());
    while let Some(letter) = rest.next() {
        match letter {
            '\n' | '\t' => shown.push(letter),
            // The end of a line in HTTP.
            '\r' if rest.peek() == Some(&'\n') => shown.push(letter),
            _ if steers(letter) => shown.extend(letter.escape_unicode()),
            _ => shown.push(letter),
        }
    }
    shown
}

/// The same for what stands in one line: a line break would begin a line that nobody wrote.
pub(crate) fn plain_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if steers(letter) { shown.extend(letter.escape_unicode()) } else { shown.push(letter) }
    }
    shown
}

fn steers(letter: char) -> bool {
    letter.is_control() || turns(letter)
}

/// What turns the direction of writing, or breaks lines without being a line break.
pub(crate) fn turns(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text whose UUIDs are shortened to their beginnings: `vm-83e68947…`.
pub(crate) fn short_ids(text: &str) -> String {
    const LENGTH: usize = 36;
    const SHOWN: usize = 8;
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let id = rest.get(..LENGTH).filter(|word| uuid::Uuid::try_parse(word).is_ok());
        let (shown, length) = id.map_or((first.len_utf8(), first.len_utf8()), |_| (SHOWN, LENGTH));
        short.push_str(&rest[..shown]);
        short.extend(id.map(|_| '…'));
        rest = &rest[length..];
    }
    short
}

/// A text whose digests are shortened to their beginnings: `952413de…`.
pub(crate) fn short_digests(text: &str) -> String {
    const SHORTEST: usize = 40;
    const SHOWN: usize = 8;
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.chars().take_while(char::is_ascii_hexdigit).count();
        let (shown, taken) = match digits {
            0 => (1, rest.chars().next().map_or(1, char::len_utf8)),
            digits if digits < SHORTEST => (digits, digits),
            digits => (SHOWN, digits),
        };
        short.extend(rest[..taken].chars().take(shown));
        short.extend((shown == SHOWN && taken >= SHORTEST).then_some('…'));
        rest = &rest[taken..];
    }
    short
}

/// A text in lines of at most `width` letters, broken between words; all but the first are indented. What is longer than a
/// line by itself stays whole.
pub(crate) fn folded(text: &str, width: usize, indent: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    // The blanks that a line begins with belong to its first word.
    let words = text.len() - text.trim_start().len();
    for (index, word) in text[words..].split(' ').enumerate() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{}{word}", " ".repeat(if index == 0 { words } else { indent }))),
        }
    }
    lines.join("\n")
}

/// `Sun Nov 15 19:20:53 UTC 2026`; empty for a time that does not exist.
pub(crate) fn date(unix: i64) -> String {
    OffsetDateTime::from_unix_timestamp(unix).ok().and_then(|time| time.format(UNIX_DATE).ok()).unwrap_or_default()
}

/// `19:20:53`.
pub(crate) fn clock(unix: i64) -> String {
    OffsetDateTime::from_unix_timestamp(unix).ok().and_then(|time| time.format(CLOCK).ok()).unwrap_or_default()
}

/// The director's `2026-11-15 19:20:53 UTC` or `2026-11-15T19:20:53Z` as a date; what is in no such form is kept as it is.
pub(crate) fn date_of_director(text: &str) -> String {
    let written = PrimitiveDateTime::parse(text, DIRECTOR).map(PrimitiveDateTime::assume_utc);
    match written.or_else(|_| OffsetDateTime::parse(text, &Rfc3339)) {
        Ok(time) => date(time.unix_timestamp()),
        Err(_) => text.to_owned(),
    }
}

/// The time that a text is, if it is one that [`date`] writes.
pub(crate) fn unix_time_of(text: &str) -> Option<i64> {
    PrimitiveDateTime::parse(text, UNIX_DATE).ok().map(|time| time.assume_utc().unix_timestamp())
}

/// `1.750 s`, from milliseconds.
pub(crate) fn seconds(milliseconds: i64) -> String {
    format!("{}.{:03} s", milliseconds.max(0) / 1000, milliseconds.max(0) % 1000)
}

/// The time of this machine.
pub(crate) fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

/// `12 s ago`, `5 min ago`, `3 h ago`, `2 d ago`, `in 4 min`.
pub(crate) fn relative(time: i64, now: i64) -> String {
    let distance = now.abs_diff(time);
    let words = match distance {
        0..60 => format!("{distance} s"),
        60..3600 => format!("{} min", distance / 60),
        3600..172_800 => format!("{} h", distance / 3600),
        _ => format!("{} d", distance / 86_400),
    };
    if time > now { format!("in {words}") } else { format!("{words} ago") }
}

/// `00:01:30`.
pub(crate) fn duration(seconds: i64) -> String {
    let seconds = seconds.max(0);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// `1.0 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 10.0);
    format!("{value:.digits$} {}", UNITS[unit])
}

/// `1.0 GB`, in powers of ten.
pub(crate) fn size_si(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 9.95);
    format!("{value:.digits$} {}", UNITS[unit])
}

/// An object in a cell: YAML, and nothing if it is empty.
pub(crate) fn yaml_cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::Object(entries) if entries.is_empty() => String::new(),
        value => windlass_manifest::original::to_yaml(value).trim_end().to_owned(),
    }
}

/// The same for a size that the director counts in MiB.
pub(crate) fn size_mib(MiB(mib): MiB) -> String {
    size(mib.saturating_mul(1024 * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_folded_between_words() {
        assert_eq!(folded("  a bc def ghij", 8, 4), "  a bc\n    def\n    ghij");
        assert_eq!(folded("endless-word and more", 6, 0), "endless-word\nand\nmore");
    }

    #[test]
    fn what_a_vm_says_does_not_steer_the_terminal() {
        let hostile = "\u{1b}]0;OWNED\u{7}\u{1b}[2J\u{9b}31mHACK\r\nfake\tline \u{202e}\u{7f}\rä";
        let shown = r"\u{1b}]0;OWNED\u{7}\u{1b}[2J\u{9b}31mHACK";
        assert_eq!(plain(hostile), format!("{shown}\r\nfake\tline {}", r"\u{202e}\u{7f}\u{d}ä"));
        assert_eq!(plain_line(hostile), format!("{shown}{}", r"\u{d}\u{a}fake\u{9}line \u{202e}\u{7f}\u{d}ä"));
    }

    #[test]
    fn only_whole_ids_are_shortened() {
        let id = "83e68947-b7a1-4c06-9c6e-3f2b81f1a7a2";
        assert_eq!(
            short_ids(&format!("é vm-{id}: {id}, {}", &id[1..])),
            format!("é vm-83e68947…: 83e68947…, {}", &id[1..])
        );
    }

    #[test]
    fn times_are_told_as_people_tell_them() {
        let now = 1_794_770_131;
        let told = [(0, "0 s ago"), (59, "59 s ago"), (60, "1 min ago"), (7200, "2 h ago"), (200_000, "2 d ago")];
        for (ago, words) in told {
            assert_eq!(relative(now - ago, now), words);
        }
        assert_eq!(relative(now + 240, now), "in 4 min");
        assert_eq!(unix_time_of(&date(now)), Some(now));
        assert_eq!(unix_time_of("yesterday"), None);
    }

    #[test]
    fn only_long_digests_are_shortened() {
        let digest = "952413de4ec67ebbf530502147f20fb3fd8d0045ce24e78d742b33d3d44c491c";
        assert_eq!(short_digests(&format!("hello/{digest} é")), "hello/952413de… é");
        assert_eq!(short_digests("deadbeef, façade"), "deadbeef, façade");
    }

    #[test]
    fn times_and_sizes_look_like_the_originals() {
        assert_eq!(date(1794770131), "Sun Nov 15 19:15:31 UTC 2026");
        assert_eq!(clock(1794770131), "19:15:31");
        assert_eq!(date_of_director("2026-11-15 19:18:19 UTC"), "Sun Nov 15 19:18:19 UTC 2026");
        assert_eq!(date_of_director("2026-11-15T19:18:19Z"), "Sun Nov 15 19:18:19 UTC 2026");
        assert_eq!(date_of_director("yesterday"), "yesterday");
        assert_eq!(duration(3671), "01:01:11");
        assert_eq!(size_mib(MiB(1024)), "1.0 GiB");
        assert_eq!(size_mib(MiB(64)), "64 MiB");
        assert_eq!(size(500), "500 B");
        assert_eq!(size_si(2_048_000), "2.0 MB");
        assert_eq!(size_si(12_000_000), "12 MB");
    }
}
