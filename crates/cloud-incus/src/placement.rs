//! On which member a VM or a disk is made.

use std::collections::{BTreeMap, BTreeSet};

use windlass_contract::DiskCid;
use windlass_contract::cpi::{CpiError, ErrorType};

use crate::client::Member;
use crate::disks::Disk;
use crate::fault::Fault;
use crate::session::Session;

/// Where a new VM goes: to its disks, or where its zone says; nothing without a cluster.
pub(crate) async fn of_vm(session: &Session, target: Option<&str>, disks: &[DiskCid]) -> Result<Option<String>, Fault> {
    if !session.server.is_clustered {
        return Ok(None);
    }
    let mut places = BTreeSet::new();
    for cid in disks {
        if let Some(disk) = Disk::find(session, cid).await? {
            places.extend(disk.volume.member().map(str::to_owned));
        }
    }
    let moves = session.server.copies_between_members();
    let Some(place) = places.first() else { return Ok(target.map(str::to_owned)) };
    if places.len() > 1 && !moves {
        return Err(Fault::cloud(format!(
            "the VM's disks are on the members {}, and this version of the server cannot copy disks between members; use a pool \
             that all members share",
            places.into_iter().collect::<Vec<_>>().join(", ")
        )));
    }
    let members = session.client.members().await?;
    let member = members.iter().find(|member| member.server_name == *place);
    let fits = member.is_some_and(|member| target.is_none_or(|target| is_in(member, target)));
    match member {
        Some(member) if fits && member.is_online() => Ok(Some(place.clone())),
        Some(member) if fits => Err(CpiError {
            ok_to_retry: true,
            ..CpiError::new(
                ErrorType::VmCreationFailed,
                format!("the VM's disk is on the member '{place}', which is {}; bring it back", member.status),
            )
        }
        .into()),
        // The disk follows when it is attached.
        _ if moves => Ok(target.map(str::to_owned)),
        _ => Err(Fault::cloud(format!(
            "the VM's disk is on the member '{place}', which is not in '{}', and this version of the server cannot copy disks \
             between members; put the instance into the zone of its disk, or use a pool that all members share",
            target.unwrap_or_default()
        ))),
    }
}

fn is_in(member: &Member, target: &str) -> bool {
    match target.strip_prefix('@') {
        Some(group) => member.groups.iter().any(|name| name == group),
        None => member.server_name == target,
    }
}

/// Where a new disk goes that no VM is known for: to the member of its zone that has the fewest VMs.
pub(crate) async fn of_disk(session: &Session, target: Option<&str>) -> Result<Option<String>, Fault> {
    if !session.server.is_clustered {
        return Ok(None);
    }
    let members = session.client.members().await?;
    let mut load: BTreeMap<&str, usize> = members
        .iter()
        .filter(|member| member.is_online() && target.is_none_or(|target| is_in(member, target)))
        .map(|member| (member.server_name.as_str(), 0))
        .collect();
    let instances = session.client.instances().await?;
    for instance in &instances {
        if let Some(count) = load.get_mut(instance.location.as_str()) {
            *count += 1;
        }
    }
    match load.into_iter().min_by_key(|(_, count)| *count) {
        Some((member, _)) => Ok(Some(member.to_owned())),
        None => Err(Fault::cloud(format!(
            "no member of '{}' is online; look at the cluster's members and groups, or give another 'target'",
            target.unwrap_or("the cluster")
        ))),
    }
}
