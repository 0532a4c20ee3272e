//! `windlass certify`: any CPI against what directors and command lines rely on.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use windlass_certify::matrix::{MatrixPlan, MatrixProgress, MatrixReport, RegistryPlace};
use windlass_certify::{
    CertifyError, CommandLine, CommandLineError, Observers, Plan, Profile, ProfileError, Progress, Report,
};
use windlass_contract::{Object, Secret};
use windlass_registry::Credentials;

use crate::cli::{CertifyArgs, CertifyFormat, Global};
use crate::failure::Failure;
use crate::formats;
use crate::verbs::cpi::installed_cpis;
use crate::verbs::read_file;
use crate::verbs::stemcell_build::default_agent;

/// why a CPI is not certified
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertifyFailure {
    #[error("--{flag} cannot be run")]
    Command { flag: &'static str, source: CommandLineError },
    #[error("'{path}' cannot be used")]
    Profile { path: String, source: ProfileError },
    #[error(transparent)]
    Certify(#[from] CertifyError),
    #[error("the CPI is not certified; required checks did not pass, and the report above says which and why")]
    NotCertified,
    #[error("the version table does not hold; the report above says where")]
    TableDoesNotHold,
    #[error("--registry must look like http://USER:PASSWORD@ADDRESS:PORT")]
    RegistryUrl,
    #[error("interrupted: not all checks ran")]
    Interrupted,
}

pub(crate) async fn run(flags: &Global, arguments: CertifyArgs) -> Result<(), Failure> {
    if arguments.list_checks {
        return list_checks();
    }
    let format = if flags.json { CertifyFormat::Json } else { arguments.format };
    if arguments.pipeline {
        return pipeline(flags, &arguments, format).await;
    }
    if arguments.matrix {
        return matrix(flags, &arguments, format).await;
    }
    let report = checked(plan(flags, &arguments)?, format).await?;
    let text = match format {
        CertifyFormat::Table if io::stdout().is_terminal() => formats::plain(&report.to_table()),
        // The rows were printed as they came.
        CertifyFormat::Table => formats::plain(&format!("\n{}", report.conclusion())),
        CertifyFormat::Json => format!("{:#}\n", report.to_json()),
        CertifyFormat::Junit => report.to_junit(),
    };
    print(&text)?;
    match (report.is_certified(), report.interrupted) {
        (true, _) => Ok(()),
        (false, true) => Err(CertifyFailure::Interrupted.into()),
        (false, false) => Err(CertifyFailure::NotCertified.into()),
    }
}

/// What the checks find.
async fn checked(plan: Plan, format: CertifyFormat) -> Result<Report, Failure> {
    let report = until_stopped(move |stop| {
        let mut view = CertifyView::new(format);
        let report = windlass_certify::certify(&plan, stop, |progress| view.show(progress));
        view.end();
        report
    });
    Ok(report.await?.map_err(CertifyFailure::from)?)
}

/// What is seen in the version table.
async fn lived(plan: MatrixPlan, format: CertifyFormat) -> Result<MatrixReport, Failure> {
    let report = until_stopped(move |stop| {
        let view = CertifyView::new(format);
        let report = windlass_certify::matrix::matrix(&plan, stop, |progress| view.show_case(&progress));
        view.end();
        report
    });
    Ok(report.await?.map_err(CertifyFailure::from)?)
}

/// The checks, then the version table, also where a check did not pass: authors who mend the CPI want to know all.
async fn pipeline(flags: &Global, arguments: &CertifyArgs, format: CertifyFormat) -> Result<(), Failure> {
    let table = matrix_plan(flags, arguments)?;
    let mut plan = plan(flags, arguments)?;
    // The other half is for the table, which is told in any case.
    plan.until = time_for(arguments, 2);
    let checks = checked(plan, format).await?;
    if checks.interrupted {
        return Err(CertifyFailure::Interrupted.into());
    }
    let table = lived(table, format).await?;
    print(&match format {
        CertifyFormat::Table => formats::plain(&format!("{}\n{}", checks.to_table(), table.to_table())),
        CertifyFormat::Json => format!("{:#}\n", json!({"checks": checks.to_json(), "matrix": table.to_json()})),
        CertifyFormat::Junit => format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{}{}</testsuites>\n",
            checks.to_suite(),
            table.to_junit()
        ),
    })?;
    match (checks.is_certified(), table.is_right(), table.interrupted) {
        (true, true, _) => Ok(()),
        (_, _, true) => Err(CertifyFailure::Interrupted.into()),
        (false, ..) => Err(CertifyFailure::NotCertified.into()),
        (true, false, false) => Err(CertifyFailure::TableDoesNotHold.into()),
    }
}

/// The version table instead of the checks.
async fn matrix(flags: &Global, arguments: &CertifyArgs, format: CertifyFormat) -> Result<(), Failure> {
    let report = lived(matrix_plan(flags, arguments)?, format).await?;
    print(&match format {
        CertifyFormat::Json => format!("{:#}\n", report.to_json()),
        CertifyFormat::Junit => format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", report.to_junit()),
        CertifyFormat::Table => formats::plain(&report.to_table()),
    })?;
    match (report.is_right(), report.interrupted) {
        (true, _) => Ok(()),
        (false, true) => Err(CertifyFailure::Interrupted.into()),
        (false, false) => Err(CertifyFailure::TableDoesNotHold.into()),
    }
}

fn matrix_plan(flags: &Global, arguments: &CertifyArgs) -> Result<MatrixPlan, Failure> {
    let plan = plan(flags, arguments)?;
    Ok(MatrixPlan {
        cpi: plan.cpi,
        cpi_v1: cpi(flags, "cpi-v1", &arguments.cpi_v1)?,
        profile: plan.profile,
        stemcells: [arguments.stemcell_v1.clone(), plan.stemcell],
        agent: plan.agent,
        observers: plan.observers,
        registry: plan.registry.unwrap_or_default(),
        until: plan.until,
    })
}

/// When a share of the time is over.
fn time_for(arguments: &CertifyArgs, share: u32) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(arguments.within?.saturating_mul(60)) / share)
}

/// A registry as the CPI under test is configured for it.
fn registry_place(url: &Secret, listen: Option<SocketAddr>) -> Option<RegistryPlace> {
    let (login, place) = url.reveal().strip_prefix("http://")?.trim_end_matches('/').rsplit_once('@')?;
    let (user, password) = login.split_once(':')?;
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned);
    let place: SocketAddr = place.parse().ok()?;
    Some(RegistryPlace {
        listen: listen.unwrap_or(place),
        host: Some(place.ip()),
        credentials: Credentials { user: decoded(user)?, password: Secret::new(decoded(password)?) },
        is_configured: true,
    })
}

/// Runs what blocks, and tells it when somebody wants it to end.
async fn until_stopped<T: Send + 'static>(work: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Result<T, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let (mut interrupt, mut terminate) = match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        (Ok(interrupt), Ok(terminate)) => (interrupt, terminate),
        (Err(error), _) | (_, Err(error)) => return Err(Failure::Process("cannot listen to signals", error)),
    };
    let asked_to_stop = Arc::clone(&stop);
    let watch = tokio::spawn(async move {
        loop {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            asked_to_stop.store(true, Ordering::SeqCst);
            let _ = writeln!(io::stderr(), "Stopping: the call that runs is awaited, then everything made is removed.");
        }
    });
    let work = tokio::task::spawn_blocking(move || work(&stop)).await;
    watch.abort();
    work.map_err(|error| Failure::Process("certification broke", io::Error::other(error)))
}

fn command(flag: &'static str, text: &Option<String>) -> Result<Option<CommandLine>, CertifyFailure> {
    let parsed = text.as_deref().map(str::parse).transpose();
    parsed.map_err(|source| CertifyFailure::Command { flag, source })
}

/// A CPI by its command line, or by the name that it is installed under.
fn cpi(flags: &Global, flag: &'static str, text: &Option<String>) -> Result<Option<CommandLine>, Failure> {
    let installed = text.as_deref().and_then(|name| installed_cpis(flags).ok()?.launcher(name));
    Ok(match installed {
        Some(executable) => Some(CommandLine { executable, arguments: Vec::new() }),
        None => command(flag, text)?,
    })
}

/// What installed CPIs were rendered with.
fn configuration(flags: &Global, arguments: &CertifyArgs) -> Object {
    let Ok(cpis) = installed_cpis(flags) else { return Object::new() };
    let names = [("cpi", &arguments.cpi), ("cpi-v1", &arguments.cpi_v1)];
    let of = |(flag, name): (&str, &Option<String>)| {
        let name = name.as_deref()?;
        cpis.launcher(name)?;
        Some((flag.to_owned(), cpis.properties(name).ok()?.into()))
    };
    names.into_iter().filter_map(of).collect()
}

fn plan(flags: &Global, arguments: &CertifyArgs) -> Result<Plan, Failure> {
    let mut profile = match &arguments.profile {
        Some(path) => Profile::from_yaml(&read_file(path)?)
            .map_err(|source| CertifyFailure::Profile { path: path.display().to_string(), source })?,
        None => Profile::default(),
    };
    let observers = Observers {
        show_settings: command("show-settings", &arguments.show_settings)?,
        list: command("list", &arguments.list)?,
        disk_size: command("disk-size", &arguments.disk_size)?,
    };
    profile.configuration = configuration(flags, arguments);
    let registry = match &arguments.registry {
        Some(url) => Some(registry_place(url, arguments.registry_listen).ok_or(CertifyFailure::RegistryUrl)?),
        None => None,
    };
    let cpi = cpi(flags, "cpi", &arguments.cpi)?;
    Ok(Plan {
        cpi: cpi.ok_or(CertifyFailure::Command { flag: "cpi", source: CommandLineError::Empty })?,
        profile,
        stemcell: arguments.stemcell.clone(),
        agent: default_agent()?,
        observers,
        only: arguments.only.clone(),
        registry,
        until: time_for(arguments, 1),
    })
}

fn list_checks() -> Result<(), Failure> {
    let lines = windlass_certify::checks::all()
        .map(|check| format!("{:<40} {:<9} {}\n", check.id, check.level.as_str(), check.why))
        .collect::<String>();
    print(&lines)
}

fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // The reader has seen enough, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Process("cannot write the output", error))
        }
        _ => Ok(()),
    }
}

/// Where things stand: a bar on a terminal, one line per check elsewhere. Beside JSON and JUnit it goes to stderr.
struct CertifyView {
    bar: Option<ProgressBar>,
    lines_to_stdout: bool,
}

impl CertifyView {
    fn new(format: CertifyFormat) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            let style = indicatif::ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
            bar.set_style(style.unwrap_or_else(|_| indicatif::ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { bar, lines_to_stdout: format == CertifyFormat::Table && !io::stdout().is_terminal() }
    }

    fn show(&mut self, progress: Progress<'_>) {
        if let Some(bar) = &self.bar {
            match &progress {
                Progress::Preparing(what) => bar.set_message(format!("preparing {what}")),
                Progress::Begins { check, number, total } => {
                    bar.set_length(*total as u64);
                    bar.set_position(*number as u64 - 1);
                    bar.set_message(check.id);
                }
                Progress::Ended(row) if !row.is_satisfied() => bar.println(formats::plain(&row.line())),
                Progress::Ended(_) => {}
                Progress::CleaningUp => bar.set_message("removing what was made"),
            }
        }
        if let Progress::Ended(row) = progress {
            // Nobody reads on when stdout is closed; the run still cleans up.
            if self.lines_to_stdout {
                let _ = writeln!(io::stdout(), "{}", formats::plain(&row.line()));
            } else if self.bar.is_none() {
                let _ = writeln!(io::stderr(), "{}", formats::plain(&row.line()));
            }
        }
    }

    fn show_case(&self, progress: &MatrixProgress<'_>) {
        match (&self.bar, progress) {
            (Some(bar), MatrixProgress::Begins { case, number, total }) => {
                bar.set_length(*total as u64);
                bar.set_position(*number as u64 - 1);
                bar.set_message(format!("row {}, {}", case.number, case.client.as_str()));
            }
            (Some(bar), MatrixProgress::Ended(lived)) if !lived.is_right() => {
                bar.println(formats::plain(&lived.line()))
            }
            (None, MatrixProgress::Ended(lived)) => {
                let _ = writeln!(io::stderr(), "{}", formats::plain(&lived.line()));
            }
            _ => {}
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
