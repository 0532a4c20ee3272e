//! The same templates through Ruby, where it is at hand: what we claim must be what Ruby says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use windlass_render::RenderError;

/// A Ruby that renders what it is sent.
pub(crate) struct Ruby {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Ruby {
    pub(crate) fn start() -> Option<Self> {
        let mut command = Command::new("ruby");
        command.args(["-W0", "-e", include_str!("context.rb")]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let to = child.stdin.take()?;
        let from = BufReader::new(child.stdout.take()?);
        Some(Self { child, to, from })
    }

    pub(crate) fn render(&mut self, template: &str, spec: &Value) -> Value {
        writeln!(self.to, "{}", json!({ "template": template, "spec": spec })).unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("Ruby ended at: {template}"))
    }
}

impl Drop for Ruby {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What differs between Ruby and us, if anything does. What we refuse does not.
pub(crate) fn difference(ruby: &mut Ruby, template: &str) -> Option<String> {
    let theirs = ruby.render(template, &crate::spec());
    let (ours, same) = match crate::render(template) {
        Ok(job) => (format!("{:?}", job.files[0].content), theirs["text"] == job.files[0].content),
        Err(RenderError::NeedsRuby(_)) => return None,
        Err(RenderError::Failed(errors)) => {
            let error = &errors.errors[0];
            let same = theirs["error"] == error.message && theirs["line"] == error.line;
            (format!("{error}"), same)
        }
    };
    (!same).then(|| format!("{template}\n  ours:   {ours}\n  theirs: {theirs}"))
}

#[test]
fn whatever_is_rendered_natively_is_what_ruby_renders() {
    let Some(mut ruby) = Ruby::start() else {
        eprintln!("not run: there is no 'ruby' on this machine");
        return;
    };
    let cases = crate::cases::native().into_iter().chain(crate::cases::native_or_not());
    let different: Vec<_> = cases.filter_map(|case| difference(&mut ruby, &case)).collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}
