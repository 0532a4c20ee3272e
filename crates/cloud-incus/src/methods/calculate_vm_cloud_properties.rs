//! `calculate_vm_cloud_properties`: containers have any size, up to that of the largest member.

use serde_json::json;
use windlass_contract::cpi::methods::CalculateVmCloudProperties;
use windlass_contract::{MiB, Object};

use crate::fault::Fault;
use crate::session::Session;

pub(crate) async fn run(session: &Session, wanted: &CalculateVmCloudProperties) -> Result<Object, Fault> {
    let desired = wanted.desired;
    let members: Vec<Option<String>> = match session.server.is_clustered {
        false => vec![None],
        true => {
            let members = session.client.members().await?.into_iter().filter(|member| member.is_online());
            members.map(|member| Some(member.server_name)).collect()
        }
    };
    let mut largest = (0, MiB(0));
    for member in &members {
        let resources = session.client.resources(member.as_deref()).await?;
        let (cpu, ram) = (resources.cpu.total, MiB(resources.memory.total >> 20));
        if desired.cpu <= cpu && desired.ram <= ram {
            return Ok(Object::from_iter([
                ("cpu".to_owned(), json!(desired.cpu)),
                ("ram".to_owned(), json!(desired.ram.0)),
                ("ephemeral_disk_size".to_owned(), json!(desired.ephemeral_disk_size.0)),
            ]));
        }
        largest = largest.max((cpu, ram));
    }
    let (cpu, ram) = largest;
    Err(Fault::cloud(format!(
        "no member has {} CPUs and {} of memory; the largest has {cpu} and {ram}",
        desired.cpu, desired.ram
    )))
}
