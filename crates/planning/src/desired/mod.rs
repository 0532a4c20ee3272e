//! What the operator wants: the deployment manifest and the configs, read and checked.
//!
//! [`Configs::read`] and [`DeploymentManifest::read`] turn documents into types; [`resolve`](resolve::resolve) brings them
//! together with the uploaded stemcells. Nothing stops at the first mistake: all that is wrong in any document is gathered in
//! [`Findings`], each with its document, path and line, and keys that nobody knows are warned of.

mod addons;
mod addresses;
mod cloud_config;
mod compilation;
mod compiled;
mod configs;
mod cpi_config;
mod deployment;
mod export;
mod group_networks;
mod instance_group;
mod jobs;
mod links;
mod names_in_use;
mod networks;
mod resolve;
mod runtime_config;
mod software;
mod stemcells;
mod update;
mod variables;

#[cfg(test)]
mod tests;

pub use crate::dns::canonical;
pub use addons::{Addon, Candidate};
pub use addresses::AddressRange;
pub use cloud_config::{Az, CloudConfig, DiskType, Section, VmType};
pub use compilation::Compilation;
pub use configs::Configs;
pub use cpi_config::{CONFIG_PATH, CpiConfig, CpiEntry};
pub use deployment::DeploymentManifest;
pub use export::{Export, resolve_export, stemcell_of};
pub use instance_group::{DiskSize, GroupNetwork, InstanceGroup, Lifecycle, MigratedFrom, VmSize, WantedDisk};
pub use jobs::{JobReference, ReleaseReference};
pub use links::{DesiredLink, DesiredLinks, JobLinks, LinksFrom, linked_deployments};
pub use names_in_use::{NamesInUse, WantedNames};
pub use networks::{DynamicSubnet, NetworkDefinition, NetworkPlacement, Subnet};
pub use resolve::{Desired, DesiredCompilation, DesiredGroup, DesiredNetwork, DesiredSize, Wanted, Zone, resolve};
pub use runtime_config::RuntimeConfig;
pub use software::{add_packages, bind as bind_properties, merge as merge_properties, releases_named_by};
pub use stemcells::{Family, StemcellChoice, StemcellReference, compare_versions};
pub use update::{Count, UpdateBlock, VmStrategy, WatchTime};
pub use variables::{LinkName, NamePurpose, VariableDefinition, refuse_misplaced, refuse_misplaced_in_config};
pub(crate) use windlass_manifest::fields;
use windlass_manifest::findings;
pub use windlass_manifest::findings::{Finding, Findings, Place, Placed};
