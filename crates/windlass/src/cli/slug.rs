//! Names of things with a slash in them.

use std::fmt;
use std::str::FromStr;

use windlass_director_client::escape;

/// NAME/VERSION.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slug {
    pub(crate) name: String,
    pub(crate) version: String,
}

impl FromStr for Slug {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, version) = halves(text).ok_or("expected NAME/VERSION, as 'windlass stemcells' lists them")?;
        Ok(Self { name, version })
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.version)
    }
}

/// GROUP/ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) group: String,
    /// A number or a uuid.
    pub(crate) id: String,
}

impl Instance {
    /// As a part of a URL's path.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", escape(&self.group), escape(&self.id))
    }
}

impl FromStr for Instance {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (group, id) = halves(text).ok_or("expected GROUP/ID, as 'windlass instances' lists them")?;
        Ok(Self { group, id })
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.id)
    }
}

fn halves(text: &str) -> Option<(String, String)> {
    let (first, second) = text.split_once('/')?;
    (!first.is_empty() && !second.is_empty()).then(|| (first.to_owned(), second.to_owned()))
}

/// GROUP or GROUP/ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    Group(String),
    Instance(Instance),
}

impl FromStr for Selection {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.contains('/') {
            true => text.parse().map(Self::Instance),
            false if text.is_empty() => Err("expected GROUP or GROUP/ID, as 'windlass instances' lists them"),
            false => Ok(Self::Group(text.to_owned())),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => f.write_str(group),
            Self::Instance(instance) => instance.fmt(f),
        }
    }
}

/// As a part of a URL's path; `*` for everything.
pub(crate) fn selected_path(selection: Option<&Selection>) -> String {
    match selection {
        None => "*".to_owned(),
        Some(Selection::Group(group)) => escape(group),
        Some(Selection::Instance(instance)) => instance.path(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stemcell_is_named_with_its_version() {
        assert_eq!("a/1.2".parse(), Ok(Slug { name: "a".into(), version: "1.2".into() }));
        assert!("a".parse::<Slug>().is_err());
        assert!("a/".parse::<Slug>().is_err());
    }

    #[test]
    fn everything_a_group_or_one_instance_can_be_selected() {
        let path = |text: &str| selected_path(Some(&text.parse().unwrap()));
        assert_eq!(selected_path(None), "*");
        assert_eq!(path("db"), "db");
        assert_eq!(path("db/3f"), "db/3f");
        assert_eq!(path("db/../x"), "db/..%2Fx");
        assert!("".parse::<Selection>().is_err());
        assert!("db/".parse::<Selection>().is_err());
    }
}
