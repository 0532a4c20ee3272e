//! `windlass bench …`: each measurement prints its tables; `bench all` makes every one of them, and prints one table of what is
//! worth quoting.

use windlass_bench::{BenchVerb, measure, measure_all};

use crate::failure::{Failure, tidy};
use crate::screen::Screen;
use crate::table::Table;

pub(crate) async fn run(screen: &mut Screen, verb: BenchVerb) -> Result<(), Failure> {
    let mut progress = |line: &str| screen.line(&tidy(line));
    if let BenchVerb::All(arguments) = verb {
        let all = measure_all(&arguments, &mut progress).await;
        screen.table(&table(all.table));
        return if all.failed.is_empty() { Ok(()) } else { Err(Failure::Unmeasured(all.failed.join("; "))) };
    }
    for measured in measure(verb, &mut progress).await?.tables {
        screen.table(&table(measured));
    }
    Ok(())
}

fn table(measured: windlass_bench::Table) -> Table {
    let windlass_bench::Table { content, title, header, rows, notes } = measured;
    Table { content, title, header, rows, notes, ..Table::default() }
}
