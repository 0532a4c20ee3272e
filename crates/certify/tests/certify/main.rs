//! Certification of CPIs that are right, wrong in one way, or stopped in the middle.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod causes;
mod clean_up;
mod defects;
mod example;
mod rig;
