//! The difference between what is and what would be, as the original shows it.

use windlass_director_client::answers::DiffLine;

use crate::screen::{Paint, Screen};

/// Shows a difference to a person, if there is one.
pub(crate) fn show(screen: &mut Screen, diff: &[DiffLine]) {
    if diff.is_empty() {
        return;
    }
    let lines = diff.iter().map(|line| match line.1.as_deref() {
        Some("added") => (Some(Paint::Green), marked(line)),
        Some("removed") => (Some(Paint::Red), marked(line)),
        _ => (None, marked(line)),
    });
    screen.painted_lines(&lines.collect::<Vec<_>>());
}

/// The same as text.
pub(crate) fn text(diff: &[DiffLine]) -> String {
    diff.iter().map(|line| marked(line) + "\n").collect()
}

fn marked(DiffLine(line, change): &DiffLine) -> String {
    let mark = match change.as_deref() {
        Some("added") => '+',
        Some("removed") => '-',
        _ => ' ',
    };
    format!("{mark} {line}")
}
