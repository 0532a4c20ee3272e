//! Templates as data: one expression per line, and whole templates.

use windlass_render::{Native, RenderError, Renderer as _};

/// Each line becomes `<%= line %>`. All of them must be native, and are compared with Ruby.
const EXPRESSIONS: &str = include_str!("expressions.txt");
/// Templates, separated by lines of `====`.
const TEMPLATES: &str = include_str!("templates.txt");
/// Expressions that may be refused; where they are not, they are compared, too.
const DOUBTFUL: &str = include_str!("doubtful.txt");
/// Expressions that must be refused before anything is rendered.
const REFUSED: &str = include_str!("refused.txt");

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with("# "))
}

fn printed(text: &str) -> impl Iterator<Item = String> {
    lines(text).map(|line| format!("<%= {line} %>"))
}

pub(crate) fn native() -> Vec<String> {
    printed(EXPRESSIONS).chain(TEMPLATES.split("====\n").map(str::to_owned)).collect()
}

pub(crate) fn native_or_not() -> Vec<String> {
    printed(DOUBTFUL).collect()
}

#[test]
fn everything_that_is_called_native_is_rendered_without_ruby() {
    let mut refused = Vec::new();
    for template in native() {
        if let Err(RenderError::NeedsRuby(unsupported)) = crate::render(&template) {
            refused.push(format!("{template}: {unsupported}"));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn what_needs_ruby_is_known_when_a_release_is_uploaded() {
    let mut taken = Vec::new();
    for template in printed(REFUSED) {
        if Native.check(&crate::job("app", "", &[("t.erb", &template)])).is_ok() {
            taken.push(template);
        }
    }
    assert!(taken.is_empty(), "{}", taken.join("\n"));
}
