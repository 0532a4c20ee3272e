//! How instances are called in links and templates: by address, or by which form of their names.

use super::findings::{Findings, Placed};

/// What a manifest's features say of names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WantedNames {
    /// `use_dns_addresses`
    pub dns_addresses: Option<Placed<bool>>,
    /// `use_short_dns_addresses`
    pub short: Option<Placed<bool>>,
    /// `use_link_dns_names`
    pub links: Option<Placed<bool>>,
}

/// How instances are called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NamesInUse {
    /// Whether agents know names at all.
    pub served: bool,
    /// Names stand where addresses would.
    pub dns_addresses: bool,
    /// Names are short.
    pub short: bool,
    /// Consumers call instances by the link that those provide.
    pub links: bool,
}

impl WantedNames {
    /// On a director that serves names or does not, and uses them `by_default` or does not.
    pub fn in_use(&self, served: bool, by_default: bool, findings: &mut Findings) -> NamesInUse {
        let given = |wanted: &Option<Placed<bool>>| wanted.as_ref().map(|wanted| wanted.value);
        if !served {
            for wanted in [&self.dns_addresses, &self.short, &self.links].into_iter().flatten() {
                if wanted.value {
                    findings.warn(wanted.problem("has no effect: local_dns is not enabled in director.yml"));
                }
            }
            return NamesInUse::default();
        }
        let links = given(&self.links) == Some(true);
        NamesInUse {
            served,
            dns_addresses: links || given(&self.dns_addresses).unwrap_or(by_default),
            short: links || given(&self.short) == Some(true),
            links,
        }
    }
}
