//! `delete_network`: only one that a director made, and that no VM is in. One that is gone is a success.

use windlass_contract::cpi::methods::DeleteNetwork;
use windlass_cpi::Call;

use crate::fault::Fault;
use crate::names::NetworkName;
use crate::session::Session;
use crate::tags;

pub(crate) async fn run(session: &Session, call: &Call, network: &DeleteNetwork) -> Result<(), Fault> {
    let cid = &network.network_cid;
    let Some(name) = NetworkName::of(cid) else { return Ok(()) };
    let Some(found) = session.client.find_network(name.as_str()).await? else { return Ok(()) };
    let director = found.config.get(tags::DIRECTOR).map(String::as_str);
    if found.is_made() && director.is_none() {
        return Err(Fault::cloud(format!("the network '{cid}' was not made by this CPI; delete it in the cluster")));
    }
    session.must_be_ours(&format!("the network '{cid}'"), director, call)?;
    let users = found.users();
    if !users.is_empty() {
        let users = users.iter().map(|user| format!("'{user}'")).collect::<Vec<_>>().join(", ");
        return Err(Fault::cloud(format!("the network '{cid}' is in use by {users}; delete them first")));
    }
    match session.client.delete_network(name.as_str()).await {
        Err(error) if !error.is_missing() => Err(error.into()),
        _ => Ok(()),
    }
}
