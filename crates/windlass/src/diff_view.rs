//! The difference between what is and what would be, as the original shows it.

use crate::director_answers::DiffLine;
use crate::screen::{Paint, Screen};

/// Shows a difference to a person, if there is one.
pub(crate) fn show(screen: &mut Screen, diff: &[DiffLine]) {
    if diff.is_empty() {
        return;
    }
    let lines = diff.iter().map(|DiffLine(line, change)| match change.as_deref() {
        Some("added") => screen.paint(Paint::Green, &format!("+ {line}")),
        Some("removed") => screen.paint(Paint::Red, &format!("- {line}")),
        _ if line.is_empty() => String::new(),
        _ => format!("  {line}"),
    });
    screen.line(&lines.collect::<Vec<_>>().join("\n"));
}
