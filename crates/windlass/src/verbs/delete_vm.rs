//! `windlass delete-vm`: the VM goes, its instance stays.

use reqwest::Method;
use windlass_director_client::escape;

use crate::failure::Failure;
use crate::session::{Call, Session};

pub(super) async fn run(session: &mut Session<'_>, cid: &str) -> Result<(), Failure> {
    session.using_deployment()?;
    session.confirm()?;
    let call = Call::new(Method::DELETE, format!("/vms/{}", escape(cid)));
    session.carry_out(call, &format!("deleting VM '{cid}'")).await.map(|_| ())
}
