//! The tree of a document.

use indexmap::IndexMap;
use serde_json::{Number, Value};

/// A place in the text. Both numbers count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A value and where it starts. Aliases and merge keys are resolved; what came through them keeps the position of the
/// anchor, because that is the line to edit.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it starts.
    pub position: Position,
    pub content: Content,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// `~`, `null` or nothing at all.
    Null,
    /// `true`, `yes`, `on` and their opposites.
    Boolean(bool),
    /// An integer or float.
    Number(Number),
    String(String),
    List(Vec<Node>),
    /// A mapping, in the order of the text. Keys are the text of the key, whatever it looks like.
    Object(IndexMap<String, Node>),
}

impl Content {
    /// The kind, with its article.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Boolean(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

impl Node {
    /// The same value without positions.
    pub fn to_json(&self) -> Value {
        match &self.content {
            Content::Null => Value::Null,
            Content::Boolean(boolean) => Value::Bool(*boolean),
            Content::Number(number) => Value::Number(number.clone()),
            Content::String(text) => Value::String(text.clone()),
            Content::List(nodes) => nodes.iter().map(Node::to_json).collect(),
            Content::Object(entries) => entries.iter().map(|(key, node)| (key.clone(), node.to_json())).collect(),
        }
    }

    /// The value of `key`, if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.content {
            Content::Object(entries) => entries.get(key),
            _ => None,
        }
    }

    /// The node at a path such as `/instance_groups/0/name`; the empty path is the node itself.
    pub fn pointer(&self, path: &str) -> Option<&Node> {
        path.split('/').skip(1).try_fold(self, |node, step| match &node.content {
            Content::Object(entries) => entries.get(&step.replace("~1", "/").replace("~0", "~")),
            Content::List(nodes) => nodes.get(step.parse::<usize>().ok()?),
            _ => None,
        })
    }
}
