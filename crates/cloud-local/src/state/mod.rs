//! What is kept, and where: one folder per resource, with a record that a person can read.

mod record;
mod shelf;

pub(crate) use record::{Attachment, DiskRecord, StemcellRecord, VmRecord};
pub(crate) use shelf::Shelf;
