//! `windlass explain`: why an instance is as it is.

use serde_json::Value;
use windlass_director_client::answers::{Explained, ExplainedPlan, Moment};
use windlass_director_client::escape;
use windlass_director_client::known_names;

use crate::cli::Instance;
use crate::failure::{Failure, KnownNames};
use crate::formats;
use crate::session::{Session, While};
use crate::table::Table;

pub(super) async fn run(session: &mut Session<'_>, instance: &Instance) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let path = format!("/windlass/deployments/{}/instances/{}", escape(&deployment), instance.path());
    let told: Explained = match session.director.get(&path).await {
        Err(error) if error.status() == Some(reqwest::StatusCode::NOT_FOUND) => {
            let known = known_names::all(&session.director, known_names::Kind::Instance, Some(&deployment)).await;
            let known = KnownNames(known.unwrap_or_default());
            return Err(Failure::NoSuchInstance { instance: instance.to_string(), deployment, known });
        }
        told => told.while_(format!("asking about '{instance}'"))?,
    };
    session.screen.table(&state(&told));
    session.screen.table(&disks(&told));
    for plan in told.plans.iter().rev() {
        session.screen.table(&actions(plan));
        session.screen.table(&timeline(plan));
    }
    Ok(())
}

fn state(told: &Explained) -> Table {
    let mut columns = vec![
        ("Instance", told.instance.clone()),
        ("Desired state", told.state.clone()),
        (
            "Converged",
            if told.converged { "yes".to_owned() } else { "no, the last change did not end well".to_owned() },
        ),
        ("AZ", told.az.clone()),
    ];
    if told.ignored {
        columns.push(("Ignored", "yes, until 'windlass unignore'".to_owned()));
    }
    match &told.vm {
        None => columns.push(("VM", "none".to_owned())),
        Some(vm) => columns.extend([
            ("VM CID", vm.cid.clone()),
            ("Created", formats::date(vm.created_at)),
            ("Stemcell", vm.stemcell.clone()),
            ("CPI", vm.cpi.clone()),
            ("IPs", vm.ips.join("\n")),
            ("Agent ID", vm.agent_id.clone()),
            ("Agent has answered", if vm.ready { "yes".to_owned() } else { "not yet".to_owned() }),
            ("Cloud Properties", formats::yaml_cell(&vm.cloud_properties)),
        ]),
    }
    if !told.needs_ruby.is_empty() {
        columns.push(("Rendered by Ruby", told.needs_ruby.join("\n")));
    }
    if told.plans_left_out > 0 {
        columns.push(("Plans", format!("{} are too large to be looked through", told.plans_left_out)));
    }
    let (header, row) = columns.into_iter().unzip();
    Table { header, rows: vec![row], transpose: true, ours: true, ..Table::default() }
}

fn disks(told: &Explained) -> Table {
    let rows = told.disks.iter().map(|disk| {
        let hint = match &disk.hint {
            Value::Null => String::new(),
            hint => hint.to_string(),
        };
        vec![
            disk.cid.clone(),
            disk.name.clone(),
            formats::size_mib(disk.size),
            disk.vm_cid.clone(),
            disk.mounted.to_string(),
            hint,
        ]
    });
    Table {
        content: "disks",
        title: Some("Disks".to_owned()),
        header: vec!["Disk CID", "Name", "Size", "VM CID", "Mounted", "Hint"],
        rows: rows.collect(),
        ours: true,
        ..Table::default()
    }
}

fn actions(plan: &ExplainedPlan) -> Table {
    let when = plan.started_at.map(formats::date).unwrap_or_default();
    Table {
        content: "actions",
        title: Some(format!("Plan of task {} ({}, {when}): {}", plan.task, plan.state, plan.description)),
        header: vec!["Action", "Reason"],
        rows: plan.actions.iter().map(|action| vec![action.action.clone(), action.reason.clone()]).collect(),
        ours: true,
        ..Table::default()
    }
}

fn timeline(plan: &ExplainedPlan) -> Table {
    let milliseconds = |moment: &Moment| moment.milliseconds.unwrap_or(moment.time * 1000);
    let began = plan.timeline.first().map_or(0, milliseconds);
    let row = |moment: &Moment| {
        let after = formats::seconds(milliseconds(moment) - began);
        vec![formats::clock(moment.time), after, moment.stage.clone(), moment.what.clone()]
    };
    let left_out = match plan.bytes_left_out {
        0 => String::new(),
        bytes => format!(", without {} of its log, which is too long", formats::size(bytes)),
    };
    Table {
        content: "moments",
        title: Some(format!("Timeline of task {}{left_out}", plan.task)),
        header: vec!["Time", "After", "Stage", "What"],
        rows: plan.timeline.iter().map(row).collect(),
        ours: true,
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_hints_and_the_way_to_life_are_told() {
        let told = r#"{"instance":"db/1","state":"started","converged":true,"ignored":false,"az":"z1",
            "vm":{"cid":"vm-1","agent_id":"a","cpi":"","stemcell":"s/1","created_at":1794770131,"ready":true,"ips":["10.0.0.2"],"cloud_properties":{"cpu":2}},
            "disks":[{"cid":"disk-1","name":"","size":64,"vm_cid":"vm-1","mounted":true,"hint":{"path":"/x"}}],
            "plans":[{"task":3,"description":"create deployment","state":"done","started_at":1794770131,
                "actions":[{"action":"create VM","reason":"it has none"}],
                "timeline":[{"time":1794770131,"milliseconds":1794770131250,"stage":"Creating missing vms","what":"started"},{"time":1794770133,"stage":"Creating missing vms","what":"finished"}]}]}"#;
        let mut told: Explained = serde_json::from_str(told).unwrap();
        assert!(!state(&told).for_people(str::to_owned).contains("Ruby"));
        told.needs_ruby = vec!["job 'app' needs it".to_owned()];
        assert!(state(&told).for_people(str::to_owned).contains("Rendered by Ruby    job 'app' needs it"));
        assert!(state(&told).for_people(str::to_owned).contains("Agent has answered  yes"));
        assert!(disks(&told).for_scripts().contains("{\"path\":\"/x\"}"));
        assert!(actions(&told.plans[0]).for_scripts().contains("Action     Reason\ncreate VM  it has none\n"));
        let moments = timeline(&told.plans[0]).for_scripts();
        assert!(moments.contains("19:15:33  1.750 s  Creating missing vms  finished\n"), "{moments}");
        let title = |told: &Explained| timeline(&told.plans[0]).title.unwrap_or_default();
        assert_eq!(title(&told), "Timeline of task 3");
        told.plans[0].bytes_left_out = 3 << 20;
        assert_eq!(title(&told), "Timeline of task 3, without 3.0 MiB of its log, which is too long");
    }
}
