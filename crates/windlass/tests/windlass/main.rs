//! The programs as their users run them: real processes, real connections, real VMs.
//!
//! - `slice`: one VM with one disk, from an empty machine to its end; `keeping`: how it is kept as it should be.
//! - `attacks`: what those who should be harmless can do, and what it costs others.
//! - `api`, `replay`: the director's API, also with what BOSH's client sent; `command_line`: what people type and read; `consent`: what they are asked.
//! - `incus`: a director on a real LXD daemon.
//! - `simulated`, `sim`: a director on the simulated cloud, and that cloud by itself; `local`: the embedded cloud.
//! - `envs`, `env_releases`: `create-env`; `cpi_releases`: CPI releases under names; `stemcell`, `registry`, `interpolate`, `certify`, `demo`: the verbs of these names.
//! - `own_release`: Windlass deployed by Windlass.
//! - `author`: release directories, and uploads of them.
//! - `matrix`: every combination of versions; `data_survives`: what is on a disk stays there; `jobs`: software on VMs.
//! - `core_files`: what a crash leaves.
//! - `visits`: the verbs that go to instances; `way_in`: the same through their agents; `real_ssh`: with a real ssh server; `recovery`: repairs that were decided before.
//! - `whole_run`: which tests run with `bin/test --all` alone.
//! - `docs`: what the pages say is so; `dependencies`: what we depend on is what deny.toml allows.
//! - `refusals`: what cannot succeed is refused before anything stops.
//! - `software`: a release becomes processes that run; `scenarios`: what BOSH's own tests promise.
//! - `earlier_states`: what earlier versions stored is still opened.
//! - `up_and_down`: a director in the background, how screens look, and that nothing is left.
//! - `site`: a director with a state directory of its own, for all of them.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod api;
mod attacks;
mod author;
mod certify;
mod command_line;
mod consent;
mod core_files;
mod cpi_releases;
mod data_survives;
mod demo;
mod dependencies;
mod docs;
mod earlier_states;
mod env_releases;
mod envs;
mod incus;
mod incus_cluster;
mod interpolate;
mod interrupted;
mod jobs;
mod keeping;
mod local;
mod matrix;
mod own_release;
mod real_ssh;
mod recovery;
mod refusals;
mod registry;
mod render;
mod replay;
mod scenarios;
mod sim;
mod simulated;
mod site;
mod slice;
mod software;
mod stemcell;
mod up_and_down;
mod visits;
mod way_in;
mod whole_run;
