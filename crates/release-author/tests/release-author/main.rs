//! Release directories, as authors have them.

#![allow(clippy::unwrap_used)]

mod create;
mod keeping;
mod kills;
mod refusals;
mod shop;
