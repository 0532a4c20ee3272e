//! `windlass create-recovery-plan` and `recover`: how to repair each kind of problem of each group is decided once, written
//! down, and carried out later.

use std::collections::BTreeMap;
use std::path::Path;

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use windlass_director_client::answers::{CloudProblem, Manifest};
use windlass_director_client::escape;
use windlass_durable::file;
use windlass_manifest::original;

use crate::failure::Failure;
use crate::session::{Call, Session, While};
use crate::table::Table;
use crate::verbs::cloud_check::{SKIP, scan};
use crate::verbs::read_file;

/// The file, in BOSH's form.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct RecoveryPlan {
    #[serde(default)]
    instance_groups_plan: Vec<GroupPlan>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct GroupPlan {
    name: String,
    /// A number or a percentage.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    max_in_flight_override: Value,
    /// By types of problems.
    #[serde(default)]
    planned_resolutions: BTreeMap<String, String>,
}

type ByGroup = BTreeMap<String, Vec<CloudProblem>>;

pub(super) async fn create_plan(session: &mut Session<'_>, path: &Path) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let problems = by_group(scan(session, &deployment).await?)?;
    if problems.is_empty() {
        session.screen.line("No problems found");
        return Ok(());
    }
    let at_once = max_in_flight(session, &deployment).await?;
    let mut plan = RecoveryPlan::default();
    for (group, problems) in &problems {
        session.screen.line(&format!("Instance Group '{group}'"));
        let planned_resolutions = resolutions(session, problems)?;
        let now = at_once.get(group).cloned().unwrap_or_default();
        let mut max_in_flight_override = Value::Null;
        if session.screen.agrees(&format!("Override current max_in_flight value of '{now}'?")) {
            let typed = session.screen.ask(&format!("max_in_flight override for '{group}' ({now})"));
            max_in_flight_override = json!(typed.unwrap_or(now));
        }
        plan.instance_groups_plan.push(GroupPlan { name: group.clone(), max_in_flight_override, planned_resolutions });
    }
    file::write(path, original::to_yaml(&json!(plan)).as_bytes(), 0o644)
        .map_err(|source| Failure::Write { path: path.to_owned(), source })
}

/// One way for all problems of a type, as it is chosen.
fn resolutions(session: &mut Session<'_>, problems: &[CloudProblem]) -> Result<BTreeMap<String, String>, Failure> {
    let mut chosen = BTreeMap::new();
    let mut by_type: BTreeMap<&str, Vec<&CloudProblem>> = BTreeMap::new();
    for problem in problems {
        by_type.entry(&problem.kind).or_default().push(problem);
    }
    for (kind, problems) in by_type {
        let row = |problem: &&CloudProblem| vec![problem.id.to_string(), problem.description.clone()];
        session.screen.table(&Table {
            content: "problems",
            title: Some(format!("Problem type: {kind}")),
            header: vec!["#", "Description"],
            rows: problems.iter().map(row).collect(),
            ..Table::default()
        });
        let ways: Vec<_> = problems[0].resolutions.iter().filter(|way| way.name.is_some()).collect();
        let plans: Vec<_> = ways.iter().map(|way| way.plan.clone()).collect();
        let index = session.screen.choice(kind, &plans)?;
        chosen.insert(kind.to_owned(), ways[index].name.clone().unwrap_or_default());
    }
    Ok(chosen)
}

/// What the manifest says of each group.
async fn max_in_flight(session: &Session<'_>, deployment: &str) -> Result<BTreeMap<String, String>, Failure> {
    let doing = format!("reading the manifest of deployment '{deployment}'");
    let answer: Manifest =
        session.director.get(&format!("/deployments/{}", escape(deployment))).await.while_(&doing)?;
    let manifest = original::parse(&answer.manifest.unwrap_or_default()).unwrap_or_default();
    let of = |place: &Value| place.pointer("/update/max_in_flight").cloned();
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let groups = manifest.get("instance_groups").and_then(Value::as_array).into_iter().flatten();
    let named = groups.filter_map(|group| {
        let count = of(group).or_else(|| of(&manifest)).unwrap_or(json!(1));
        Some((group.get("name")?.as_str()?.to_owned(), text(count)))
    });
    Ok(named.collect())
}

pub(super) async fn recover(session: &mut Session<'_>, path: &Path) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    // Before anybody waits for a scan.
    let plan = read_plan(path)?;
    let problems = by_group(scan(session, &deployment).await?)?;
    if problems.is_empty() {
        session.screen.line("No problems found");
        return Ok(());
    }
    for (group, problems) in &problems {
        session.screen.table(&summary(group, problems, &plan));
    }
    let body = answers(&problems, &plan)?;
    session.confirm()?;
    let call = Call::new(Method::PUT, format!("/deployments/{}/problems", escape(&deployment)));
    let doing = format!("repairing deployment '{deployment}'");
    session.carry_out(call.with_json(body), &doing).await.map(|_| ())
}

fn read_plan(path: &Path) -> Result<RecoveryPlan, Failure> {
    let invalid = |source: Box<dyn std::error::Error + Send + Sync>| Failure::Yaml { path: path.to_owned(), source };
    let value = original::parse(&read_file(path)?).map_err(|error| invalid(error.into()))?;
    serde_json::from_value(value).map_err(|error| invalid(error.into()))
}

fn by_group(problems: Vec<CloudProblem>) -> Result<ByGroup, Failure> {
    let mut groups = ByGroup::new();
    for problem in problems {
        if problem.instance_group.is_empty() {
            return Err(Failure::NoGroupsOfProblems);
        }
        groups.entry(problem.instance_group.clone()).or_default().push(problem);
    }
    Ok(groups)
}

impl RecoveryPlan {
    fn of(&self, group: &str) -> Option<&GroupPlan> {
        self.instance_groups_plan.iter().find(|plan| plan.name == group)
    }

    /// The way that is planned for a problem, and its description; none is planned if absent.
    fn resolution<'p>(&self, group: &str, problem: &'p CloudProblem) -> Result<Option<(&str, &'p str)>, Failure> {
        let Some(name) = self.of(group).and_then(|plan| plan.planned_resolutions.get(&problem.kind)) else {
            return Ok(None);
        };
        match problem.resolutions.iter().find(|way| way.name.as_ref() == Some(name)) {
            Some(way) => Ok(Some((name, &way.plan))),
            None => Err(Failure::UnfitRecoveryPlan {
                group: group.to_owned(),
                kind: problem.kind.clone(),
                resolution: name.clone(),
                known: problem.resolutions.iter().filter_map(|way| way.name.clone()).collect::<Vec<_>>().join(", "),
            }),
        }
    }
}

fn summary(group: &str, problems: &[CloudProblem], plan: &RecoveryPlan) -> Table {
    let at_once = plan.of(group).map(|plan| &plan.max_in_flight_override).filter(|count| !count.is_null());
    let at_once = at_once.map(|count| format!(" (max_in_flight override: {})", text(count))).unwrap_or_default();
    let row = |problem: &CloudProblem| {
        let planned = plan.resolution(group, problem).ok().flatten().map_or("No resolution planned", |(_, plan)| plan);
        vec![problem.id.to_string(), planned.to_owned(), problem.description.clone()]
    };
    Table {
        title: Some(format!("Instance Group '{group}' plan summary{at_once}")),
        header: vec!["#", "Planned resolution", "Description"],
        rows: problems.iter().map(row).collect(),
        ..Table::default()
    }
}

/// What the director is told. Problems that nothing is planned for are left as they are.
fn answers(problems: &ByGroup, plan: &RecoveryPlan) -> Result<Value, Failure> {
    let mut resolutions = Map::new();
    let mut overrides = Map::new();
    for (group, problems) in problems {
        for problem in problems {
            let name = plan.resolution(group, problem)?.map_or(SKIP, |(name, _)| name);
            resolutions.insert(problem.id.to_string(), json!(name));
        }
        let at_once = plan.of(group).map(|plan| &plan.max_in_flight_override).filter(|count| !count.is_null());
        overrides.extend(at_once.map(|count| (group.clone(), json!(text(count)))));
    }
    Ok(json!({"resolutions": resolutions, "max_in_flight_overrides": overrides}))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems() -> ByGroup {
        let problem = |id: u64, group: &str, kind: &str| {
            json!({"id": id, "type": kind, "description": "d", "instance_group": group, "resolutions": [
                {"name": "ignore", "plan": "Skip for now"}, {"name": "recreate_vm", "plan": "Recreate VM"}]})
        };
        let all =
            json!([problem(1, "web", "missing_vm"), problem(2, "db", "missing_vm"), problem(3, "db", "inactive_disk")]);
        by_group(serde_json::from_value(all).unwrap()).unwrap()
    }

    /// A file of BOSH's client.
    fn plan(resolution: &str) -> RecoveryPlan {
        let text = format!(
            "instance_groups_plan:\n- name: db\n  max_in_flight_override: 50%\n  planned_resolutions:\n    missing_vm: {resolution}\n"
        );
        serde_json::from_value(original::parse(&text).unwrap()).unwrap()
    }

    #[test]
    fn what_is_not_planned_is_left_and_what_is_not_offered_is_refused() {
        let told = answers(&problems(), &plan("recreate_vm")).unwrap();
        let expected = json!({"resolutions": {"1": "ignore", "2": "recreate_vm", "3": "ignore"},
            "max_in_flight_overrides": {"db": "50%"}});
        assert_eq!(told, expected);
        let refused = answers(&problems(), &plan("pray")).unwrap_err().to_string();
        assert!(refused.contains("'pray'") && refused.contains("ignore, recreate_vm"), "{refused}");
    }

    #[test]
    fn the_plan_is_shown_as_by_the_original() {
        let (problems, plan) = (problems(), plan("recreate_vm"));
        let table = summary("db", &problems["db"], &plan);
        assert_eq!(table.title.as_deref(), Some("Instance Group 'db' plan summary (max_in_flight override: 50%)"));
        assert_eq!(table.for_scripts(), "2\tRecreate VM          \td\t\n3\tNo resolution planned\td\t\n");
    }

    #[test]
    fn a_written_plan_is_read_again() {
        let plan = plan("recreate_vm");
        let text = original::to_yaml(&json!(plan));
        assert_eq!(serde_json::from_value::<RecoveryPlan>(original::parse(&text).unwrap()).unwrap(), plan);
    }
}
