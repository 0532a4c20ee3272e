//! Files as people may see them, by both backends.

use windlass_render::{Native, Renderer, changed_lines, render_hidden};

use crate::ruby::ruby;

const TEMPLATES: [(&str, &str); 3] = [
    (
        "a.erb",
        "port: <%= p('port') %>\n<% p('list').each do |x| -%>\n- <%= x -%>\n <%- end %>;\n<%# note %>end <%% %>\n",
    ),
    ("b.erb", "<%= p('lines') %>tail <%= p('map').to_json\n%>\n"),
    ("c.erb", "text without code\n"),
];

fn shown(renderer: &dyn Renderer) -> Vec<String> {
    let files = render_hidden(renderer, &crate::job("app", "m <%= index %>", &TEMPLATES), &crate::spec(), &[], "MARK");
    let files = files.unwrap();
    let all = files.iter().flat_map(|(path, lines)| lines.iter().map(move |line| format!("{path}: {}", line.shown())));
    all.collect()
}

#[test]
fn both_backends_give_the_same_lines_without_values() {
    let native = shown(&Native);
    assert!(native.contains(&"config/a.erb: port: <%= p('port') %>".to_owned()), "{native:#?}");
    assert!(native.contains(&"monit: m <%= index %>".to_owned()), "{native:#?}");
    assert!(!native.concat().contains("8080") && !native.concat().contains("MARK"), "{native:#?}");
    if let Some(ruby) = ruby() {
        assert_eq!(shown(&ruby), native);
    }
}

#[test]
fn marks_change_nothing_in_what_is_compared() {
    let job = crate::job("app", "", &TEMPLATES);
    let plain = Native.render(&job, &crate::spec()).unwrap();
    let files = render_hidden(&Native, &job, &crate::spec(), &[], "MARK").unwrap();
    let again = render_hidden(&Native, &job, &crate::spec(), &[], "OTHER").unwrap();
    for file in &plain.files {
        assert_eq!(files[&file.destination].len(), file.content.split('\n').count(), "{}", file.destination);
        assert_eq!(changed_lines(&files[&file.destination], &again[&file.destination]), []);
    }
}
