//! Templates that mean harm, and templates that mean nothing.

use std::time::Instant;

use proptest::prelude::*;
use windlass_render::{Native, RenderError, Renderer as _};

fn stopped(template: &str) -> String {
    let started = Instant::now();
    let error = crate::render(template).unwrap_err().to_string();
    assert!(started.elapsed().as_secs() < 60, "{template}");
    error
}

#[test]
fn a_template_without_an_end_is_stopped() {
    for template in [
        "<% while true; end %>",
        "<% loop { } %>",
        "<% x = 0; until false do x += 1 end %>",
        "<% a = [1]; a.each { |x| [1, 2].cycle { } } %>",
        "<% h = Hash.new { |h, k| h[k + 1] }; h[1] %>",
    ] {
        let error = stopped(template);
        assert!(error.contains("was stopped") || error.contains("needs Ruby"), "{template}: {error}");
    }
    assert!(stopped("<% while true; end %>").contains("the template was stopped after 5000000 steps"));
}

#[test]
fn a_regular_expression_without_an_end_is_stopped() {
    for template in [
        "<%= ('A' * 400000).scan(/.*[^A-Z]|[A-Z]/).length %>",
        "<%= ('A' * 400000).gsub(/.*[^A-Z]|[A-Z]/, 'b').length %>",
        "<%= ('a' * 400000) =~ /(a?a?a?a?a?a?a?a?a?a?){900}b/ %>",
        "<%= ('a' * 1000000) =~ /(a?a?a?a?a?a?a?a?a?a?){20}b/ %>",
        "<%= ('a' * 1000000).sub(/(a?a?a?a?a?a?a?a?a?a?){20}b/, 'c') %>",
        "<%= ('a' * 1000000).sub('a' * 9000 + 'b', 'c') %>",
        "<% while true; /(a?a?a?a?a?a?a?a?a?a?){20}b/; end %>",
    ] {
        let error = stopped(template);
        assert!(error.contains("was stopped") || error.contains("needs Ruby"), "{template}: {error}");
    }
    for (template, expected) in [
        ("<%= ('a b\n' * 1000).gsub(/\\s+/, '').length %>", "2000"),
        ("<%= ('a' * 1000000).gsub('a', 'bb').length %>", "2000000"),
        ("<%= 'a-1.example.com' =~ /\\A([a-z0-9-]{1,63}\\.){1,3}[a-z]{2,63}\\z/ %>", "0"),
    ] {
        assert_eq!(crate::render(template).unwrap().files[0].content, expected, "{template}");
    }
}

#[test]
fn sets_that_are_as_long_as_the_text_take_no_time() {
    for template in [
        "<% x = 'ab' * 150_000 %><%= x.squeeze('c' * 299_999 + 'b').size %>",
        "<% x = 'ab' * 150_000 %><%= x.tr('c' * 299_999 + 'd', 'e').size %>",
        "<% x = 'ab' * 150_000 %><%= x.delete('c' * 299_999 + 'd').size %>",
    ] {
        let started = Instant::now();
        assert_eq!(crate::text(template), "300000", "{template}");
        assert!(started.elapsed().as_secs() < 20, "{template}");
    }
}

#[test]
fn a_job_that_writes_without_end_is_stopped() {
    let templates =
        [("a", "<%= 'x' * 16_000_000 %>"), ("b", "<%= 'x' * 16_000_000 %>"), ("c", "<%= 'x' * 2_000_000 %>")];
    let error = Native.render(&crate::job("app", "", &templates), &crate::spec()).unwrap_err().to_string();
    assert!(error.contains("'c'") && error.contains("the job was stopped when its files had 32 MiB"), "{error}");
    let rendered = Native.render(&crate::job("app", "", &templates[..2]), &crate::spec()).unwrap();
    assert_eq!(rendered.bytes(), 32_000_000 + "[]\n".len());
}

#[test]
fn a_template_that_takes_all_memory_is_stopped() {
    for template in [
        "<% a = 'x' * 1000; while true; a << a; end %>",
        "<%= 'x' * 10000000000000 %>",
        "<% a = [1]; while true; a += a; end %>",
        "<% a = []; while true; a = [a]; end %>",
        "<% a = []; while true; a << [1, 2, 3]; end %>",
        "<%= (1..100000000000).to_a %>",
        "<%= 'a'.ljust(100000000000) %>",
        "<%= '%999999999999d' % 1 %>",
        "<%= Array.new(100000000000) %>",
        "<% a = ['xxxxxxxxxxxxxxxx']; 40.times { a = [a, a] } %><%= a.to_json %>",
        "<% a = ['xxxxxxxxxxxxxxxx']; 40.times { a = [a, a] } %><%= a.flatten.length %>",
        "<% a = ['xxxxxxxxxxxxxxxx']; 40.times { a = [a, a] } %><%= a.join %>",
        "<% a = ['x']; 40.times { a = [a, a] }; b = ['x']; 40.times { b = [b, b] } %><%= a == b %>",
        "<% a = ['xxxxxxxxxxxxxxxx']; 40.times { a = [a, a] } %><%= { a => 1 } %>",
        "<% while true %>some text that is written without an end<% end %>",
        "<% s = 'a' * 1000000; while true; s.gsub('a', 'b'); end %>",
        "<% x = 2; while true; x = x * x; end %>",
        "<% x = 1; while true; x = (x..x); end %>",
        "<% x = [1].each; while true; x = [x].each; end %>",
        "<% g = lambda { |f| lambda { f } }; x = nil; while true; x = g.call(x); end %>",
        "<% h = {}; while true; h = { 'a' => h }; end %>",
        "<% h = {}; while true; h = Hash.new(h); end %>",
        "<% a = []; a << a %><%= a.to_json %>",
        "<% a = []; a << a %><%= a == a %>",
    ] {
        let error = stopped(template);
        assert!(error.contains("stopped") || error.contains("needs Ruby"), "{template}: {error}");
    }
}

/// The highest that this process has taken so far, in MiB.
fn highest() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() >> 10
}

#[test]
fn what_a_template_copies_takes_no_more_than_what_it_makes() {
    let before = highest();
    for template in [
        r#"<% s = "b" * 1_000_000 + "a" * 1200 %><% k = [] %><% s.gsub(/a/) { k << $~; "" } %><%= k.size %>"#,
        r#"<% x = "a" * 4_000_000; h = {x => 1}; k = []; 300.times { k << h.keys } %><%= k.size %>"#,
        r#"<% x = "a" * 4_000_000; h = {x => 1}; k = []; 300.times { k << h.to_a } %><%= k.size %>"#,
        r#"<% x = "a" * 4_000_000; h = {x => 1}; k = []; 300.times { h.each { |a, b| k << a } } %><%= k.size %>"#,
        r#"<% x = "a" * 4_000_000; k = []; 300.times { k << ArgumentError.new(x) } %><%= k.size %>"#,
        r#"<% x = "a" * 10_000_000 %><%= File.join(*([x] * 60)).size %>"#,
        r#"<%= "".ljust(110_000_000, "😀").size %>"#,
        r#"<% x = "a" * 10_000_000 %><%= ([x] * 100).join.size %>"#,
        r#"<% x = "a" * 10_000_000; k = []; 40.times { k << x.to_sym } %><%= k.size %>"#,
        r#"<% x = "a" * 10_000_000; k = [] %><%= k << ([x] * 60).inspect %>"#,
        r#"<%= JSON.parse("[" + "{\"\":1}," * 1_800_000 + "1]").size %>"#,
        r#"<% x = "a" * 20_000_000; f = lambda { |n| x.each_line { f.call(n + 1) if n < 70 } }; f.call(0) %>"#,
        r#"<% x = [0] * 1_000_000; f = lambda { |n| x.any? { n < 70 && f.call(n + 1) } }; f.call(0) %>"#,
        r#"<% h = {}; h["a"] = h %><%= h.dig(*(["a"] * 20_000)).size %>"#,
    ] {
        let answer = crate::render(template);
        let rises = highest() - before;
        assert!(rises < 300, "{template}: {rises} MiB, {}", answer.is_ok());
    }
}

#[test]
fn messages_of_many_templates_are_shortened() {
    let templates: Vec<(String, String)> =
        (0..40).map(|number| (format!("t{number}"), "<% raise 'x' * 20_000_000 %>".to_owned())).collect();
    let templates: Vec<(&str, &str)> = templates.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let error = Native.render(&crate::job("app", "", &templates), &crate::spec()).unwrap_err().to_string();
    assert!(error.len() < 4 << 20 && error.contains("xxx…"), "{}", error.len());
}

#[test]
fn deep_recursion_does_not_take_the_director_down() {
    for template in [
        "<% def f(x); f(x + 1); end; f(1) %>".to_owned(),
        "<% f = lambda { |x| f.call(x + 1) }; f.call(1) %>".to_owned(),
        format!("<%= {}1{} %>", "(".repeat(20_000), ")".repeat(20_000)),
        format!("<%= {}1{} %>", "[".repeat(20_000), "]".repeat(20_000)),
        format!("<%= {}1 %>", "!".repeat(60_000)),
        format!("<%= 1{} %>", "+1".repeat(30_000)),
        format!("<%= x{} %>", ".a".repeat(30_000)),
        format!("<% {} {} %>", "if true;".repeat(8_000), "end;".repeat(8_000)),
        format!("<%= \"{}1{}\" %>", "#{\"".repeat(5_000), "\"}".repeat(5_000)),
    ] {
        assert!(matches!(crate::render(&template), Err(RenderError::NeedsRuby(_))), "{}", &template[..40]);
    }
}

#[test]
fn a_cycle_does_not_outlive_its_template() {
    // Rendered often, it would take memory without an end.
    for _ in 0..50 {
        crate::text("<% a = ['x' * 100000]; a << a; h = { 'h' => a }; h['self'] = h; f = lambda { f } %>");
    }
}

/// Forty letters ended the director: lists that contain themselves were compared without an end.
#[test]
fn lists_that_contain_themselves_are_compared_to_an_end() {
    for call in
        ["[a, b].max", "[a, b].sort", "a <=> b", "[a, b].sort_by { |x| x }", "[a, b].min_by { |x| x }", "a == b"]
    {
        assert!(is_answered(&format!("<% a = []; a << a; b = []; b << b; x = ({call}) %>")), "{call}");
    }
}

/// One step took as long as it liked: texts of megabytes with sets or parts of as many.
#[test]
fn texts_are_compared_with_many_parts_within_the_time_of_a_job() {
    let begun = std::time::Instant::now();
    for call in ["x.tr(y, 'c').size", "x.delete(y).size", "x.squeeze(y).size", "x.start_with?(*([x] * 60_000))"] {
        is_answered(&format!("<% x = 'a' * 2_000_000; y = 'bc' * 100_000; z = ({call}) %>"));
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn templates_have_no_way_to_the_machine() {
    for code in ["File.read('/etc/passwd')", "`id`", "system('id')", "ENV['HOME']", "open('/etc/passwd')", "fork { }"] {
        assert!(matches!(crate::render(&format!("<%= {code} %>")), Err(RenderError::NeedsRuby(_))), "{code}");
    }
}

/// Pieces of programs, good and bad.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "p('port')",
        "p('list')",
        "p('map')",
        "p('greeting')",
        "spec",
        "properties.db",
        "link('db')",
        "x",
        "y = ",
        "x += 1",
        "1",
        "-1",
        "2.5",
        "'a'",
        "\"#{x}\"",
        "nil",
        "true",
        ":a",
        "[",
        "]",
        "{",
        "}",
        "(",
        ")",
        "|a, b|",
        "do |x|",
        "do",
        "end",
        "if ",
        "unless ",
        "else",
        "while ",
        "case ",
        "when ",
        "def f(x)",
        "begin",
        "rescue",
        "=>",
        "->(x)",
        "lambda",
        "each",
        ".each",
        ".map",
        ".join",
        ".to_s",
        ".to_json",
        ".gsub(/a/, 'b')",
        ".length",
        ".first",
        "[0]",
        "['a']",
        "==",
        "&&",
        "||",
        "+",
        "*",
        "..",
        ",",
        ";",
        "\n",
        "?",
        ":",
        "&.",
        "&:to_s",
        "*",
        "**",
        "!",
        "%>",
        "<%",
        "<%=",
        "-%>",
        "<%-",
        "text",
        "<<~E\n",
        "E\n",
        "%w[a b]",
        "/x/",
        "#",
        "'",
        "\"",
        "\\",
        "raise 'x'",
        "return",
        "break",
        "next",
        "yield",
        "loop",
        ".times",
        "100",
        "<<",
        "[]=",
        ".sort_by",
        "inject(:+)",
        "é",
        "\0",
    ];
    prop::sample::select(words.to_vec()).prop_map(str::to_owned)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_program_makes_the_evaluator_panic(pieces in prop::collection::vec(piece(), 0..30), spaced in any::<bool>()) {
        let code = pieces.join(if spaced { " " } else { "" });
        let template = format!("a <% {code} %> b <%= {code} %> c");
        prop_assert!(is_answered(&template), "{}", template);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let template = format!("<%{}%>", String::from_utf8_lossy(&bytes));
        prop_assert!(is_answered(&template), "{}", template);
    }
}

/// Whether there is an answer, and not one that stands for a panic.
fn is_answered(template: &str) -> bool {
    match Native.render(&crate::job("app", "", &[("t.erb", template)]), &crate::spec()) {
        Err(RenderError::NeedsRuby(unsupported)) => !unsupported.construct.contains("gives up"),
        _ => true,
    }
}
