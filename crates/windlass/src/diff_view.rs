//! The difference between what is and what would be, as the original shows it.

use crate::director_answers::DiffLine;
use crate::screen::{Paint, Screen};

/// Shows a difference to a person, if there is one.
pub(crate) fn show(screen: &mut Screen, diff: &[DiffLine]) {
    if diff.is_empty() {
        return;
    }
    let lines = diff.iter().map(|line| match line.1.as_deref() {
        Some("added") => screen.paint(Paint::Green, &marked(line)),
        Some("removed") => screen.paint(Paint::Red, &marked(line)),
        _ if line.0.is_empty() => String::new(),
        _ => marked(line),
    });
    screen.line(&lines.collect::<Vec<_>>().join("\n"));
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
