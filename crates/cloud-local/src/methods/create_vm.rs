//! `create_vm`: a folder, an address, a supervisor with an agent.
//!
//! The folder appears as a whole, named after the call's id; a repeated call finds it and only starts what does not run.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde_json::json;
use windlass_contract::cpi::methods::CreateVm;
use windlass_contract::cpi::{CpiError, CreatedVm};
use windlass_contract::network::NetworkKind;
use windlass_contract::version::SettingsFrom;
use windlass_contract::{Networks, Object, StemcellCid, VmCid};
use windlass_cpi::{Call, UserData};
use windlass_durable::file;

use crate::address;
use crate::cloud::LocalCloud;
use crate::isolation::Isolation;
use crate::machine::{Machine, StartError};
use crate::network::{self, Plan};
use crate::state::VmRecord;

/// Where an agent is in a stemcell.
const AGENT: &str = "var/vcap/bosh/bin/bosh-agent";

/// How often another address is tried when the chosen one was claimed by somebody else in between.
const ADDRESS_TRIES: usize = 8;

pub(crate) async fn run(
    cloud: &LocalCloud,
    call: &Call,
    vm: CreateVm,
    user_data: &mut UserData,
) -> Result<CreatedVm, CpiError> {
    let cid = VmCid::new(cloud.vms.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    let Some(folder) = cloud.vms.path(cid.as_str()) else {
        return Err(CpiError::cpi(format!("'{cid}' cannot name a VM")));
    };
    let machine = Machine::new(folder);
    let windlass = cloud.windlass()?;
    let _lock = cloud.vms.lock(cid.as_str())?;
    user_data.set_vm_name(cid.as_str());
    let unsettled = user_data.clone();
    let mut tries = 0;
    loop {
        // Each try settles them for the addresses that it has.
        user_data.clone_from(&unsettled);
        tries += 1;
        let record = match cloud.vms.read(cid.as_str())? {
            Some(record) => {
                network::settle(&record.networks, &record.addresses, &mut user_data.settings);
                record
            }
            None => match build(cloud, call, &cid, &vm, user_data, &machine) {
                Ok(record) => record,
                Err(error) => {
                    cloud.vms.remove(cid.as_str())?;
                    return Err(error);
                }
            },
        };
        match machine.start(&windlass).await {
            Ok(()) => return Ok(CreatedVm { cid, networks: record.networks }),
            Err(StartError::AddressTaken { address, .. })
                if tries < ADDRESS_TRIES && is_dynamic(&vm.networks, &record.networks, address) =>
            {
                remove(cloud, &cid, &machine).await?;
            }
            Err(error) => {
                let mut error = CpiError::from(error);
                if let Err(remains) = remove(cloud, &cid, &machine).await {
                    error.message = format!("{}; and '{cid}' remains: {}", error.message, remains.message);
                }
                return Err(error);
            }
        }
    }
}

fn build(
    cloud: &LocalCloud,
    call: &Call,
    cid: &VmCid,
    vm: &CreateVm,
    user_data: &mut UserData,
    machine: &Machine,
) -> Result<VmRecord, CpiError> {
    let is_free = |address| matches!(address::holder(address), Ok(None));
    let plan = network::plan(vm.networks.clone(), call.id, is_free)?;
    // Held until the VM's record names the stemcell, so that it is not deleted in between.
    let Some((_stemcell, _)) = cloud.stemcells.lock_existing(vm.stemcell_cid.as_str())? else {
        return Err(CpiError::cloud(format!("there is no stemcell '{}'; upload it again", vm.stemcell_cid)));
    };
    let agent = find_agent(cloud, &vm.stemcell_cid)?;
    let Plan { networks, addresses } = plan;
    network::settle(&networks, &addresses, &mut user_data.settings);
    let record = VmRecord {
        cid: cid.clone(),
        isolation: Isolation::Process,
        agent_id: vm.agent_id.clone(),
        stemcell_cid: vm.stemcell_cid.clone(),
        agent,
        settings_from: user_data.settings_from(),
        addresses,
        networks,
        cloud_properties: vm.cloud_properties.clone(),
        metadata: Object::new(),
        disks: Default::default(),
    };
    let from_registry = user_data.settings_from() == SettingsFrom::Registry;
    let agent_config = json!({
        "Platform": {"Linux": {}},
        "Infrastructure": {"Settings": {
            "Sources": [{"Type": "File", "SettingsPath": machine.settings()}],
            "UseRegistry": from_registry, "UseServerName": from_registry,
        }},
    });
    cloud.vms.make(cid.as_str(), &record, |folder| {
        let hidden = Machine::new(folder);
        file::write_json(&hidden.settings(), user_data, file::PRIVATE)
            .and_then(|()| file::write_json(&hidden.agent_config(), &agent_config, file::PRIVATE))
            .and_then(|()| file::create_private_dir(&hidden.base()))
            .map_err(|error| CpiError::cloud(format!("cannot fill {}: {error}", folder.display())))
    })?;
    Ok(record)
}

/// The agent must be a file of the stemcell, not something of this machine that a link leads to.
fn find_agent(cloud: &LocalCloud, stemcell: &StemcellCid) -> Result<PathBuf, CpiError> {
    let missing =
        || CpiError::cloud(format!("the stemcell '{stemcell}' has no agent at /{AGENT}; use a stemcell that has one"));
    let root = cloud.stemcells.path(stemcell.as_str()).ok_or_else(missing)?.join("root");
    let root = fs::canonicalize(root).map_err(|_| missing())?;
    let agent = root.join(AGENT);
    let file = fs::canonicalize(&agent).map_err(|_| missing())?;
    // By the name that the stemcell gives it: an executable that is several programs goes by that.
    if file.starts_with(&root) && file.is_file() { Ok(agent) } else { Err(missing()) }
}

fn is_dynamic(asked: &Networks, planned: &Networks, address: Ipv4Addr) -> bool {
    let address = address.to_string();
    planned.iter().any(|(name, network)| {
        network.ip.as_ref() == Some(&address)
            && asked.get(name).is_some_and(|network| network.kind == NetworkKind::Dynamic)
    })
}

async fn remove(cloud: &LocalCloud, cid: &VmCid, machine: &Machine) -> Result<(), CpiError> {
    let _stopped = machine.stop().await?;
    Ok(cloud.vms.remove(cid.as_str())?)
}
