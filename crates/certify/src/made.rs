//! Everything that a run makes, noted before it is asked for, so that it can be removed again.

use serde_json::Value;
use windlass_contract::cpi::{ErrorType, Response};

/// What can be made, in the order in which it can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Removed with `delete_vm`.
    Vm,
    /// Removed with `delete_snapshot`.
    Snapshot,
    /// Removed with `delete_disk`.
    Disk,
    /// Removed with `delete_network`.
    Network,
    /// Removed with `delete_stemcell`.
    Stemcell,
}

const KINDS: [(Kind, &str, &str); 5] = [
    (Kind::Vm, "create_vm", "delete_vm"),
    (Kind::Snapshot, "snapshot_disk", "delete_snapshot"),
    (Kind::Disk, "create_disk", "delete_disk"),
    (Kind::Network, "create_network", "delete_network"),
    (Kind::Stemcell, "create_stemcell", "delete_stemcell"),
];

impl Kind {
    /// All of them, in the order of removal.
    pub(crate) const ALL: [Self; 5] = [Self::Vm, Self::Snapshot, Self::Disk, Self::Network, Self::Stemcell];

    /// What people call it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Vm => "VM",
            Self::Snapshot => "snapshot",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Stemcell => "stemcell",
        }
    }

    pub(crate) fn delete_method(self) -> &'static str {
        KINDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(.., delete)| delete)
    }
}

/// One thing that was made, or may have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thing {
    pub(crate) kind: Kind,
    pub(crate) cid: String,
    /// Used by several checks.
    pub(crate) shared: bool,
}

/// Everything that exists because of this run.
#[derive(Debug, Default)]
pub(crate) struct Made {
    things: Vec<Thing>,
    attachments: Vec<(String, String)>,
    /// Calls that may have made something, and gave no cid to remove it by.
    unknown: Vec<(u64, String)>,
    asked: u64,
    /// What is made now is for several checks.
    pub(crate) sharing: bool,
}

/// A call under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked(u64);

impl Made {
    /// Notes what `request` may make, before it is sent.
    pub(crate) fn before(&mut self, request: &Value) -> Asked {
        self.asked += 1;
        let method = request["method"].as_str().unwrap_or_default();
        if KINDS.iter().any(|(_, create, _)| *create == method) {
            let first = request["arguments"].get(0).map(short).unwrap_or_default();
            self.unknown.push((self.asked, format!("{method} with {first}")));
        }
        Asked(self.asked)
    }

    /// Notes what the answer says about it. Without a response, what was noted before stays.
    pub(crate) fn after(&mut self, asked: Asked, request: &Value, response: Option<&Response>) {
        let Some(response) = response else { return };
        let method = request["method"].as_str().unwrap_or_default();
        let argument = |position: usize| request["arguments"].get(position).and_then(Value::as_str).unwrap_or_default();
        let done = response.error.is_none();
        if let Some((kind, ..)) = KINDS.iter().find(|(_, create, _)| *create == method) {
            let cid = cid_of(&response.result).filter(|_| done);
            // A success without a usable cid has made something that nobody can name.
            if !done || cid.is_some() {
                self.unknown.retain(|(number, _)| *number != asked.0);
            }
            let known = |cid: &str| self.things.iter().any(|thing| thing.kind == *kind && thing.cid == cid);
            if let Some(cid) = cid.filter(|cid| !known(cid)) {
                self.things.push(Thing { kind: *kind, cid, shared: self.sharing });
            }
        }
        if let Some((kind, ..)) = KINDS.iter().find(|(.., delete)| *delete == method) {
            let gone = response.error.as_ref().is_some_and(|error| {
                matches!(error.kind, ErrorType::VmNotFound | ErrorType::DiskNotFound | ErrorType::NetworkNotFound)
            });
            if done || gone {
                self.forget(*kind, argument(0));
            }
        }
        match method {
            "attach_disk" if done => self.attachments.push((argument(0).into(), argument(1).into())),
            "detach_disk" if done => self.attachments.retain(|(vm, disk)| vm != argument(0) || disk != argument(1)),
            "update_disk" if done => {
                if let Some(cid) = cid_of(&response.result).filter(|cid| cid != argument(0)) {
                    self.forget(Kind::Disk, argument(0));
                    self.things.push(Thing { kind: Kind::Disk, cid, shared: false });
                }
            }
            _ => {}
        }
    }

    fn forget(&mut self, kind: Kind, cid: &str) {
        self.things.retain(|thing| thing.kind != kind || thing.cid != cid);
        self.attachments.retain(|(vm, disk)| match kind {
            Kind::Vm => vm != cid,
            Kind::Disk => disk != cid,
            _ => true,
        });
    }

    /// What of one kind is there; only what one check made, or everything.
    pub(crate) fn of(&self, kind: Kind, everything: bool) -> Vec<Thing> {
        self.things.iter().filter(|thing| thing.kind == kind && (everything || !thing.shared)).cloned().collect()
    }

    /// Attachments of disks that only one check made.
    pub(crate) fn attachments(&self) -> Vec<(String, String)> {
        let shared = |disk: &str| self.things.iter().any(|thing| thing.cid == disk && thing.shared);
        self.attachments.iter().filter(|(_, disk)| !shared(disk)).cloned().collect()
    }

    /// A call that named `what` is known to have left nothing.
    pub(crate) fn settle(&mut self, what: &str) {
        self.unknown.retain(|(_, call)| !call.contains(what));
    }

    /// Calls that may have made something that nobody can remove by its cid.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = &str> {
        self.unknown.iter().map(|(_, what)| what.as_str())
    }
}

fn cid_of(result: &Value) -> Option<String> {
    let cid = if result.is_array() { result.get(0)? } else { result };
    cid.as_str().filter(|cid| !cid.is_empty()).map(str::to_owned)
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn exchange(made: &mut Made, method: &str, arguments: Value, response: Option<Response>) {
        let request = json!({"method": method, "arguments": arguments});
        let asked = made.before(&request);
        made.after(asked, &request, response.as_ref());
    }

    #[test]
    fn what_was_made_is_known_until_it_is_deleted() {
        let mut made = Made::default();
        exchange(&mut made, "create_vm", json!(["agent"]), Some(Response::success(json!(["vm-1", {}]))));
        exchange(&mut made, "create_disk", json!([1]), Some(Response::success(json!("disk-1"))));
        exchange(&mut made, "attach_disk", json!(["vm-1", "disk-1"]), Some(Response::success(json!("/dev/sdb"))));
        assert_eq!(made.of(Kind::Vm, false)[0].cid, "vm-1");
        assert_eq!(made.attachments().len(), 1);
        exchange(&mut made, "delete_vm", json!(["vm-1"]), Some(Response::success(Value::Null)));
        assert!(made.of(Kind::Vm, true).is_empty() && made.attachments().is_empty());
        assert_eq!(made.of(Kind::Disk, true).len(), 1);
    }

    #[test]
    fn a_call_without_an_answer_may_have_made_something() {
        let mut made = Made::default();
        exchange(&mut made, "create_vm", json!(["agent-7"]), None);
        assert_eq!(made.unknown().collect::<Vec<_>>(), ["create_vm with \"agent-7\""]);
    }
}
