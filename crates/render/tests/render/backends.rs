//! Which of the two renders what.

use windlass_render::{Backends, Renderer as _, Ruby, RubySetup};

use crate::ruby::{ruby, told};

/// A Ruby that cannot be started.
fn broken() -> Ruby {
    Ruby::new(RubySetup::caged("/nonexistent/windlass".into()))
}

#[test]
fn what_is_native_does_not_ask_ruby() {
    let job = crate::job("app", "", &[("t.erb", "<%= p('port') %>")]);
    assert_eq!(told(Backends::new(Some(broken())).render(&job, &crate::spec())), Ok("8080".to_owned()));
    assert_eq!(told(Backends::new(None).render(&job, &crate::spec())), Ok("8080".to_owned()));
}

#[test]
fn without_ruby_job_template_line_construct_and_remedy_are_named() {
    let job = crate::job("app", "", &[("t.erb", "\n<%= OpenSSL %>")]);
    let error = Backends::new(None).render(&job, &crate::spec()).unwrap_err().to_string();
    assert_eq!(
        error,
        "job 'app' cannot be rendered: template 't.erb' (line 2) needs Ruby for the constant 'OpenSSL', and the director's \
         settings say 'ruby: none'"
    );
}

#[test]
fn without_ruby_a_mistake_in_the_syntax_is_shown_where_it_is() {
    let job = crate::job("app", "", &[("t.erb", "a\nb: <%= p('x' %> c\n")]);
    let error = Backends::new(None).render(&job, &crate::spec()).unwrap_err().to_string();
    let expected =
        "job 'app' cannot be rendered: template 't.erb' has a syntax error at line 2, as Ruby 3.1 reads it: ";
    assert!(error.starts_with(expected), "{error}");
    assert!(error.ends_with("\n   2 | b: <%= p('x' %> c\n     |    ^^^^^^^^^^^^"), "{error}");
}

#[test]
fn what_only_turns_out_to_need_ruby_is_rendered_by_ruby_as_a_whole() {
    let Some(ruby) = ruby() else { return };
    let backends = Backends::new(Some(ruby));
    let templates = [("a.erb", "<%= p('port') %>"), ("t.erb", "<%= p('map').inspect %> <%= 7.fdiv(2) %>")];
    let rendered = backends.render(&crate::job("app", "m <%= index %>", &templates), &crate::spec()).unwrap();
    assert_eq!(rendered.monit, "m 2");
    assert_eq!(rendered.files[0].content, "8080");
    assert!(rendered.files[1].content.ends_with(" 3.5"), "{}", rendered.files[1].content);
    assert_eq!(rendered.files[2].content, "[]\n");
}

#[test]
fn errors_of_ruby_have_the_form_of_bosh() {
    let Some(ruby) = ruby() else { return };
    let backends = Backends::new(Some(ruby));
    let templates = [("a.erb", "x\n<%= p('gone') %>"), ("b.erb", "\n\n<%= 1 / 0 %>"), ("c.erb", "<% if true %>")];
    let error = backends.render(&crate::job("app", "", &templates), &crate::spec()).unwrap_err().to_string();
    let expected = "Unable to render templates for job 'app'. Errors are:\n\
        \x20 - Error filling in template 'a.erb' (line 2: Can't find property '[\"gone\"]')\n\
        \x20 - Error filling in template 'b.erb' (line 3: divided by 0)\n\
        \x20 - Error filling in template 'c.erb' (line unknown: app/c.erb:";
    assert!(error.starts_with(expected), "{error}");
    let error = backends.render(&crate::job("app", "<%= 1 / 0 %>", &templates), &crate::spec()).unwrap_err();
    assert_eq!(error.to_string(), "Error filling in template 'monit' (line 1: divided by 0)");
}
