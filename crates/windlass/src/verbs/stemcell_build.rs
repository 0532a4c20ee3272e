//! `windlass stemcell build`: a stemcell around an agent.

use std::path::PathBuf;

use windlass_contract::ApiVersion;
use windlass_installation::own_programs;
use windlass_stemcell::{Base, BuildOptions, Debian, HOST, find_busybox, host_version};

use crate::cli::{StemcellBuildArgs, Userland};
use crate::failure::Failure;
use crate::screen::Screen;
use crate::verbs::upload_stemcell::progress_bar;

pub(crate) fn run(screen: &mut Screen, arguments: StemcellBuildArgs) -> Result<(), Failure> {
    let packs_agent = arguments.agent.is_some();
    let agent = match arguments.agent {
        Some(agent) => agent,
        None => default_agent()?,
    };
    let mut options = BuildOptions::new(agent, arguments.output);
    if let Some(path) = arguments.rootfs {
        options.base = Base::RootFs(path);
        options.name = "windlass-rootfs".into();
        options.os = options.name.clone();
    } else if let Some(suite) = arguments.debian {
        options.os = format!("debian-{suite}");
        options.name = format!("windlass-{}", options.os);
        options.base = Base::Debian(Debian { suite, mirror: arguments.mirror, packages: arguments.packages });
    } else if arguments.userland == Some(Userland::Host) {
        options.base = Base::Host { packs_agent };
        options.name = HOST.into();
        options.os = options.name.clone();
        options.version =
            host_version().map_err(|error| Failure::Process("cannot tell which packages this machine has", error))?;
    } else {
        options.base = Base::Minimal { busybox: arguments.busybox.or_else(find_busybox) };
    }
    options.name = arguments.name.unwrap_or(options.name);
    options.os = arguments.os.unwrap_or(options.os);
    options.version = arguments.stemcell_version.unwrap_or(options.version);
    options.api_version = ApiVersion(arguments.api_version);
    let bar = progress_bar(screen.is_live());
    let built = windlass_stemcell::build(&options, bar.reporter());
    bar.clear();
    built?;
    let BuildOptions { name, version, output, .. } = options;
    screen.line(&format!("Stemcell '{name}/{version}' is in {}", output.display()));
    Ok(())
}

/// The agent beside us, which is small and needs no libraries; or else ourselves: we are the agent, too, when we are
/// called `bosh-agent`.
pub(crate) fn default_agent() -> Result<PathBuf, Failure> {
    own_programs::agent().map_err(|error| Failure::Process("cannot find this program's own file", error))
}
