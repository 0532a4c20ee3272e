//! The VM types that the cloud offers, and which of them is the smallest that is large enough.

use serde::{Deserialize, Serialize};
use windlass_contract::MiB;
use windlass_contract::cpi::methods::VmResources;

/// A VM type on offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmType {
    /// What `create_vm` calls it: `cloud_properties.instance_type`.
    pub name: String,
    /// Cores.
    pub cpu: u64,
    pub ram: MiB,
    /// Size of the ephemeral disk.
    pub ephemeral_disk_size: MiB,
}

/// What is on offer without a configuration.
pub(crate) fn default() -> Vec<VmType> {
    [
        ("nano", 1, 512, 4),
        ("small", 1, 2048, 16),
        ("medium", 2, 4096, 32),
        ("large", 4, 16_384, 64),
        ("huge", 16, 65_536, 256),
    ]
    .map(|(name, cpu, ram, disk_gib)| VmType {
        name: name.to_owned(),
        cpu,
        ram: MiB(ram),
        ephemeral_disk_size: MiB(disk_gib * 1024),
    })
    .to_vec()
}

/// The smallest type that has at least what is `desired` in every dimension.
///
/// How small a type is does not depend on what is asked for, so asking for more never gives a smaller one: it is the sum of
/// what it has of each dimension, relative to the most that is on offer. Of two equal ones it is the first.
pub(crate) fn smallest<'a>(catalogue: &'a [VmType], desired: &VmResources) -> Option<&'a VmType> {
    let most = |dimension: fn(&VmType) -> u64| catalogue.iter().map(dimension).max().unwrap_or_default().max(1) as f64;
    let most = (most(|offer| offer.cpu), most(|offer| offer.ram.0), most(|offer| offer.ephemeral_disk_size.0));
    let size = |offer: &VmType| {
        offer.cpu as f64 / most.0 + offer.ram.0 as f64 / most.1 + offer.ephemeral_disk_size.0 as f64 / most.2
    };
    catalogue.iter().filter(|offer| is_enough(offer, desired)).min_by(|one, other| size(one).total_cmp(&size(other)))
}

fn is_enough(offer: &VmType, desired: &VmResources) -> bool {
    offer.cpu >= desired.cpu && offer.ram >= desired.ram && offer.ephemeral_disk_size >= desired.ephemeral_disk_size
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn desired((cpu, ram, disk): (u64, u64, u64)) -> VmResources {
        VmResources { cpu, ram: MiB(ram), ephemeral_disk_size: MiB(disk) }
    }

    fn name(cpu: u64, ram: u64, disk: u64) -> Option<String> {
        smallest(&default(), &desired((cpu, ram, disk))).map(|offer| offer.name.clone())
    }

    #[test]
    fn each_dimension_alone_can_ask_for_a_larger_type() {
        assert_eq!(name(1, 512, 1024).as_deref(), Some("nano"));
        assert_eq!(name(2, 512, 1024).as_deref(), Some("medium"));
        assert_eq!(name(1, 2049, 1024).as_deref(), Some("medium"));
        assert_eq!(name(1, 512, 200 * 1024).as_deref(), Some("huge"));
        assert_eq!(name(17, 1, 1), None);
        assert_eq!(name(1, u64::MAX, 1), None);
    }

    proptest! {
        #[test]
        fn it_is_enough_and_stays_the_answer_as_long_as_it_is_enough(
            offers in prop::collection::vec((1u64..9, 1u64..9, 1u64..9), 0..8),
            less in (0u64..9, 0u64..9, 0u64..9),
            more in (0u64..4, 0u64..4, 0u64..4),
        ) {
            let catalogue: Vec<VmType> = offers.iter().enumerate().map(|(number, offer)| VmType {
                name: number.to_string(), cpu: offer.0, ram: MiB(offer.1), ephemeral_disk_size: MiB(offer.2),
            }).collect();
            let more = desired((less.0 + more.0, less.1 + more.1, less.2 + more.2));
            let for_less = smallest(&catalogue, &desired(less));
            let for_more = smallest(&catalogue, &more);
            prop_assert_eq!(for_more.is_some(), catalogue.iter().any(|offer| is_enough(offer, &more)));
            if let (Some(large), Some(small)) = (for_more, for_less) {
                prop_assert!(is_enough(large, &more));
                if is_enough(small, &more) {
                    prop_assert_eq!(small, large);
                }
            }
        }
    }
}
