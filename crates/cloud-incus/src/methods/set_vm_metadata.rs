//! `set_vm_metadata`: replaces the given keys, keeps the others.

use serde_json::json;
use windlass_contract::cpi::methods::SetVmMetadata;

use crate::disks::reachable_vm;
use crate::fault::Fault;
use crate::session::Session;
use crate::tags;

pub(crate) async fn run(session: &Session, vm: &SetVmMetadata) -> Result<(), Fault> {
    let (name, _) = reachable_vm(session, &vm.vm_cid).await?;
    let mut change = json!({"config": tags::of_metadata(&vm.metadata)});
    let description = tags::description(&vm.metadata);
    if !description.is_empty() {
        change["description"] = json!(description);
    }
    Ok(session.client.patch_instance(name.as_str(), &change, &format!("name the VM '{}'", vm.vm_cid)).await?)
}
