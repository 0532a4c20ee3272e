//! Contract versions. Version differences are decided here and compared with `>=`, never `==`.

use serde::{Deserialize, Serialize};

/// A version of the CPI contract, of a stemcell (what its agent can do) or of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ApiVersion(pub u32);

impl ApiVersion {
    /// What a CPI or stemcell has that does not say.
    pub const V1: Self = Self(1);
    /// The first version that needs no registry.
    pub const V2: Self = Self(2);
    /// The highest version that we speak.
    pub const HIGHEST: Self = Self(2);

    /// Whether results have the shape of version 2. The request's version alone decides.
    pub fn has_v2_results(self) -> bool {
        self >= Self::V2
    }
}

impl Default for ApiVersion {
    fn default() -> Self {
        Self::V1
    }
}

impl std::fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How a VM gets its settings. Decided once, at `create_vm`, and kept with the VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingsFrom {
    /// The CPI hands the VM its full settings; the registry is not touched.
    UserData,
    /// The VM is told where the registry is and fetches its settings there.
    Registry,
}

impl SettingsFrom {
    /// The rule of the version table: without a registry if, and only if, both the request's and the stemcell's
    /// version are at least 2.
    pub fn decide(request: ApiVersion, stemcell: ApiVersion) -> Self {
        if request >= ApiVersion::V2 && stemcell >= ApiVersion::V2 { Self::UserData } else { Self::Registry }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seed's table: director × CPI × stemcell; the request's version is the lower of director and CPI.
    #[test]
    fn only_one_of_the_eight_rows_needs_no_registry() {
        for director in [1, 2] {
            for cpi in [1, 2] {
                for stemcell in [1, 2] {
                    let request = ApiVersion(director.min(cpi));
                    let expected = if (director, cpi, stemcell) == (2, 2, 2) {
                        SettingsFrom::UserData
                    } else {
                        SettingsFrom::Registry
                    };
                    assert_eq!(SettingsFrom::decide(request, ApiVersion(stemcell)), expected);
                }
            }
        }
        assert_eq!(SettingsFrom::decide(ApiVersion(3), ApiVersion(25)), SettingsFrom::UserData);
    }
}
