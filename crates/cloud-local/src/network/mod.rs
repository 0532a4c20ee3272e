//! Which addresses a VM gets, and the interfaces that they are on.
//!
//! - [`loopback`]: in process isolation, addresses of the loopback interface.
//! - [`netlink`]: the conversation with the kernel.

pub(crate) mod loopback;
pub(crate) mod netlink;

pub(crate) use loopback::{Plan, plan, settle};
