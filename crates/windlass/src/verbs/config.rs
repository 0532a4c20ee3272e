//! `windlass config`, `update-config`, `delete-config`, `diff-config`: configs of every type.

use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Value, json};
use windlass_director_client::answers::{Config, ConfigConflict, Diff};
use windlass_director_client::{ClientError, escape, query};
use windlass_manifest::interpolate::Strictness;

use crate::cli::{DiffConfigArgs, OneConfigArgs, UpdateConfigArgs};
use crate::diff_view;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;
use crate::verbs::{read_document, read_yaml};

/// A config by its number, or by type and name.
enum Which<'a> {
    Id(&'a str),
    Named(&'a str, &'a str),
}

impl<'a> Which<'a> {
    fn of(arguments: &'a OneConfigArgs) -> Self {
        match &arguments.id {
            Some(id) => Self::Id(id),
            None => Self::Named(
                arguments.kind.as_deref().unwrap_or_default(),
                arguments.name.as_deref().unwrap_or_default(),
            ),
        }
    }
}

pub(super) async fn show(session: &mut Session<'_>, arguments: &OneConfigArgs) -> Result<(), Failure> {
    let config = match Which::of(arguments) {
        Which::Id(id) => {
            session.director.get(&format!("/configs/{}", escape(id))).await.while_("reading the config")?
        }
        Which::Named(kind, name) => {
            let asked = [("type", kind), ("name", name), ("limit", "1"), ("latest", "true")];
            let path = format!("/configs{}", query(asked.map(|(key, value)| (key, value.to_owned()))));
            let found: Vec<Config> = session.director.get(&path).await.while_("reading the config")?;
            let none = || Failure::NoSuchConfig { kind: kind.to_owned(), name: name.to_owned() };
            found.into_iter().next().ok_or_else(none)?
        }
    };
    session.screen.table(&table(config));
    Ok(())
}

fn table(config: Config) -> Table {
    Table {
        content: "config",
        header: vec!["ID", "Type", "Name", "Created At", "Content"],
        rows: vec![vec![config.id, config.kind, config.name, config.created_at, config.content]],
        transpose: true,
        lists_notes: true,
        ..Table::default()
    }
}

pub(super) async fn update(session: &mut Session<'_>, arguments: &UpdateConfigArgs) -> Result<(), Failure> {
    let document = &arguments.document;
    let (content, _) = read_yaml(&document.file, &document.changes, Strictness::default())?;
    let mut body = json!({"type": arguments.kind, "name": arguments.name, "content": content});
    let diff = session.director.post_json::<Diff>("/configs/diff", &body).await.while_("comparing the config")?;
    diff_view::show(session.screen, &diff.diff);
    session.confirm()?;
    let expected = arguments.expected_latest_id.as_ref().or_else(|| diff.from.get("id"));
    if let (Some(id), Some(body)) = (expected, body.as_object_mut()) {
        body.insert("expected_latest_id".to_owned(), json!(id));
    }
    let stored = store(session, &body).await?;
    session.screen.table(&table(stored));
    Ok(())
}

/// The answer to a change that came too late says more than a message.
async fn store(session: &Session<'_>, body: &Value) -> Result<Config, Failure> {
    let doing = "updating the config";
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let answer = session.director.raw(reqwest::Method::POST, "/configs", &headers, Some(body.to_string().into())).await;
    let answer = answer.while_(doing)?;
    let unreadable = |error| ClientError::from_json(error);
    if answer.status == StatusCode::PRECONDITION_FAILED {
        let conflict = serde_json::from_slice::<ConfigConflict>(&answer.body).map_err(unreadable).while_(doing)?;
        return Err(Failure::ConfigChanged { latest: conflict.latest_id, expected: conflict.expected_latest_id });
    }
    answer.accepted().and_then(|body| serde_json::from_slice(&body).map_err(unreadable)).while_(doing)
}

pub(super) async fn delete(session: &mut Session<'_>, arguments: &OneConfigArgs) -> Result<(), Failure> {
    session.confirm()?;
    let (path, matches) = match Which::of(arguments) {
        Which::Id(id) => (format!("/configs/{}", escape(id)), format!("id '{id}'")),
        Which::Named(kind, name) => {
            let asked = query([("type", kind.to_owned()), ("name", name.to_owned())]);
            (format!("/configs{asked}"), format!("type '{kind}' and name '{name}'"))
        }
    };
    match session.director.delete(&path).await {
        Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => {
            session.screen.line(&format!("No configs to delete: no matches for {matches} found."));
            Ok(())
        }
        deleted => deleted.while_("deleting the config"),
    }
}

pub(super) async fn diff(session: &mut Session<'_>, arguments: &DiffConfigArgs) -> Result<(), Failure> {
    let side = |id: &Option<String>, content: &Option<std::path::PathBuf>| match (id, content) {
        (Some(id), _) => Ok(json!({"id": id})),
        (None, Some(path)) => Ok(json!({"content": read_document(path)?})),
        (None, None) => Ok::<_, Failure>(json!({})),
    };
    let body = json!({
        "from": side(&arguments.from_id, &arguments.from_content)?,
        "to": side(&arguments.to_id, &arguments.to_content)?,
    });
    let diff = session.director.post_json::<Diff>("/configs/diff", &body).await.while_("comparing configs")?;
    let (from, to) = (arguments.from_id.clone(), arguments.to_id.clone());
    session.screen.table(&Table {
        header: vec!["From ID", "To ID", "Diff"],
        rows: vec![vec![from.unwrap_or_default(), to.unwrap_or_default(), diff_view::text(&diff.diff)]],
        transpose: true,
        lists_notes: true,
        ..Table::default()
    });
    Ok(())
}
