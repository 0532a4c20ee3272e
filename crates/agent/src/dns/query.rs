//! What a name asks for.

use super::records::AddressRecord;

/// A name taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Query<'n> {
    pub(crate) target: Target<'n>,
    /// The id or index of one instance.
    pub(crate) host: Option<&'n str>,
    filters: Vec<(u8, &'n str)>,
    /// 0 smart, 1 unhealthy, 3 healthy, 4 all.
    pub(crate) health: u64,
}

/// Whom a name is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target<'n> {
    Group(Group<'n>),
    Agent(&'n str),
}

/// A group by one of its two names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Group<'n> {
    /// `group.network.deployment.domain`; each of the first three may have a `*` at its ends.
    Name(&'n str),
    /// `number.domain`.
    Number(String),
}

/// Letters that filters begin with.
const FILTERS: &[u8] = b"aimnsy";

impl<'n> Query<'n> {
    /// A name in lower case without a dot at its end; none if it has not the form of one.
    pub(crate) fn parse(name: &'n str, domains: &[String]) -> Option<Self> {
        if let Some(agent) = name.strip_suffix(".bosh-agent-id") {
            return Some(Self { target: Target::Agent(agent), host: None, filters: Vec::new(), health: 4 });
        }
        let is_below = |domain: &&str| name.strip_suffix(*domain).is_some_and(|rest| rest.ends_with('.'));
        let domain = domains.iter().map(String::as_str).find(is_below).unwrap_or("bosh");
        let (first, rest) = name.split_once('.')?;
        let parts = rest.strip_suffix(domain)?.strip_suffix('.')?;
        let group = match parts.strip_prefix("q-g") {
            Some(number) if !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()) => {
                Group::Number(format!("{number}.{domain}"))
            }
            _ if parts.split('.').count() == 3 => Group::Name(rest),
            _ => return None,
        };
        let Some(filters) = first.strip_prefix("q-") else {
            return Some(Self { target: Target::Group(group), host: Some(first), filters: Vec::new(), health: 4 });
        };
        let filters = pairs(filters);
        if filters.is_empty() {
            return None;
        }
        let health = filters.iter().find(|(letter, _)| *letter == b's').and_then(|(_, number)| number.parse().ok());
        Some(Self { target: Target::Group(group), host: None, filters, health: health.unwrap_or_default() })
    }

    /// What an alias leads to; `host` stands for its placeholder.
    pub(crate) fn of_alias(host: Option<&'n str>, group: &str, domain: &str, health: u64) -> Self {
        let key = format!("{group}.{}", domain.trim_end_matches('.'));
        Self { target: Target::Group(Group::Number(key)), host, filters: Vec::new(), health }
    }

    /// Filters of one letter are alternatives; those of different letters all have to fit.
    pub(crate) fn fits(&self, record: &AddressRecord) -> bool {
        if let Some(host) = self.host
            && record.id != host
            && record.index.map(|index| index.to_string()).as_deref() != Some(host)
        {
            return false;
        }
        b"aimn".iter().all(|letter| {
            let mut wanted = self.filters.iter().filter(|(filter, _)| filter == letter).map(|(_, number)| *number);
            let index;
            let has = match letter {
                b'a' => record.az_id.as_deref(),
                b'm' => record.number.as_deref(),
                b'n' => record.network_id.as_deref(),
                _ => {
                    index = record.index.map(|index| index.to_string());
                    index.as_deref()
                }
            };
            let Some(first) = wanted.next() else { return true };
            std::iter::once(first).chain(wanted).any(|number| Some(number) == has)
        })
    }
}

/// Letters with numbers; whatever else stands between them is ignored, as BOSH's DNS server does.
fn pairs(text: &str) -> Vec<(u8, &str)> {
    let (bytes, mut pairs, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let digits = bytes[at + 1..].iter().take_while(|digit| digit.is_ascii_digit()).count();
        if FILTERS.contains(&bytes[at]) && digits > 0 {
            pairs.push((bytes[at], &text[at + 1..at + 1 + digits]));
            at += digits;
        }
        at += 1;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_letters_with_numbers_and_the_rest_is_ignored() {
        assert_eq!(pairs("a1a22n3s0"), [(b'a', "1"), (b'a', "22"), (b'n', "3"), (b's', "0")]);
        assert_eq!(pairs("xa-1s4zz9"), [(b's', "4")]);
        assert!(pairs("").is_empty() && pairs("abc").is_empty() && pairs("7").is_empty());
    }

    /// Names come from anybody who can reach the resolver.
    #[test]
    fn no_name_of_any_letters_breaks_the_parser() {
        let letters = ['q', '-', '.', 'g', 's', '0', '*', 'ä', 'b', 'o', 'h', '_'];
        let mut state = 7_u64;
        for _ in 0..50_000 {
            let mut name = String::new();
            for _ in 0..(state % 40) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                name.push(letters[(state >> 33) as usize % letters.len()]);
            }
            state = state.wrapping_add(1);
            let _ = Query::parse(&name, &["bosh".to_owned()]);
            let _ = Query::parse(&format!("{name}.bosh"), &["bosh".to_owned()]);
        }
    }
}
