//! `windlass cancel-task`: asks a task to end at its next checkpoint.

use crate::failure::Failure;
use crate::session::{Session, While};

pub(crate) async fn run(session: &mut Session<'_>, id: u64) -> Result<(), Failure> {
    session.director.delete(&format!("/task/{id}")).await.while_(format!("cancelling task {id}"))
}
