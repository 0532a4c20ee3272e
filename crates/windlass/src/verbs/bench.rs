//! `windlass bench …`: each measurement prints its tables; `bench all` has every one of them, and one table of what is worth
//! quoting.

use clap::Parser;
use windlass_durable::HAS_KILL_POINTS;

use super::{
    bench_agent, bench_api, bench_cpi_call, bench_deploy, bench_dns, bench_health, bench_incus, bench_kills,
    bench_local, bench_registry, bench_release, bench_render, bench_supervise,
};
use crate::cli::{BenchAllArgs, BenchVerb, Cli, Verb};
use crate::failure::{Failure, chain};
use crate::figures::{DEBUG_BUILD, Report};
use crate::screen::Screen;
use crate::table::Table;

pub(crate) async fn run(screen: &mut Screen, verb: BenchVerb) -> Result<(), Failure> {
    if let BenchVerb::All(arguments) = verb {
        return all(screen, &arguments).await;
    }
    for table in measure(screen, verb).await?.tables {
        screen.table(&table);
    }
    Ok(())
}

async fn measure(screen: &mut Screen, verb: BenchVerb) -> Result<Report, Failure> {
    match verb {
        BenchVerb::Agent(arguments) => bench_agent::measure(&arguments).await,
        BenchVerb::Api(arguments) => bench_api::measure(&arguments).await,
        BenchVerb::CpiCall(arguments) => bench_cpi_call::measure(&arguments),
        BenchVerb::Deploy(arguments) => bench_deploy::measure(&arguments).await,
        BenchVerb::Dns(arguments) => bench_dns::measure(&arguments),
        BenchVerb::Health(arguments) => bench_health::measure(&arguments).await,
        BenchVerb::Incus(arguments) => bench_incus::measure(&arguments).await,
        BenchVerb::Kills(arguments) => bench_kills::measure(screen, &arguments).await,
        BenchVerb::Local(arguments) => bench_local::measure(screen, &arguments).await,
        BenchVerb::Render(arguments) => bench_render::measure(&arguments),
        BenchVerb::Release(arguments) => bench_release::measure(&arguments).await,
        BenchVerb::Registry(arguments) => bench_registry::measure(&arguments).await,
        BenchVerb::Supervise(arguments) => bench_supervise::measure(&arguments).await,
        BenchVerb::All(_) => Ok(Report::default()),
    }
}

/// The verbs, with their flags in a hurry.
const ALL: [(&str, &[&str]); 12] = [
    ("cpi-call", &["--runs", "50"]),
    ("agent", &["--runs", "3", "--pings", "500"]),
    ("supervise", &["--services", "50", "--seconds", "10"]),
    ("registry", &["--seconds", "1"]),
    ("api", &["--seconds", "1"]),
    ("local", &["--runs", "5", "--vms", "20", "--rows", "1", "--at-once", "20"]),
    ("render", &["--instances", "100", "--processes", "10"]),
    ("dns", &["--questions", "20000"]),
    ("release", &["--packages", "100", "--mib", "50", "--runs", "1"]),
    ("deploy", &["--instances", "100"]),
    ("health", &["--instances", "100"]),
    ("kills", &["--every", "20"]),
];

/// One after the other. What fails is said, and does not keep the others from being measured.
async fn all(screen: &mut Screen, arguments: &BenchAllArgs) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for (name, in_a_hurry) in ALL {
        if name == "kills" && !HAS_KILL_POINTS {
            screen.line("Left out: 'bench kills', for which this build has no kill points (--features kill-points).");
            continue;
        }
        let flags = if arguments.quick { in_a_hurry } else { &[] };
        let words = || ["windlass", "bench", name].into_iter().chain(flags.iter().copied());
        let command = words().collect::<Vec<_>>().join(" ");
        screen.line(&format!("Measuring: {command}"));
        let Ok(Cli { verb: Verb::Bench(verb), .. }) = Cli::try_parse_from(words()) else { continue };
        // Each is as large as a program of its own.
        match Box::pin(measure(screen, verb)).await {
            Ok(report) => rows.extend(
                report
                    .figures
                    .into_iter()
                    .map(|figure| vec![figure.what, figure.value, figure.ratio.unwrap_or_default(), command.clone()]),
            ),
            Err(failure) => {
                screen.line(&format!("Failed: {command}: {}", chain(&failure)));
                failed.push(name);
            }
        }
    }
    screen.table(&Table {
        content: "figures",
        header: vec!["What", "Figure", "Against", "Command"],
        rows,
        notes: DEBUG_BUILD.into_iter().collect(),
        ..Table::default()
    });
    if failed.is_empty() { Ok(()) } else { Err(Failure::Unmeasured(failed.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flag that is no more would leave a measurement out of the table without a word.
    #[test]
    fn every_measurement_of_all_can_be_asked_for_as_its_command_says() {
        for (name, in_a_hurry) in ALL {
            for flags in [&[][..], in_a_hurry] {
                let words = ["windlass", "bench", name].into_iter().chain(flags.iter().copied());
                let cli = Cli::try_parse_from(words).unwrap();
                assert!(matches!(cli.verb, Verb::Bench(_)), "{name} {flags:?}");
            }
        }
    }
}
