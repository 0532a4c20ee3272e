//! `windlass attach-disk`: an instance that is stopped gets another disk.

use reqwest::Method;
use windlass_director_client::{escape, query};

use crate::cli::Instance;
use crate::failure::Failure;
use crate::session::{Call, Session};

pub(super) async fn run(
    session: &mut Session<'_>,
    instance: &Instance,
    disk_cid: &str,
    disk_properties: Option<String>,
) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let mut asked =
        vec![("deployment", deployment), ("job", instance.group.clone()), ("instance_id", instance.id.clone())];
    asked.extend(disk_properties.map(|properties| ("disk_properties", properties)));
    let path = format!("/disks/{}/attachments{}", escape(disk_cid), query(asked));
    let doing = format!("attaching disk '{disk_cid}' to '{instance}'");
    session.carry_out(Call::new(Method::PUT, path), &doing).await.map(|_| ())
}
