//! What is: the instances of a deployment with what they have, and what planning has to know of the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use windlass_contract::cpi::methods::VmResources;
use windlass_contract::{ApiVersion, Object};

use super::DiskSpec;
use crate::dns::DnsNumbers;
use crate::names::CpiName;
use crate::records::{CompilationKey, DiskRecord, InstanceRecord, VmRecord};
use crate::software::{Software, VariableSet};

/// What is, as far as the director knows.
#[derive(Debug, Clone, Default)]
pub struct Current {
    /// Instances of the deployment.
    pub instances: Vec<CurrentInstance>,
    /// Addresses in use in all deployments, by holder (`deployment/group/uuid`).
    pub addresses: BTreeMap<IpAddr, String>,
    /// What CPIs answered to [`Desired::resources`](crate::desired::Desired::resources).
    pub calculated: Calculated,
    /// What runs on the instances now, by its digest.
    pub software: BTreeMap<String, Software>,
    /// Packages that were compiled.
    pub compiled: BTreeSet<CompilationKey>,
    /// The numbers that names in DNS are made of.
    pub numbers: DnsNumbers,
    /// The versions of variables that instances are brought to; none where no variable is used, or for a look.
    pub variables: Option<VariableSet>,
}

/// Cloud properties that CPIs calculated.
#[derive(Debug, Clone, Default)]
pub struct Calculated(Vec<(CpiName, VmResources, Object)>);

impl Calculated {
    /// Keeps an answer.
    pub fn insert(&mut self, cpi: &CpiName, resources: VmResources, cloud_properties: Object) {
        self.0.push((cpi.clone(), resources, cloud_properties));
    }

    pub(super) fn get(&self, cpi: &CpiName, resources: VmResources) -> Option<&Object> {
        let is_it = |(known, of, _): &&(CpiName, VmResources, Object)| known == cpi && *of == resources;
        self.0.iter().find(is_it).map(|(_, _, cloud_properties)| cloud_properties)
    }
}

/// An instance with what it has.
#[derive(Debug, Clone)]
pub struct CurrentInstance {
    pub record: InstanceRecord,
    pub vm: Option<VmRecord>,
    /// The VM that was made beside it, to take its place.
    pub spare: Option<VmRecord>,
    pub disks: Vec<DiskRecord>,
    /// Whether its VM should answer and does not.
    pub unresponsive: bool,
}

impl CurrentInstance {
    /// The version of the stemcell that its VM has, or would have.
    pub fn stemcell_version(&self) -> Option<ApiVersion> {
        let of_vm = self.vm.as_ref().map(|vm| &vm.stemcell);
        of_vm.or(self.record.spec.as_ref().map(|spec| &spec.stemcell))?.api_version
    }

    /// The disk of that name: the one that was mounted, or else one that was made for it and matches.
    pub(crate) fn disk(&self, wanted: &DiskSpec) -> Option<&DiskRecord> {
        let named = || self.disks.iter().filter(|disk| disk.name == wanted.name);
        let matches = |disk: &&DiskRecord| disk.size == wanted.size && disk.cloud_properties == wanted.cloud_properties;
        named().find(|disk| disk.active).or_else(|| named().find(matches))
    }
}
