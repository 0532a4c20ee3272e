//! What the original takes an unquoted word for.

use serde_json::Number;

use crate::Content;

/// Resolves a plain scalar. Infinities and NaN have no form in JSON and stay text.
pub(crate) fn resolve(text: &str) -> Content {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Content::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Content::Boolean(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Content::Boolean(false),
        _ => number(text).map_or_else(|| Content::String(text.to_owned()), Content::Number),
    }
}

fn number(text: &str) -> Option<Number> {
    let first = text.chars().next()?;
    if first == '.' {
        return float(text);
    }
    if !(first.is_ascii_digit() || first == '-' || first == '+') || is_time(text) {
        return None;
    }
    let plain = text.replace('_', "");
    integer(&plain).or_else(|| float(&plain))
}

fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.starts_with(|digit: char| digit.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative { 0_i64.checked_sub_unsigned(magnitude).map(Number::from) } else { Some(magnitude.into()) }
}

fn float(text: &str) -> Option<Number> {
    let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent));
    if is_number { text.parse().ok().and_then(Number::from_f64) } else { None }
}

/// Whether text has to be quoted, or else some reader takes it for something else.
pub(super) fn needs_quotes(text: &str) -> bool {
    let infinite = text.trim_start_matches(['+', '-']);
    !matches!(resolve(text), Content::String(_))
        || is_time(text)
        || is_base_60(text)
        || matches!(infinite, ".inf" | ".Inf" | ".INF")
        || matches!(text, ".nan" | ".NaN" | ".NAN")
}

/// Dates, and dates with a time of day.
fn is_time(text: &str) -> bool {
    let (date, time) = text.find(['T', 't', ' ']).map_or((text, ""), |at| text.split_at(at));
    let within = |part: &str, range: std::ops::RangeInclusive<u32>| {
        matches!(part.len(), 1 | 2)
            && part.chars().all(|c| c.is_ascii_digit())
            && part.parse().is_ok_and(|number| range.contains(&number))
    };
    let mut parts = date.split('-');
    let year = parts.next().is_some_and(|year| year.len() == 4 && year.chars().all(|c| c.is_ascii_digit()));
    let month = parts.next().is_some_and(|month| within(month, 1..=12));
    let day = parts.next().is_some_and(|day| within(day, 1..=31));
    if !(year && month && day && parts.next().is_none()) {
        return false;
    }
    let (clock, needs_zone) = match time.chars().next() {
        None => return true,
        Some(' ') => (&time[1..], false),
        Some(_) => (&time[1..], true),
    };
    let (clock, zone) = clock.find(['Z', '+', '-']).map_or((clock, ""), |at| clock.split_at(at));
    let zone_fits = match zone {
        "" => !needs_zone,
        "Z" => needs_zone,
        offset => {
            let numbers = offset[1..].split_once(':');
            needs_zone && numbers.is_some_and(|(hours, minutes)| hours.len() == 2 && minutes.len() == 2)
        }
    };
    let clock = clock.split('.').next().unwrap_or_default();
    let mut parts = clock.split(':');
    let hour = parts.next().is_some_and(|hour| within(hour, 0..=23));
    let minute = parts.next().is_some_and(|minute| within(minute, 0..=59));
    let second = parts.next().is_some_and(|second| within(second, 0..=59));
    zone_fits && hour && minute && second && parts.next().is_none()
}

/// `1:30`, which old readers take for ninety.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let whole = unsigned.split('.').next().unwrap_or_default();
    let fraction = unsigned.get(whole.len()..).unwrap_or_default();
    let mut parts = whole.split(':');
    let is_number = |part: &str| part.chars().all(|c| c.is_ascii_digit() || c == '_');
    let first = parts.next().is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()) && is_number(part));
    let mut rest = parts.peekable();
    first
        && rest.peek().is_some()
        && rest.all(|part| matches!(part.len(), 1 | 2) && part.parse::<u8>().is_ok_and(|part| part < 60))
        && is_number(fraction.strip_prefix('.').unwrap_or_default())
}

/// The shortest decimal form, with an exponent where the original has one.
pub(super) fn number_text(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    format!("{float}")
}
