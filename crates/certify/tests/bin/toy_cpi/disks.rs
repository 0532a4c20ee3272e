//! The methods of disks and their snapshots.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Answered, Toy, refuse};

impl Toy {
    pub(super) fn create_disk(&self, request: &Value, arguments: &[Value]) -> Answered {
        let lenient = self.is("any-size-of-disk");
        let size = arguments.first().and_then(Value::as_u64).filter(|size| *size > 0).or(lenient.then_some(1));
        let Some(size) = size.or_else(|| (arguments.is_empty() && self.is("defaults-for-arguments")).then_some(1))
        else {
            return refuse("CpiError", "the size must be a positive integer");
        };
        let request_id = request.pointer("/context/request_id").and_then(Value::as_str).unwrap_or_default();
        let remembered = self.folder.join(format!("request-{request_id}"));
        if self.is("remembers-six-digits") && remembered.exists() {
            return Ok(json!(fs::read_to_string(remembered).unwrap()));
        }
        let cid = self.put("disks", &json!({"size": size}));
        if self.is("remembers-six-digits") {
            fs::write(remembered, &cid).unwrap();
        }
        if self.is("attaches-new-disks")
            && let Some(vm_cid) = arguments.get(2).and_then(Value::as_str)
        {
            self.hang(vm_cid, &cid);
        }
        Ok(if self.is("disk-cid-is-a-number") { json!(7) } else { json!(cid) })
    }

    fn holder(&self, disk: &str) -> Option<String> {
        let holds = |vm: &Value| vm["disks"].as_array().unwrap().contains(&json!(disk));
        self.all("vms").into_iter().find(|(_, vm)| holds(vm)).map(|(cid, _)| cid)
    }

    fn hang(&self, vm_cid: &str, disk: &str) {
        let mut vm = self.read("vms", vm_cid).unwrap();
        vm["disks"].as_array_mut().unwrap().push(json!(disk));
        self.write("vms", vm_cid, &vm);
    }

    pub(super) fn delete_disk(&self, cid: &str) -> Answered {
        if self.holder(cid).is_some() && !self.is("deletes-attached-disks") {
            return refuse("CloudError", "the disk is attached");
        }
        let missing = if self.is("delete-disk-not-found-is-cloud-error") { "CloudError" } else { "DiskNotFound" };
        self.delete("disks", cid, Some(missing))
    }

    pub(super) fn has_disk(&self, cid: &str) -> bool {
        if self.is("asks-a-shell") && !cid.contains('\0') {
            let path = self.folder.join("disks").join(cid);
            return Command::new("sh").arg("-c").arg(format!("test -f {}", path.display())).status().unwrap().success();
        }
        self.is("has-every-disk") || self.read("disks", cid).is_some()
    }

    pub(super) fn attach_disk(&self, version: i64, vm_cid: &str, disk: &str) -> Answered {
        if !self.is("attaches-to-no-vm") {
            self.need("vms", vm_cid)?;
        } else if self.read("vms", vm_cid).is_none() {
            return Ok(json!("/dev/sdb"));
        }
        if self.is("attaches-unknown-disks") && self.read("disks", disk).is_none() {
            return Ok(json!({"path": "/dev/sdb"}));
        }
        self.need("disks", disk)?;
        match self.holder(disk) {
            Some(holder) if holder != vm_cid && !self.is("attaches-twice") => {
                return refuse("CloudError", "the disk is attached to another VM");
            }
            Some(_) if self.is("attach-again-is-an-error") => return refuse("CloudError", "it is attached"),
            Some(holder) if holder == vm_cid => {}
            _ => self.hang(vm_cid, disk),
        }
        let is_recorded = self.read("vms", vm_cid).is_some_and(|vm| vm["recorded"] == true);
        if version < 2 && self.is("records-vms-of-version-1") && !is_recorded {
            return refuse("CloudError", "cannot read settings, got HTTP 404");
        }
        if version < 2 && self.is("v1-attach-without-reason") {
            return refuse("CloudError", "no");
        }
        if version < 2 && !self.is("v1-answers-arrays") {
            return Ok(Value::Null);
        }
        Ok(match self.defect.as_str() {
            "number-in-hint" => json!({"lun": 0, "host_device_id": disk}),
            "no-hint" => Value::Null,
            "empty-hint" => json!({}),
            "one-hint-for-all" => json!("/dev/sdb"),
            _ => json!({"id": disk}),
        })
    }

    pub(super) fn detach_disk(&self, vm_cid: &str, disk: &str) -> Answered {
        let mut vm = self.need("vms", vm_cid)?;
        if self.is("detach-loses-vm") {
            return self.delete("vms", vm_cid, None);
        }
        let disks = vm["disks"].as_array_mut().unwrap();
        let before = disks.len();
        disks.retain(|other| other != disk);
        if disks.len() == before {
            let kind = if self.is("detach-twice-is-cloud-error") { "CloudError" } else { "DiskNotAttached" };
            return refuse(kind, "the disk is not attached");
        }
        if !self.is("detaches-nothing") {
            self.write("vms", vm_cid, &vm);
        }
        Ok(Value::Null)
    }

    pub(super) fn get_disks(&self, vm_cid: &str) -> Answered {
        let mut disks = self.need("vms", vm_cid)?["disks"].clone();
        if self.is("one-list-for-all") {
            disks = self.all("vms").iter().flat_map(|(_, vm)| vm["disks"].as_array().unwrap().clone()).collect();
        }
        if self.is("lists-root-disks") {
            disks.as_array_mut().unwrap().push(json!(format!("root-of-{vm_cid}")));
        }
        Ok(if self.is("null-for-no-disks") && disks == json!([]) { Value::Null } else { disks })
    }

    pub(super) fn resize_disk(&self, cid: &str, size: Option<&Value>) -> Answered {
        if self.is("resizes-in-words") {
            return Ok(Value::Null);
        }
        let mut disk = self.need("disks", cid)?;
        let Some(size) = size.and_then(Value::as_u64) else { return refuse("CpiError", "the size must be an integer") };
        if size < disk["size"].as_u64().unwrap() && !self.is("shrinks") {
            return refuse("NotSupported", "disks do not shrink");
        }
        if size == disk["size"].as_u64().unwrap() && self.is("resize-equal-is-an-error") {
            return refuse("CloudError", "it has this size");
        }
        if self.is("resize-loses-disk") {
            return self.delete("disks", cid, None);
        }
        if self.is("remembers-a-size-only") {
            fs::write(self.folder.join(format!("size-{cid}")), size.to_string()).unwrap();
            return Ok(Value::Null);
        }
        disk["size"] = json!(size);
        self.write("disks", cid, &disk);
        Ok(Value::Null)
    }

    pub(super) fn update_disk(&self, cid: &str, size: Option<&Value>) -> Answered {
        if self.is("updates-nothing") {
            return Ok(Value::Null);
        }
        let mut disk = self.need("disks", cid)?;
        let Some(size) = size.and_then(Value::as_u64) else { return refuse("CpiError", "the size must be an integer") };
        disk["size"] = json!(size);
        self.write("disks", cid, &disk);
        Ok(match self.defect.as_str() {
            "update-answers-empty-cid" => json!(""),
            "update-answers-true" => json!(true),
            "update-answers-unknown-cid" => json!("disk-of-nobody"),
            _ => Value::Null,
        })
    }

    pub(super) fn snapshot_disk(&self, disk: &str) -> Answered {
        match self.defect.as_str() {
            "empty-snapshot-cid" => return Ok(json!("")),
            "snapshots-in-words" => return Ok(json!(format!("snapshot-{}", Uuid::new_v4()))),
            "one-snapshot-cid" => return Ok(json!("snapshot-1")),
            "snapshots-not-supported" => return refuse("NotSupported", "there are no snapshots"),
            _ => {}
        }
        self.need("disks", disk)?;
        Ok(json!(self.put("snapshots", &json!({"disk": disk}))))
    }

    pub(super) fn delete_snapshot(&self, cid: &str) -> Answered {
        let snapshot = self.read("snapshots", cid);
        if self.is("delete-snapshot-not-found-is-cloud-error") && snapshot.is_none() {
            return refuse("CloudError", "there is no such snapshot");
        }
        let lost = snapshot.is_some_and(|it| self.read("disks", it["disk"].as_str().unwrap()).is_none());
        if self.is("snapshots-need-their-disk") && lost {
            return refuse("CloudError", "the disk of the snapshot is gone");
        }
        self.delete("snapshots", cid, None)
    }
}
