//! The same templates through Ruby, where it is at hand: what we claim must be what Ruby says.

use serde_json::Value;
use windlass_render::{RenderError, RenderedJob, Renderer as _, Ruby, RubyError, RubySetup};

/// The Ruby that `WINDLASS_RUBY` names, or that of the `PATH`, in a cage.
pub(crate) fn setup() -> RubySetup {
    let interpreter = std::env::var_os("WINDLASS_RUBY").map(Into::into);
    RubySetup { interpreter, ..RubySetup::caged(env!("CARGO_BIN_EXE_render-cage").into()) }
}

/// The Ruby backend, if there is a Ruby.
pub(crate) fn ruby() -> Option<Ruby> {
    let ruby = Ruby::new(setup());
    match ruby.version() {
        Ok(version) => eprintln!("compared with Ruby {version}"),
        Err(RubyError::NotFound) if std::env::var_os("WINDLASS_RUBY").is_none() => {
            eprintln!("not run: there is no 'ruby' on this machine");
            return None;
        }
        Err(error) => panic!("{error}"),
    }
    Some(ruby)
}

/// The text of a job's only template, or line and message of its error.
pub(crate) fn told(rendered: Result<RenderedJob, RenderError>) -> Result<String, (Option<usize>, String)> {
    match rendered {
        Ok(job) => Ok(job.files[0].content.clone()),
        Err(RenderError::Failed(errors)) => Err((errors.errors[0].line, errors.errors[0].message.clone())),
        Err(error) => panic!("{error}"),
    }
}

/// What differs between Ruby and us, if anything does. What we refuse does not.
pub(crate) fn difference(ruby: &Ruby, template: &str, spec: &Value) -> Option<String> {
    let job = crate::job("app", "", &[("t.erb", template)]);
    let ours = windlass_render::Native.render(&job, spec);
    if matches!(ours, Err(RenderError::NeedsRuby(_))) {
        return None;
    }
    let (ours, theirs) = (told(ours), told(ruby.render(&job, spec)));
    (ours != theirs).then(|| format!("{template}\n  ours:   {ours:?}\n  theirs: {theirs:?}"))
}

#[test]
fn whatever_is_rendered_natively_is_what_ruby_renders() {
    let Some(ruby) = ruby() else { return };
    let cases = crate::cases::native().into_iter().chain(crate::cases::native_or_not());
    let different: Vec<_> = cases.filter_map(|case| difference(&ruby, &case, &crate::spec())).collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}
