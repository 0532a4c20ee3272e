//! The clouds that are built in: their CPIs are our own executable, and their configurations are written by the director.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use windlass_cpi_client::{CpiCommand, Environment};
use windlass_durable::file;

use crate::settings::{CpiChoice, Isolation};
use crate::state_dir::StateDir;

/// why a cloud that is built in cannot be used
#[derive(Debug, thiserror::Error)]
pub enum BuiltInError {
    /// the configuration cannot be read or written
    #[error("cannot use the CPI's configuration {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// no release was installed
    #[error(
        "no CPI '{name}' is installed for this director; 'windlass cpi list' shows those that are, 'windlass cpi install' adds one"
    )]
    NotInstalled {
        /// As the settings call it.
        name: String,
    },
    /// another director could not take over
    #[error(
        "the embedded cloud is on one machine, so it cannot be used with shared_dir, where another director may take over"
    )]
    OnOneMachine,
    /// the configuration is for something else
    #[error("the CPI's configuration {} has no object 'cloud.properties.{plugin}'; write it as cpi.json is written", path.display())]
    NotForThis { path: PathBuf, plugin: &'static str },
}

/// How the CPI is started; for a cloud that is built in, `own` is our executable, and its configuration is written first.
pub(crate) fn command(
    choice: &CpiChoice,
    own: &CpiCommand,
    isolation: Isolation,
    folders: &StateDir,
) -> Result<CpiCommand, BuiltInError> {
    let (plugin, given, defaults) = match choice {
        CpiChoice::Executable { exec, arguments } => {
            let arguments = arguments.iter().map(Into::into).collect();
            return Ok(CpiCommand { executable: exec.clone(), arguments, environment: Environment::Director });
        }
        CpiChoice::Installed { name } => {
            let launcher = folders.installed_cpis().launcher(name);
            let executable = launcher.ok_or_else(|| BuiltInError::NotInstalled { name: name.clone() })?;
            return Ok(CpiCommand { executable, arguments: Vec::new(), environment: Environment::Director });
        }
        CpiChoice::Local { config } => {
            ("local", config, json!({"state_dir": folders.cloud(), "isolation": isolation.as_str()}))
        }
        CpiChoice::Incus { config } => ("incus", config, json!({"state_dir": folders.cluster_cloud()})),
        CpiChoice::Sim { config } => ("sim", config, json!({"state_dir": folders.simulated_cloud()})),
    };
    let mut config = match given {
        Some(path) => read(path)?,
        None => json!({"cloud": {"plugin": plugin, "properties": {plugin: {}}}}),
    };
    let properties = config.pointer_mut(&format!("/cloud/properties/{plugin}")).and_then(Value::as_object_mut);
    let Some(properties) = properties else {
        return Err(BuiltInError::NotForThis { path: given.clone().unwrap_or_default(), plugin });
    };
    for (key, value) in defaults.as_object().into_iter().flatten() {
        properties.entry(key.as_str()).or_insert_with(|| value.clone());
    }
    let path = folders.cpi_config(plugin);
    file::write_json(&path, &config, file::PRIVATE)
        .map_err(|source| BuiltInError::File { path: path.clone(), source })?;
    let mut command = own.clone();
    command.arguments.extend([plugin, "--config"].map(Into::into));
    command.arguments.push(path.into());
    Ok(command)
}

fn read(path: &Path) -> Result<Value, BuiltInError> {
    let failed = |source| BuiltInError::File { path: path.to_owned(), source };
    let bytes = std::fs::read(path).map_err(failed)?;
    serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration that says one thing keeps it, and everything else is as without one.
    #[test]
    fn what_a_configuration_leaves_out_is_filled_in() {
        let folder = tempfile::tempdir().unwrap();
        let folders = StateDir::open(&folder.path().join("state")).unwrap();
        let own =
            CpiCommand { executable: "windlass-cpi".into(), arguments: vec![], environment: Environment::Director };
        let given = folder.path().join("cpi.json");
        std::fs::write(&given, r#"{"cloud":{"plugin":"sim","properties":{"sim":{"latency":{"create_vm":5}}}}}"#)
            .unwrap();
        let choice = CpiChoice::Sim { config: Some(given.clone()) };
        let started = command(&choice, &own, Isolation::Auto, &folders).unwrap();
        assert_eq!(started.arguments[..2], ["sim", "--config"]);
        let written: Value = serde_json::from_slice(&std::fs::read(folders.cpi_config("sim")).unwrap()).unwrap();
        let sim = &written["cloud"]["properties"]["sim"];
        assert_eq!(sim["latency"]["create_vm"], 5);
        assert_eq!(sim["state_dir"], json!(folders.simulated_cloud()));
        let error = command(&CpiChoice::Local { config: Some(given) }, &own, Isolation::Auto, &folders).unwrap_err();
        assert!(error.to_string().contains("cloud.properties.local"), "{error}");
        let executable = CpiChoice::named("/opt/cpi", None, vec!["-v".into()]);
        assert_eq!(command(&executable, &own, Isolation::Auto, &folders).unwrap().executable, Path::new("/opt/cpi"));
    }
}
