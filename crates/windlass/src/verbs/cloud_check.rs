//! `windlass cloud-check`: what is wrong with a deployment, and how to repair it.

use reqwest::Method;
use serde_json::{Map, Value, json};
use windlass_director_client::answers::CloudProblem;
use windlass_director_client::escape;

use crate::cli::CloudCheckArgs;
use crate::failure::Failure;
use crate::session::{Call, Session, While};
use crate::table::Table;

/// Leaves a problem as it is.
pub(super) const SKIP: &str = "ignore";

pub(super) async fn run(session: &mut Session<'_>, arguments: &CloudCheckArgs) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let problems = scan(session, &deployment).await?;
    session.screen.table(&table(&problems));
    if problems.is_empty() {
        return Ok(());
    }
    if arguments.report {
        return Err(Failure::Problems(problems.len()));
    }
    let resolutions = if arguments.auto {
        // Nothing chosen stands for the usual way.
        problems.iter().map(|problem| (problem.id.to_string(), Value::Null)).collect()
    } else if !arguments.resolutions.is_empty() {
        problems.iter().map(|problem| (problem.id.to_string(), wanted(problem, &arguments.resolutions))).collect()
    } else {
        ask(session, &problems)?
    };
    session.confirm()?;
    let doing = format!("repairing deployment '{deployment}'");
    let call = Call::new(Method::PUT, format!("/deployments/{}/problems", escape(&deployment)));
    session.carry_out(call.with_json(json!({"resolutions": resolutions})), &doing).await.map(|_| ())
}

/// What is wrong with a deployment now.
pub(super) async fn scan(session: &mut Session<'_>, deployment: &str) -> Result<Vec<CloudProblem>, Failure> {
    let path = format!("/deployments/{}", escape(deployment));
    let doing = format!("looking for problems of deployment '{deployment}'");
    session.carry_out(Call::new(Method::POST, format!("{path}/scans")).with_json(json!({})), &doing).await?;
    session.director.get(&format!("{path}/problems")).await.while_(&doing)
}

fn table(problems: &[CloudProblem]) -> Table {
    let row = |problem: &CloudProblem| vec![problem.id.to_string(), problem.kind.clone(), problem.description.clone()];
    Table {
        content: "problems",
        header: vec!["#", "Type", "Description"],
        rows: problems.iter().map(row).collect(),
        ..Table::default()
    }
}

/// The first of the given ways that the problem can be repaired in.
fn wanted(problem: &CloudProblem, given: &[String]) -> Value {
    let possible = |name: &&String| problem.resolutions.iter().any(|way| way.name.as_ref() == Some(*name));
    json!(given.iter().find(possible).map_or(SKIP, String::as_str))
}

fn ask(session: &mut Session<'_>, problems: &[CloudProblem]) -> Result<Map<String, Value>, Failure> {
    let mut chosen = Map::new();
    for problem in problems {
        let plans: Vec<_> = problem.resolutions.iter().map(|way| way.plan.clone()).collect();
        let index = session.screen.choice(&problem.description, &plans)?;
        chosen.insert(problem.id.to_string(), json!(problem.resolutions[index].name));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem() -> CloudProblem {
        let problem = r#"{"id":3,"type":"missing_vm","description":"VM for 'web/1' missing.","data":{},"instance_group":"web",
            "resolutions":[{"name":"ignore","plan":"Skip for now"},{"name":"recreate_vm","plan":"Recreate VM"}]}"#;
        serde_json::from_str(problem).unwrap()
    }

    #[test]
    fn a_problem_is_repaired_in_a_way_it_offers_or_left() {
        let given =
            |names: &[&str]| wanted(&problem(), &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(given(&["reboot_vm", "recreate_vm"]), "recreate_vm");
        assert_eq!(given(&["reboot_vm"]), "ignore");
    }

    #[test]
    fn problems_are_shown_as_by_the_original() {
        let table = table(&[problem()]);
        assert_eq!(table.for_scripts(), "3\tmissing_vm\tVM for 'web/1' missing.\t\n");
        let json = table.to_json().to_string();
        assert!(json.contains(r##""Header":{"0":"#","description":"Description","type":"Type"}"##), "{json}");
    }
}
