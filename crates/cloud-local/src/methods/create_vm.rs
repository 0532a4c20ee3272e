//! `create_vm`: a folder, addresses, a supervisor with an agent or a container.
//!
//! The folder appears as a whole, named after the call's id; a repeated call finds it and only starts what does not run.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::json;
use windlass_contract::cpi::methods::CreateVm;
use windlass_contract::cpi::{CpiError, CreatedVm, ErrorType};
use windlass_contract::explain;
use windlass_contract::network::NetworkKind;
use windlass_contract::version::SettingsFrom;
use windlass_contract::{Networks, Object, StemcellCid, VmCid};
use windlass_cpi::{Call, UserData};
use windlass_durable::file;

use crate::address;
use crate::cloud::LocalCloud;
use crate::container::boot::{self, BootableRoot, ImageError};
use crate::container::confinement::Confinement;
use crate::container::limits::Limits;
use crate::container::users::{Ids, Users};
use crate::isolation::Isolation;
use crate::machine::{Machine, SETTINGS_IN_VM, StartError};
use crate::network::{Plan, Wiring, bridged, loopback, wire};
use crate::own_root::OwnRoot;
use crate::state::{ContainerRecord, VmRecord};
use crate::userland::{self, Userland};

/// How often another address is tried when the chosen one was claimed by somebody else in between.
const ADDRESS_TRIES: usize = 8;

/// What a VM writes before anybody uses it, in MiB.
const FIRST_WRITES: u64 = 16;

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
    let mut no_own_users = None;
    loop {
        // Each attempt starts from the original user data, because the addresses may differ.
        user_data.clone_from(&unsettled);
        tries += 1;
        let record = match cloud.vms.read(cid.as_str())? {
            Some(record) => {
                settle(&record, user_data);
                record
            }
            None => match build(cloud, call, &cid, &vm, user_data, &machine, no_own_users.as_deref()) {
                Ok(record) => record,
                Err(error) => {
                    cloud.vms.remove(cid.as_str())?;
                    return Err(error);
                }
            },
        };
        match machine.start(&windlass).await {
            Ok(()) => return Ok(CreatedVm { cid, networks: record.networks, disks: None }),
            // This machine cannot, which is said in the record of the VM that it can make.
            Err(StartError::NoOwnUsers(why)) if no_own_users.is_none() => {
                remove(cloud, &record, &machine).await?;
                no_own_users = Some(why);
            }
            Err(StartError::AddressTaken { address, .. })
                if tries < ADDRESS_TRIES && is_dynamic(&vm.networks, &record.networks, address) =>
            {
                remove(cloud, &record, &machine).await?;
            }
            Err(error) => {
                let mut error = CpiError::from(error);
                if let Err(remains) = remove(cloud, &record, &machine).await {
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
    no_own_users: Option<&str>,
) -> Result<VmRecord, CpiError> {
    let isolation = cloud.isolation_for(&vm.networks)?;
    // Held until the VM's record has the addresses, so that nobody else is given them.
    let _networks = match isolation {
        Isolation::Container => Some(cloud.lock_networks()?),
        Isolation::Process => None,
    };
    let is_free = |address| matches!(address::holder(address), Ok(None));
    let plan = match isolation {
        Isolation::Process => loopback::plan(vm.networks.clone(), call.id, is_free)?,
        Isolation::Container => bridged::plan(vm.networks.clone(), &cloud.surroundings(call.id)?, is_free)?,
    };
    // Held until the VM's record names the stemcell, so that it is not deleted in between.
    let Some((_stemcell, stemcell)) = cloud.stemcells.lock_existing(vm.stemcell_cid.as_str())? else {
        return Err(CpiError::cloud(format!("there is no stemcell '{}'; upload it again", vm.stemcell_cid)));
    };
    let root = cloud.stemcell_root(&stemcell)?;
    let userland = Userland::of(&stemcell.cloud_properties)?;
    let in_stemcell = root.join(&boot::AGENT[1..]);
    // A stemcell that has no programs of its own has no agent, either.
    let borrowed = match userland {
        Userland::Host if !in_stemcell.exists() => Some(userland::agent(&cloud.windlass()?)),
        _ => None,
    };
    let Plan { networks, addresses, wiring } = plan;
    let mut record = VmRecord {
        cid: cid.clone(),
        isolation,
        agent_id: vm.agent_id.clone(),
        stemcell_cid: vm.stemcell_cid.clone(),
        agent: borrowed.clone().unwrap_or(in_stemcell),
        settings_from: user_data.settings_from(),
        container: None,
        own_root: None,
        addresses,
        networks,
        cloud_properties: vm.cloud_properties.clone(),
        metadata: Object::new(),
        disks: Default::default(),
    };
    let agent_version = complete(cloud, vm, &mut record, Software { root, userland, borrowed }, wiring)?;
    if let Some(container) = &mut record.container {
        container.users = users(cloud, call, container.confinement, no_own_users)?;
    }
    settle(&record, user_data);
    cloud.vms.make(cid.as_str(), &record, |folder| {
        fill(&Machine::new(folder), machine, &record, agent_version, user_data)
            .map_err(|error| CpiError::new(kind(&error), format!("cannot fill {}: {error}", folder.display())))
    })?;
    Ok(record)
}

/// What a VM's programs are: the stemcell's files, whose userland they have, and the agent of this machine if it is not among them.
struct Software {
    root: PathBuf,
    userland: Userland,
    borrowed: Option<PathBuf>,
}

/// Adds to the record what depends on how the VM is kept apart. Tells the contract that its agent must keep to, if the stemcell holds
/// it back.
fn complete(
    cloud: &LocalCloud,
    vm: &CreateVm,
    record: &mut VmRecord,
    Software { root, userland, borrowed }: Software,
    wiring: Wiring,
) -> Result<Option<u64>, CpiError> {
    let unusable = |error: &dyn std::error::Error| {
        CpiError::cloud(format!("the stemcell '{}' cannot be used: {}", vm.stemcell_cid, explain(error)))
    };
    match record.isolation {
        Isolation::Process => {
            if borrowed.is_none() {
                check_agent(&record.agent, &root, &vm.stemcell_cid)?;
            }
            let agent_version = boot::agent_version(&root).map_err(|error| unusable(&error))?;
            if userland == Userland::Host && cloud.own_root()?.is_ok() {
                record.own_root = Some(OwnRoot { stemcell: root });
            }
            Ok(agent_version)
        }
        Isolation::Container => {
            wire::check(&wiring)?;
            let limits = Limits::of(&vm.cloud_properties)?;
            let confinement = Confinement::of(&vm.cloud_properties)?;
            cloud.check_space((limits.ephemeral_disk.unwrap_or_default() + FIRST_WRITES) << 20)?;
            let image = BootableRoot::of(&root, borrowed.is_some()).map_err(|error| unusable(&error))?;
            if record.settings_from == SettingsFrom::Registry && !image.asks_registry {
                return Err(unusable(&ImageError::NoRegistry));
            }
            let BootableRoot { boot, settings_path, agent_config, .. } = image;
            record.container = Some(ContainerRecord {
                root,
                userland,
                agent: borrowed,
                boot,
                settings_path,
                agent_config,
                limits,
                confinement,
                users: Users::OfMachine,
                wiring,
            });
            Ok(None)
        }
    }
}

/// Whose users those of a new container are: its own unless this machine cannot, or its programs make containers of their own.
fn users(
    cloud: &LocalCloud,
    call: &Call,
    confinement: Confinement,
    no_own_users: Option<&str>,
) -> Result<Users, CpiError> {
    if confinement != Confinement::Filtered {
        return Ok(Users::OfMachine);
    }
    if let Some(why) = no_own_users {
        return Ok(Users::Refused(why.to_owned()));
    }
    let taken: BTreeSet<Ids> = cloud.vms.all()?.iter().filter_map(VmRecord::ids).collect();
    let refused = || Users::Refused("all ids of this machine that VMs may have are taken".to_owned());
    Ok(Ids::choose(call.id, &taken).map_or_else(refused, Users::Own))
}

fn kind(error: &std::io::Error) -> ErrorType {
    match error.kind() {
        std::io::ErrorKind::StorageFull => ErrorType::NoDiskSpace,
        _ => ErrorType::CloudError,
    }
}

/// Fills the folder that becomes the one of `machine`.
fn fill(
    hidden: &Machine,
    machine: &Machine,
    record: &VmRecord,
    agent_version: Option<u64>,
    user_data: &UserData,
) -> std::io::Result<()> {
    file::write_json(&hidden.settings(), user_data, file::PRIVATE)?;
    if record.container.is_some() {
        file::create_private_dir(&hidden.work())?;
        // The VM sees the first two as its root folder, and the third as that of its disks.
        for folder in [hidden.upper(), hidden.root(), hidden.disks()] {
            fs::create_dir(&folder)?;
            fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        }
        if let Some((user, group)) = record.ids().map(Ids::root) {
            for folder in [hidden.upper(), hidden.work()] {
                rustix::fs::chown(folder, Some(user), Some(group))?;
            }
        }
        return Ok(());
    }
    if record.own_root.is_some() {
        for folder in [hidden.root(), hidden.disks()] {
            file::create_private_dir(&folder)?;
        }
    }
    let settings_path = match record.own_root {
        Some(_) => SETTINGS_IN_VM.into(),
        None => machine.settings(),
    };
    let from_registry = record.settings_from == SettingsFrom::Registry;
    let mut agent_config = json!({
        "Platform": {"Linux": {}},
        "Infrastructure": {"Settings": {
            "Sources": [{"Type": "File", "SettingsPath": settings_path}],
            "UseRegistry": from_registry, "UseServerName": from_registry,
        }},
    });
    // An agent that stands for an older one does so here, too.
    if let Some(version) = agent_version {
        agent_config["ApiVersion"] = json!(version);
    }
    file::write_json(&hidden.agent_config(), &agent_config, file::PRIVATE)?;
    file::create_private_dir(&hidden.base())
}

/// Puts the networks into the agent's settings. The agent finds its interfaces ready in both isolations.
fn settle(record: &VmRecord, user_data: &mut UserData) {
    let settings = &mut user_data.settings;
    settings.networks = record.networks.clone();
    for network in settings.networks.values_mut() {
        network.preconfigured = Some(true);
    }
    if record.isolation == Isolation::Process {
        loopback::listen_on_own(&record.addresses, settings);
    }
}

/// The agent must be a file of the stemcell, not something of this machine that a link leads to.
fn check_agent(agent: &std::path::Path, root: &PathBuf, stemcell: &StemcellCid) -> Result<(), CpiError> {
    // By the name that the stemcell gives it: an executable that is several programs goes by that.
    match (fs::canonicalize(root), fs::canonicalize(agent)) {
        (Ok(root), Ok(file)) if file.starts_with(&root) && file.is_file() => Ok(()),
        _ => Err(CpiError::cloud(format!(
            "the stemcell '{stemcell}' has no agent at {}; use a stemcell that has one",
            boot::AGENT
        ))),
    }
}

fn is_dynamic(asked: &Networks, planned: &Networks, address: IpAddr) -> bool {
    let address = address.to_string();
    planned.iter().any(|(name, network)| {
        network.ip.as_ref() == Some(&address)
            && asked.get(name).is_some_and(|network| network.kind == NetworkKind::Dynamic)
    })
}

async fn remove(cloud: &LocalCloud, record: &VmRecord, machine: &Machine) -> Result<(), CpiError> {
    let _stopped = machine.stop().await?;
    cloud.release(record, machine)?;
    Ok(cloud.vms.remove(record.cid.as_str())?)
}
