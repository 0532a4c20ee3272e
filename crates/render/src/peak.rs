//! How much memory this process has for what the evaluator counts: every method is called with long texts, and with what shares
//! them.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Command;

use serde_json::json;

use crate::evaluate::{self, Flow};
use crate::{check, erb, methods, parse};

/// How many letters the texts have, and how often each call is made. What it gives is kept.
const LETTERS: usize = 200_000;
const CALLS: usize = 40;
/// How much more than twice what was counted a program may take: copies of one text that are gone after a call, and what reading
/// the program takes. The calls together keep more than that and [`KEPT_FREE`], if what they keep is not counted.
const MORE: usize = 10 * LETTERS + (2 << 20);
/// How much memory that is free a process may have kept.
const KEPT_FREE: usize = 1 << 20;
/// One of so many calls is made; all with `WINDLASS_POINTS=all`, which takes the better part of an hour.
const EACH: usize = 89;

/// What a process is told and tells: with which program to begin, and what it found.
const FROM: &str = "WINDLASS_PEAK_FROM";
const NEXT: &str = "next: ";
const UNCOUNTED: &str = "uncounted: ";

/// Receivers, where `x` is a text of `n` letters.
const RECEIVERS: &[&str] = &[
    "x",
    "\"\u{e9}\" * (n / 2)",
    "\"a b\\n\" * (n / 4)",
    "'a'",
    "x.to_sym",
    "[x] * 40",
    "[[[x, x], x], [x]]",
    "(1..n / 40).to_a",
    "[[x, 1], [x + 'a', x]]",
    "{ x => 1 }",
    "{ x => x, 'b' => [x], [x, x] => 2 }",
    "ArgumentError.new(x)",
    "(x + 'b').match(/(?<name>b)/)",
    "(x + 'b').match(/(a+)(b)/)",
    "(1..n / 40)",
    "(x..x)",
    "7",
    "1.5",
    "nil",
    "([x] * 40).each_with_index",
    "([x] * 40).map",
    "/a/",
    "lambda { |*y| y }",
    "properties",
];

/// What a call is given.
const GIVEN: &[&str] = &[
    "",
    "(x)",
    "(x, x)",
    "('a')",
    "('a', x)",
    "(1)",
    "(2)",
    "(1, 2)",
    "(0, x)",
    "(n)",
    "(n, \"\u{1f600}\")",
    "(-1, x)",
    "([x] * 40)",
    "({ x => x })",
    "({ 'a' => x })",
    "(*([x] * 40))",
    "(0..n)",
    "(String)",
    "(:+)",
    "(:a)",
    "(/a\\z/)",
    "(/a\\z/, x)",
    "(/ /, '')",
    "(/\\z|a\\z/, { 'a' => x })",
    "{ x }",
    "{ |y| y }",
    "{ |*y| k << y; k << $~; x }",
    "{ |y| [y, x] }",
    "{ |y| y == x }",
    "(x) { |y, z| k << y; y }",
    "(/a\\z|b/) { |y| k << $~; y }",
    "(2) { |y| k << y; x }",
    "({ x => x }) { |*y| k << y; x }",
];

/// What is no method of a value.
const OTHERS: &[&str] = &[
    "File.join(*([x] * 40))",
    "File.dirname('/' + x + '/' + x)",
    "File.basename('/' + x)",
    "Shellwords.escape(x)",
    "Base64.encode64(x)",
    "Base64.strict_encode64(x)",
    "Base64.decode64(x + 'a' * (4 - x.size % 4))",
    "JSON.dump([x] * 40)",
    "JSON.pretty_generate([x] * 40)",
    "JSON.parse('[' + '{\"a\":{}},' * (n / 9) + '1]')",
    "JSON.parse('[' + '[],' * (n / 3) + '1]')",
    "JSON.parse('[' + '1,' * (n / 2) + '1]', symbolize_names: true)",
    "YAML.dump([x + 'a', [x]])",
    "Hash.new(x)",
    "Hash.new { x }",
    "Array.new(40, x)",
    "String.new(x)",
    "KeyError.new(x)",
    "begin; raise x; rescue => e; e; end",
    "begin; raise ArgumentError, x; rescue => e; k << e.message; e; end",
    "begin; p(x); rescue => e; e; end",
    "begin; p([x] * 40); rescue => e; e; end",
    "p(x, x)",
    "p('text.' + x[0, n / 2])",
    "p('text')",
    "begin; link(x); rescue => e; e; end",
    "format('%s%s', x, x)",
    "format('%-200s', x)",
    "format('%' + n.to_s + 'd', 1)",
    "format('%<a>s', a: x)",
    "format(x + '%s', x)",
    "String(x)",
    "String([x] * 40)",
    "Array(x)",
    "Array({ x => x })",
    "Integer('0' * 0 + '7')",
    "\"#{x}#{x}\"",
    "\"#{[x, x]}\"",
    "[*([x] * 40), *(1..n / 40)]",
    "{ x => 1, **{ x => 2 } }",
    "/#{x[0, 1000]}/",
    "(x + 'b') =~ /b/; [$~, $1]",
    "case x + 'b' when /(b)/ then $~ end",
    "a, *b = [x] * 40; b",
    "lambda { |*y| x }",
    "lambda { |y, z: x| [y, z] }.call(x)",
    "(a = x + 'b') << x; a",
    "a = { x => 1 }; a[x + 'c'] = x; a.keys",
    "a = [x]; a[n / 40] = x; a",
    "(x..x)",
    "[x, x].to_json",
    "def deep(y, z); y.each_char { |c| deep(y, z - 1) if z > 0; break }; end; deep(x, 30)",
    "def deep2(y, z); y.each { |c| deep2(y, z - 1) if z > 0; break }; end; deep2((1..n / 40).to_a, 30)",
    "def deep3(y, z); y.sub(/a\\z/) { deep3(y, z - 1) if z > 0; '' }; end; deep3(x, 30)",
    "h = {}; h['a'] = h; h.dig(*(['a'] * 2000)).size",
];

/// A program that calls and keeps what comes back.
fn program(receiver: &str, call: &str) -> String {
    format!("<% n = {LETTERS}; x = 'a' * n; r = {receiver}; k = []; {CALLS}.times {{ k << ({call}) }} %>")
}

/// How many bytes were counted, if it is native.
fn run(template: &str) -> Option<usize> {
    let program = erb::compile(template);
    let parsed = parse::parse(&program).ok()?;
    let uses = check::check(&parsed).ok()?;
    let spec = json!({ "properties": { "text": "a".repeat(4000) } });
    let (answer, taken) = evaluate::taken(&parsed, uses, &program.texts, &spec);
    (!matches!(answer.map_err(|flow| *flow), Err(Flow::NeedsRuby(_)))).then_some(taken)
}

fn of_status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// How far this process grew while a template was rendered, and what was counted.
fn grown(template: &str) -> Option<(usize, usize)> {
    // The highest mark starts at what there is now.
    std::fs::OpenOptions::new().write(true).open("/proc/self/clear_refs").unwrap().write_all(b"5").unwrap();
    let before = of_status("VmRSS");
    let taken = run(template)?;
    Some((of_status("VmHWM").saturating_sub(before), taken))
}

/// The methods that a receiver may have: others are refused.
fn names(receiver: &str) -> BTreeSet<&'static str> {
    use methods::*;
    let own: &[&[&'static str]] = match receiver {
        "x" | "'a'" => &[text::NAMES, text_changes::NAMES, text_patterns::NAMES, libraries::NAMES, common::NAMES],
        _ if receiver.starts_with('"') => &[text::NAMES, text_changes::NAMES, text_patterns::NAMES],
        _ if receiver.starts_with('[') => &[arrays::NAMES, array_changes::NAMES, enumerable::NAMES, common::NAMES],
        _ if receiver.ends_with(".to_a") => &[arrays::NAMES, array_changes::NAMES, enumerable::NAMES],
        _ if receiver.starts_with('{') => &[maps::NAMES, enumerable::NAMES, common::NAMES],
        _ if receiver.starts_with("([") => &[enumerators::NAMES, enumerable::NAMES],
        _ if receiver.contains("..") => &[ranges::NAMES, enumerable::NAMES, common::NAMES],
        "7" | "1.5" => &[numbers::NAMES, common::NAMES],
        "properties" => &[objects::NAMES, common::NAMES],
        _ => &[text::NAMES, text_patterns::NAMES, classes::NAMES, common::NAMES],
    };
    own.iter().flat_map(|names| names.iter().copied()).collect()
}

/// The program of each call.
fn programs() -> Vec<String> {
    let is_all = std::env::var("WINDLASS_POINTS").is_ok_and(|points| points == "all");
    let mut calls = Vec::new();
    for receiver in RECEIVERS {
        for name in names(receiver) {
            calls.extend(GIVEN.iter().map(|given| (*receiver, format!("r.{name}{given}"))));
        }
    }
    let chosen = calls.into_iter().step_by(if is_all { 1 } else { EACH });
    let methods = chosen.map(|(receiver, call)| program(receiver, &call));
    let others = OTHERS.iter().map(|call| program("nil", call));
    others.chain(methods).collect()
}

/// Renders programs from the given one on, and says which took more than they counted. It ends where memory that is free was not
/// given back, which would hide what the next program takes, and says with which one to go on.
fn measured(from: usize) {
    let programs = programs();
    // What is only done once is done before.
    run("<% [1].each { |x| x.to_s } %>");
    let start = of_status("VmRSS");
    for (number, program) in programs.iter().enumerate().skip(from) {
        if number > from && of_status("VmRSS") > start + KEPT_FREE {
            return eprintln!("{NEXT}{number}");
        }
        let Some((grown, taken)) = grown(program) else { continue };
        if grown > 2 * taken + MORE {
            eprintln!("{UNCOUNTED}{program} took {} KiB and counted {} KiB", grown >> 10, taken >> 10);
        }
    }
}

#[test]
fn each_method_is_called() {
    let called: BTreeSet<_> = RECEIVERS.iter().flat_map(|receiver| names(receiver)).collect();
    assert_eq!(methods::names().filter(|name| !called.contains(name)).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn what_templates_take_is_counted() {
    if let Ok(from) = std::env::var(FROM) {
        let from = from.parse().unwrap();
        let thread = std::thread::Builder::new().stack_size(evaluate::STACK).spawn(move || measured(from)).unwrap();
        return thread.join().unwrap();
    }
    let (mut next, mut uncounted) = (Some("0".to_owned()), Vec::new());
    while let Some(from) = next.take() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "peak::what_templates_take_is_counted", "--nocapture"]).env(FROM, from);
        // What is free is given back at once where that can be.
        child.envs(["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"].map(|name| (name, "65536")));
        let done = child.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{said}");
        uncounted.extend(said.lines().filter_map(|line| line.strip_prefix(UNCOUNTED)).map(str::to_owned));
        next = said.lines().find_map(|line| line.strip_prefix(NEXT)).map(str::to_owned);
    }
    assert!(uncounted.is_empty(), "{} of these:\n{}", uncounted.len(), uncounted.join("\n"));
}
