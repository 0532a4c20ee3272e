//! One file per verb, or per few that belong together.

mod attach_disk;
mod author;
mod bench;
mod cancel_task;
pub(crate) mod certify;
mod change_instances;
mod clean_up;
mod cloud_check;
mod complete_names;
mod completion;
mod config;
mod config_kinds;
mod config_warnings;
mod configs;
mod cp;
pub(crate) mod cpi;
mod curl;
mod delete_deployment;
mod delete_disk;
mod delete_release;
mod delete_stemcell;
mod delete_vm;
mod deploy;
mod deployment;
mod deployments;
mod director;
mod disks;
mod doctor;
mod document_kind;
mod down;
mod env;
mod env_visits;
mod environments;
mod envs;
mod errands;
mod events;
mod exec;
mod explain;
mod export_release;
mod follow_logs;
mod ignore;
mod incus;
mod inspect_local_stemcell;
mod inspect_release;
mod instance_table;
mod instances;
mod interpolate;
mod leaks;
mod local;
mod locks;
mod logs;
mod man_pages;
mod manifest;
mod networks;
mod orphaned_vms;
mod pcap;
mod plan;
mod recovery;
mod registry;
mod releases;
mod releases_of_document;
mod remote;
mod render;
mod render_diff;
mod run_errand;
mod scp;
mod sim;
mod snapshots;
mod ssh;
mod status;
pub(crate) mod stemcell_build;
mod stemcell_inspect;
mod stemcell_repack;
mod stemcells;
mod task;
mod tasks;
mod test_webhook;
mod up;
mod update_resurrection;
mod upload_release;
mod upload_stemcell;
mod variables;
mod vms;
mod watch;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use windlass_bench::BenchVerb;
use windlass_manifest::interpolate::Strictness;

use crate::cli::{Cli, CpiVerb, DemoArgs, Global, RemoteVerb, SimArgs, StemcellVerb, Verb};
use crate::demo;
use crate::failure::{Failure, chain, report};
use crate::freed_memory;
use crate::interpolation::{self, InterpolationArgs};
use crate::own_machine;
use crate::screen::Screen;
use crate::session::Session;

pub(crate) use sim::host_on_demand as sim_host;

/// Does what the command line says.
pub(crate) fn run(cli: Cli) -> ExitCode {
    match &cli.verb {
        Verb::Cpi(CpiVerb::Incus { config: Some(config), verb: None }) => return windlass_cloud_incus::serve(config),
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
    if matches!(cli.verb, Verb::Director(_)) {
        // A director that cannot begin again takes more memory, and is as good as any other.
        let _ = freed_memory::begin_again();
    }
    if has_its_own_machine(&cli.verb) {
        match (own_machine::enter(), &cli.verb) {
            (Ok(None), _) => {}
            (Ok(Some(ended)), _) => return ended,
            // It can do without.
            (Err(_), Verb::Demo(DemoArgs { isolation: None, .. })) => {}
            (Err(error), _) => {
                let _ = writeln!(std::io::stderr(), "{}", chain(&error));
                return ExitCode::FAILURE;
            }
        }
    }
    if let Some(seconds) = cli.global.watch {
        return watch::run(cli.global, cli.verb, seconds);
    }
    let mut screen = match cli.verb {
        Verb::Demo(_)
        | Verb::Director(_)
        | Verb::Registry(_)
        | Verb::Certify(_)
        | Verb::Remote(RemoteVerb::Exec(_)) => Screen::for_failures_only(&cli.global),
        _ => Screen::new(&cli.global),
    };
    let outcome = match cli.verb {
        Verb::Director(_) | Verb::Registry(_) => tokio::runtime::Builder::new_multi_thread(),
        // Output of instances waits until it is read, and the director hears meanwhile that the client is there.
        Verb::Remote(RemoteVerb::Exec(_) | RemoteVerb::Cp(_) | RemoteVerb::Logs(_)) => {
            tokio::runtime::Builder::new_multi_thread()
        }
        // Signals are heard while programs run.
        Verb::Remote(RemoteVerb::Ssh(_) | RemoteVerb::Scp(_) | RemoteVerb::Pcap(_)) => {
            tokio::runtime::Builder::new_multi_thread()
        }
        // One conversation needs one thread.
        _ => tokio::runtime::Builder::new_current_thread(),
    }
    .enable_all()
    .build()
    .map_err(|error| Failure::Process("cannot start the async runtime", error))
    .and_then(|runtime| runtime.block_on(act(cli.verb, &cli.global, &mut screen)));
    let error = outcome.as_ref().err().map(report);
    let code = screen.code();
    match (screen.finish(error.as_deref()), error) {
        (Ok(()), None) => ExitCode::from(code),
        (Ok(()), Some(_)) => ExitCode::FAILURE,
        (Err(error), _) => {
            let _ = writeln!(std::io::stderr(), "cannot write the output: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether a verb touches networks and mounts, and therefore runs where they are its own, if it can.
fn has_its_own_machine(verb: &Verb) -> bool {
    match verb {
        Verb::Bench(
            BenchVerb::Agent(_)
            | BenchVerb::CpiCall(_)
            | BenchVerb::Dns(_)
            | BenchVerb::Incus(_)
            | BenchVerb::Registry(_)
            | BenchVerb::Render(_),
        ) => false,
        Verb::Bench(_) => true,
        Verb::Demo(demo) => !demo.keep && !demo.end && demo.isolation != Some(windlass_cloud_local::Isolation::Process),
        _ => false,
    }
}

async fn act(verb: Verb, flags: &Global, screen: &mut Screen) -> Result<(), Failure> {
    match verb {
        Verb::Completion { shell } => {
            completion::run(screen, shell);
            Ok(())
        }
        Verb::CompleteNames { words } => {
            complete_names::run(screen, flags, &words).await;
            Ok(())
        }
        Verb::ManPages { directory } => man_pages::run(screen, &directory),
        Verb::Doctor => doctor::run(screen, flags).await,
        Verb::Up(arguments) => up::run(screen, flags, &arguments).await,
        Verb::Status => status::run(screen, flags).await,
        Verb::Down(arguments) => down::run(screen, flags, &arguments).await,
        Verb::CreateEnv(arguments) => envs::create(flags, arguments).await,
        Verb::DeleteEnv(arguments) => envs::delete(flags, arguments).await,
        Verb::StopEnv(arguments) => envs::stop(flags, arguments).await,
        Verb::StartEnv(arguments) => envs::start(flags, arguments).await,
        Verb::AliasEnv { alias } => environments::alias(screen, flags, &alias).await,
        Verb::UnaliasEnv { alias } => environments::unalias(flags, &alias),
        Verb::Environments => environments::list(screen, flags),
        Verb::LogIn => environments::log_in(screen, flags).await,
        Verb::LogOut => environments::log_out(screen, flags),
        Verb::Render(arguments) => match &arguments.diff {
            Some(manifest) => render_diff::run(&mut Session::open(flags, screen)?, manifest, &arguments.changes).await,
            None => render::run(screen, &arguments),
        },
        Verb::Interpolate(arguments) => interpolate::run(screen, &arguments),
        Verb::Demo(arguments) => Ok(demo::run(flags, &arguments).await?),
        Verb::Director(arguments) => director::run(flags, arguments).await,
        Verb::Registry(arguments) => registry::run(flags, arguments).await,
        Verb::Certify(arguments) => certify::run(flags, arguments).await,
        Verb::Stemcell(StemcellVerb::Build(arguments)) => stemcell_build::run(screen, arguments),
        Verb::Stemcell(StemcellVerb::Inspect { file }) => stemcell_inspect::run(screen, &file),
        Verb::Stemcell(StemcellVerb::Repack(arguments)) => stemcell_repack::run(screen, arguments),
        Verb::Local(verb) => local::run(screen, flags, verb),
        Verb::Sim(SimArgs { verb: Some(verb), .. }) => sim::look(screen, verb),
        Verb::Bench(verb) => bench::run(screen, verb).await,
        Verb::Author(verb) => author::run(screen, verb),
        Verb::InspectLocalStemcell { file } => inspect_local_stemcell::run(screen, &file),
        Verb::RepackStemcell(arguments) => stemcell_repack::run(screen, arguments),
        Verb::Remote(RemoteVerb::Ssh(arguments)) if arguments.env.director => env_visits::ssh(screen, &arguments).await,
        Verb::Remote(RemoteVerb::Scp(arguments)) if arguments.env.director => env_visits::scp(screen, &arguments).await,
        Verb::Remote(RemoteVerb::Logs(arguments)) if arguments.env.director => {
            env_visits::logs(screen, &arguments).await
        }
        Verb::Remote(verb) => {
            let mut session = match verb {
                // What a command prints is all that is printed.
                RemoteVerb::Exec(_) => Session::open_quietly(flags, screen)?,
                _ => Session::open(flags, screen)?,
            };
            if let Err(failure) = remote::run(&mut session, flags, verb).await {
                return Err(session.name_what_there_is(failure).await);
            }
            screen.check_columns()
        }
        Verb::Cpi(CpiVerb::Install(arguments)) => cpi::install(screen, flags, arguments).await,
        Verb::Cpi(CpiVerb::Upgrade(arguments)) => cpi::upgrade(screen, flags, arguments).await,
        Verb::Cpi(CpiVerb::List) => cpi::list(screen, flags),
        Verb::Cpi(CpiVerb::Show { name }) => cpi::show(screen, flags, &name).await,
        Verb::Cpi(CpiVerb::Remove { name }) => cpi::remove(screen, flags, &name),
        Verb::Cpi(CpiVerb::Incus { verb: Some(verb), .. }) => incus::run(screen, verb).await,
        // These never come here.
        Verb::Cpi(_) | Verb::Sim(_) | Verb::Agent { .. } => Ok(()),
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
