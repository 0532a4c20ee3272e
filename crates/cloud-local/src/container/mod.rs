//! A VM as a container.

pub(crate) mod root;
