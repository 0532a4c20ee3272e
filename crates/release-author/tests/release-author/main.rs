//! Release directories, as authors have them.

#![allow(clippy::unwrap_used)]

mod create;
mod keeping;
mod refusals;
mod shop;
