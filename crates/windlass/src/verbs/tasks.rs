//! `windlass tasks`: what the director is doing, or did.

use windlass_director_client::answers::Task;
use windlass_director_client::escape;

use crate::cli::TasksArgs;
use crate::failure::Failure;
use crate::formats;
use crate::session::{Session, While};
use crate::table::Table;

pub(crate) async fn run(session: &mut Session<'_>, arguments: &TasksArgs) -> Result<(), Failure> {
    let verbose = if arguments.all { 2 } else { 1 };
    let mut path = match arguments.recent {
        Some(limit) => format!("/tasks?limit={limit}&verbose={verbose}"),
        None => "/tasks?state=processing,cancelling,queued&verbose=2".to_owned(),
    };
    if let Some(name) = session.named_deployment() {
        path.push_str(&format!("&deployment={}", escape(name)));
    }
    let tasks = session.director.get(&path).await.while_("listing tasks")?;
    session.screen.table(&table(tasks));
    Ok(())
}

fn table(mut tasks: Vec<Task>) -> Table {
    tasks.sort_by_key(|task| std::cmp::Reverse(task.id));
    let date = |time: Option<i64>| time.map(formats::date).unwrap_or_default();
    // That a task was cancelled is one thing, however many instances say so.
    let shown = |task: &Task| match task.state.as_str() {
        "cancelled" => task.result.iter().flat_map(|result| result.lines()).next().unwrap_or_default().to_owned(),
        _ => task.result.clone().unwrap_or_default(),
    };
    let results: Vec<String> = tasks.iter().map(shown).collect();
    let row = |task: Task| {
        vec![
            task.id.to_string(),
            task.state,
            date(task.started_at),
            date(task.timestamp),
            task.user,
            task.deployment,
            task.description,
            task.result.unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = tasks.into_iter().map(row).collect();
    let shown_rows = rows.iter().zip(results).map(|(row, result)| {
        let mut row = row.clone();
        row.pop();
        row.push(result);
        row
    });
    Table {
        content: "tasks",
        header: vec!["ID", "State", "Started At", "Finished At", "User", "Deployment", "Description", "Result"],
        shown_rows: shown_rows.collect(),
        rows,
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_shown_as_by_the_original() {
        let tasks = r#"[{"id":11,"state":"done","description":"create release","timestamp":1794770100,"started_at":1794770100,"result":"Created release 'shop/2'","user":"test","deployment":null,"context_id":""}]"#;
        let expected = "11\tdone\tSun Nov 15 19:15:00 UTC 2026\tSun Nov 15 19:15:00 UTC 2026\ttest\t-\tcreate release\t\
                        Created release 'shop/2'\t\n";
        assert_eq!(table(serde_json::from_str(tasks).unwrap()).for_scripts(), expected);
    }
}
