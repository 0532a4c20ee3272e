//! The files of all jobs of a VM together: they share one space of names, and depend on each other.

use std::collections::BTreeMap;

use super::{MonitError, Service, parse};

/// All services of a VM. Names are unique, and every service depends on others that are there, not on itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fleet {
    services: BTreeMap<String, Service>,
    /// The services that depend on each service.
    dependants: BTreeMap<String, Vec<String>>,
    /// Clauses that have no effect, with their files, for the log.
    pub ignored: Vec<String>,
}

/// why the files of a VM cannot be used together
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// a file is not understood
    #[error(transparent)]
    File(#[from] MonitError),
    /// two services have one name
    #[error("'{name}' is checked twice, in {first} and in {second}: rename one of them in its job")]
    Twice {
        name: String,
        /// The one file.
        first: String,
        second: String,
    },
    /// it depends on nobody
    #[error("{file}: '{name}' depends on '{missing}', which no job of this VM checks")]
    Missing {
        file: String,
        name: String,
        /// What it depends on.
        missing: String,
    },
    /// services wait for each other
    #[error("these services depend on each other, so that none could be started first: {}", .0.join(" => "))]
    Cycle(Vec<String>),
    #[error("there are {0} services, and no more than {MOST_SERVICES} are taken")]
    TooMany(usize),
}

const MOST_SERVICES: usize = 10_000;

impl Fleet {
    /// The services of `files`, each a name and a text.
    pub fn read<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, FleetError> {
        let mut services = BTreeMap::new();
        let mut origins: BTreeMap<String, String> = BTreeMap::new();
        let mut ignored = Vec::new();
        for (file, text) in files {
            let read = parse(file, text)?;
            ignored.extend(read.ignored.into_iter().map(|clause| format!("{file}, {clause}")));
            for service in read.services {
                if let Some(first) = origins.insert(service.name.clone(), file.to_owned()) {
                    return Err(FleetError::Twice { name: service.name, first, second: file.to_owned() });
                }
                services.insert(service.name.clone(), service);
            }
        }
        if services.len() > MOST_SERVICES {
            return Err(FleetError::TooMany(services.len()));
        }
        for service in services.values() {
            if let Some(missing) = service.depends.iter().find(|name| !services.contains_key(*name)) {
                let (name, missing) = (service.name.clone(), missing.clone());
                return Err(FleetError::Missing { file: origins[&name].clone(), name, missing });
            }
        }
        let mut dependants: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for service in services.values() {
            for on in &service.depends {
                dependants.entry(on.clone()).or_default().push(service.name.clone());
            }
        }
        let fleet = Self { services, dependants, ignored };
        match fleet.cycle() {
            Some(cycle) => Err(FleetError::Cycle(cycle)),
            None => Ok(fleet),
        }
    }

    /// All of them, by name.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    pub fn get(&self, name: &str) -> Option<&Service> {
        self.services.get(name)
    }

    /// Those that depend on `name` themselves.
    pub fn dependants(&self, name: &str) -> impl Iterator<Item = &Service> {
        self.dependants.get(name).into_iter().flatten().filter_map(|name| self.services.get(name))
    }

    /// Services that wait for each other: what is left when those that wait for nobody are taken away again and again.
    fn cycle(&self) -> Option<Vec<String>> {
        let mut left: BTreeMap<&str, &Service> = self.services.iter().map(|(name, it)| (name.as_str(), it)).collect();
        loop {
            let before = left.len();
            let free: Vec<&str> = left
                .values()
                .filter(|service| !service.depends.iter().any(|on| left.contains_key(on.as_str())))
                .map(|service| service.name.as_str())
                .collect();
            for name in free {
                left.remove(name);
            }
            if left.is_empty() {
                return None;
            }
            if left.len() == before {
                break;
            }
        }
        let mut path = vec![*left.keys().next()?];
        loop {
            let next = left[path[path.len() - 1]].depends.iter().find(|on| left.contains_key(on.as_str()))?;
            if let Some(start) = path.iter().position(|seen| seen == next) {
                let circle = path[start..].iter().copied().chain([next.as_str()]);
                return Some(circle.map(str::to_owned).collect());
            }
            path.push(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, depends: &str) -> String {
        format!("check process {name} pidfile /run/{name}.pid {depends}\n")
    }

    fn read(files: &[(&str, String)]) -> Result<Fleet, FleetError> {
        Fleet::read(files.iter().map(|(name, text)| (*name, text.as_str())))
    }

    #[test]
    fn services_of_one_name_are_refused_and_both_files_are_named() {
        let error = read(&[("a", check("web", "")), ("b", check("web", ""))]).unwrap_err();
        assert_eq!(error.to_string(), "'web' is checked twice, in a and in b: rename one of them in its job");
    }

    #[test]
    fn services_depend_on_each_other_across_files_but_not_in_circles() {
        let fleet = read(&[("a", check("web", "depends on db")), ("b", check("db", ""))]).unwrap();
        assert_eq!(fleet.dependants("db").map(|service| service.name.as_str()).collect::<Vec<_>>(), ["web"]);
        let error = read(&[("a", check("web", "depends on db"))]).unwrap_err();
        assert_eq!(error.to_string(), "a: 'web' depends on 'db', which no job of this VM checks");
        let circle = check("a", "depends on b") + &check("b", "depends on c") + &check("c", "depends on b");
        let error = read(&[("x", circle)]).unwrap_err();
        assert!(error.to_string().ends_with(": b => c => b"), "{error}");
    }
}
