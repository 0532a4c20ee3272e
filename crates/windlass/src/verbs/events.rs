//! `windlass events` and `event`: what was done, by whom.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use windlass_director_client::answers::RecordedEvent;
use windlass_director_client::{escape, query};

use crate::cli::EventsArgs;
use crate::failure::Failure;
use crate::formats;
use crate::session::{Session, While};
use crate::table::Table;

pub(super) async fn list(session: &mut Session<'_>, arguments: &EventsArgs) -> Result<(), Failure> {
    let filters = [
        ("before_id", arguments.before_id.clone()),
        ("before_time", arguments.before.clone()),
        ("after_time", arguments.after.clone()),
        ("deployment", session.named_deployment().map(str::to_owned)),
        ("task", arguments.task.clone()),
        ("instance", arguments.instance.clone()),
        ("user", arguments.event_user.clone()),
        ("action", arguments.action.clone()),
        ("object_type", arguments.object_type.clone()),
        ("object_name", arguments.object_name.clone()),
    ];
    let asked = filters.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let events = session.director.get(&format!("/events{}", query(asked))).await.while_("listing events")?;
    session.screen.table(&table(events));
    Ok(())
}

fn table(events: Vec<RecordedEvent>) -> Table {
    let row = |event: RecordedEvent| {
        vec![
            number(&event),
            formats::date(event.timestamp),
            event.user,
            event.action,
            event.object_type,
            event.object_name,
            event.task,
            event.deployment,
            event.instance,
            formats::yaml_cell(&Value::Object(sorted(event.context))),
            event.error,
        ]
    };
    Table {
        content: "events",
        header: vec![
            "ID",
            "Time",
            "User",
            "Action",
            "Object Type",
            "Object Name",
            "Task ID",
            "Deployment",
            "Instance",
            "Context",
            "Error",
        ],
        rows: events.into_iter().map(row).collect(),
        ..Table::default()
    }
}

/// With the event that it ends.
fn number(event: &RecordedEvent) -> String {
    match event.parent_id.as_str() {
        "" => event.id.clone(),
        parent => format!("{} <- {parent}", event.id),
    }
}

pub(super) async fn show(session: &mut Session<'_>, id: &str) -> Result<(), Failure> {
    let event = session.director.get(&format!("/events/{}", escape(id))).await.while_("reading the event")?;
    session.screen.table(&one(event));
    Ok(())
}

/// Only what there is, except for what every event has.
fn one(event: RecordedEvent) -> Table {
    let said = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let context = sorted(event.context.clone());
    let context: Vec<_> = context.iter().map(|(name, value)| format!("{name}: {}", said(value))).collect();
    let columns = [
        ("ID", number(&event)),
        ("Time", formats::date(event.timestamp)),
        ("User", event.user),
        ("Action", event.action),
        ("Object Type", event.object_type),
        ("Object Name", event.object_name),
        ("Task ID", event.task),
        ("Deployment", event.deployment),
        ("Instance", event.instance),
        ("Context", context.join("\n")),
        ("Error", event.error),
    ];
    let always = |name: &str| matches!(name, "ID" | "Time" | "Action" | "Object Type");
    let shown = columns.into_iter().filter(|(name, value)| always(name) || !value.is_empty());
    let (header, row) = shown.unzip();
    Table { header, rows: vec![row], transpose: true, ..Table::default() }
}

/// By name, as BOSH's client shows it.
fn sorted(context: Map<String, Value>) -> Map<String, Value> {
    context.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> RecordedEvent {
        let event = r#"{"id":"7","parent_id":"6","timestamp":1794770131,"user":"admin","action":"create","object_type":"vm",
            "object_name":"vm-1","task":"3","deployment":"shop","instance":"web/1","context":{"b":1,"a":"x"}}"#;
        serde_json::from_str(event).unwrap()
    }

    #[test]
    fn events_are_shown_as_by_the_original() {
        let expected = "7 <- 6\tSun Nov 15 19:15:31 UTC 2026\tadmin\tcreate\tvm\tvm-1\t3\tshop\tweb/1\ta: x\t-\t\n";
        let shown = table(vec![event()]).for_scripts();
        assert_eq!(shown.lines().next().unwrap(), expected.trim_end_matches('\n'));
    }

    #[test]
    fn one_event_has_only_what_there_is() {
        let people = one(event()).for_people(str::to_owned);
        assert!(people.contains("Context      a: x  \n             b: 1  \n"), "{people}");
        assert!(!people.contains("Error"), "{people}");
    }
}
