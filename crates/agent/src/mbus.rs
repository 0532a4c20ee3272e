//! The mbus URL: where the agent listens and who may talk to it.

use base64::Engine;
use hyper::Uri;
use percent_encoding::percent_decode_str;
use windlass_contract::Secret;

/// The parts of an mbus URL.
#[derive(Debug)]
pub(crate) struct Mbus {
    /// A name or an address to listen on.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What the `Authorization` header of a caller must be.
    pub(crate) authorization: Secret,
}

/// why an mbus URL cannot be used; the URL holds a password and is not told
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MbusError {
    /// there is no URL
    #[error("the settings have no mbus URL; env.bosh.mbus.urls or mbus must have one")]
    Missing,
    /// the URL is not one
    #[error("the mbus URL is not valid; it must look like https://user:password@address:port")]
    Invalid,
    /// the URL is not for HTTPS
    #[error("the mbus URL's scheme is '{0}', and this agent listens over https only")]
    Scheme(String),
    /// the URL has no credentials
    #[error("the mbus URL has no user and password, so anybody could drive this agent; it must have them")]
    NoCredentials,
}

impl Mbus {
    /// Where the agent listens.
    pub(crate) fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Takes the URL apart. User and password are percent-encoded in it and plain in the header.
    pub(crate) fn parse(url: Option<&Secret>) -> Result<Self, MbusError> {
        let url = url.map(Secret::reveal).filter(|url| !url.is_empty()).ok_or(MbusError::Missing)?;
        let uri: Uri = url.parse().map_err(|_| MbusError::Invalid)?;
        match uri.scheme_str() {
            Some("https") => {}
            other => return Err(MbusError::Scheme(other.unwrap_or_default().to_owned())),
        }
        let authority = uri.authority().ok_or(MbusError::Invalid)?;
        let (user_info, _) = authority.as_str().rsplit_once('@').ok_or(MbusError::NoCredentials)?;
        let (user, password) = user_info.split_once(':').ok_or(MbusError::NoCredentials)?;
        if user.is_empty() || password.is_empty() {
            return Err(MbusError::NoCredentials);
        }
        let mut credentials: Vec<u8> = percent_decode_str(user).collect();
        credentials.push(b':');
        credentials.extend(percent_decode_str(password));
        let encoded = base64::engine::general_purpose::STANDARD.encode(credentials);
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().ok_or(MbusError::Invalid)?,
            authorization: Secret::new(format!("Basic {encoded}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Mbus, MbusError> {
        Mbus::parse(Some(&Secret::new(url)))
    }

    #[test]
    fn credentials_are_decoded_and_addresses_of_both_kinds_are_found() {
        let mbus = parse("https://u:p%40%3A@127.0.0.2:6868").unwrap();
        assert_eq!((mbus.host.as_str(), mbus.port), ("127.0.0.2", 6868));
        assert_eq!(mbus.authorization.reveal(), "Basic dTpwQDo=");
        assert_eq!(parse("https://u:p@[::1]:1").unwrap().host, "::1");
    }

    #[test]
    fn an_agent_that_anybody_could_drive_does_not_start() {
        for url in ["https://0.0.0.0:6868", "https://user@0.0.0.0:6868", "https://:@0.0.0.0:6868"] {
            assert_eq!(parse(url).unwrap_err(), MbusError::NoCredentials, "{url}");
        }
        assert_eq!(parse("nats://u:p@10.0.0.1:4222").unwrap_err(), MbusError::Scheme("nats".into()));
        assert_eq!(Mbus::parse(None).unwrap_err(), MbusError::Missing);
    }
}
