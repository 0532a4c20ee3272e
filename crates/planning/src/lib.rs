//! What is, what should be, and what to do about it, with the reason for each action.
//!
//! Everything here is a function of its arguments: no database, no HTTP, no clock, no runtime. A deploy goes through it
//! in this order:
//!
//! - [`records`]: what is, as plain types. A director keeps them in its database, create-env in its state file.
//! - [`spec`] and [`software`]: what one instance is to be, and what runs on the instances of a group.
//! - [`links`]: what jobs provide to each other.
//! - [`names`]: which disk of an instance, which CPI: with a name, or the one that needs none.
//! - [`desired`]: what should be: the manifest and the configs, read and checked. All mistakes at once.
//! - [`plan`]: the actions that lead from the one to the other.
//! - [`dns`]: names of instances, and the document of them that agents get.
//! - [`template_spec`]: what templates of a job see of one instance.
//! - [`problems`]: what cloud-check finds, and what can be done about it.
//! - [`diff`]: what changes between two documents, for people.
//! - `weight`: what the copies in a plan may take of memory.

pub mod desired;
pub mod diff;
pub mod dns;
pub mod links;
pub mod names;
pub mod plan;
pub mod problems;
pub mod records;
pub mod software;
pub mod spec;
pub mod template_spec;
mod weight;

#[cfg(test)]
mod rooms_tests;
