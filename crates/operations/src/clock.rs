//! Times as the API and the store write them.

use std::time::{SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::macros::format_description;

/// Unix seconds.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// Unix microseconds, for telling apart what happens within a second.
pub fn now_in_microseconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// `2024-01-01 00:00:00 UTC`, one of the three forms that clients parse.
pub fn utc(seconds: i64) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    at(seconds).format(format).unwrap_or_default()
}

/// `2024-01-01T00:00:00Z`.
pub fn rfc3339(seconds: i64) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    at(seconds).format(format).unwrap_or_default()
}

/// Unix seconds of a time in one of the forms that clients write: the two above, `2024-01-01 00:00:00 +0000`, RFC 3339, and
/// what `date` prints.
pub fn parse(text: &str) -> Option<i64> {
    let offset = text.strip_suffix(" UTC").map_or_else(|| text.to_owned(), |local| format!("{local} +0000"));
    let with_offset = format_description!(
        "[year]-[month]-[day] [hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
    );
    let as_date_prints = format_description!(
        "[weekday repr:short] [month repr:short] [day padding:space] [hour]:[minute]:[second] UTC [year]"
    );
    OffsetDateTime::parse(&offset, with_offset)
        .or_else(|_| OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339))
        .or_else(|_| time::PrimitiveDateTime::parse(text, as_date_prints).map(time::PrimitiveDateTime::assume_utc))
        .ok()
        .map(OffsetDateTime::unix_timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_forms_that_clients_parse() {
        assert_eq!(utc(1_700_000_000), "2023-11-14 22:13:20 UTC");
        assert_eq!(rfc3339(1_700_000_000), "2023-11-14T22:13:20Z");
        for text in [
            "2023-11-14 22:13:20 UTC",
            "2023-11-14 23:13:20 +0100",
            "2023-11-14T22:13:20Z",
            "Tue Nov 14 22:13:20 UTC 2023",
        ] {
            assert_eq!(parse(text), Some(1_700_000_000), "{text}");
        }
        assert_eq!(parse("yesterday"), None);
    }
}
