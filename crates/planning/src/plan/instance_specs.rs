//! What an instance is brought to: its VM, and what runs on it with its links, variables and names.

use std::rc::Rc;

use serde_json::Value;
use windlass_contract::network::{Network, NetworkKind};
use windlass_contract::{Networks, Object};

use super::planner::Planner;
use super::{CurrentInstance, DiskSpec, InstanceSpec, link_contents};
use crate::desired::{DesiredGroup, DesiredNetwork, DesiredSize, NetworkPlacement, Zone};
use crate::links::PlannedLinks;
use crate::names::InstanceId;
use crate::records::StemcellOfVm;
use crate::software::{Software, SoftwareOfInstance, TemplateInstance, VariableSet, has_variables};
use crate::weight;

/// What an instance takes of memory with nothing of its own: names, actions and their reasons.
pub(super) const OF_AN_INSTANCE: usize = 2048;

/// What runs on a group.
pub(super) struct Linked {
    pub(super) software: Software,
    pub(super) digest: String,
    pub(super) has_variables: bool,
}

impl Planner<'_, '_> {
    pub(super) fn spec(
        &mut self,
        group: &DesiredGroup,
        zone: &Zone,
        networks: Networks,
    ) -> Result<InstanceSpec, String> {
        let stemcell = group.stemcells.iter().find(|choice| choice.cpi == zone.cpi);
        let stemcell = stemcell.ok_or_else(|| format!("its stemcell is not with {}", zone.cpi))?;
        let mut cloud_properties = zone.cloud_properties.clone();
        let vm_type = match &group.vm_size {
            DesiredSize::Type { name, cloud_properties: own } => {
                cloud_properties.extend(own.clone());
                cloud_properties.extend(group.vm_extensions.clone());
                Some(name.clone())
            }
            DesiredSize::Resources(resources) => {
                let calculated = self.current.calculated.get(&zone.cpi, *resources);
                let calculated =
                    calculated.ok_or_else(|| format!("{} did not say what its vm_resources mean", zone.cpi))?;
                cloud_properties.extend(group.vm_extensions.clone());
                cloud_properties.extend(calculated.clone());
                None
            }
        };
        let of_network = |network: &Network| {
            let dns: usize = network.dns.iter().flatten().map(|server| 32 + server.len()).sum();
            512 + dns + weight::of_object(&network.cloud_properties)
        };
        let of_disk = |disk: &DiskSpec| 64 + weight::of_object(&disk.cloud_properties);
        let of_objects = [&cloud_properties, &group.env, &group.tags].map(weight::of_object);
        let of_lists = networks.values().map(of_network).chain(group.disks.iter().map(of_disk)).sum::<usize>();
        self.room.take(OF_AN_INSTANCE + of_lists + of_objects.iter().sum::<usize>())?;
        let late = late_values(&group.env, &cloud_properties, &networks);
        let env_values = self.templates.env_values(&late, self.current.variables)?;
        Ok(InstanceSpec {
            cpi: zone.cpi.clone(),
            stemcell_cid: stemcell.cid.clone(),
            stemcell: StemcellOfVm {
                name: stemcell.name.clone(),
                version: stemcell.version.clone(),
                api_version: stemcell.api_version,
            },
            vm_type,
            cloud_properties,
            networks,
            disks: group.disks.clone(),
            env: group.env.clone(),
            env_values,
            tags: group.tags.clone(),
            variables: None,
            dns_address: None,
            software: None,
        })
    }

    /// What runs on a group, with its links; all of its instances have the same, unless they keep what they have.
    pub(super) fn linked(
        &mut self,
        group: &DesiredGroup,
        present: Option<&CurrentInstance>,
        links: &PlannedLinks,
    ) -> Option<Rc<Linked>> {
        let software = group.software.as_ref()?;
        let digest = |present: &CurrentInstance| Some(present.record.spec.as_ref()?.software.as_ref()?.digest.clone());
        let are_kept = self.desired.links.are_kept;
        let own = present.and_then(digest).filter(|_| are_kept);
        let key = (group.name.clone(), own.clone().unwrap_or_default());
        if let Some(known) = self.linked.get(&key) {
            return Some(known.clone());
        }
        let of_group = self.current.instances.iter().filter(|instance| instance.record.group == group.name);
        let before = own.or_else(|| of_group.filter_map(digest).next());
        let before = before.and_then(|digest| self.current.software.get(&digest));
        let software = match are_kept {
            true => link_contents::kept(software, before),
            false => link_contents::linked(software, &group.name, links, (self.desired, &self.current.numbers), before),
        };
        let (digest, has_variables) = (software.digest(), software.has_variables());
        let linked = Rc::new(Linked { software, digest, has_variables });
        self.linked.insert(key, linked.clone());
        Some(linked)
    }

    /// The name that templates see instead of an instance's address; none where they see that.
    pub(super) fn dns_address(&self, group: &DesiredGroup, id: &InstanceId) -> Option<String> {
        let names = self.desired.names;
        let default = group.default_network()?;
        let is_dynamic =
            |network: &DesiredNetwork| matches!(network.definition.placement, NetworkPlacement::Dynamic(_));
        let network = group.networks.iter().find(|network| network.definition.name == default)?;
        let is_named = names.served && (names.dns_addresses || is_dynamic(network));
        is_named.then(|| link_contents::name_of(self.desired, group, &self.current.numbers, id, default, None))
    }

    /// The versions of variables that an instance gets; none if it uses none.
    pub(super) fn variables(&self, linked: Option<&Linked>, spec: &InstanceSpec) -> Option<VariableSet> {
        let has_variables = linked.is_some_and(|linked| linked.has_variables) || spec.env_values.is_some();
        self.current.variables.filter(|_| has_variables)
    }

    pub(super) fn software(
        &self,
        linked: &Linked,
        instance: &TemplateInstance<'_>,
    ) -> Result<SoftwareOfInstance, String> {
        // It is rendered at deploy, and until then nobody knows what it becomes.
        let configuration_hash = match self.templates.rendered_at_deploy(&linked.software) {
            Some(_) => String::new(),
            None => self.templates.configuration_hash(&linked.software, instance)?,
        };
        Ok(SoftwareOfInstance { digest: linked.digest.clone(), configuration_hash })
    }
}

/// What of a VM may have variables whose values are put in when it is made: its env alone, unless its cloud_properties have some.
fn late_values(env: &Object, cloud_properties: &Object, networks: &Networks) -> Object {
    let networks: Object = networks
        .iter()
        .map(|(name, network)| (name.clone(), Value::Object(network.cloud_properties.clone())))
        .collect();
    let (cloud_properties, networks) = (Value::Object(cloud_properties.clone()), Value::Object(networks));
    if !has_variables(&cloud_properties) && !has_variables(&networks) {
        return env.clone();
    }
    let env = ("env".to_owned(), Value::Object(env.clone()));
    Object::from_iter([env, ("cloud_properties".to_owned(), cloud_properties), ("networks".to_owned(), networks)])
}

/// The networks as they are planned, with the addresses that the cloud chose for the VM.
pub fn with_addresses(planned: &Networks, on_vm: &Networks) -> Networks {
    let mut networks = planned.clone();
    for (name, network) in &mut networks {
        let Some(known) = on_vm.get(name).filter(|_| network.kind == NetworkKind::Dynamic) else { continue };
        network.ip = network.ip.take().or_else(|| known.ip.clone());
        network.netmask = network.netmask.take().or_else(|| known.netmask.clone());
        network.gateway = network.gateway.take().or_else(|| known.gateway.clone());
    }
    networks
}
