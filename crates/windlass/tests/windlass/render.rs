//! `windlass render`, on the machine of somebody who writes a release.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use windlass_rigs::ordinary_user::is_ordinary_user;

/// A job's folder, with one template.
fn job(folder: &Path, template: &str) -> String {
    let job = folder.join("web");
    fs::create_dir_all(job.join("templates")).unwrap();
    fs::write(job.join("monit"), "check process web\n").unwrap();
    fs::write(
        job.join("spec"),
        "name: web\ntemplates: {conf.erb: config/conf}\nproperties: {port: {default: 80}, host: {}}\n",
    )
    .unwrap();
    fs::write(job.join("templates/conf.erb"), template).unwrap();
    job.to_str().unwrap().to_owned()
}

fn render(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass")).arg("render").args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn an_author_sees_the_files_of_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(folder.path(), "<%= p('host') %>:<%= p('port') %> <%= spec.index %>\n");
    let properties = folder.path().join("web.yml");
    fs::write(&properties, "host: example.com\nother: 1\n").unwrap();
    let properties = properties.to_str().unwrap();
    let rendered = render(&["--job", &job, "--properties", properties]);
    let shown = text(&rendered.stdout);
    assert!(rendered.status.success(), "{rendered:?}");
    assert!(shown.contains("==> config/conf <==\nexample.com:80 0\n"), "{shown}");

    let output = folder.path().join("out");
    let rendered = render(&["--job", &job, "--properties", properties, "--output", output.to_str().unwrap()]);
    assert!(rendered.status.success(), "{rendered:?}");
    assert_eq!(fs::read_to_string(output.join("config/conf")).unwrap(), "example.com:80 0\n");
}

#[test]
fn a_template_with_much_to_say_about_its_error_fills_no_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(folder.path(), "<% raise 'x' * 1_000_000 %>\n");
    let rendered = render(&["--job", &job]);
    assert!(!rendered.status.success(), "{rendered:?}");
    let said = [rendered.stdout, rendered.stderr].concat();
    assert!(said.len() < 100_000 && text(&said).contains("bytes are left out"), "{} bytes", said.len());
}

#[test]
fn an_author_is_shown_the_line_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(folder.path(), "port: 1\nhost: <%= p('host') %>\n");
    let failed = render(&["--job", &job]);
    assert_eq!(failed.status.code(), Some(1));
    let shown = text(&failed.stdout);
    let expected = "templates/conf.erb:2: Can't find property '[\"host\"]'\n   2 | host: <%= p('host') %>\n     |       ^^^^^^^^^^^^^^^^";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn an_author_without_rights_has_what_needs_ruby_rendered_by_a_caged_one() {
    let name = "render::an_author_without_rights_has_what_needs_ruby_rendered_by_a_caged_one";
    if !is_ordinary_user(name) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let job =
        job(folder.path(), "<%= File.exist?('/etc/passwd') %> <%= OpenSSL::Digest::SHA1.hexdigest('a')[0, 4] %>\n");
    let rendered = render(&["--job", &job]);
    let shown = text(&rendered.stdout);
    assert!(shown.contains("==> config/conf <==\nfalse 86f7\n"), "{rendered:?}");
}
