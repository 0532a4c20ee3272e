//! What there is.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use windlass_contract::Object;
use windlass_contract::cpi::CpiError;
use windlass_durable::lock::FileLock;

use crate::cloud::LocalCloud;
use crate::container::confinement::Confinement;
use crate::container::users::Users;
use crate::machine::Machine;

/// Something that was made and not deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Resource {
    /// `stemcell`, `vm`, `disk`, `snapshot` or `network`.
    pub kind: &'static str,
    /// By which the CPI's callers know it.
    pub cid: String,
    /// Of disks and snapshots.
    pub size_mib: Option<u64>,
    /// The VM that a disk is attached to.
    pub vm: Option<String>,
    /// In words.
    pub details: String,
    /// What callers named it with, in words.
    pub metadata: BTreeMap<String, String>,
}

impl Resource {
    fn new(kind: &'static str, cid: impl Into<String>, details: impl Into<String>) -> Self {
        Self { kind, cid: cid.into(), size_mib: None, vm: None, details: details.into(), metadata: BTreeMap::new() }
    }

    fn with_metadata(mut self, metadata: Object) -> Self {
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        self.metadata = metadata.into_iter().map(|(key, value)| (key, text(value))).collect();
        self
    }
}

/// In the order of their kinds and cids.
pub(super) fn all(cloud: &LocalCloud) -> Result<Vec<Resource>, CpiError> {
    let mut all = Vec::new();
    for it in cloud.stemcells.all()? {
        all.push(Resource::new("stemcell", it.cid, ""));
    }
    for it in cloud.vms.all()? {
        let machine = cloud.vms.path(it.cid.as_str()).map(Machine::new);
        let runs = machine.is_some_and(|machine| FileLock::is_held(&machine.lock()).unwrap_or(false));
        let mut details = vec![it.isolation.to_string(), if runs { "running" } else { "stopped" }.to_owned()];
        if let Some(container) = it.container {
            if container.confinement == Confinement::Nesting {
                details.push("nesting".to_owned());
            }
            match container.users {
                Users::Own(_) => details.push("users of its own".to_owned()),
                Users::Refused(why) => details.push(format!("no users of its own ({why})")),
                Users::OfMachine => {}
            }
        }
        details.extend(it.addresses.iter().map(ToString::to_string));
        all.push(Resource::new("vm", it.cid, details.join(", ")).with_metadata(it.metadata));
    }
    for it in cloud.disks.all()? {
        all.push(Resource {
            size_mib: Some(it.size_mib),
            vm: it.attached_to.map(|attachment| attachment.vm.into()),
            ..Resource::new("disk", it.cid, it.form.to_string()).with_metadata(it.metadata)
        });
    }
    for it in cloud.snapshots.all()? {
        let details = format!("{}, of {}", it.form, it.disk_cid);
        let resource = Resource::new("snapshot", it.cid, details).with_metadata(it.metadata);
        all.push(Resource { size_mib: Some(it.size_mib), ..resource });
    }
    for it in cloud.networks.all()? {
        all.push(Resource::new("network", it.cid, it.range.to_string()));
    }
    all.sort();
    Ok(all)
}
