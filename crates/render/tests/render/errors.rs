//! Errors as BOSH writes them.

use serde_json::json;
use windlass_render::{Native, RenderError, Renderer as _};

fn failed(result: Result<windlass_render::RenderedJob, RenderError>) -> String {
    match result {
        Err(RenderError::Failed(errors)) => errors.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_errors_of_a_job_are_named_with_template_and_line() {
    let templates = [
        ("conf.yml.erb", "a\nb\n<%= p('password') %>"),
        ("fine.erb", "<%= p('port') %>"),
        ("link.erb", "<% link('db') %>"),
        ("raise.erb", "\n<% raise 'set x\nand y' %>"),
    ];
    let error = failed(Native.render(&crate::job("app", "", &templates), &json!({ "properties": { "port": 1 } })));
    let expected = "Unable to render templates for job 'app'. Errors are:\n\
        \x20 - Error filling in template 'conf.yml.erb' (line 3: Can't find property '[\"password\"]')\n\
        \x20 - Error filling in template 'link.erb' (line 1: Can't find link 'db')\n\
        \x20 - Error filling in template 'raise.erb' (line 2: set x\n\
        \x20 and y)";
    assert_eq!(error, expected);
}

#[test]
fn a_failing_monit_file_is_the_only_error() {
    let job = crate::job("app", "check\n<%= p('a') %>", &[("x.erb", "<%= p('b') %>")]);
    let error = failed(Native.render(&job, &json!({ "properties": {} })));
    assert_eq!(error, "Error filling in template 'monit' (line 2: Can't find property '[\"a\"]')");
}

#[test]
fn what_turns_out_to_need_ruby_is_named_with_its_line() {
    let error = crate::render("\n<%= p('port').upcase %>").unwrap_err();
    let expected = "template 't.erb' (line 2) needs Ruby for 'upcase' of Integer with these arguments";
    assert_eq!(error.to_string(), expected);
    assert!(matches!(error, RenderError::NeedsRuby(_)));
}

#[test]
fn no_error_of_ruby_is_invented() {
    for template in ["<%= nil + 1 %>", "<%= p('port') + 'a' %>", "<%= p('greeting')['a']['b'] %>", "<%= 1 / 0 %>"] {
        assert!(matches!(crate::render(template), Err(RenderError::NeedsRuby(_))), "{template}");
    }
}

#[test]
fn syntax_that_is_wrong_is_left_to_ruby() {
    for template in ["<% if true %>", "<%= ) %>", "<% end %>", "<%= 'a", "<% case 1 %>\n<% when 1 %><% end %>"] {
        match crate::render(template) {
            Err(RenderError::NeedsRuby(_)) => {}
            other => assert_eq!(other.unwrap().files[0].content, " 'a", "{template}"),
        }
    }
}

#[test]
fn empty_arrays_and_maps_are_laid_out_as_by_todays_bosh() {
    // Ruby's JSON before 2.8 puts line feeds into them, so that this is not compared with any Ruby.
    let json = crate::text("<%= JSON.pretty_generate('a' => [], 'b' => {}, 'c' => [[]]) %>");
    assert_eq!(json, "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    []\n  ]\n}");
    assert_eq!(crate::text("<%= JSON.pretty_generate([]) %>"), "[]");
}
