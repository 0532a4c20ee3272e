//! What a Ruby that renders can do, and what it cannot.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_render::{Cage, Renderer as _, Ruby, RubySetup};

use crate::ruby::{ruby, setup, told};

const PROGRAM: &str = env!("CARGO_BIN_EXE_render-cage");

/// Renders one template with Ruby.
fn by(ruby: &Ruby, template: &str, spec: &Value) -> Result<String, String> {
    let job = crate::job("app", "", &[("t.erb", template)]);
    told(ruby.render(&job, spec)).map_err(|(line, message)| format!("line {}: {message}", line.unwrap_or_default()))
}

/// A Ruby that has so many seconds.
fn with_patience(seconds: u64, cage: Cage) -> Option<Ruby> {
    ruby()?;
    Some(Ruby::new(RubySetup { patience: Duration::from_secs(seconds), cage, ..setup() }))
}

/// A template fails, and the next one does not.
fn fails(ruby: &Ruby, template: &str, expected: &str) {
    let error = by(ruby, template, &crate::spec()).unwrap_err();
    assert!(error.contains(expected), "{template}: {error}");
    assert_eq!(by(ruby, "<%= p('port') %><%# $0 %>", &crate::spec()).as_deref(), Ok("8080"), "after {template}");
}

#[test]
fn a_template_without_an_end_is_stopped() {
    let Some(ruby) = with_patience(3, Cage::Closed) else { return };
    for template in [
        "<% loop { } %>",
        "<% begin; loop { }; rescue Exception; retry; end %>",
        "<% sleep %>",
        "<% loop { $stdout.puts 'x' * 1000 } %>",
    ] {
        fails(&ruby, template, "the template was stopped after 3 s");
    }
}

#[test]
fn what_public_jobs_need_ruby_for_is_rendered_in_the_cage() {
    let Some(ruby) = ruby() else { return };
    let gzip =
        "<%= Zlib::GzipReader.new(StringIO.new(Base64.decode64('H4sIAAAAAAAAA8tIzcnJBwCGphA2BQAAAA=='))).read %>";
    for (template, expected) in [
        ("<% class Peer; def initialize(n); @n = n; end; attr_reader :n; end %><%= Peer.new(3).n %>", "3"),
        ("<%= 'ab12' =~ /([a-z]+)(\\d+)/ ? $2 : '' %>", "12"),
        ("<%= OpenSSL::Digest::SHA256.hexdigest('a')[0, 8] %>", "ca978112"),
        ("<%= Digest::SHA1.hexdigest('a')[0, 8] %>", "86f7e437"),
        (gzip, "hello"),
        ("<%= File.join('a', 'b') %> <%= properties.marshal_dump.key?(:port) %>", "a/b true"),
        ("<%= Dir.mktmpdir { |dir| File.write(dir + '/x', 'y'); File.read(dir + '/x') } %>", "y"),
        ("<% begin; p('gone'); rescue UnknownProperty => e %><%= e.name.first %><% end %>", "gone"),
        ("<%= Thread.new { 1 + 1 }.value %>", "2"),
        ("<%= spec.networks.send(spec.networks.methods(false).first).ip %>", "10.0.0.5"),
        ("<%= 'zoë'.upcase %>", "ZOË"),
    ] {
        assert_eq!(by(&ruby, template, &crate::spec()).as_deref(), Ok(expected), "{template}");
    }
}

#[test]
fn what_a_template_does_to_ruby_is_not_seen_by_others_of_the_same_deployment() {
    let Some(ruby) = ruby() else { return };
    let (reader, admin) = (ruby.apart(), ruby.apart());
    let poison = "<% $left = 'poisoned'; class ::String; def upcase; 'poisoned'; end; end %><%= 'a'.upcase %>";
    let look = "<%= $left.inspect %> <%= 'a'.upcase %>";
    assert_eq!(by(&reader, poison, &crate::spec()).as_deref(), Ok("poisoned"));
    assert_eq!(by(&reader, look, &crate::spec()).as_deref(), Ok("nil A"), "another job has a process of its own");
    let count = "<% $count = ($count || 0) + 1 %><%= $count %>";
    let counted: Vec<_> = (0..2).map(|_| by(&reader, count, &crate::spec()).unwrap()).collect();
    assert_eq!(counted, ["1", "2"], "all instances of a job have one process");
    assert_eq!(by(&admin, look, &crate::spec()).as_deref(), Ok("nil A"));
    assert_eq!(by(&ruby, look, &crate::spec()).as_deref(), Ok("nil A"));
}

#[test]
fn what_a_template_defines_is_gone_for_other_instances() {
    let Some(ruby) = ruby() else { return };
    let templates =
        [("a.erb", "<% def shared; 'shared'; end; class Peer < Struct.new(:a); end %>"), ("b.erb", "<%= shared %>")];
    let job = crate::job("app", "", &templates);
    for _ in 0..2 {
        assert_eq!(ruby.render(&job, &crate::spec()).unwrap().files[1].content, "shared", "as in BOSH, within a job");
    }
    let error = by(&ruby, "<%= shared %>", &crate::spec()).unwrap_err();
    assert!(error.contains("shared"), "{error}");
    by(&ruby, "<% p('list') << 'x' %>", &crate::spec()).unwrap();
    assert_eq!(by(&ruby, "<%= p('list').length %><%# $0 %>", &crate::spec()).as_deref(), Ok("3"));
}

#[test]
fn a_hostile_template_is_stopped_and_harms_nobody() {
    let Some(ruby) = with_patience(120, Cage::Closed) else { return };
    let mut secret = tempfile::NamedTempFile::new().unwrap();
    secret.write_all(b"of the machine").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let read = format!("<%= File.read('{}') %>", secret.path().display());
    let connect = format!("<% TCPSocket.new('127.0.0.1', {}) %>", listener.local_addr().unwrap().port());
    let kill_group = format!("<% Process.kill(:KILL, 0, -1, 1, {}) %>", std::process::id());
    for (template, expected) in [
        ("<% fork { } %>", "line 1: Operation not permitted - fork(2)"),
        ("<%= `id` %>", "line 1: "),
        ("<% exec('/bin/sh', '-c', 'true') %>", "line 1: No such file or directory"),
        ("<% Process.kill(:KILL, Process.ppid) %>", "line 1: Operation not permitted"),
        (&kill_group, "line 1: Operation not permitted"),
        (&read, "line 1: No such file or directory"),
        ("<%= File.read('/proc/1/environ') %>", "line 1: No such file or directory"),
        ("<% File.write('/usr/lib/ruby/x', 'x') %>", "line 1: "),
        (&connect, "line 1: Operation not permitted - socket(2)"),
        ("<% UNIXSocket.pair %>", "line 1: Operation not permitted"),
        (
            "<% text = 'x' * 1_000_000; loop do %><%= text %><% end %>",
            "failed to allocate memory; a template may take 1 GiB",
        ),
        ("<%= 'x' * (33 << 20) %>", "was stopped when its files had 32 MiB"),
        ("<% a = []; loop { a << 'x' * 1_000_000 } %>", "failed to allocate memory"),
        ("<% loop { File.write(Dir.tmpdir + '/' + rand.to_s, 'x' * 1_000_000) } %>", "line 1: No space left on device"),
        ("<% loop { Thread.new { sleep } } %>", "line 1: "),
        ("<% exit! %>", "Ruby ended"),
        ("<% exit %>", "line 1: exit"),
        ("<% Process.setrlimit(:AS, 1 << 40) %>", "line 1: "),
        ("<% require 'fiddle' %>", "line 1: "),
        ("<%= \"\\xff\" %>", "line 0: the template gives bytes that are not UTF-8"),
    ] {
        fails(&ruby, template, expected);
    }
    assert!(listener.accept().is_err(), "nobody came");
}

#[test]
fn a_process_that_keeps_much_memory_is_not_asked_again() {
    let Some(ruby) = ruby() else { return };
    by(&ruby, "<% $kept = 'x' * 1000 %>", &crate::spec()).unwrap();
    assert_eq!(by(&ruby, "<%= $kept.nil? %>", &crate::spec()).as_deref(), Ok("false"), "a small one is");
    by(&ruby, "<% $kept = 'x' * 200_000_000 %>", &crate::spec()).unwrap();
    assert_eq!(by(&ruby, "<%= $kept.nil? %>", &crate::spec()).as_deref(), Ok("true"));
}

#[test]
fn a_template_cannot_answer_for_another() {
    let Some(ruby) = with_patience(120, Cage::Closed) else { return };
    let forged = r#"<% (3..30).each { |n| IO.for_fd(n, autoclose: false).puts('{"id":2,"texts":["","forged"]}') rescue nil } %>mine"#;
    let _ = by(&ruby, forged, &crate::spec());
    assert_eq!(by(&ruby, "<%= p('port') %>", &crate::spec()).as_deref(), Ok("8080"));
}

#[test]
fn no_secret_of_another_deployment_is_reachable() {
    let Some(ruby) = ruby() else { return };
    let spec = |deployment: &str, password: &str| json!({ "deployment": deployment, "name": "web", "properties": { "password": password } });
    let keep = "<% $kept = p('password') %>";
    let find = "<%= $kept.inspect %> <%= ObjectSpace.each_object(String).any? { |s| s.b =~ /s3[c]ret/ } %>";
    by(&ruby, keep, &spec("one", "s3cret")).unwrap();
    assert_eq!(by(&ruby, find, &spec("one", "x")).as_deref(), Ok("\"s3cret\" true"), "one's own is: this can be seen");
    assert_eq!(by(&ruby, find, &spec("two", "x")).as_deref(), Ok("nil false"));
}

#[test]
fn a_cage_has_nothing_but_ruby() {
    let Some(ruby) = ruby() else { return };
    let see = |code: &str| by(&ruby, &format!("<%= {code} %>"), &crate::spec()).unwrap();
    assert_eq!(see("ENV.keys.sort.join(' ')"), "HOME LANG LD_LIBRARY_PATH PATH TMPDIR");
    assert_eq!(see("[Process.pid, Process.ppid, Dir.pwd].join(' ')"), "1 0 /");
    let files = "Dir.glob('/**/*', File::FNM_DOTMATCH).select { |f| File.file?(f) && File.executable?(f) }";
    let others = see(&format!("{files}.map {{ |f| File.basename(f) }}.grep_v(/\\.so|\\.rb$/).join(' ')"));
    assert!(others.split(' ').all(|name| name.starts_with("ruby")), "{others}");
    for folder in ["/etc", "/proc", "/sys", "/dev", "/home", "/root", "/var", "/bin", "/run"] {
        assert_eq!(see(&format!("File.exist?('{folder}')")), "false", "{folder}");
    }
    assert_eq!(see("Dir.children('/tmp').length"), "0");
    // No right at all, also if one is root outside.
    assert!(by(&ruby, "<% Process::Sys.setuid(1) %>", &crate::spec()).is_err());
    assert!(by(&ruby, "<% Dir.chroot('/tmp') %>", &crate::spec()).is_err());
}

#[test]
fn without_a_cage_ruby_still_starts_nothing_and_calls_nobody() {
    let Some(ruby) = with_patience(3, Cage::Open) else { return };
    assert_eq!(by(&ruby, "<%= File.exist?('/etc/passwd') %>", &crate::spec()).as_deref(), Ok("true"));
    for code in ["fork { }", "TCPServer.new('127.0.0.1', 0)", "Process.kill(:TERM, Process.ppid)"] {
        let error = by(&ruby, &format!("<% {code} %>"), &crate::spec()).unwrap_err();
        assert!(error.contains("Operation not permitted"), "{code}: {error}");
    }
    let error = by(&ruby, "<% loop { } %>", &crate::spec()).unwrap_err();
    assert!(error.contains("was stopped"), "{error}");
}

/// A process and all that descend from it.
fn family(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().flat_map(|child| family(child.parse().unwrap()));
    std::iter::once(pid).chain(children).collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn ruby_ends_with_whom_it_answers_even_in_an_endless_loop() {
    if ruby().is_none() {
        return;
    }
    let mut asks = Command::new(PROGRAM).arg("ask-endlessly").stdin(Stdio::null()).spawn().unwrap();
    let has_three = || family(asks.id()).len() == 3;
    until("it asks a keeper, which has a Ruby", has_three);
    let all = family(asks.id());
    asks.kill().unwrap();
    asks.wait().unwrap();
    let is_there = |pid: &u32| PathBuf::from(format!("/proc/{pid}")).exists();
    until("all have ended", || !all.iter().any(is_there));
}
