//! Ruby's syntax: the parser's tree becomes ours, or the first construct that needs Ruby is named.
//!
//! - `lower`: expressions.
//! - `calls`: calls, blocks and their parameters.
//! - `scopes`: which local variable a name means.

mod calls;
mod literals;
mod lower;
mod scopes;

use lib_ruby_parser::{ErrorLevel, Node, Parser, ParserOptions};

use crate::erb::{self, Program};
use crate::tree::Expression;

/// A construct that is not native, and its line in the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) line: usize,
    pub(crate) construct: String,
    /// Whether it is what the parser says of a mistake; newer Rubies may know better.
    pub(crate) is_syntax: bool,
}

impl Refusal {
    pub(crate) fn new(line: usize, construct: impl Into<String>) -> Self {
        Self { line, construct: construct.into(), is_syntax: false }
    }
}

/// A template that was read.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) body: Expression,
    /// Local variables at its top.
    pub(crate) slots: usize,
    /// How many expressions it has.
    pub(crate) expressions: usize,
}

/// How much code one template may have: the parser's tree is as deep as code is long, at worst. Public releases have 46 KiB.
pub(crate) const LONGEST: usize = 128 << 10;

/// Reads a program.
pub(crate) fn parse(program: &Program) -> Result<Parsed, Refusal> {
    let refuse = |construct: &str| Err(Refusal::new(1, construct));
    if program.magic_comment {
        return refuse("a comment that changes how Ruby reads the template");
    }
    if program.reserved {
        return refuse("a name that starts with '__windlass_'");
    }
    if program.source.len() > LONGEST {
        return refuse("more than 128 KiB of code");
    }
    let options =
        ParserOptions { buffer_name: "template".to_owned(), record_tokens: false, ..ParserOptions::default() };
    let result = Parser::new(program.source.as_bytes().to_vec(), options).do_parse();
    let lines = Lines::of(&program.source);
    if let Some(error) = result.diagnostics.iter().find(|found| found.level == ErrorLevel::Error) {
        let (line, construct) = (lines.line(error.loc.begin), error.render_message());
        return Err(Refusal { line, construct, is_syntax: true });
    }
    let Some(Node::Begin(begin)) = result.ast.as_deref() else { return refuse("an empty program") };
    lower::program(&begin.statements, &lines)
}

/// Where lines start.
#[derive(Debug)]
pub(crate) struct Lines(Vec<usize>);

impl Lines {
    fn of(source: &str) -> Self {
        Self(source.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    /// The template's line at a place of the program.
    fn line(&self, at: usize) -> usize {
        (self.0.partition_point(|feed| *feed < at) + 1).saturating_sub(erb::LINES_BEFORE).max(1)
    }
}
