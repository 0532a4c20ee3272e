//! One file per verb.

mod bench_agent;
mod bench_cpi_call;
mod bench_kills;
mod bench_local;
mod bench_registry;
mod cancel_task;
pub(crate) mod certify;
mod cloud_config;
mod configs;
mod delete_deployment;
mod delete_stemcell;
mod deploy;
mod deployments;
mod director;
mod disks;
mod env;
mod instances;
mod interpolate;
mod leaks;
mod local;
mod locks;
mod manifest;
mod plan;
mod recreate;
mod registry;
mod sim;
pub(crate) mod stemcell_build;
mod stemcell_inspect;
mod stemcell_repack;
mod stemcells;
mod task;
mod tasks;
mod update_cloud_config;
mod upload_stemcell;
mod vms;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use windlass_manifest::interpolate::Strictness;

use crate::cli::{BenchVerb, Cli, CpiVerb, Global, SimArgs, StemcellVerb, Verb};
use crate::demo;
use crate::failure::{Failure, chain};
use crate::interpolation::{self, InterpolationArgs};
use crate::own_machine;
use crate::screen::Screen;
use crate::session::Session;

pub(crate) use sim::host_on_demand as sim_host;

/// Does what the command line says.
pub(crate) fn run(cli: Cli) -> ExitCode {
    match &cli.verb {
        Verb::Cpi(CpiVerb::Local { config }) => return windlass_cloud_local::serve(config),
        Verb::Cpi(CpiVerb::Sim { config }) => return windlass_cloud_sim::serve(config.as_deref()),
        Verb::Sim(SimArgs { verb: None, config }) => return sim::host(&cli.global, config.as_deref()),
        Verb::Agent { flags } => {
            let arguments =
                std::iter::once(&String::from("agent")).chain(flags).map(OsString::from).collect::<Vec<_>>();
            return windlass_agent::run(arguments.into_iter());
        }
        _ => {}
    }
    if let Verb::Bench(BenchVerb::Local(_) | BenchVerb::Kills(_)) = cli.verb {
        match own_machine::enter() {
            Ok(None) => {}
            Ok(Some(ended)) => return ended,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "{}", chain(&error));
                return ExitCode::FAILURE;
            }
        }
    }
    let mut screen = match cli.verb {
        Verb::Demo { .. } | Verb::Director(_) | Verb::Registry(_) | Verb::Certify(_) => {
            Screen::for_failures_only(&cli.global)
        }
        _ => Screen::new(&cli.global),
    };
    let outcome = match cli.verb {
        Verb::Director(_) | Verb::Registry(_) => tokio::runtime::Builder::new_multi_thread(),
        // One conversation needs one thread.
        _ => tokio::runtime::Builder::new_current_thread(),
    }
    .enable_all()
    .build()
    .map_err(|error| Failure::Process("cannot start the async runtime", error))
    .and_then(|runtime| runtime.block_on(act(cli.verb, &cli.global, &mut screen)));
    let error = outcome.err().map(|error| chain(&error));
    match (screen.finish(error.as_deref()), error) {
        (Ok(()), None) => ExitCode::SUCCESS,
        (Ok(()), Some(_)) => ExitCode::FAILURE,
        (Err(error), _) => {
            let _ = writeln!(std::io::stderr(), "cannot write the output: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn act(verb: Verb, flags: &Global, screen: &mut Screen) -> Result<(), Failure> {
    match verb {
        Verb::Interpolate(arguments) => return interpolate::run(screen, &arguments),
        Verb::Demo { keep } => return Ok(demo::run(flags, keep).await?),
        Verb::Director(arguments) => return director::run(flags, arguments).await,
        Verb::Registry(arguments) => return registry::run(flags, arguments).await,
        Verb::Certify(arguments) => return certify::run(flags, arguments).await,
        Verb::Stemcell(StemcellVerb::Build(arguments)) => return stemcell_build::run(screen, arguments),
        Verb::Stemcell(StemcellVerb::Inspect { file }) => return stemcell_inspect::run(screen, &file),
        Verb::Stemcell(StemcellVerb::Repack(arguments)) => return stemcell_repack::run(screen, arguments),
        Verb::Local(verb) => return local::run(screen, flags, verb),
        Verb::Sim(SimArgs { verb: Some(verb), .. }) => return sim::look(screen, verb),
        Verb::Bench(BenchVerb::Agent(arguments)) => return bench_agent::run(screen, &arguments).await,
        Verb::Bench(BenchVerb::CpiCall(arguments)) => return bench_cpi_call::run(screen, &arguments),
        Verb::Bench(BenchVerb::Local(arguments)) => return bench_local::run(screen, &arguments).await,
        Verb::Bench(BenchVerb::Kills(arguments)) => return bench_kills::run(screen, &arguments).await,
        Verb::Bench(BenchVerb::Registry(arguments)) => return bench_registry::run(screen, &arguments).await,
        _ => {}
    }
    let session = &mut Session::open(flags, screen)?;
    match verb {
        Verb::Env => env::run(session).await,
        Verb::UploadStemcell { file, fix } => upload_stemcell::run(session, &file, fix).await,
        Verb::Stemcells => stemcells::run(session).await,
        Verb::DeleteStemcell { stemcell, force } => delete_stemcell::run(session, &stemcell, force).await,
        Verb::UpdateCloudConfig { file, changes, name } => {
            update_cloud_config::run(session, &file, &changes, &name).await
        }
        Verb::CloudConfig { name } => cloud_config::run(session, &name).await,
        Verb::Configs => configs::run(session).await,
        Verb::Deploy(arguments) => deploy::run(session, &arguments).await,
        Verb::Plan(arguments) => plan::run(session, &arguments).await,
        Verb::Deployments => deployments::run(session).await,
        Verb::Manifest => manifest::run(session).await,
        Verb::Vms => vms::run(session).await,
        Verb::Instances { details } => instances::run(session, details).await,
        Verb::Disks { orphaned: true } => disks::run_orphaned(session).await,
        Verb::Disks { orphaned: false } => disks::run(session).await,
        Verb::Recreate { instances, fix } => recreate::run(session, instances.as_deref(), fix).await,
        Verb::DeleteDeployment { force } => delete_deployment::run(session, force).await,
        Verb::Tasks { recent } => tasks::run(session, recent).await,
        Verb::Task(arguments) => task::run(session, &arguments).await,
        Verb::CancelTask { id } => cancel_task::run(session, id).await,
        Verb::Locks => locks::run(session).await,
        Verb::Leaks => leaks::run(session).await,
        Verb::Interpolate(_)
        | Verb::Demo { .. }
        | Verb::Director(_)
        | Verb::Registry(_)
        | Verb::Certify(_)
        | Verb::Stemcell(_)
        | Verb::Bench(_)
        | Verb::Cpi(_)
        | Verb::Local(_)
        | Verb::Sim(_)
        | Verb::Agent { .. } => Ok(()),
    }
}

/// The text of a file that a user names.
fn read_file(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|source| Failure::File { path: path.to_owned(), source })
}

/// A document that a user names, or what comes in on `-`.
fn read_document(path: &Path) -> Result<String, Failure> {
    if path != Path::new("-") {
        return read_file(path);
    }
    std::io::read_to_string(std::io::stdin()).map_err(|source| Failure::File { path: path.to_owned(), source })
}

/// A YAML document that a user names, with the changes that the flags make. What is no YAML is refused here, before
/// anything is sent.
fn read_yaml(
    path: &Path,
    changes: &InterpolationArgs,
    strictness: Strictness,
) -> Result<(String, windlass_manifest::Document), Failure> {
    let text = interpolation::text_of(read_document(path)?, changes, strictness)?;
    let document = windlass_manifest::Document::parse(&text)
        .map_err(|error| Failure::Yaml { path: path.to_owned(), source: error.into() })?;
    Ok((text, document))
}
