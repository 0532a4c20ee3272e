//! The cpi config: several CPIs, each with its own properties.

use std::path::PathBuf;

use windlass_contract::Object;
use windlass_manifest::Document;

use super::fields::{Fields, text};
use super::findings::Findings;
use crate::names::CpiName;

/// All CPIs of all cpi configs; empty when there is none, and one default CPI serves every zone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CpiConfig {
    /// In the order of the document.
    pub cpis: Vec<CpiEntry>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CpiEntry {
    /// What zones name.
    pub name: String,
    /// Such as `aws`.
    pub kind: String,
    /// The executable; none for where releases install one of that type, or for a cloud that is built in.
    pub exec_path: Option<PathBuf>,
    /// What the executable is started with.
    pub arguments: Vec<String>,
    /// A file that the executable is started with.
    pub config: Option<PathBuf>,
    /// Go into the context of every request; they hold secrets.
    pub properties: Object,
    /// Earlier names of the same CPI.
    pub migrated_from: Vec<CpiName>,
}

impl CpiEntry {
    /// Its name, and the earlier ones.
    pub fn names(&self) -> Vec<CpiName> {
        std::iter::once(CpiName::Named(self.name.clone())).chain(self.migrated_from.iter().cloned()).collect()
    }

    /// Whether `cpi` is its name, or was.
    pub fn is(&self, cpi: &CpiName) -> bool {
        self.name == cpi.as_str() || self.migrated_from.contains(cpi)
    }
}

const CPI_KEYS: [&str; 7] = ["name", "type", "exec_path", "config", "arguments", "properties", "migrated_from"];

/// In an argument, the path of the configuration.
pub const CONFIG_PATH: &str = "{config}";

impl CpiConfig {
    /// Each CPI's name, with the earlier names of the same one.
    pub fn names(&self) -> Vec<Vec<CpiName>> {
        self.cpis.iter().map(CpiEntry::names).collect()
    }

    /// Reads and adds one config.
    pub fn read(&mut self, document: &Document, findings: &mut Findings) {
        let Some(mut root) = Fields::of(&document.root(), &["cpis"], findings) else { return };
        root.required("cpis");
        for at in root.list("cpis") {
            let Some(mut fields) = Fields::of(&at, &CPI_KEYS, root.findings()) else { continue };
            let (name, kind) = (fields.name(), fields.text("type"));
            let exec_path: Option<PathBuf> = fields.optional_text("exec_path").map(|path| path.value.into());
            let config = fields.optional_text("config");
            let arguments = fields.texts("arguments");
            if let Some(config) = config.as_ref().filter(|_| exec_path.is_none()) {
                fields.findings().push(config.problem("is for an executable that 'exec_path' names"));
            }
            if let Some(argument) = arguments.iter().find(|argument| argument.value.contains(CONFIG_PATH))
                && config.is_none()
            {
                fields.findings().push(
                    argument.problem(format!(
                        "'{CONFIG_PATH}' stands for the path that 'config' says; there is no 'config'"
                    )),
                );
            }
            let config = config.map(|path| path.value.into());
            let arguments = arguments.into_iter().map(|argument| argument.value).collect();
            let properties = fields.object("properties");
            let mut migrated_from = Vec::new();
            for earlier in fields.list("migrated_from") {
                let Some(mut fields) = Fields::of(&earlier, &["name"], fields.findings()) else { continue };
                // The empty name is that of the default CPI, from before there was a cpi config.
                let name = fields.required("name").map(|at| text(&at));
                migrated_from.extend(name.and_then(|name| fields.check(name)).map(CpiName::from));
            }
            let (Some(name), Some(kind)) = (name, kind) else { continue };
            if self.cpis.iter().any(|other| other.name == name.value) {
                root.findings().push(name.problem(format!("the CPI '{}' is there already", name.value)));
                continue;
            }
            let (name, kind) = (name.value, kind.value);
            self.cpis.push(CpiEntry { name, kind, exec_path, arguments, config, properties, migrated_from });
        }
    }

    /// The CPI of a zone that names `cpi`, or names none.
    pub fn of(&self, cpi: Option<&str>) -> Result<CpiName, String> {
        match cpi {
            None if self.cpis.is_empty() => Ok(CpiName::Default),
            None => Err("names no 'cpi', although there is a cpi config".to_owned()),
            Some(name) if self.cpis.iter().any(|entry| entry.name == name) => Ok(CpiName::Named(name.to_owned())),
            Some(name) if self.cpis.is_empty() => {
                Err(format!("names the CPI '{name}', but there is no cpi config; use update-cpi-config"))
            }
            Some(name) => {
                let known: Vec<_> = self.cpis.iter().map(|entry| entry.name.as_str()).collect();
                Err(format!("names the CPI '{name}', but the cpi config has only {}", known.join(", ")))
            }
        }
    }

    /// Whether both names mean the same CPI: one may be an earlier name of the other.
    pub fn are_same(&self, one: &CpiName, other: &CpiName) -> bool {
        one == other || self.cpis.iter().any(|entry| entry.is(one) && entry.is(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> (CpiConfig, Findings) {
        let (mut config, mut findings) = (CpiConfig::default(), Findings::new());
        config.read(&Document::parse(yaml).unwrap(), &mut findings);
        (config, findings)
    }

    #[test]
    fn cpis_are_found_by_their_names_old_and_new() {
        let (config, findings) = read(
            "cpis:\n- name: a\n  type: local\n  exec_path: bin/cpi\n  arguments: [-c, x]\n  properties: {region: one}\n  migrated_from: [{name: ''}]\n- {name: b, type: sim}\n",
        );
        assert!(findings.is_clean(), "{findings}");
        assert_eq!(config.cpis[0].arguments, ["-c", "x"]);
        assert_eq!(config.of(Some("a")).unwrap(), CpiName::Named("a".into()));
        let is_default = |name: &str| config.are_same(&name.into(), &CpiName::Default);
        assert!(is_default("a") && !is_default("b"));
        assert!(config.of(None).unwrap_err().contains("names no 'cpi'"));
        assert!(config.of(Some("c")).unwrap_err().contains("has only a, b"));
        assert!(CpiConfig::default().of(Some("c")).unwrap_err().contains("update-cpi-config"));
    }

    #[test]
    fn a_name_twice_is_refused() {
        let (_, findings) = read("cpis: [{name: a, type: x}, {name: a, type: y}, {type: z}]\n");
        assert!(findings.to_string().contains("cpis[1].name: the CPI 'a' is there already"), "{findings}");
        assert!(findings.to_string().contains("cpis[2].name: is required"), "{findings}");
        assert!(!read("{}").1.is_clean());
    }

    #[test]
    fn a_configuration_is_for_an_executable_and_arguments_name_one_that_is_there() {
        let (config, findings) =
            read("cpis: [{name: a, type: x, exec_path: bin/cpi, config: a.json, arguments: ['-c={config}']}]\n");
        assert!(findings.is_clean(), "{findings}");
        assert_eq!(config.cpis[0].config.as_deref(), Some(std::path::Path::new("a.json")));
        let (_, findings) = read(
            "cpis: [{name: a, type: sim, config: a.json}, {name: b, type: x, exec_path: bin/cpi, arguments: ['{config}']}]\n",
        );
        let told = findings.to_string();
        assert!(told.contains("cpis[0].config: is for an executable that 'exec_path' names"), "{told}");
        assert!(told.contains("cpis[1].arguments[0]: '{config}' stands for the path that 'config' says"), "{told}");
    }
}
