//! A node with its path, for reading field by field with errors that say where.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::{Content, Node, Object, Position};

/// something in a document that cannot be used
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message} (line {})", prefix(.path), .position.line)]
pub struct Problem {
    /// Such as `instance_groups[0].networks[1].name`; empty at the root.
    pub path: String,
    /// Where the value stands, or the object that misses it.
    pub position: Position,
    /// What is wrong.
    pub message: String,
}

fn prefix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

/// Every problem of a document, so that one round of editing mends them all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// The value, or none after keeping the problem.
    pub fn check<T>(&mut self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.push(problem)).ok()
    }

    /// Those found so far.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl std::fmt::Display for Problems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A node and the way to it. The way is shared with all that it leads to: written out, the paths of a list's elements could have
/// a thousand times the letters of their document.
#[derive(Debug, Clone)]
pub struct At<'a> {
    node: &'a Node,
    way: Option<Arc<Step<'a>>>,
}

/// The last step of a way.
#[derive(Debug)]
struct Step<'a> {
    before: Option<Arc<Step<'a>>>,
    to: To<'a>,
}

#[derive(Debug, Clone, Copy)]
enum To<'a> {
    Key(&'a str),
    Index(usize),
}

/// How many letters of a key a path has.
const LONGEST_KEY: usize = 255;

impl<'a> At<'a> {
    pub fn root(node: &'a Node) -> Self {
        Self { node, way: None }
    }

    fn step(&self, to: To<'a>, node: &'a Node) -> Self {
        Self { node, way: Some(Arc::new(Step { before: self.way.clone(), to })) }
    }

    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// The path from the root, such as `instance_groups[0].name`. Of very long keys it has the beginning.
    pub fn path(&self) -> String {
        let steps = std::iter::successors(self.way.as_deref(), |step| step.before.as_deref());
        let mut path = String::new();
        for step in steps.map(|step| step.to).collect::<Vec<_>>().into_iter().rev() {
            match step {
                To::Index(index) => path.push_str(&format!("[{index}]")),
                To::Key(key) => path = join(path, key),
            }
        }
        path
    }

    /// A problem with this value.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem { path: self.path(), position: self.node.position, message: message.into() }
    }

    /// A field that must be there and not null.
    pub fn field(&self, name: &str) -> Result<At<'a>, Problem> {
        self.optional(name)?.ok_or_else(|| Problem {
            path: join(self.path(), name),
            position: self.node.position,
            message: "is required, but missing".into(),
        })
    }

    /// A field that may be missing or null.
    pub fn optional(&self, name: &str) -> Result<Option<At<'a>>, Problem> {
        let field = self.fields()?.get_key_value(name).filter(|(_, node)| node.content != Content::Null);
        Ok(field.map(|(key, node)| self.step(To::Key(key), node)))
    }

    /// The elements of a list.
    pub fn list(&self) -> Result<Vec<At<'a>>, Problem> {
        match &self.node.content {
            Content::List(nodes) => {
                Ok(nodes.iter().enumerate().map(|(index, node)| self.step(To::Index(index), node)).collect())
            }
            _ => Err(self.expected("a list")),
        }
    }

    /// The elements of a list in a field; none when it is missing or null.
    pub fn optional_list(&self, name: &str) -> Result<Vec<At<'a>>, Problem> {
        self.optional(name)?.map_or_else(|| Ok(Vec::new()), |list| list.list())
    }

    /// The keys and values of an object.
    pub fn entries(&self) -> Result<Vec<(&'a str, At<'a>)>, Problem> {
        let fields = self.fields()?;
        Ok(fields.iter().map(|(key, node)| (key.as_str(), self.step(To::Key(key), node))).collect())
    }

    /// An object that only somebody else understands.
    pub fn object(&self) -> Result<Object, Problem> {
        let fields = self.fields()?;
        Ok(fields.iter().map(|(key, node)| (key.clone(), node.to_json())).collect())
    }

    /// Text. A number or boolean is not text: unquoted, a version 1.10 has already lost its zero.
    pub fn string(&self) -> Result<&'a str, Problem> {
        match &self.node.content {
            Content::String(text) => Ok(text),
            Content::Number(_) | Content::Boolean(_) => {
                Err(self.problem(format!("expected a string, found {}; put it in quotes", self.node.content.kind())))
            }
            _ => Err(self.expected("a string")),
        }
    }

    pub fn integer(&self) -> Result<i64, Problem> {
        match &self.node.content {
            Content::Number(number) => number.as_i64().ok_or_else(|| self.expected("an integer")),
            _ => Err(self.expected("an integer")),
        }
    }

    /// An integer that is not negative, such as a size or a count.
    pub fn unsigned(&self) -> Result<u64, Problem> {
        match &self.node.content {
            Content::Number(number) => number.as_u64().ok_or_else(|| self.expected("an integer of at least 0")),
            _ => Err(self.expected("an integer of at least 0")),
        }
    }

    pub fn boolean(&self) -> Result<bool, Problem> {
        match &self.node.content {
            Content::Boolean(boolean) => Ok(*boolean),
            _ => Err(self.expected("a boolean")),
        }
    }

    /// A whole type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let mut result = self.node.decode();
        if let Err(problem) = &mut result {
            let path = self.path();
            problem.path = match (path.is_empty(), problem.path.is_empty()) {
                (true, _) => std::mem::take(&mut problem.path),
                (false, true) => path,
                (false, false) if problem.path.starts_with('[') => format!("{path}{}", problem.path),
                (false, false) => format!("{path}.{}", problem.path),
            };
        }
        result
    }

    fn fields(&self) -> Result<&'a indexmap::IndexMap<String, Node>, Problem> {
        match &self.node.content {
            Content::Object(entries) => Ok(entries),
            _ => Err(self.expected("an object")),
        }
    }

    fn expected(&self, what: &str) -> Problem {
        let found = match &self.node.content {
            Content::Number(number) => number.to_string(),
            other => other.kind().to_owned(),
        };
        self.problem(format!("expected {what}, found {found}"))
    }
}

fn join(mut path: String, key: &str) -> String {
    if !path.is_empty() {
        path.push('.');
    }
    match key.char_indices().nth(LONGEST_KEY) {
        None => path.push_str(key),
        Some((end, _)) => {
            path.push_str(&key[..end]);
            path.push('…');
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Document;

    use super::*;

    const MANIFEST: &str = "\
name: shop
instance_groups:
- name: web
  instances: 2
  networks:
  - name: a
  - name:
    - wrong
  azs: ~
  cloud_properties: {b: 1, a: [2]}
- instances: -1
  version: 1.10
";

    #[test]
    fn a_wrong_field_is_named_with_its_path_and_line() {
        let document = Document::parse(MANIFEST).unwrap();
        let groups = document.root().field("instance_groups").unwrap().list().unwrap();
        let networks = groups[0].field("networks").unwrap().list().unwrap();
        assert_eq!(networks[0].field("name").unwrap().string().unwrap(), "a");
        assert_eq!(
            networks[1].field("name").unwrap().string().unwrap_err().to_string(),
            "instance_groups[0].networks[1].name: expected a string, found a list (line 8)"
        );
        assert_eq!(
            groups[1].field("name").unwrap_err().to_string(),
            "instance_groups[1].name: is required, but missing (line 11)"
        );
        assert_eq!(
            groups[1].field("instances").unwrap().unsigned().unwrap_err().to_string(),
            "instance_groups[1].instances: expected an integer of at least 0, found -1 (line 11)"
        );
        assert_eq!(
            groups[1].field("version").unwrap().string().unwrap_err().to_string(),
            "instance_groups[1].version: expected a string, found a number; put it in quotes (line 12)"
        );
        assert_eq!(document.root().list().unwrap_err().to_string(), "expected a list, found an object (line 1)");
    }

    /// A list of 100,000 elements below a key of a megabyte: written out, their paths would have 100 GB.
    #[test]
    fn long_keys_above_long_lists_cost_no_more_than_the_document() {
        let (key, elements) = ("k".repeat(1 << 20), "a,".repeat(100_000));
        let document = Document::parse(&format!("? {key}\n: [{elements}]\n")).unwrap();
        let (_, list) = document.root().entries().unwrap().remove(0);
        let elements = list.list().unwrap();
        assert_eq!(elements.len(), 100_000);
        let path = elements[99_999].path();
        assert_eq!(path, format!("{}…[99999]", "k".repeat(LONGEST_KEY)));
    }

    #[test]
    fn null_counts_as_missing_and_objects_keep_their_order() {
        let document = Document::parse(MANIFEST).unwrap();
        let group = &document.root().field("instance_groups").unwrap().list().unwrap()[0];
        assert!(group.optional("azs").unwrap().is_none());
        assert!(group.optional_list("azs").unwrap().is_empty());
        let properties = group.field("cloud_properties").unwrap();
        assert_eq!(serde_json::to_string(&properties.object().unwrap()).unwrap(), r#"{"b":1,"a":[2]}"#);
        assert_eq!(properties.entries().unwrap()[1].1.path(), "instance_groups[0].cloud_properties.a");
        assert_eq!(document.node().pointer("/instance_groups/0/networks/0/name").unwrap().to_json(), json!("a"));
        assert!(document.node().pointer("/instance_groups/7").is_none());
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let document = Document::parse(MANIFEST).unwrap();
        let mut problems = Problems::new();
        assert_eq!(problems.check(document.root().field("name").and_then(|name| name.string())), Some("shop"));
        problems.check(document.root().field("name").and_then(|name| name.integer()));
        problems.check(document.root().field("update"));
        assert_eq!(
            problems.to_string(),
            "name: expected an integer, found a string (line 1)\nupdate: is required, but missing (line 1)"
        );
    }
}
