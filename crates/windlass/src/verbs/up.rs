//! `windlass up`: a director in the background, with a stemcell and a cloud config, so that the next command can be a deploy.

use std::path::{Path, PathBuf};

use serde_json::json;
use windlass_cloud_local::{Isolation, LocalCloud};
use windlass_director::settings::{self, CpiChoice, Settings};
use windlass_director_client::answers::{CloudConfig, Needed};
use windlass_stemcell::{Base, BuildOptions, HOST, find_busybox, host_version};

use crate::background_director::{BackgroundDirector, NotStarted, log_of};
use crate::cli::{Global, UpArgs};
use crate::failure::Failure;
use crate::screen::Screen;
use crate::session::{Session, While};
use crate::task_view;
use crate::verbs::stemcell_build::default_agent;

pub(super) async fn run(screen: &mut Screen, flags: &Global, arguments: &UpArgs) -> Result<(), Failure> {
    let state_dir = state_dir(flags)?;
    let settings = Settings::load(None, &state_dir).map_err(Failure::DirectorSettings)?;
    if let Some(running) = start(&state_dir, arguments).await? {
        screen.told(&format!("A director runs here already, as process {running}"));
        if arguments.listen.is_some() || arguments.isolation.is_some() {
            screen.told("--listen and --isolation change nothing while it runs: 'windlass down' stops it");
        }
    }
    let here = Global { state_dir: Some(state_dir.clone()), ..flags.clone() };
    let here = Global { environment: None, deployment: None, ..here };
    let mut session = Session::open_quietly(&here, screen)?;
    if !matches!(settings.cpi, CpiChoice::Local { .. }) {
        session.screen.told("Its cloud is not the embedded one: give it a stemcell and a cloud config that fit there");
        return greet(screen, flags, &state_dir, None);
    }
    let stemcell = stemcell(&mut session, &state_dir, arguments).await?;
    let cloud = LocalCloud::configured(&state_dir.join("cpi/local.json"))?;
    let (isolation, range) = cloud.free_network()?;
    let has_one: Vec<CloudConfig> =
        session.director.get("/cloud_configs?name=&limit=1").await.while_("reading the cloud config")?;
    match (has_one.is_empty(), range) {
        (false, _) => session.screen.told("Cloud config  it is there already, and stays"),
        (true, None) => {
            session.screen.told("Cloud config  none: all ranges that were tried are in use on this machine")
        }
        (true, Some(range)) => {
            let gateway = range.hosts().next().unwrap_or(range.addr());
            let text = CLOUD_CONFIG.replace("RANGE", &range.to_string()).replace("GATEWAY", &gateway.to_string());
            let stored = session.director.store_yaml("/cloud_configs?name=", &text).await;
            stored.while_("storing the cloud config")?;
            session
                .screen
                .told(&format!("Cloud config  VMs are {}, with addresses in {range}", what_they_are(isolation)));
        }
    }
    greet(screen, flags, &state_dir, Some((stemcell, isolation)))
}

/// Which state directory is meant.
pub(super) fn state_dir(flags: &Global) -> Result<PathBuf, Failure> {
    let state_dir = flags.state_dir.clone().or_else(windlass_durable::state_dir::default).ok_or(Failure::NoStateDir)?;
    std::path::absolute(&state_dir).map_err(|source| Failure::StateDir { path: state_dir, source })
}

/// Starts a director, and waits until it answers. Gives the process of the one that runs already, if one does.
pub(super) async fn start(state_dir: &Path, arguments: &UpArgs) -> Result<Option<u32>, Failure> {
    if let Some(running) = BackgroundDirector::found(state_dir) {
        return Ok(Some(running.pid()));
    }
    let ourselves =
        std::env::current_exe().map_err(|error| Failure::Process("cannot find this program's own file", error))?;
    let listen = arguments.listen.map(|address| address.to_string());
    let isolation = arguments.isolation.map(|isolation| word(isolation).to_owned());
    let mut flags = Vec::new();
    flags.extend(listen.as_deref().into_iter().flat_map(|address| ["--listen", address]));
    flags.extend(isolation.as_deref().into_iter().flat_map(|word| ["--isolation", word]));
    let unusable = |source| Failure::StateDir { path: state_dir.to_owned(), source };
    let mut director = BackgroundDirector::spawn(&ourselves, state_dir, &flags).map_err(unusable)?;
    let started = director.ready(state_dir).await;
    started.map_err(|NotStarted(why)| Failure::NotStarted { why, log: log_of(state_dir) })?;
    Ok(None)
}

fn word(isolation: settings::Isolation) -> &'static str {
    settings::Isolation::WORDS.iter().find(|(_, known)| *known == isolation).map_or("auto", |(word, _)| word)
}

fn what_they_are(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Container => "containers",
        Isolation::Process => "processes of this machine",
    }
}

/// Builds and uploads a stemcell, if the director does not have it. Gives its operating system.
async fn stemcell(session: &mut Session<'_>, state_dir: &Path, arguments: &UpArgs) -> Result<String, Failure> {
    let unusable = |source| Failure::StateDir { path: state_dir.to_owned(), source };
    // What a killed run leaves there goes at the director's next start.
    let folder = tempfile::tempdir_in(state_dir.join("tmp")).map_err(unusable)?;
    let mut options = BuildOptions::new(default_agent()?, folder.path().join("stemcell.tgz"));
    if arguments.userland.is_some() {
        options.base = Base::Host { packs_agent: false };
        options.name = HOST.into();
        options.os = options.name.clone();
        options.version =
            host_version().map_err(|error| Failure::Process("cannot tell which packages this machine has", error))?;
    } else {
        options.base = Base::Minimal { busybox: find_busybox() };
    }
    let (name, version) = (options.name.clone(), options.version.clone());
    let question = json!({"stemcell": {"name": name, "version": version}});
    let needed = session.director.post_json::<Needed>("/stemcell_uploads", &question).await;
    if !needed.while_("asking for stemcells")?.needed {
        session.screen.told(&format!("Stemcell      {name}/{version} is there already"));
        return Ok(options.os);
    }
    windlass_stemcell::build(&options, |_, _| {})?;
    let doing = format!("uploading stemcell '{name}/{version}'");
    let task = session.director.upload("/stemcells", &options.output, |_| {}).await.while_(&doing)?;
    task_view::wait(session, task, &doing).await?;
    session.screen.told(&format!("Stemcell      {name}/{version}"));
    Ok(options.os)
}

/// What there is now, and what one does next.
fn greet(
    screen: &mut Screen,
    flags: &Global,
    state_dir: &Path,
    loaded: Option<(String, Isolation)>,
) -> Result<(), Failure> {
    let environment = windlass_director_client::environment::in_state_dir(state_dir)?;
    let here = match &flags.state_dir {
        Some(named) => format!(" --state-dir {}", named.display()),
        None => String::new(),
    };
    screen.told(&format!("Director      {}", environment.url));
    screen.told(&format!("Log           {}", log_of(state_dir).display()));
    let mut next = vec![
        format!("windlass{here} status                what runs here, in one screen"),
        format!("windlass{here} plan MANIFEST         what a deploy would do, and why"),
        format!("windlass{here} down                  stops the director; VMs keep running"),
        format!("windlass{here} down --all            removes everything again"),
    ];
    match loaded {
        Some((os, Isolation::Process)) if os != HOST => {
            next.insert(0, format!("windlass{here} up --userland host    a stemcell for jobs: 'os: {HOST}'"));
        }
        Some((os, _)) => next.push(format!("Manifests name this stemcell by 'os: {os}'.")),
        None => {}
    }
    screen.line(&format!("Next:\n  {}", next.join("\n  ")));
    Ok(())
}

const CLOUD_CONFIG: &str = "\
azs: [{name: z1}]
vm_types: [{name: small}]
disk_types: [{name: small, disk_size: 64}]
networks:
- name: default
  type: manual
  subnets: [{range: RANGE, gateway: GATEWAY, azs: [z1]}]
compilation:
  workers: 2
  network: default
  az: z1
  vm_type: small
  reuse_compilation_vms: true
";
