//! Tests that take minutes run with `bin/test --all` alone, which has a sweep kill at all points.

use windlass_durable::sweep::POINTS;

/// Whether everything is tested. Otherwise it says that the test `name` does not run.
pub(crate) fn is_whole_run(name: &str) -> bool {
    let is_whole = std::env::var(POINTS).is_ok_and(|points| points == "all");
    if !is_whole {
        eprintln!("{name} takes minutes and did not run: `bin/test --all` runs it");
    }
    is_whole
}
