//! Random programs of what is native, compared with Ruby.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};

use crate::ruby::{difference, ruby};

fn choice(words: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    prop::sample::select(words).prop_map(str::to_owned)
}

fn leaf() -> impl Strategy<Value = String> + Clone {
    choice(&[
        "p('port')",
        "p('zero')",
        "p('negative')",
        "p('ratio')",
        "p('greeting')",
        "p('empty')",
        "p('csv')",
        "p('lines')",
        "p('path')",
        "p('list')",
        "p('numbers')",
        "p('mixed')",
        "p('none')",
        "p('nested_list')",
        "p('map')",
        "p('users')",
        "p('db')",
        "p('nothing', nil)",
        "p('yes')",
        "p('no')",
        "x",
        "1",
        "-3",
        "2.5",
        "'a b'",
        "\"q#{x}\"",
        "nil",
        "true",
        ":sym",
        "[1, nil, 'x']",
        "{ 'a' => 1, b: [2] }",
        "(1..4)",
        "spec.networks.default.ip",
        "properties.port",
        "link('db').instances.first.address",
        "'10'",
        "' x '",
        "%w[b a]",
        "[]",
        "{}",
    ])
}

fn plain_method() -> impl Strategy<Value = String> + Clone {
    choice(&[
        "to_s",
        "to_json",
        "to_a",
        "to_i",
        "to_h",
        "to_f",
        "to_sym",
        "inspect",
        "length",
        "size",
        "count",
        "empty?",
        "nil?",
        "first",
        "last",
        "reverse",
        "sort",
        "uniq",
        "compact",
        "flatten",
        "keys",
        "values",
        "sum",
        "min",
        "max",
        "upcase",
        "downcase",
        "capitalize",
        "strip",
        "chomp",
        "chars",
        "lines",
        "split",
        "dup",
        "any?",
        "all?",
        "none?",
        "abs",
        "succ",
        "pred",
        "floor",
        "ceil",
        "round",
        "zero?",
        "even?",
        "blank?",
        "present?",
        "class",
        "invert",
        "tally",
        "to_yaml",
        "rotate",
        "join",
        "swapcase",
        "chop",
        "frozen?",
        "itself",
        "entries",
        "lstrip",
        "rstrip",
        "squeeze",
        "hex",
        "ord",
        "bytesize",
        "positive?",
        "negative?",
        "pop",
        "shift",
        "to_str",
        "-@",
        "shellescape",
    ])
}

fn binary() -> impl Strategy<Value = String> + Clone {
    choice(&["+", "-", "*", "/", "%", "==", "!=", "<", ">", "<=", ">=", "<=>", "&&", "||", "&", "|", "<<", "**"])
}

fn method_of_one() -> impl Strategy<Value = String> + Clone {
    choice(&[
        "include?",
        "join",
        "split",
        "start_with?",
        "end_with?",
        "first",
        "last",
        "take",
        "drop",
        "fetch",
        "dig",
        "[]",
        "key?",
        "index",
        "push",
        "concat",
        "merge",
        "zip",
        "delete",
        "count",
        "ljust",
        "rjust",
        "center",
        "chomp",
        "delete_prefix",
        "values_at",
        "each_slice",
        "slice",
        "except",
        "is_a?",
        "eql?",
        "div",
        "clamp",
        "fdiv",
        "round",
        "flatten",
        "rotate",
        "tr",
        "sub",
        "gsub",
        "partition",
        "unshift",
        "member?",
    ])
}

fn with_block() -> impl Strategy<Value = String> + Clone {
    choice(&[
        "map",
        "select",
        "reject",
        "find",
        "any?",
        "all?",
        "none?",
        "count",
        "sort_by",
        "min_by",
        "max_by",
        "group_by",
        "partition",
        "flat_map",
        "each",
        "each_with_index",
        "sum",
        "uniq",
        "take_while",
        "filter_map",
        "to_h",
        "transform_values",
        "transform_keys",
        "each_with_object([])",
        "inject",
        "reduce(0)",
        "map.with_index",
        "each_with_index.map",
        "find_index",
        "delete_if",
        "then",
        "tap",
        "drop_while",
        "times",
        "gsub(/[a-c]/)",
    ])
}

fn parameters() -> impl Strategy<Value = String> + Clone {
    choice(&["|x|", "|x, y|", "|x, (y, z)|", "|x, *y|", "|x, |", "|*x|", "|x, y = 3|", "|k, x|"])
}

fn expression() -> impl Strategy<Value = String> {
    leaf().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            4 => (inner.clone(), plain_method()).prop_map(|(a, method)| format!("({a}).{method}")),
            3 => (inner.clone(), binary(), inner.clone()).prop_map(|(a, operator, b)| format!("({a} {operator} {b})")),
            3 => (inner.clone(), method_of_one(), inner.clone()).prop_map(|(a, method, b)| format!("({a}).{method}({b})")),
            3 => (inner.clone(), with_block(), parameters(), inner.clone())
                .prop_map(|(a, method, parameters, b)| format!("({a}).{method} {{ {parameters} {b} }}")),
            1 => (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[{b}]")),
            1 => (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, from, to)| format!("({a})[({from})..({to})]")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, *({b})]")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{ 'k' => {a}, ({b}) => 1 }}")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(x = {a}; y, z = {b}; [x, y, z])")),
            1 => (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("(case {a} when {b} then 1 when Array, String then {c} else 2 end)")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(begin; raise 'e' if {a}; {b}; rescue => e; e.message; end)")),
            1 => inner.clone().prop_map(|a| format!("\"#{{{a}}}\"")),
            1 => inner.clone().prop_map(|a| format!("JSON.pretty_generate({a})")),
            1 => (inner.clone(), inner).prop_map(|(a, b)| format!("lambda {{ |x| {a} }}.call({b})")),
        ]
    })
}

#[test]
fn random_programs_have_the_result_that_ruby_gives() {
    let Some(ruby) = ruby() else { return };
    // The same ones each time, unless others are asked for.
    let wanted: Option<usize> = std::env::var("WINDLASS_PROGRAMS").ok().and_then(|cases| cases.parse().ok());
    let mut runner = match wanted {
        Some(_) => TestRunner::new(Config::default()),
        None => TestRunner::deterministic(),
    };
    let cases = wanted.unwrap_or(500);
    let mut different = Vec::new();
    let mut native = 0;
    for _ in 0..cases {
        let program = expression().new_tree(&mut runner).unwrap().current();
        let template = format!("<% x = 5 %>\n<%= {program} %>");
        native += usize::from(crate::render(&template).is_ok());
        different.extend(difference(&ruby, &template, &crate::spec()));
    }
    eprintln!("{native} of {cases} programs were rendered natively");
    different.sort_by_key(String::len);
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}
