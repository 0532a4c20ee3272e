//! YAML as the ecosystem writes it: deployment manifests, cloud configs, stemcell manifests.
//!
//! ```
//! let document = windlass_manifest::Document::parse("name: shop\nazs: [z1, z2]\nfast: yes\n")?;
//! let root = document.root();
//! assert_eq!(root.field("name")?.string()?, "shop");
//! assert_eq!(root.field("fast")?.boolean()?, true);
//! let error = root.field("azs")?.string().unwrap_err();
//! assert_eq!(error.to_string(), "azs: expected a string, found a list (line 2)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`parse`]: text to a [`Document`]; anchors, merge keys, and the limits that keep a hostile document small.
//! - [`node`]: the tree, each node with its line and column.
//! - [`scalar`]: what an unquoted word means (YAML 1.1, where the Ruby and Go readers of the ecosystem agree).
//! - [`cursor`]: [`At`], a node with its path, for reading field by field with errors that name path and line.
//! - [`fields`], [`findings`]: reading whole documents without stopping at the first mistake.
//! - [`decode`]: the same errors for whole `serde` types.
//! - [`emit`]: [`to_yaml`], whose output every reader reads back to the same value.
//! - [`original`]: the same, but exactly as the original's command line reads and writes it.
//! - [`patch`]: operations files (`-o`), and the paths in them.
//! - [`names`]: what may name something new.
//! - [`mod@interpolate`]: values in the places of `((variables))`.
//! - [`placeholders`]: those of them that are left for a director.

pub mod cursor;
pub mod decode;
pub mod emit;
pub mod fields;
pub mod findings;
pub mod interpolate;
pub mod names;
pub mod node;
pub mod original;
pub mod parse;
pub mod patch;
pub mod placeholders;
pub mod scalar;

pub use cursor::{At, Problem, Problems};
pub use emit::to_yaml;
pub use fields::Fields;
pub use findings::{Finding, Findings, Place, Placed};
pub use node::{Content, Node, Position};
pub use parse::{Document, ParseError};

pub type Object = serde_json::Map<String, serde_json::Value>;
