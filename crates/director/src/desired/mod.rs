//! What the operator wants: the deployment manifest and the cloud config, read and checked.
//!
//! [`CloudConfig::read`] and [`DeploymentManifest::read`] turn documents into types that cannot be invalid by
//! themselves; [`resolve`](resolve::resolve) brings them together with the uploaded stemcells. All problems of a document are reported at
//! once, each with its path and line.

mod addresses;
mod cloud_config;
mod deployment;
mod resolve;

use windlass_manifest::{At, Content, Problem};

pub use addresses::AddressRange;
pub use cloud_config::{Az, CloudConfig, DiskType, NetworkDefinition, NetworkPlacement, Subnet, VmType};
pub use deployment::{
    Count, DeploymentManifest, GroupNetwork, InstanceGroup, StemcellReference, UpdateSettings, WantedDisk,
};
pub use resolve::{Desired, DesiredGroup, DesiredNetwork, resolve};

/// Text. The original takes a number for it as well.
fn text(at: &At<'_>) -> Result<String, Problem> {
    match &at.node().content {
        Content::Number(number) => Ok(number.to_string()),
        _ => at.string().map(str::to_owned),
    }
}

fn optional_text(at: &At<'_>, name: &str) -> Result<Option<String>, Problem> {
    at.optional(name)?.as_ref().map(text).transpose()
}

fn texts(at: &At<'_>, name: &str) -> Result<Vec<String>, Problem> {
    at.optional_list(name)?.iter().map(text).collect()
}

fn object(at: &At<'_>, name: &str) -> Result<windlass_contract::Object, Problem> {
    at.optional(name)?.map_or_else(|| Ok(Default::default()), |found| found.object())
}
