//! Who asks: somebody who may write, an instance that may read its own settings, or a stranger.

use std::net::IpAddr;

use aws_lc_rs::hmac;
use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use subtle::ConstantTimeEq;
use windlass_contract::Secret;

use crate::credentials::{Credentials, reading_key, reading_password_with};

/// What a request's credentials say about who sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// Somebody who may write, and read everything.
    Writer,
    /// The instance whose settings are asked for.
    Instance,
    /// Somebody without credentials.
    Anonymous,
    /// Somebody with wrong credentials, which may be another instance's.
    Stranger,
}

/// Knows everybody's credentials.
#[derive(Debug)]
pub(super) struct Gate {
    writers: Vec<(Credentials, hmac::Key)>,
}

impl Gate {
    /// All of `writers` may write, and hand out reading credentials: so passwords can be replaced one VM after the other.
    pub(super) fn new(writers: Vec<Credentials>) -> Self {
        let with_key = |writer: Credentials| {
            let key = reading_key(&writer.password);
            (writer, key)
        };
        Self { writers: writers.into_iter().map(with_key).collect() }
    }

    /// Whose credentials a request for `id` shows.
    pub(super) fn caller(&self, headers: &HeaderMap, id: &str) -> Caller {
        let Some(header) = headers.get(header::AUTHORIZATION) else { return Caller::Anonymous };
        let Some(shown) = header.to_str().ok().and_then(decode) else { return Caller::Stranger };
        if self.writers.iter().any(|(writer, _)| same(&writer.user, &shown.user) & same_secret(writer, &shown)) {
            return Caller::Writer;
        }
        let is_instance = |key| {
            let known = Credentials { user: id.to_owned(), password: reading_password_with(key, id) };
            same_secret(&known, &shown)
        };
        // An instance's name is no secret; its password is.
        if shown.user == id && self.writers.iter().any(|(_, key)| is_instance(key)) {
            return Caller::Instance;
        }
        Caller::Stranger
    }
}

/// Compared in constant time, so that an answer's delay says nothing about what is right.
fn same(known: &str, shown: &str) -> bool {
    known.as_bytes().ct_eq(shown.as_bytes()).into()
}

fn same_secret(known: &Credentials, shown: &Credentials) -> bool {
    same(known.password.reveal(), shown.password.reveal())
}

fn decode(header: &str) -> Option<Credentials> {
    let (scheme, credentials) = header.split_once(' ')?;
    let decoded = String::from_utf8(BASE64_STANDARD.decode(credentials.trim()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    scheme.eq_ignore_ascii_case("basic").then(|| Credentials { user: user.to_owned(), password: Secret::new(password) })
}

/// The name in a request's credentials; empty if there is none.
pub(super) fn shown_name(headers: &HeaderMap) -> String {
    let shown = headers.get(header::AUTHORIZATION).and_then(|header| decode(header.to_str().ok()?));
    shown.map(|shown| shown.user).unwrap_or_default()
}

/// Whether `address` is one that an instance has by its own settings.
pub(super) fn is_address_of(address: IpAddr, settings: &Secret) -> bool {
    let settings: Value = serde_json::from_str(settings.reveal()).unwrap_or_default();
    let networks = settings["networks"].as_object().into_iter().flat_map(|networks| networks.values());
    let mut addresses = networks.filter_map(|network| network["ip"].as_str()?.parse::<IpAddr>().ok());
    addresses.any(|it| it.to_canonical() == address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::reading_password;

    fn shown(user: &str, password: &str) -> HeaderMap {
        let value = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
        HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())])
    }

    fn writer(user: &str, password: &str) -> Credentials {
        Credentials { user: user.into(), password: Secret::new(password) }
    }

    #[test]
    fn an_instance_is_itself_and_nobody_else() {
        let gate = Gate::new(vec![writer("cpi", "new"), writer("cpi", "old")]);
        let reading = |password, id| reading_password(&Secret::new(password), id);
        let cases = [
            (shown("cpi", "new"), Caller::Writer),
            (shown("cpi", "old"), Caller::Writer),
            (shown("vm-1", reading("new", "vm-1").reveal()), Caller::Instance),
            (shown("vm-1", reading("old", "vm-1").reveal()), Caller::Instance),
            (shown("vm-2", reading("new", "vm-2").reveal()), Caller::Stranger),
            (shown("vm-1", reading("new", "vm-2").reveal()), Caller::Stranger),
            (shown("vm-1", reading("other", "vm-1").reveal()), Caller::Stranger),
            (shown("cpi", reading("new", "cpi").reveal()), Caller::Stranger),
            (shown("vm-1", "new"), Caller::Stranger),
            (shown("cpi", ""), Caller::Stranger),
            (shown("", "new"), Caller::Stranger),
            (HeaderMap::from_iter([(header::AUTHORIZATION, "Bearer x".parse().unwrap())]), Caller::Stranger),
            (HeaderMap::new(), Caller::Anonymous),
        ];
        for (headers, expected) in cases {
            assert_eq!(gate.caller(&headers, "vm-1"), expected, "{headers:?}");
        }
    }

    #[test]
    fn an_address_belongs_to_whose_settings_name_it() {
        let settings =
            Secret::new(r#"{"networks":{"a":{"ip":"10.0.0.9"},"b":{"ip":"fd00::1"},"c":{"type":"dynamic"}}}"#);
        let is = |address: &str, settings: &Secret| is_address_of(address.parse().unwrap(), settings);
        assert!(is("10.0.0.9", &settings) && is("fd00::1", &settings) && is("::ffff:10.0.0.9", &settings));
        assert!(!is("10.0.0.8", &settings) && !is("127.0.0.1", &settings));
        assert!(!is("10.0.0.9", &Secret::new("no JSON")) && !is("10.0.0.9", &Secret::new(r#"{"networks":[]}"#)));
    }
}
