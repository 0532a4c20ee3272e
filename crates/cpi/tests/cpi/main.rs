//! A cloud behind the SDK: what callers may send, and what they always get back.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod arbitrary;
mod conversation;
mod process;
mod versions;
