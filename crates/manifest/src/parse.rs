//! From text to a tree.

use std::collections::HashMap;

use indexmap::IndexMap;
use indexmap::map::Entry;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use crate::{At, Content, Node, Position, original, scalar};

/// Levels of nesting that a document may have; JSON readers give up at about the same depth.
const DEEPEST: usize = 100;

/// What aliases may add to a document, in bytes of memory, roughly. Manifests written by people stay far below it; ten
/// lines that double each other do not.
const MOST_COPIED: usize = 16 * 1024 * 1024;

/// Values and keys that a document may have, with those that aliases and merge keys copy. The largest manifests have some ten
/// thousand; a node takes far more memory than the two letters that can make it.
pub const MOST_NODES: usize = 200_000;

/// What a node weighs besides its text.
const NODE_WEIGHT: usize = 128;

#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    root: Node,
}

impl Document {
    /// Reads the one document in `text`. No document at all is null.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::parse_as(text, Dialect::Cautious)
    }

    pub(crate) fn parse_as(text: &str, dialect: Dialect) -> Result<Self, ParseError> {
        Self::parse_within(text, dialect, MOST_NODES)
    }

    fn parse_within(text: &str, dialect: Dialect, most_nodes: usize) -> Result<Self, ParseError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let parser = Parser::new_from_str(text);
        let mut builder = Builder { text, parser, dialect, anchors: HashMap::new(), copied: 0, nodes: 0, most_nodes };
        Ok(Self { root: builder.document()? })
    }

    /// The root, for reading it field by field.
    pub fn root(&self) -> At<'_> {
        At::root(&self.root)
    }

    /// The root's node.
    pub fn node(&self) -> &Node {
        &self.root
    }
}

/// What unquoted words and keys mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// What all readers of the ecosystem agree on; the rest is text.
    Cautious,
    /// What the original's command line reads, down to keys that are no text.
    Original,
}

/// a document that cannot be read
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// the text is not YAML
    #[error("{message} ({position})")]
    Syntax {
        /// What is wrong.
        message: String,
        position: Position,
    },
    /// a key stands twice in one mapping
    #[error("the key '{key}' at {second} was already given at {first}; remove one of them")]
    DuplicateKey {
        key: String,
        /// Where it stood first.
        first: Position,
        /// Where it stood again.
        second: Position,
    },
    /// a list or mapping is used as a key
    #[error("a key must be a word, not a list or mapping ({position})")]
    ComplexKey { position: Position },
    /// `<<` with something else than mappings
    #[error("'<<' merges a mapping or a list of mappings, not {found} ({position})")]
    Merge {
        /// What stands there.
        found: &'static str,
        position: Position,
    },
    /// an anchor that contains an alias to itself
    #[error("this alias stands inside the value that it refers to ({position})")]
    Cycle { position: Position },
    /// a tag that changes the meaning of a value in a way that we do not know
    #[error("the tag '{tag}' is not understood; remove it ({position})")]
    Tag { tag: String, position: Position },
    #[error("nested more than {DEEPEST} levels deep ({position})")]
    TooDeep {
        /// Where the limit was passed.
        position: Position,
    },
    /// aliases that blow the document up
    #[error("aliases make this document more than {} MiB larger; it is refused as a bomb ({position})", MOST_COPIED >> 20)]
    TooManyAliases {
        /// The alias that passed the limit.
        position: Position,
    },
    #[error("more than {most} values and keys; split the document into smaller ones ({position})")]
    TooManyNodes {
        /// So many are possible.
        most: usize,
        /// The one that passed the limit.
        position: Position,
    },
    /// more than one document
    #[error("a second document starts here, but exactly one is expected ({position})")]
    SecondDocument {
        /// Where it starts.
        position: Position,
    },
}

fn position_of(marker: Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}

/// A complete anchored value.
struct Anchored {
    node: Node,
    /// How many levels it adds where it is used.
    height: usize,
    /// What a copy of it adds to the document.
    weight: usize,
    /// How many nodes a copy of it adds.
    nodes: usize,
}

struct Builder<'text> {
    text: &'text str,
    parser: Parser<'text, StrInput<'text>>,
    dialect: Dialect,
    /// By the parser's number of the anchor. An anchor whose value is not complete yet is not here.
    anchors: HashMap<usize, Anchored>,
    copied: usize,
    nodes: usize,
    most_nodes: usize,
}

impl<'text> Builder<'text> {
    fn next(&mut self) -> Result<(Event<'text>, Span), ParseError> {
        match self.parser.next_event() {
            Some(event) => event.map_err(|error| self.syntax(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// Of a tab in the indentation, the parser reports where the value before it starts; people need the tab.
    fn syntax(&self, error: &ScanError) -> ParseError {
        let mut position = position_of(*error.marker());
        if error.info().contains("tab") {
            let indentation = |line: &str| line.chars().take_while(|c| c.is_whitespace()).position(|c| c == '\t');
            let tab = self
                .text
                .lines()
                .enumerate()
                .skip(position.line)
                .find_map(|(index, line)| Some(Position { line: index + 1, column: indentation(line)? + 1 }));
            position = tab.unwrap_or(position);
        }
        ParseError::Syntax { message: error.info().to_owned(), position }
    }

    fn document(&mut self) -> Result<Node, ParseError> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(_) if root.is_some() => {
                    return Err(ParseError::SecondDocument { position: position_of(span.start) });
                }
                Event::StreamStart | Event::Nothing | Event::DocumentStart(_) | Event::DocumentEnd => {}
                value => root = Some(self.node(value, span, 0)?),
            }
        }
        Ok(root.unwrap_or(Node { position: Position { line: 1, column: 1 }, content: Content::Null }))
    }

    fn node(&mut self, event: Event<'text>, span: Span, depth: usize) -> Result<Node, ParseError> {
        let position = position_of(span.start);
        if depth > DEEPEST {
            return Err(ParseError::TooDeep { position });
        }
        self.count(1, position)?;
        let (anchor, content) = match event {
            Event::Alias(anchor) => return self.alias(anchor, position, depth),
            Event::Scalar(text, style, anchor, tag) => {
                (anchor, scalar_content(self.dialect, &text, style, tag.as_deref(), position)?)
            }
            Event::SequenceStart(anchor, tag) => {
                expect_tag(tag.as_deref(), "seq", position)?;
                (anchor, Content::List(self.list(depth)?))
            }
            Event::MappingStart(anchor, tag) => {
                expect_tag(tag.as_deref(), "map", position)?;
                (anchor, Content::Object(self.object(depth)?))
            }
            other => {
                return Err(ParseError::Syntax { message: format!("expected a value, found {other:?}"), position });
            }
        };
        let node = Node { position, content };
        self.anchor(anchor, &node)?;
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, ParseError> {
        let mut nodes = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(nodes),
                (event, span) => nodes.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<IndexMap<String, Node>, ParseError> {
        let mut entries: IndexMap<String, (Position, Node)> = IndexMap::new();
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let position = position_of(span.start);
            let is_merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let key = self.key(event, position)?;
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            if is_merge {
                merged.extend(mergeable(value)?);
                continue;
            }
            match entries.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert((position, value));
                }
                Entry::Occupied(entry) => {
                    let (key, first) = (entry.key().clone(), entry.get().0);
                    return Err(ParseError::DuplicateKey { key, first, second: position });
                }
            }
        }
        let mut object: IndexMap<String, Node> = entries.into_iter().map(|(key, (_, value))| (key, value)).collect();
        // Explicit keys win over merged ones wherever `<<` stands, and earlier merges over later ones.
        for (key, value) in merged.into_iter().flatten() {
            object.entry(key).or_insert(value);
        }
        Ok(object)
    }

    /// A key is the text of a scalar as it is written: `8080`, `yes` and `~` are the keys "8080", "yes" and "~".
    fn key(&mut self, event: Event<'text>, position: Position) -> Result<String, ParseError> {
        self.count(1, position)?;
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let content = scalar_content(self.dialect, &text, style, tag.as_deref(), position)?;
                let typed = original::key_of(&content);
                self.anchor(anchor, &Node { position, content })?;
                match self.dialect {
                    Dialect::Cautious => Ok(text.into_owned()),
                    Dialect::Original => typed.ok_or(ParseError::ComplexKey { position }),
                }
            }
            Event::Alias(anchor) => match self.alias(anchor, position, 0)?.content {
                content if self.dialect == Dialect::Original => {
                    original::key_of(&content).ok_or(ParseError::ComplexKey { position })
                }
                Content::String(text) => Ok(text),
                Content::Boolean(boolean) => Ok(boolean.to_string()),
                Content::Number(number) => Ok(number.to_string()),
                _ => Err(ParseError::ComplexKey { position }),
            },
            _ => Err(ParseError::ComplexKey { position }),
        }
    }

    /// Remembers an anchored value; the parser numbers anchors from 1 and gives 0 to values without one.
    fn anchor(&mut self, anchor: usize, node: &Node) -> Result<(), ParseError> {
        if anchor > 0 {
            let Measured { height, weight, nodes } = measure(node);
            self.copy(weight, node.position)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), height, weight, nodes });
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, position: Position) -> Result<(), ParseError> {
        self.nodes += nodes;
        let most = self.most_nodes;
        if self.nodes > most { Err(ParseError::TooManyNodes { most, position }) } else { Ok(()) }
    }

    fn copy(&mut self, weight: usize, position: Position) -> Result<(), ParseError> {
        self.copied += weight;
        if self.copied > MOST_COPIED { Err(ParseError::TooManyAliases { position }) } else { Ok(()) }
    }

    fn alias(&mut self, anchor: usize, position: Position, depth: usize) -> Result<Node, ParseError> {
        let Anchored { height, weight, nodes, .. } =
            *self.anchors.get(&anchor).ok_or(ParseError::Cycle { position })?;
        if depth + height > DEEPEST {
            return Err(ParseError::TooDeep { position });
        }
        self.copy(weight, position)?;
        self.count(nodes, position)?;
        Ok(self.anchors[&anchor].node.clone())
    }
}

/// How large a value is.
struct Measured {
    height: usize,
    weight: usize,
    nodes: usize,
}

fn measure(node: &Node) -> Measured {
    let leaf = Measured { height: 0, weight: NODE_WEIGHT, nodes: 1 };
    let with = |whole: Measured, child: &Node, key: usize| {
        let child = measure(child);
        Measured {
            height: whole.height.max(child.height + 1),
            weight: whole.weight + child.weight + key,
            nodes: whole.nodes + child.nodes,
        }
    };
    match &node.content {
        Content::String(text) => Measured { weight: NODE_WEIGHT + text.len(), ..leaf },
        Content::List(nodes) => nodes.iter().fold(leaf, |whole, node| with(whole, node, 0)),
        Content::Object(entries) => entries.iter().fold(leaf, |whole, (key, node)| with(whole, node, key.len())),
        _ => leaf,
    }
}

fn mergeable(node: Node) -> Result<Vec<IndexMap<String, Node>>, ParseError> {
    let position = node.position;
    match node.content {
        Content::Object(entries) => Ok(vec![entries]),
        Content::List(nodes) => nodes
            .into_iter()
            .map(|node| match node.content {
                Content::Object(entries) => Ok(entries),
                other => Err(ParseError::Merge { found: other.kind(), position: node.position }),
            })
            .collect(),
        other => Err(ParseError::Merge { found: other.kind(), position }),
    }
}

/// The part of a tag after `tag:yaml.org,2002:`, which is where the standard ones live.
fn standard(tag: &Tag) -> Option<&str> {
    if tag.is_yaml_core_schema() { Some(&tag.suffix) } else { None }
}

fn unknown(tag: &Tag, position: Position) -> ParseError {
    ParseError::Tag { tag: tag.to_string(), position }
}

fn expect_tag(tag: Option<&Tag>, expected: &str, position: Position) -> Result<(), ParseError> {
    match tag {
        Some(tag) if standard(tag) != Some(expected) => Err(unknown(tag, position)),
        _ => Ok(()),
    }
}

fn resolve(dialect: Dialect, text: &str) -> Content {
    match dialect {
        Dialect::Cautious => scalar::resolve(text),
        Dialect::Original => original::resolve(text),
    }
}

fn scalar_content(
    dialect: Dialect,
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    position: Position,
) -> Result<Content, ParseError> {
    // Clients write it as BOSH's does; it is a director that refuses it.
    if dialect == Dialect::Cautious && text.contains('\0') {
        let message = "a text has a zero byte, which neither programs nor databases take; leave it out".to_owned();
        return Err(ParseError::Syntax { message, position });
    }
    let Some(tag) = tag else {
        let plain = style == ScalarStyle::Plain;
        return Ok(if plain { resolve(dialect, text) } else { Content::String(text.to_owned()) });
    };
    // A lone `!` is the way to say "not resolved".
    if tag.handle.is_empty() && tag.suffix == "!" {
        return Ok(Content::String(text.to_owned()));
    }
    let resolved = resolve(dialect, text);
    match (standard(tag), resolved) {
        (Some("str"), _) => Ok(Content::String(text.to_owned())),
        (Some("null"), Content::Null) => Ok(Content::Null),
        (Some("bool"), boolean @ Content::Boolean(_)) => Ok(boolean),
        (Some("int" | "float"), number @ Content::Number(_)) => Ok(number),
        _ => Err(unknown(tag, position)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(text: &str) -> Value {
        Document::parse(text).unwrap().node().to_json()
    }

    fn refusal(text: &str) -> String {
        Document::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_manifest_keeps_its_order_and_its_quoted_words() {
        let value = read("name: shop\nversion: '1.10'\nazs: [z1, \"on\"]\nempty:\nscript: |\n  a\n  b\n");
        let expected =
            json!({"name": "shop", "version": "1.10", "azs": ["z1", "on"], "empty": null, "script": "a\nb\n"});
        assert_eq!(value, expected);
        assert_eq!(value.to_string(), expected.to_string(), "in the same order");
    }

    #[test]
    fn nothing_is_null_and_json_is_yaml() {
        assert_eq!(read(""), Value::Null);
        assert_eq!(read("---\n# nothing\n"), Value::Null);
        assert_eq!(read(r#"{"a": [1, 2.5, null, "x\u00e9"], "b": {}}"#), json!({"a": [1, 2.5, null, "xé"], "b": {}}));
        assert_eq!(read("\u{feff}a: 1"), json!({"a": 1}));
    }

    #[test]
    fn keys_are_text_whatever_they_look_like() {
        assert_eq!(read("8080: a\nyes: b\n~: c\n"), json!({"8080": "a", "yes": "b", "~": "c"}));
        assert_eq!(refusal("? [a, b]\n: c\n"), "a key must be a word, not a list or mapping (line 1, column 3)");
    }

    #[test]
    fn merge_keys_fill_in_what_is_not_given() {
        let text =
            "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  x: 9\n  <<: [*a, *b]\nd: {<<: *b, y: 7}\n\"<<\": text\n";
        let value = read(text);
        assert_eq!(value["c"], json!({"x": 9, "y": 1, "z": 2}));
        assert_eq!(value["d"], json!({"y": 7, "z": 2}));
        assert_eq!(value["<<"], "text", "quoted, it is an ordinary key");
        assert_eq!(refusal("<<: 3"), "'<<' merges a mapping or a list of mappings, not a number (line 1, column 5)");
    }

    #[test]
    fn a_key_given_twice_is_refused_with_both_places() {
        assert_eq!(
            refusal("name: a\njobs: []\nname: b\n"),
            "the key 'name' at line 3, column 1 was already given at line 1, column 1; remove one of them"
        );
    }

    #[test]
    fn a_bomb_is_refused_before_it_goes_off() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let previous = format!("*a{}, ", level - 1).repeat(10);
            text.push_str(&format!("a{level}: &a{level} [{}]\n", previous.trim_end_matches(", ")));
        }
        assert!(refusal(&text).contains("refused as a bomb (line "), "{}", refusal(&text));
        let long = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(1 << 20), ["*a"; 100].join(", "));
        assert!(refusal(&long).contains("bomb (line 2"), "few nodes but long text");
    }

    #[test]
    fn a_document_of_very_many_values_is_refused() {
        let read =
            |text: &str| Document::parse_within(text, Dialect::Cautious, 2_000).map_err(|error| error.to_string());
        let said = "more than 2000 values and keys; split the document into smaller ones (line ";
        let flow = format!("name: x\na: [{}a]\n", "a,".repeat(2_000));
        let block: String = (0..1_001).map(|number| format!("k{number}:\n")).collect();
        // What aliases copy counts as well.
        let copied = format!("a: &a [{}]\nb: [{}]\n", ["~"; 100].join(","), ["*a"; 20].join(","));
        for text in [flow, block, copied] {
            assert!(read(&text).is_err_and(|error| error.starts_with(said)), "{:?}", read(&text));
        }
        read(&format!("a: [{}a]\n", "a,".repeat(1_900))).unwrap();
    }

    #[test]
    fn depth_is_limited_also_through_aliases() {
        assert!(refusal(&"[".repeat(5_000)).contains("line 1"));
        assert!(refusal(&format!("{}{}", "[".repeat(150), "]".repeat(150))).starts_with("nested more than 100 levels"));
        let mut text = String::from("a0: &a0 [x]\n");
        for level in 1..150 {
            text.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
        }
        assert!(refusal(&text).starts_with("nested more than 100 levels"));
    }

    #[test]
    fn an_alias_to_itself_or_to_nothing_is_refused() {
        assert!(refusal("a: &a [*a]").starts_with("this alias stands inside the value"));
        assert!(refusal("a: *b").contains("line 1, column 4"), "{}", refusal("a: *b"));
    }

    #[test]
    fn mistakes_are_reported_with_line_and_column() {
        assert!(refusal("a: 1\n\tb: 2\n").contains("tab (line 2, column 1)"));
        assert!(refusal("a: [1, 2\nb: 3\n").contains("line "));
        assert!(refusal("a: 1\n---\nb: 2\n").starts_with("a second document starts here"));
        assert_eq!(
            refusal("a: !ruby/object:Foo {}"),
            "the tag '!ruby/object:Foo' is not understood; remove it (line 1, column 4)"
        );
    }

    #[test]
    fn standard_tags_are_obeyed() {
        assert_eq!(read("[!!str 12, !!int \"12\", ! 12, !!map {}, !!seq []]"), json!(["12", 12, "12", {}, []]));
        assert!(refusal("!!int twelve").contains("not understood"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[\\[\\]{}:,&*!|>'\"%@`#?\\-~<a-c0-9 \t\n\r\u{feff}é\\\\]{0,60}") {
            let _ = Document::parse(&text);
        }
    }
}
