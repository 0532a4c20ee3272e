//! What a method declares beside its arguments and its answer, for everybody who handles requests without knowing each
//! method: the SDK locks, remembers and hides by it, callers hide and limit by it.

/// What a method declares. Every method must say all of it; see `methods!`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declaration {
    /// What the method changes, by the position of the argument with its cid, counted from 0. Locks are taken in this order,
    /// and a VM stands before a disk in every method, so that two calls never wait for each other.
    pub locks: &'static [(usize, Resource)],
    /// What a log may show of arguments that are objects, by their position, counted from 0. An object at a position that is
    /// not here is hidden with all its values.
    pub hides: &'static [(usize, Hides)],
    /// What a repeated request does.
    pub repeated: Repeated,
    /// How many bytes of stdout are an answer; more is a process that ran away.
    pub longest_answer: usize,
}

impl Declaration {
    /// A cid, a truth, a list of cids, a few properties.
    pub const SHORT: usize = 1 << 20;
    /// The same, with the log of a change that took minutes: some CPIs put all of it into their answer.
    pub const WITH_LOG: usize = 4 << 20;

    /// Whether the method changes something in a cloud.
    pub const fn is_a_change(&self) -> bool {
        !self.locks.is_empty() || matches!(self.repeated, Repeated::AnsweredAgain)
    }
}

/// What a cid names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    /// An image.
    Stemcell,
    Vm,
    /// A persistent disk.
    Disk,
    /// A snapshot of a disk.
    Snapshot,
    /// A network that a CPI made.
    Network,
}

impl Resource {
    /// What people call it. Names of lock files are made from it, so it must stay.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stemcell => "stemcell",
            Self::Vm => "VM",
            Self::Disk => "disk",
            Self::Snapshot => "snapshot",
            Self::Network => "network",
        }
    }
}

/// What of an argument is hidden in logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hides {
    /// Nothing but the values of keys that name a credential: metadata, sizes.
    Nothing,
    /// The values of all keys: cloud properties.
    Values,
    /// The values of its `cloud_properties`: the definition of a network.
    ValuesOfCloudProperties,
    /// The values of the `cloud_properties` of each network.
    ValuesOfNetworks,
    /// A VM's environment: everything but `bosh.group`, `bosh.groups` and `bosh.tags`.
    Environment,
}

/// What a request does that comes a second time, with the same unique request id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeated {
    /// It runs again, which does no harm.
    RunsAgain,
    /// It is answered as the first time: the method makes something, or a second run would answer otherwise.
    AnsweredAgain,
}

/// The position of an argument by its name; evaluated by the compiler, which refuses a name that is not there.
pub(crate) const fn position(arguments: &[&str], wanted: &str) -> usize {
    let mut at = 0;
    while at < arguments.len() {
        if is_same(arguments[at].as_bytes(), wanted.as_bytes()) {
            return at;
        }
        at += 1;
    }
    panic!("the method has no argument of this name")
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    one.len() == other.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpi::methods::MethodName;

    /// A row per method; what stood in the tables of SDK and client before methods declared it themselves.
    #[test]
    fn every_method_locks_hides_and_remembers_what_it_always_did() {
        use Hides::{Environment, Nothing, Values, ValuesOfCloudProperties, ValuesOfNetworks};
        use Repeated::{AnsweredAgain, RunsAgain};
        use Resource::{Disk, Network, Snapshot, Stemcell, Vm};
        type Row = (&'static str, &'static [(usize, Resource)], &'static [(usize, Hides)], Repeated);
        let rows: [Row; 24] = [
            ("info", &[], &[], RunsAgain),
            ("create_stemcell", &[], &[(1, Values)], AnsweredAgain),
            ("delete_stemcell", &[(0, Stemcell)], &[], RunsAgain),
            ("create_vm", &[], &[(2, Values), (3, ValuesOfNetworks), (5, Environment)], AnsweredAgain),
            ("delete_vm", &[(0, Vm)], &[], RunsAgain),
            ("has_vm", &[], &[], RunsAgain),
            ("reboot_vm", &[(0, Vm)], &[], RunsAgain),
            ("set_vm_metadata", &[(0, Vm)], &[(1, Nothing)], RunsAgain),
            ("configure_networks", &[(0, Vm)], &[(1, ValuesOfNetworks)], RunsAgain),
            ("calculate_vm_cloud_properties", &[], &[(0, Nothing)], RunsAgain),
            ("create_disk", &[], &[(1, Values)], AnsweredAgain),
            ("delete_disk", &[(0, Disk)], &[], RunsAgain),
            ("has_disk", &[], &[], RunsAgain),
            ("attach_disk", &[(0, Vm), (1, Disk)], &[], AnsweredAgain),
            ("detach_disk", &[(0, Vm), (1, Disk)], &[], AnsweredAgain),
            ("set_disk_metadata", &[(0, Disk)], &[(1, Nothing)], RunsAgain),
            ("get_disks", &[], &[], RunsAgain),
            ("resize_disk", &[(0, Disk)], &[], RunsAgain),
            ("update_disk", &[(0, Disk)], &[(2, Values)], AnsweredAgain),
            ("snapshot_disk", &[(0, Disk)], &[(1, Nothing)], AnsweredAgain),
            ("delete_snapshot", &[(0, Snapshot)], &[], RunsAgain),
            ("create_network", &[], &[(0, ValuesOfCloudProperties)], AnsweredAgain),
            ("delete_network", &[(0, Network)], &[], RunsAgain),
            ("current_vm_id", &[], &[], RunsAgain),
        ];
        let declared = MethodName::ALL.iter().map(|method| {
            let Declaration { locks, hides, repeated, .. } = method.declaration();
            (method.as_str(), locks, hides, repeated)
        });
        assert!(declared.eq(rows), "a method declares something else than it did");
    }

    #[test]
    fn a_vm_is_locked_before_a_disk_and_a_change_may_answer_with_its_log() {
        for method in MethodName::ALL {
            let declaration = method.declaration();
            let order: Vec<_> = declaration.locks.iter().map(|(_, resource)| *resource).collect();
            assert!(order.len() < 2 || order == [Resource::Vm, Resource::Disk], "{method:?} locks {order:?}");
            let expected = if declaration.is_a_change() { Declaration::WITH_LOG } else { Declaration::SHORT };
            assert_eq!(declaration.longest_answer, expected, "{method:?}");
        }
    }
}
