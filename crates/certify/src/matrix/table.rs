//! The contract's table of versions, and who lives through its rows.

use serde_json::{Map, Value, json};

use crate::ask::Ask;

/// A row of the contract's table: which versions meet, and what must follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Combination {
    /// What the director speaks.
    pub director: u64,
    /// What the CPI speaks.
    pub cpi: u64,
    /// What the stemcell's agent speaks.
    pub stemcell: u64,
    /// Whether the CPI writes to the registry.
    pub registry: bool,
    /// Whether the VM gets its full settings with its creation.
    pub full_settings: bool,
}

const fn row(director: u64, cpi: u64, stemcell: u64, registry: bool, full_settings: bool) -> Combination {
    Combination { director, cpi, stemcell, registry, full_settings }
}

/// The table, in the contract's order.
pub const TABLE: [Combination; 8] = [
    row(1, 1, 1, true, false),
    row(1, 1, 2, true, false),
    row(1, 2, 2, true, false),
    row(2, 2, 2, false, true),
    row(1, 2, 1, true, false),
    row(2, 2, 1, true, false),
    row(2, 1, 1, true, false),
    row(2, 1, 2, true, false),
];

impl Combination {
    /// What both sides speak.
    pub(crate) fn request_version(self) -> u64 {
        self.director.min(self.cpi)
    }
}

/// What drives a CPI, and which versions it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// A director from before there were versions: it names neither its own nor the stemcell's.
    Unversioned,
    /// A director that is held back to version 1.
    Pinned,
    /// A director of version 2.
    Director,
    /// `create-env`: it names the stemcell's version in every call and asks `info` in version 1 before each.
    CommandLine,
}

/// One row, lived through by one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The row's position in [`TABLE`], counted from 1.
    pub number: usize,
    pub row: Combination,
    pub client: Client,
}

/// Every row with every client that can be in it.
pub fn cases() -> impl Iterator<Item = Case> {
    TABLE.iter().enumerate().flat_map(|(position, row)| {
        let directors: &[Client] =
            if row.director == 1 { &[Client::Unversioned, Client::Pinned] } else { &[Client::Director] };
        let clients = directors.iter().chain(&[Client::CommandLine]);
        clients.map(move |client| Case { number: position + 1, row: *row, client: *client })
    })
}

impl Client {
    /// For reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unversioned => "director, unversioned",
            Self::Pinned => "director, pinned to 1",
            Self::Director => "director",
            Self::CommandLine => "create-env",
        }
    }
}

impl Case {
    /// A request in this client's words. Only calls about a VM are about a stemcell.
    pub(crate) fn ask(self, method: &str, arguments: Value, about_vm: bool, properties: &Map<String, Value>) -> Ask {
        let ask = Ask::new(method, arguments, properties);
        match self.client {
            Client::Unversioned => ask.no_version().stemcell(Value::Null),
            Client::CommandLine => {
                let version = if method == "info" { 1 } else { self.row.request_version() };
                ask.version(version).stemcell(self.row.stemcell).without_context("request_id")
            }
            Client::Pinned | Client::Director => {
                let ask = ask.version(self.row.request_version());
                ask.stemcell(if about_vm { json!(self.row.stemcell) } else { Value::Null })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_lived_through_by_a_director_and_by_the_command_line() {
        for number in 1..=8 {
            let clients: Vec<_> = cases().filter(|case| case.number == number).map(|case| case.client).collect();
            assert!(clients.contains(&Client::CommandLine) && clients.len() >= 2, "row {number}: {clients:?}");
        }
        assert_eq!(cases().count(), 20);
    }

    #[test]
    fn clients_name_versions_as_they_really_do() {
        let ask = |client, method| {
            let case = Case { number: 3, row: TABLE[2], client };
            case.ask(method, json!([]), method != "create_disk", &Map::new()).to_json()
        };
        let old = ask(Client::Unversioned, "create_vm");
        assert!(old.get("api_version").is_none() && old["context"].get("vm").is_none(), "{old}");
        let pinned = ask(Client::Pinned, "create_vm");
        assert_eq!(
            (&pinned["api_version"], &pinned["context"]["vm"]["stemcell"]["api_version"]),
            (&json!(1), &json!(2))
        );
        assert!(ask(Client::Pinned, "create_disk")["context"].get("vm").is_none());
        let env = ask(Client::CommandLine, "create_disk");
        assert_eq!(env["context"]["vm"]["stemcell"]["api_version"], 2);
        assert!(env["context"].get("request_id").is_none(), "{env}");
    }
}
