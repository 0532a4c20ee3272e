//! What both sides say is what both understand, also where documents disagree.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod disagreements;
mod examples;
mod redaction;
mod round_trips;
