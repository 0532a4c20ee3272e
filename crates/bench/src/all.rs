//! `windlass bench all`: every measurement, and one table of what is worth quoting.

use clap::Parser;
use windlass_durable::HAS_KILL_POINTS;

use crate::arguments::{BenchAllArgs, BenchVerb};
use crate::figures::{DEBUG_BUILD, Table};
use crate::{Progress, measure};

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

/// Words as they stand behind `windlass`.
#[derive(Parser)]
#[command(no_binary_name = true)]
enum Words {
    #[command(subcommand)]
    Bench(BenchVerb),
}

/// What all measurements found.
#[derive(Debug)]
pub struct All {
    pub table: Table,
    /// The commands of measurements that failed, and why.
    pub failed: Vec<String>,
}

/// Measures everything, one after the other. A measurement that fails does not keep the others from being made.
pub async fn measure_all(arguments: &BenchAllArgs, progress: Progress<'_>) -> All {
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for (name, in_a_hurry) in ALL {
        if name == "kills" && !HAS_KILL_POINTS {
            progress("Left out: 'bench kills', for which this build has no kill points (--features kill-points).");
            continue;
        }
        let flags = if arguments.quick { in_a_hurry } else { &[] };
        let words = || ["bench", name].into_iter().chain(flags.iter().copied());
        let command = format!("windlass {}", words().collect::<Vec<_>>().join(" "));
        progress(&format!("Measuring: {command}"));
        let Ok(Words::Bench(verb)) = Words::try_parse_from(words()) else { continue };
        // Each is as large as a program of its own.
        match Box::pin(measure(verb, progress)).await {
            Ok(report) => rows.extend(
                report
                    .figures
                    .into_iter()
                    .map(|figure| vec![figure.what, figure.value, figure.ratio.unwrap_or_default(), command.clone()]),
            ),
            Err(error) => {
                let why = format!("{command}: {}", windlass_contract::explain(&error));
                progress(&format!("Failed: {why}"));
                failed.push(why);
            }
        }
    }
    let table = Table {
        content: "figures",
        header: vec!["What", "Figure", "Against", "Command"],
        rows,
        notes: DEBUG_BUILD.into_iter().collect(),
        ..Table::default()
    };
    All { table, failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flag that is no more would leave a measurement out of the table without a word.
    #[test]
    fn every_measurement_of_all_can_be_asked_for_as_its_command_says() {
        for (name, in_a_hurry) in ALL {
            for flags in [&[][..], in_a_hurry] {
                let words = ["bench", name].into_iter().chain(flags.iter().copied());
                assert!(Words::try_parse_from(words).is_ok(), "{name} {flags:?}");
            }
        }
    }
}
