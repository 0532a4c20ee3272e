//! Programs as they are checked and evaluated: Ruby's syntax without what is never rendered natively.

use std::sync::Arc;

/// An expression and its line in the template.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
}

/// A local variable: so many scopes up, and its place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) up: usize,
    pub(crate) index: usize,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Nil,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    Symbol(Arc<str>),
    /// A string with `#{}`.
    Interpolated(Vec<Expression>),
    /// A regular expression with its options.
    Pattern(Vec<Expression>, String),
    Array(Vec<Expression>),
    Hash(Vec<Pair>),
    Range {
        from: Option<Box<Expression>>,
        to: Option<Box<Expression>>,
        exclusive: bool,
    },
    /// `*x` among arguments and elements.
    Splat(Box<Expression>),
    Local(Slot),
    Constant(Arc<str>),
    Assign(Box<Target>, Box<Expression>),
    AssignMany(Vec<Target>, Box<Expression>),
    AssignWith {
        target: Box<Target>,
        operator: Operator,
        value: Box<Expression>,
    },
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
    If {
        condition: Box<Expression>,
        then: Box<Expression>,
        otherwise: Box<Expression>,
    },
    Case {
        subject: Option<Box<Expression>>,
        whens: Vec<When>,
        otherwise: Box<Expression>,
    },
    While {
        condition: Box<Expression>,
        body: Box<Expression>,
        until: bool,
    },
    Sequence(Vec<Expression>),
    Begin(Box<Begin>),
    Call(Box<Call>),
    Define(Arc<Method>),
    Lambda(Arc<Block>),
    Yield(Vec<Expression>),
    Return(Box<Expression>),
    Next(Box<Expression>),
    Break(Box<Expression>),
    /// `break` of a `while` or `until`.
    LeaveLoop,
    /// `$~`, or a group of it.
    LastMatch(Option<usize>),
    /// Appends a text of the template.
    Text(usize),
    /// Appends a value.
    Print(Box<Expression>),
}

/// One entry of a map.
#[derive(Debug)]
pub(crate) enum Pair {
    Entry(Expression, Expression),
    /// `**x`
    All(Expression),
}

/// What `a op= b` does.
#[derive(Debug, Clone)]
pub(crate) enum Operator {
    And,
    Or,
    Method(Arc<str>),
}

/// What is assigned to.
#[derive(Debug)]
pub(crate) enum Target {
    Local(Slot),
    Index(Expression, Vec<Expression>),
    /// `*x`, and `*` without a name
    Rest(Option<Box<Target>>),
    Many(Vec<Target>),
}

#[derive(Debug)]
pub(crate) struct When {
    pub(crate) patterns: Vec<Expression>,
    pub(crate) body: Expression,
}

#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) body: Expression,
    pub(crate) rescues: Vec<Rescue>,
    pub(crate) otherwise: Option<Expression>,
    pub(crate) ensure: Option<Expression>,
}

#[derive(Debug)]
pub(crate) struct Rescue {
    /// Names of error classes; none means `StandardError`.
    pub(crate) classes: Vec<Expression>,
    pub(crate) variable: Option<Target>,
    pub(crate) body: Expression,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) receiver: Option<Expression>,
    /// `&.`
    pub(crate) safe: bool,
    pub(crate) name: Arc<str>,
    pub(crate) arguments: Vec<Expression>,
    /// The last argument is a map without braces.
    pub(crate) keywords: bool,
    pub(crate) block: Option<Given>,
}

/// A block that a call gets.
#[derive(Debug)]
pub(crate) enum Given {
    Literal(Arc<Block>),
    /// `&x`
    Passed(Expression),
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) parameters: Parameters,
    pub(crate) body: Expression,
    /// How many local variables it has.
    pub(crate) slots: usize,
}

#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) name: Arc<str>,
    pub(crate) block: Arc<Block>,
    pub(crate) line: usize,
}

/// Parameters of a block or method. Numbers are places in its scope.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    pub(crate) required: Vec<Parameter>,
    pub(crate) optional: Vec<(usize, Expression)>,
    pub(crate) rest: Option<Option<usize>>,
    pub(crate) last: Vec<Parameter>,
    pub(crate) keywords: Vec<Keyword>,
    pub(crate) block: Option<usize>,
    /// `|a|`, which takes an array as it is. `|a, |` takes it apart.
    pub(crate) single: bool,
}

#[derive(Debug)]
pub(crate) enum Parameter {
    Plain(usize),
    /// `(a, b)`
    Many(Vec<Target>),
}

#[derive(Debug)]
pub(crate) struct Keyword {
    pub(crate) name: Arc<str>,
    pub(crate) slot: usize,
    pub(crate) default: Option<Expression>,
}
