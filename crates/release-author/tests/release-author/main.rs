//! Release directories, as authors have them.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used)]

mod create;
mod keeping;
mod kills;
mod refusals;
mod shop;
