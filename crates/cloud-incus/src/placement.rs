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
    // The others follow when they are attached.
    let Some(place) = places.first() else { return Ok(target.map(str::to_owned)) };
    let members = session.client.members().await?;
    beside_disk(place, members.iter().find(|member| member.server_name == *place), target)
}

/// Where a VM goes whose disk is at `place`.
fn beside_disk(place: &str, member: Option<&Member>, target: Option<&str>) -> Result<Option<String>, Fault> {
    let fits = member.is_some_and(|member| target.is_none_or(|target| is_in(member, target)));
    // When it is attached, if the member's daemon runs then.
    let disk_can_follow = |member: &Member| member.is_online() || (member.is_evacuated() && target != Some(place));
    match member {
        Some(member) if fits && member.is_online() => Ok(Some(place.to_owned())),
        Some(member) if !disk_can_follow(member) => Err(CpiError {
            ok_to_retry: true,
            ..CpiError::new(
                ErrorType::VmCreationFailed,
                format!("the VM's disk is on the member '{place}', which is {}; bring it back", member.status),
            )
        }
        .into()),
        _ => Ok(target.map(str::to_owned)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(status: &str, target: Option<&str>) -> Result<Option<String>, String> {
        let groups = vec!["default".to_owned(), "z2".to_owned()];
        let member = Member { server_name: "n2".to_owned(), url: String::new(), status: status.to_owned(), groups };
        beside_disk("n2", Some(&member), target).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_vm_goes_to_its_disk_or_the_disk_follows_and_never_from_a_member_that_is_down() {
        for target in [None, Some("n2"), Some("@z2")] {
            assert_eq!(placed("Online", target), Ok(Some("n2".to_owned())));
            assert!(placed("Offline", target).unwrap_err().contains("bring it back"));
        }
        assert_eq!(placed("Online", Some("@z1")), Ok(Some("@z1".to_owned())), "the disk follows");
        assert!(placed("Offline", Some("@z1")).unwrap_err().contains("bring it back"), "it could not follow");
        assert_eq!(placed("Evacuated", Some("@z2")), Ok(Some("@z2".to_owned())), "to another one of the zone");
        assert_eq!(placed("Evacuated", None), Ok(None));
        assert_eq!(placed("Evacuated", Some("@z1")), Ok(Some("@z1".to_owned())));
        assert!(placed("Evacuated", Some("n2")).unwrap_err().contains("which is Evacuated"));
    }
}
