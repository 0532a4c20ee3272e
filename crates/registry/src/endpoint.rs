//! Where a registry is: a URL that may hold credentials, and never shows them.

use std::fmt;

use hyper::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use windlass_contract::Secret;

use crate::client::RegistryError;
use crate::credentials::Credentials;

/// Letters, digits and what RFC 3986 calls unreserved stay.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A registry's endpoint without its credentials; what it prints can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) tls: bool,
    /// Without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Without a slash at its end.
    path: String,
}

impl Endpoint {
    /// Reads `text`; without a scheme, `http` is meant, as the original client reads it.
    pub(crate) fn parse(text: &str) -> Result<(Self, Option<Credentials>), RegistryError> {
        let wrong = |reason| RegistryError::Endpoint { reason };
        let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = text.parse().map_err(|_| wrong("it is no URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("its scheme is neither http nor https")),
        };
        let authority = uri.authority().ok_or(wrong("it has no host"))?.as_str();
        let credentials = authority.rsplit_once('@').map(|(credentials, _)| {
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            let decode = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
            Credentials { user: decode(user), password: Secret::new(decode(password)) }
        });
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok((Self { tls, host, port, path }, credentials))
    }

    /// `host:port`, for the request's header.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The path of an instance's settings.
    pub(crate) fn settings(&self, id: &str) -> String {
        format!("{}/instances/{}/settings", self.path, utf8_percent_encode(id, ESCAPED))
    }

    /// The endpoint with credentials inside, as agents take it.
    pub(crate) fn with_credentials(&self, credentials: &Credentials) -> Secret {
        let escaped = |text| utf8_percent_encode(text, ESCAPED);
        let (user, password) = (escaped(&credentials.user), escaped(credentials.password.reveal()));
        Secret::new(format!("{}://{user}:{password}@{}{}", self.scheme(), self.authority(), self.path))
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme(), self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_the_ecosystem_writes_them_and_shown_without_credentials() {
        for (text, shown, user) in [
            ("http://10.0.0.6:25777", "http://10.0.0.6:25777", None),
            ("10.0.0.6:25777", "http://10.0.0.6:25777", None),
            ("https://u:p%40ss@registry.example/base/", "https://registry.example:443/base", Some(("u", "p@ss"))),
            ("http://u@[::1]:80", "http://[::1]:80", Some(("u", ""))),
        ] {
            let (endpoint, credentials) = Endpoint::parse(text).unwrap();
            assert_eq!(endpoint.to_string(), shown);
            let credentials = credentials.as_ref().map(|it| (it.user.as_str(), it.password.reveal()));
            assert_eq!(credentials, user);
        }
        for wrong in ["", "ftp://x", "http://", "http://u:hunter2@ho st"] {
            let error = Endpoint::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("http://host:port") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn odd_ids_and_passwords_survive_the_url() {
        let (endpoint, _) = Endpoint::parse("http://r:1").unwrap();
        assert_eq!(endpoint.settings("a/../b c"), "/instances/a%2F..%2Fb%20c/settings");
        let credentials = Credentials { user: "vm 1".into(), password: Secret::new("p:@/") };
        let url = endpoint.with_credentials(&credentials);
        assert_eq!(url.reveal(), "http://vm%201:p%3A%40%2F@r:1");
        assert_eq!(Endpoint::parse(url.reveal()).unwrap().1, Some(credentials));
    }
}
