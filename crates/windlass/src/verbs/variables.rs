//! `windlass variables`: the variables of a deployment that the director knows. `import-variables` and `export-variables`: their values,
//! from and to the files of `--vars-store`.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass_director_client::answers::{Info, Variable};
use windlass_director_client::{escape, query};
use windlass_durable::file;
use windlass_manifest::original;

use crate::failure::Failure;
use crate::interpolation;
use crate::session::{Session, While};
use crate::table::Table;

pub(super) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let path = format!("/deployments/{}/variables", escape(&deployment));
    let mut variables = session.director.get::<Vec<Variable>>(&path).await.while_("listing variables")?;
    variables.sort_by(|a, b| a.name.cmp(&b.name));
    session.screen.table(&Table {
        content: "variables",
        header: vec!["ID", "Name"],
        rows: variables.into_iter().map(|variable| vec![variable.id, variable.name]).collect(),
        ..Table::default()
    });
    Ok(())
}

#[derive(Debug, Deserialize)]
struct Versions {
    data: Vec<Version>,
}

#[derive(Debug, Deserialize)]
struct Version {
    value: Value,
}

/// The newest value of a variable; none if it has none.
async fn current(session: &Session<'_>, name: &str) -> Result<Option<Value>, Failure> {
    let path = format!("/v1/data{}", query([("name", name.to_owned()), ("current", "true".to_owned())]));
    match session.director.get::<Versions>(&path).await {
        Ok(versions) => Ok(versions.data.into_iter().next().map(|version| version.value)),
        Err(error) if error.status().is_some_and(|status| status.as_u16() == 404) => Ok(None),
        Err(error) => Err(error).while_(format!("reading variable '{name}'")),
    }
}

/// What relative names of a deployment begin with.
async fn folder_of(session: &Session<'_>, deployment: &str) -> Result<String, Failure> {
    let info: Info = session.director.get("/info").await.while_("asking the director for its name")?;
    Ok(format!("/{}/{deployment}/", info.name))
}

/// Sets the values of a file; those that the director has already are left alone.
pub(super) async fn import(session: &mut Session<'_>, path: &Path) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let folder = folder_of(session, &deployment).await?;
    let (mut set, mut same) = (0, 0);
    for (name, value) in interpolation::variables_in(path)? {
        let name = if name.starts_with('/') { name } else { format!("{folder}{name}") };
        if current(session, &name).await?.as_ref() == Some(&value) {
            same += 1;
            continue;
        }
        let stored = session.director.put_json("/v1/data", &json!({"name": name, "value": value})).await;
        stored.while_(format!("setting variable '{name}'"))?;
        set += 1;
    }
    session.screen.line(&format!("{set} variables were set, {same} had their values already."));
    Ok(())
}

/// Writes the newest values of the variables that a deployment uses to a file that only its owner may read.
pub(super) async fn export(session: &mut Session<'_>, path: &Path) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let folder = folder_of(session, &deployment).await?;
    let listed = format!("/deployments/{}/variables", escape(&deployment));
    let listed = session.director.get::<Vec<Variable>>(&listed).await.while_("listing variables")?;
    let names: BTreeSet<String> = listed.into_iter().map(|variable| variable.name).collect();
    let mut values = Map::new();
    for name in names {
        if let Some(value) = current(session, &name).await? {
            values.insert(name.strip_prefix(&folder).unwrap_or(&name).to_owned(), value);
        }
    }
    let count = values.len();
    file::write(path, original::to_yaml(&Value::Object(values)).as_bytes(), file::PRIVATE)
        .map_err(|source| Failure::Write { path: path.to_owned(), source })?;
    session.screen.line(&format!("{count} variables were written to {}.", path.display()));
    Ok(())
}
