//! Certificates: authorities, and what they sign.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde::Deserialize;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use time::{Duration, OffsetDateTime};

use super::keys::Rsa;
use super::{GenerateError, Lookup};

const USUAL_DAYS: i64 = 365;
const USUAL_BITS: u32 = 3072;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CertificateOptions {
    common_name: String,
    organization: String,
    alternative_names: Vec<String>,
    is_ca: bool,
    ca: String,
    extended_key_usage: Vec<String>,
    /// In days.
    duration: i64,
    /// In bits.
    key_length: u32,
}

pub(super) fn generate(options: &CertificateOptions, lookup: &mut Lookup<'_>) -> Result<Value, GenerateError> {
    let make = |source| GenerateError::Make { what: "certificate", source };
    let authority = match options.ca.as_str() {
        "" if !options.is_ca => return Err(GenerateError::NoCa),
        "" => None,
        name => Some(SigningAuthority::find(name, lookup)?),
    };
    let key = Rsa::new(if options.key_length == 0 { USUAL_BITS } else { options.key_length })?;
    let params = parameters(options, &key)?;
    let certificate = match &authority {
        Some(authority) => params.signed_by(&key.0, &authority.issuer),
        None => params.self_signed(&key.0),
    };
    let certificate = certificate.map_err(make)?.pem();
    let ca = authority.map_or_else(|| certificate.clone(), |authority| authority.certificate);
    Ok(json!({"ca": ca, "certificate": certificate, "private_key": key.private_pem()}))
}

fn parameters(options: &CertificateOptions, key: &Rsa) -> Result<CertificateParams, GenerateError> {
    let make = |source| GenerateError::Make { what: "certificate", source };
    let mut params = CertificateParams::new(Vec::<String>::new()).map_err(make)?;
    let organization = if options.organization.is_empty() { "Cloud Foundry" } else { &options.organization };
    let country = "US".try_into().map_err(make)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CountryName, DnValue::PrintableString(country));
    params.distinguished_name.push(DnType::OrganizationName, organization);
    if !options.common_name.is_empty() {
        params.distinguished_name.push(DnType::CommonName, options.common_name.as_str());
    }
    let days = if options.duration > 0 { options.duration } else { USUAL_DAYS };
    let now = OffsetDateTime::now_utc();
    params.not_before = now;
    params.not_after = now.checked_add(Duration::days(days.min(1_000_000))).unwrap_or(now);
    params.key_identifier_method = KeyIdMethod::PreSpecified(Sha1::digest(key.modulus()).to_vec());
    params.use_authority_key_identifier_extension = true;
    if options.is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        return Ok(params);
    }
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = usages(&options.extended_key_usage)?;
    for name in &options.alternative_names {
        params.subject_alt_names.push(match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(name.as_str().try_into().map_err(make)?),
        });
    }
    Ok(params)
}

fn usages(names: &[String]) -> Result<Vec<ExtendedKeyUsagePurpose>, GenerateError> {
    if names.is_empty() {
        return Ok(vec![ExtendedKeyUsagePurpose::ServerAuth]);
    }
    let usage = |name: &String| match name.as_str() {
        "client_auth" => Ok(ExtendedKeyUsagePurpose::ClientAuth),
        "server_auth" => Ok(ExtendedKeyUsagePurpose::ServerAuth),
        other => Err(GenerateError::Usage(other.to_owned())),
    };
    names.iter().map(usage).collect()
}

struct SigningAuthority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl SigningAuthority {
    fn find(name: &str, lookup: &mut Lookup<'_>) -> Result<Self, GenerateError> {
        let found = lookup(name).map_err(|source| GenerateError::Lookup { name: name.to_owned(), source })?;
        let value = found.ok_or_else(|| GenerateError::UnknownCa(name.to_owned()))?;
        let text = |part: &str| value.get(part).and_then(Value::as_str).unwrap_or_default();
        let not_a_ca = |_| GenerateError::NotACa(name.to_owned());
        let key = KeyPair::from_pem(text("private_key")).map_err(not_a_ca)?;
        let issuer = Issuer::from_ca_cert_pem(text("certificate"), key).map_err(not_a_ca)?;
        Ok(Self { certificate: text("certificate").to_owned(), issuer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(options: Value, ca: Option<&Value>) -> Value {
        let options = CertificateOptions::deserialize(&options).unwrap();
        generate(&options, &mut |_| Ok(ca.cloned())).unwrap()
    }

    #[test]
    fn a_chain_of_two_authorities_signs_a_leaf() {
        let root = make(json!({"is_ca": true, "common_name": "root", "key_length": 2048}), None);
        assert_eq!(root["ca"], root["certificate"]);
        let middle = json!({"is_ca": true, "common_name": "middle", "ca": "root", "key_length": 2048});
        let middle = make(middle, Some(&root));
        assert_eq!(middle["ca"], root["certificate"]);
        let leaf = json!({
            "common_name": "leaf", "ca": "middle", "alternative_names": ["a.example", "10.0.0.1", "*.b.example"],
            "extended_key_usage": ["client_auth", "server_auth"], "duration": 10, "key_length": 2048,
        });
        let leaf = make(leaf, Some(&middle));
        assert_eq!(leaf["ca"], middle["certificate"]);
        assert!(leaf["private_key"].as_str().unwrap().starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
    }
}
