//! `windlass create-env`, `delete-env`, `stop-env` and `start-env`: one VM from a manifest and a state file, with no director
//! around.

mod lines;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_create_env::{EnvError, EnvOptions, OwnCpi, Wishes};
use windlass_download::Patience;
use windlass_installation::own_programs;
use windlass_manifest::interpolate::Strictness;

use crate::cli::{CreateEnvArgs, EnvArgs, Global, StopEnvArgs};
use crate::failure::Failure;
use crate::foreground::Stop;
use crate::interpolation::{Interpolation, printed};
use crate::verbs::cpi::renderer;
use crate::verbs::read_document;
use lines::StageLines;

pub(crate) async fn create(flags: &Global, arguments: CreateEnvArgs) -> Result<(), Failure> {
    let wishes = Wishes {
        recreate: arguments.recreate,
        recreate_persistent_disks: arguments.recreate_persistent_disks,
        skip_drain: arguments.stop.skip_drain,
    };
    let options = options(flags, &arguments.stop.env, arguments.stop.package_dir)?;
    until_stopped(&options, windlass_create_env::create(&options, wishes)).await
}

pub(crate) async fn delete(flags: &Global, arguments: StopEnvArgs) -> Result<(), Failure> {
    let options = options(flags, &arguments.env, arguments.package_dir)?;
    until_stopped(&options, windlass_create_env::delete(&options, arguments.skip_drain)).await
}

pub(crate) async fn stop(flags: &Global, arguments: StopEnvArgs) -> Result<(), Failure> {
    let options = options(flags, &arguments.env, None)?;
    until_stopped(&options, windlass_create_env::stop(&options, arguments.skip_drain)).await
}

pub(crate) async fn start(flags: &Global, arguments: EnvArgs) -> Result<(), Failure> {
    let options = options(flags, &arguments, None)?;
    until_stopped(&options, windlass_create_env::start(&options)).await
}

/// Reads the manifest with all its variables filled in.
fn options(flags: &Global, arguments: &EnvArgs, package_dir: Option<PathBuf>) -> Result<EnvOptions, Failure> {
    let text = read_document(&arguments.manifest)?;
    let strictness = Strictness { missing: true, unused: false };
    let document = Interpolation::read(&arguments.changes)?.apply(&text, strictness)?;
    let (executable, before) =
        own_programs::cpi_command().map_err(|error| Failure::Process("cannot find this program's own file", error))?;
    let home = std::env::home_dir().unwrap_or_else(std::env::temp_dir);
    Ok(EnvOptions {
        manifest: printed(&document, None)?,
        state_path: arguments.state.clone().unwrap_or_else(|| default_state(&arguments.manifest)),
        manifest_path: arguments.manifest.clone(),
        downloads: home.join(".bosh/downloads"),
        installations: home.join(".bosh/installations"),
        package_dir,
        renderer: Arc::new(renderer()?),
        own_cpi: OwnCpi { executable, arguments: before },
        screen: Arc::new(StageLines::new(flags)),
        patience: Patience::default(),
        stop: Arc::new(AtomicBool::new(false)),
    })
}

/// `x/bosh.yml` has its state in `x/bosh-state.json`.
fn default_state(manifest: &Path) -> PathBuf {
    let stem = manifest.file_stem().unwrap_or_default().to_string_lossy();
    manifest.with_file_name(format!("{stem}-state.json"))
}

/// Carries out a run. Ctrl-C lets the step at hand finish, so that its result is on record; a second one does not wait.
async fn until_stopped(options: &EnvOptions, run: impl Future<Output = Result<(), EnvError>>) -> Result<(), Failure> {
    let mut stop = Stop::listen()?;
    tokio::pin!(run);
    loop {
        tokio::select! {
            ended = &mut run => return ended.map_err(|error| Failure::Env(Box::new(error))),
            () = stop.wanted() => {
                if options.stop.swap(true, Ordering::SeqCst) {
                    return Err(Failure::EnvInterrupted);
                }
                options.screen.line("Stopping after this step; once more to leave it to the next run");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_where_the_original_looks_for_it() {
        assert_eq!(default_state(Path::new("x/bosh.yml")), Path::new("x/bosh-state.json"));
        assert_eq!(default_state(Path::new("bosh.yml")), Path::new("bosh-state.json"));
    }
}
