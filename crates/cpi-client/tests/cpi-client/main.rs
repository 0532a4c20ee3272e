//! Calls as processes, in every version, and as they were recorded.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod calls;
mod recordings;
mod versions;
