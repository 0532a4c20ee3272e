//! What earlier versions stored is opened by this one, settled and finished, with the data that was on the disks. Each version
//! has a folder here, which `make` made by running it and killing it; README.md says what is in them.
//!
//! - [`kept`]: how a state is put where it can be opened.
//! - [`stored_json`]: what is stored as JSON, by itself.
//! - [`simulated`], [`processes`]: directors. [`environments`]: `create-env`.

mod environments;
mod kept;
mod opened;
mod processes;
mod simulated;
mod stored_json;
