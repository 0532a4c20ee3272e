//! Which packages need which.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::manifest::Package;

/// The key of a compiled package names what it needs once for each way that leads there, so both the steps and the ways are
/// bounded.
const DEEPEST: usize = 100;
const MOST: usize = 10_000;

/// What the keys of all packages of a release may have together. Those of public releases have some hundred KiB.
const LARGEST_KEYS: usize = 16 << 20;

/// The packages of one version of a release, and what each needs.
#[derive(Debug, Clone, Default)]
pub struct PackageGraph {
    packages: BTreeMap<String, Node>,
    /// How many bytes the keys have that were made.
    made: Arc<AtomicUsize>,
}

#[derive(Debug, Clone)]
struct Node {
    version: String,
    dependencies: BTreeSet<String>,
}

/// why packages cannot be compiled in any order
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// one needs what is not there
    #[error(
        "the package '{package}' needs '{needs}', which the release does not have; add it, or remove it from 'dependencies'"
    )]
    Unknown { package: String, needs: String },
    /// they need each other
    #[error("packages need each other: {}; remove one of these dependencies", .0.join(" => "))]
    Cycle(Vec<String>),
    /// what one needs cannot be written down
    #[error(
        "the package '{0}' needs others over more than {DEEPEST} steps or in more than {MOST} ways; remove some dependencies"
    )]
    TooDeep(String),
    /// what all of them need cannot be written down
    #[error("all that packages of the release need has more than 16 MiB, '{0}' among them; remove some dependencies")]
    TooMuch(String),
}

impl PackageGraph {
    /// The graph of these packages, in which each dependency is known and none needs itself.
    pub fn new<'a>(packages: impl IntoIterator<Item = &'a Package>) -> Result<Self, GraphError> {
        let node = |package: &Package| Node {
            version: package.version.clone(),
            dependencies: package.dependencies.iter().cloned().collect(),
        };
        let packages = packages.into_iter().map(|package| (package.name.clone(), node(package))).collect();
        let graph = Self { packages, made: Arc::default() };
        for (package, node) in &graph.packages {
            if let Some(needs) = node.dependencies.iter().find(|needs| !graph.packages.contains_key(*needs)) {
                return Err(GraphError::Unknown { package: package.clone(), needs: needs.clone() });
            }
        }
        graph.order(graph.packages.keys().map(String::as_str))?;
        Ok(graph)
    }

    /// These packages and all that they need, each after what it needs. Names that are not there are left out.
    pub fn order<'a>(&self, wanted: impl IntoIterator<Item = &'a str>) -> Result<Vec<&str>, GraphError> {
        let mut order = Vec::new();
        let mut done = BTreeSet::new();
        for name in wanted {
            self.visit(name, &mut Vec::new(), &mut done, &mut order)?;
        }
        Ok(order)
    }

    /// Without recursion: a release of strangers may need as many packages in a row as it likes.
    fn visit<'a>(
        &'a self,
        name: &str,
        path: &mut Vec<(&'a str, std::collections::btree_set::Iter<'a, String>)>,
        done: &mut BTreeSet<&'a str>,
        order: &mut Vec<&'a str>,
    ) -> Result<(), GraphError> {
        let Some((name, node)) = self.packages.get_key_value(name) else { return Ok(()) };
        if done.contains(name.as_str()) {
            return Ok(());
        }
        path.push((name, node.dependencies.iter()));
        while let Some((current, rest)) = path.last_mut() {
            let current: &'a str = current;
            match rest.next() {
                None => {
                    path.pop();
                    done.insert(current);
                    order.push(current);
                }
                Some(next) if done.contains(next.as_str()) => {}
                Some(next) => {
                    if let Some(start) = path.iter().position(|(name, _)| name == next) {
                        let cycle = path[start..].iter().map(|(name, _)| (*name).to_owned());
                        return Err(GraphError::Cycle(cycle.chain([next.clone()]).collect()));
                    }
                    if let Some((name, node)) = self.packages.get_key_value(next) {
                        path.push((name, node.dependencies.iter()));
                    }
                }
            }
        }
        Ok(())
    }

    /// What a package needs directly.
    pub fn dependencies(&self, name: &str) -> impl Iterator<Item = &str> {
        self.packages.get(name).into_iter().flat_map(|node| node.dependencies.iter().map(String::as_str))
    }

    fn check_size(&self, order: &[&str]) -> Result<(), GraphError> {
        let mut sizes: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for package in order {
            let (mut ways, mut depth) = (1_usize, 0);
            for (inner, steps) in self.dependencies(package).filter_map(|needs| sizes.get(needs)) {
                ways = ways.saturating_add(*inner);
                depth = depth.max(steps + 1);
            }
            if ways > MOST || depth > DEEPEST {
                return Err(GraphError::TooDeep((*package).to_owned()));
            }
            sizes.insert(package, (ways, depth));
        }
        Ok(())
    }

    /// By which compiled packages are found again: what it was compiled with, as BOSH writes it.
    pub fn dependency_key(&self, name: &str) -> Result<String, GraphError> {
        let order = self.order([name])?;
        self.check_size(&order)?;
        let mut keys: BTreeMap<&str, Value> = BTreeMap::new();
        let mut own = Value::Array(Vec::new());
        for package in order {
            let Some(node) = self.packages.get(package) else { continue };
            let inner: Vec<Value> =
                node.dependencies.iter().filter_map(|needs| keys.get(needs.as_str()).cloned()).collect();
            own = Value::Array(inner.clone());
            let mut key = vec![json!(package), json!(node.version)];
            if !inner.is_empty() {
                key.push(Value::Array(inner));
            }
            keys.insert(package, Value::Array(key));
        }
        let key = own.to_string();
        // Each may be as long as the manifest, and a manifest has thousands of packages.
        match self.made.fetch_add(key.len(), Ordering::Relaxed) + key.len() > LARGEST_KEYS {
            true => Err(GraphError::TooMuch(name.to_owned())),
            false => Ok(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(edges: &[(&str, &[&str])]) -> Vec<Package> {
        let package = |(name, needs): &(&str, &[&str])| Package {
            name: (*name).to_owned(),
            version: format!("v{name}"),
            fingerprint: format!("v{name}"),
            sha1: "00".to_owned(),
            dependencies: needs.iter().map(|name| (*name).to_owned()).collect(),
        };
        edges.iter().map(package).collect()
    }

    /// A manifest of a megabyte would become gigabytes of keys.
    #[test]
    fn keys_of_thousands_of_packages_that_need_thousands_are_refused() {
        let base: Vec<String> = (0..500).map(|number| format!("base-{number}")).collect();
        let mut all: Vec<Package> = base.iter().flat_map(|name| packages(&[(name.as_str(), &[][..])])).collect();
        for number in 0..2000 {
            let top = packages(&[(format!("top-{number}").as_str(), &[][..])]).remove(0);
            all.push(Package { dependencies: base.clone(), ..top });
        }
        let graph = PackageGraph::new(&all).unwrap();
        let keys: Result<Vec<String>, GraphError> = all.iter().map(|it| graph.dependency_key(&it.name)).collect();
        assert!(matches!(keys, Err(GraphError::TooMuch(_))));
    }

    #[test]
    fn packages_come_after_what_they_need_and_are_found_by_it() {
        let packages = packages(&[("app", &["web", "base"]), ("web", &["base"]), ("base", &[]), ("other", &[])]);
        let graph = PackageGraph::new(&packages).unwrap();
        assert_eq!(graph.order(["app"]).unwrap(), ["base", "web", "app"]);
        assert_eq!(graph.order(["web", "other", "nobody"]).unwrap(), ["base", "web", "other"]);
        assert_eq!(graph.dependencies("app").collect::<Vec<_>>(), ["base", "web"]);
        assert_eq!(graph.dependency_key("base").unwrap(), "[]");
        assert_eq!(graph.dependency_key("app").unwrap(), r#"[["base","vbase"],["web","vweb",[["base","vbase"]]]]"#);
    }

    #[test]
    fn what_cannot_be_compiled_is_named() {
        let unknown = PackageGraph::new(&packages(&[("app", &["nobody"])])).unwrap_err();
        let expected = "the package 'app' needs 'nobody', which the release does not have; add it, or remove it from 'dependencies'";
        assert_eq!(unknown.to_string(), expected);
        let cycle = PackageGraph::new(&packages(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])])).unwrap_err();
        assert_eq!(cycle.to_string(), "packages need each other: b => c => b; remove one of these dependencies");
    }

    #[test]
    fn a_long_row_of_packages_is_no_harm() {
        let names: Vec<String> = (0..20_000).map(|number| format!("p{number:05}")).collect();
        let edges: Vec<Package> = names
            .iter()
            .enumerate()
            .map(|(number, name)| Package {
                name: name.clone(),
                version: "1".into(),
                fingerprint: "1".into(),
                sha1: "00".into(),
                dependencies: names.get(number + 1).cloned().into_iter().collect(),
            })
            .collect();
        let graph = PackageGraph::new(&edges).unwrap();
        assert_eq!(graph.order(["p00000"]).unwrap().len(), names.len());
        assert!(matches!(graph.dependency_key("p00000"), Err(GraphError::TooDeep(_))));
        assert!(graph.dependency_key("p19950").is_ok());
    }
}
