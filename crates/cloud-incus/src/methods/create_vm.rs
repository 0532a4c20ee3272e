//! `create_vm`: a container, its settings in it, started.
//!
//! | step | stage after it | after a kill here |
//! |---|---|---|
//! | the container is made | – | deleted and made again |
//! | it is whole | `made` | deleted and made again |
//! | its addresses and settings are in it | `ready` | started |
//! | it is started | `ready` | answered |

use serde_json::json;
use windlass_contract::cpi::methods::CreateVm;
use windlass_contract::cpi::{CpiError, CreatedVm, ErrorType};
use windlass_contract::network::NetworkKind;
use windlass_contract::version::SettingsFrom;
use windlass_cpi::{Call, UserData};

use super::delete_vm;
use crate::client::{Instance, NewInstance, Power, Pushed, Settings};
use crate::disks::must_be_reachable;
use crate::fault::Fault;
use crate::image::Nature;
use crate::inside;
use crate::names::{self, VmName};
use crate::network_plan::{self, Plan};
use crate::placement;
use crate::properties::VmProperties;
use crate::session::{Session, must_be_container};
use crate::tags::{self, Stage};

/// What can be refused without asking anybody.
pub(crate) fn check(vm: &CreateVm) -> Result<(), CpiError> {
    let properties = VmProperties::of(&vm.cloud_properties)?;
    must_be_container(properties.instance_type.as_deref())
}

/// How often the name is found taken by what an interrupted call made.
const TRIES: usize = 3;

/// How often another address is chosen for a VM whose address was taken meanwhile.
const ADDRESS_TRIES: usize = 5;

/// The room of a stemcell that does not say how much it needs, in MiB.
const STEMCELL_ROOM: u64 = 3072;

pub(crate) async fn run(
    session: &Session,
    call: &Call,
    vm: &CreateVm,
    user_data: &mut UserData,
) -> Result<CreatedVm, Fault> {
    let properties = VmProperties::of(&vm.cloud_properties)?;
    must_be_container(properties.instance_type.as_deref().or(session.config.instance_type.as_deref()))?;
    let name = VmName::new(call.id);
    user_data.set_vm_name(name.as_str());
    let found = session.client.find_instance(name.as_str()).await?;
    if let Some(found) = &found {
        session.must_be_ours(&format!("the VM '{}'", found.name), found.get(tags::DIRECTOR), call)?;
        must_be_reachable(found)?;
        // Also what a dead daemon left half-made has all tags.
        if found.get(tags::ID).is_none_or(|id| id != call.id.to_string()) {
            return Err(CpiError::cpi(format!(
                "there is a VM '{}' already, and this CPI did not make it; delete or rename it",
                found.name
            ))
            .into());
        }
        match finished(session, &name, found, user_data).await {
            Ok(Some(created)) => return Ok(created),
            Err(fault) if !(is_address_taken(&fault) && chooses_addresses(vm)) => return Err(fault),
            _ => {}
        }
        remove(session, &name).await?;
    }
    let mut tries = 1;
    loop {
        match attempt(session, call, vm, &properties, &name, user_data).await? {
            // Somebody chose the same one after we looked.
            Err(fault) if tries < ADDRESS_TRIES && is_address_taken(&fault) && chooses_addresses(vm) => {
                tries += 1;
                remove(session, &name).await?;
            }
            Ok(created) => return Ok(created),
            // The call is begun again, and finds what there is.
            Err(fault) if fault.is_unknown_effect() => return Err(fault),
            Err(fault) => return Err(undone(session, &name, fault).await),
        }
    }
}

/// Whether we choose an address of this VM, of those that seem free.
fn chooses_addresses(vm: &CreateVm) -> bool {
    vm.networks.values().any(|network| network.kind == NetworkKind::Dynamic)
}

/// Makes the VM and starts it. The outer error means that nothing was made.
async fn attempt(
    session: &Session,
    call: &Call,
    vm: &CreateVm,
    properties: &VmProperties,
    name: &VmName,
    user_data: &mut UserData,
) -> Result<Result<CreatedVm, Fault>, Fault> {
    let (mut new, plan, nature) = prepare(session, call, vm, properties, name).await?;
    if user_data.settings_from() == SettingsFrom::Registry && !nature.asks_registry {
        return Err(Fault::cloud(format!(
            "the stemcell '{}' cannot be used: its agent never asks a registry; use a request and a stemcell of version 2 or \
             higher, which need no registry",
            vm.stemcell_cid
        )));
    }
    let target = plan.target.as_deref().or(properties.target.as_deref()).or(session.config.target.as_deref());
    let target = placement::of_vm(session, target, vm.disk_cids.as_deref().unwrap_or_default()).await?;
    user_data.settings.networks = plan.networks.clone();
    let settings = serde_json::to_vec(&user_data)
        .map_err(|error| CpiError::cpi(format!("cannot write the agent's settings: {error}")))?;
    let mut made = make(session, &new, target.as_deref()).await;
    if made.as_ref().is_err_and(notes_no_addresses) && !chooses_addresses(vm) {
        network_plan::forget_reservations(&mut new.devices);
        made = make(session, &new, target.as_deref()).await;
    }
    let made = match made {
        Ok(()) => {
            let files = inside::files(&nature, properties.privileged, &plan.interfaces, settings);
            fill_and_start(session, name, &files).await
        }
        Err(fault) => Err(fault),
    };
    let cid = name.cid()?;
    Ok(made.map(|()| CreatedVm { cid, networks: plan.networks, disks: None }))
}

/// Starts a VM whose maker was interrupted after its settings were in it.
async fn finished(
    session: &Session,
    name: &VmName,
    found: &Instance,
    user_data: &mut UserData,
) -> Result<Option<CreatedVm>, Fault> {
    session.client.wait_for_others(name.as_str()).await?;
    if found.config.as_ref().map(Stage::of) != Some(Stage::Ready) {
        return Ok(None);
    }
    let noted = found.get(NETWORKS).and_then(|text| serde_json::from_str(text).ok());
    let Some(networks) = noted else { return Ok(None) };
    user_data.settings.networks = networks;
    start(session, name).await?;
    Ok(Some(CreatedVm { cid: name.cid()?, networks: user_data.settings.networks.clone(), disks: None }))
}

/// The answer's networks, for a repeated call: addresses of dynamic networks are chosen once.
const NETWORKS: &str = "user.windlass.networks";

/// Everything that is looked up and may be refused, before anything is made.
async fn prepare(
    session: &Session,
    call: &Call,
    vm: &CreateVm,
    properties: &VmProperties,
    name: &VmName,
) -> Result<(NewInstance, Plan, Nature), Fault> {
    let missing = || Fault::cloud(format!("there is no stemcell '{}'; upload it again", vm.stemcell_cid));
    let fingerprint = names::fingerprint(&vm.stemcell_cid).ok_or_else(missing)?;
    let image = session.client.find_image(fingerprint).await?.ok_or_else(missing)?;
    let nature = Nature::of(&image.properties).ok_or_else(|| {
        Fault::cloud(format!("the image '{fingerprint}' was not uploaded by this CPI; upload the stemcell"))
    })?;
    let pool = session.vm_pool(properties.pool.as_ref())?;
    if let Err(error) = session.client.pool(&pool).await {
        return Err(match error.is_missing() {
            true => Fault::cloud(format!(
                "there is no storage pool '{pool}'; make it in the cluster, or name another as 'pool' in the VM type's \
                 cloud_properties or in the CPI's configuration"
            )),
            false => error.into(),
        });
    }
    let plan = network_plan::plan(session, name.as_str(), vm.networks.clone()).await?;
    let mut root = Settings::from(
        [("type", "disk"), ("path", "/"), ("pool", &pool)].map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    if let Some(room) = properties.ephemeral_disk_size {
        let stemcell =
            image.properties.get("windlass.disk").and_then(|text| text.parse().ok()).unwrap_or(STEMCELL_ROOM);
        root.insert("size".to_owned(), format!("{}MiB", room.saturating_add(stemcell)));
    }
    let mut devices = plan.devices.clone();
    devices.insert("root".to_owned(), root);
    let networks = serde_json::to_string(&plan.networks)
        .map_err(|error| CpiError::cpi(format!("cannot note the networks: {error}")))?;
    let mut config = tags::of_call(call);
    config.extend(properties.config.clone());
    let flag = |value: bool| if value { "true" } else { "false" }.to_owned();
    config.extend([
        (tags::AGENT.to_owned(), vm.agent_id.as_str().to_owned()),
        (NETWORKS.to_owned(), networks),
        ("security.nesting".to_owned(), flag(properties.nesting.unwrap_or(true))),
        // It shows all of the above to the VM's root.
        (session.server.guest_socket_key().to_owned(), flag(false)),
    ]);
    if properties.privileged {
        config.insert("security.privileged".to_owned(), flag(true));
    }
    let group = vm.env.as_ref().and_then(|env| env.get("bosh")?.get("group")?.as_str());
    config.extend(group.map(|group| (tags::GROUP.to_owned(), group.to_owned())));
    config.extend(properties.cpu.map(|cpu| ("limits.cpu".to_owned(), cpu.to_string())));
    config.extend(properties.ram.map(|ram| ("limits.memory".to_owned(), format!("{ram}MiB"))));
    let new = NewInstance {
        name: name.as_str().to_owned(),
        kind: "container".to_owned(),
        profiles: Vec::new(),
        source: json!({"type": "image", "fingerprint": fingerprint}),
        config,
        devices,
    };
    Ok((new, plan, nature))
}

/// Makes the container. Its name may be taken by an interrupted call whose request arrived after we looked.
async fn make(session: &Session, new: &NewInstance, target: Option<&str>) -> Result<(), Fault> {
    let name =
        VmName::of(&windlass_contract::VmCid::new(new.name.clone()).map_err(|error| CpiError::cpi(error.to_string()))?)
            .ok_or_else(|| CpiError::cpi(format!("'{}' cannot name a VM", new.name)))?;
    let mut tries = 1;
    loop {
        match session.client.create_instance(new, target).await {
            Err(error) if (error.is_taken() || error.is_busy()) && tries < TRIES => {
                tries += 1;
                remove(session, &name).await?;
            }
            other => return Ok(other?),
        }
    }
}

async fn fill_and_start(session: &Session, name: &VmName, files: &[Pushed]) -> Result<(), Fault> {
    stage(session, name, &Stage::Made).await?;
    for file in files {
        session.client.push(name.as_str(), file).await?;
    }
    stage(session, name, &Stage::Ready).await?;
    start(session, name).await
}

async fn stage(session: &Session, name: &VmName, stage: &Stage) -> Result<(), Fault> {
    let change = json!({"config": {tags::STAGE: stage.to_string()}});
    let doing = format!("mark the VM '{}' as {stage}", name.as_str());
    Ok(session.client.patch_instance(name.as_str(), &change, &doing).await?)
}

async fn start(session: &Session, name: &VmName) -> Result<(), Fault> {
    match session.client.power(name.as_str(), Power::Start).await {
        Err(error) if error.says("already running") => Ok(()),
        other => Ok(other?),
    }
}

/// Removes what is not whole.
async fn remove(session: &Session, name: &VmName) -> Result<(), Fault> {
    session.client.wait_for_others(name.as_str()).await?;
    match session.client.find_instance(name.as_str()).await? {
        Some(instance) => delete_vm::delete(session, name, &instance).await,
        None => Ok(()),
    }
}

fn is_address_taken(fault: &Fault) -> bool {
    matches!(fault, Fault::Client(error) if error.says("already defined on another nic"))
}

/// Whether a network is without DHCP, which a certificate that is confined to a project is not told before.
fn notes_no_addresses(fault: &Fault) -> bool {
    matches!(fault, Fault::Client(error) if error.says("when dhcp is disabled"))
}

/// Nothing may remain of a VM that could not be made. The answer says whether it is worth another try.
async fn undone(session: &Session, name: &VmName, fault: Fault) -> Fault {
    let mut can_be_retried = fault.is_transient();
    let address_taken = is_address_taken(&fault);
    let mut error = CpiError::from(fault);
    if error.kind == ErrorType::CpiError {
        can_be_retried = false;
    }
    if address_taken {
        error.message = format!("{}; delete that VM, or choose another address", error.message);
    }
    if let Err(remains) = remove(session, name).await {
        let words = match session.config.state_dir {
            Some(_) => "remains until a later call can remove it",
            None => "remains, delete it",
        };
        error.message = format!("{}; and '{}' {words}: {remains}", error.message, name.as_str());
        can_be_retried = false;
    }
    if error.kind == ErrorType::CloudError {
        error.kind = ErrorType::VmCreationFailed;
        error.ok_to_retry = can_be_retried;
    }
    error.into()
}
