//! `windlass run-errand`.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use windlass_director_client::{ClientError, escape};

use crate::cli::{RunErrandArgs, Selection};
use crate::failure::Failure;
use crate::session::{Call, Session, While};
use crate::table::Table;
use crate::task_view;
use crate::verbs::logs;

/// What an errand left on one instance.
#[derive(Debug, Deserialize)]
struct Ran {
    #[serde(default)]
    instance: Option<RanOn>,
    exit_code: i64,
    stdout: String,
    stderr: String,
    #[serde(default)]
    logs: Logs,
}

#[derive(Debug, Deserialize)]
struct RanOn {
    group: String,
    id: String,
}

#[derive(Debug, Default, Deserialize)]
struct Logs {
    blobstore_id: Option<String>,
    sha1: Option<String>,
}

pub(super) async fn run(session: &mut Session<'_>, arguments: &RunErrandArgs) -> Result<(), Failure> {
    let deployment = session.using_deployment()?;
    let errand = &arguments.errand;
    let doing = format!("running errand '{errand}'");
    let instance = |selection: &Selection| match selection {
        Selection::Group(group) => json!({"group": group}),
        Selection::Instance(instance) => json!({"group": instance.group, "id": instance.id}),
    };
    let body = json!({
        "instances": arguments.instances.iter().map(instance).collect::<Vec<_>>(),
        "keep-alive": arguments.keep_alive,
        "when-changed": arguments.when_changed,
    });
    let path = format!("/deployments/{}/errands/{}/runs", escape(&deployment), escape(errand));
    let task = session.carry_out(Call::new(Method::POST, path).with_json(body), &doing).await?;
    let result = task_view::result(session, task, &doing).await?;
    let ran = read(&result).while_(&doing)?;
    session.screen.table(&table(&ran));
    if arguments.download_logs {
        for logs in ran.iter().map(|ran| &ran.logs) {
            let Some(blob) = &logs.blobstore_id else { continue };
            logs::download(session, (blob, logs.sha1.as_deref()), &arguments.logs_dir, errand).await?;
        }
    }
    failed(errand, &ran).map_or(Ok(()), Err)
}

fn read(result: &str) -> Result<Vec<Ran>, ClientError> {
    let lines = result.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).map_err(ClientError::from_json)).collect()
}

fn table(ran: &[Ran]) -> Table {
    let name = |ran: &Ran| ran.instance.as_ref().map(|on| format!("{}/{}", on.group, on.id)).unwrap_or_default();
    let row = |ran: &Ran| vec![name(ran), ran.exit_code.to_string(), ran.stdout.clone(), ran.stderr.clone()];
    let mut rows: Vec<_> = ran.iter().map(row).collect();
    rows.sort();
    Table {
        content: "errand(s)",
        header: vec!["Instance", "Exit Code", "Stdout", "Stderr"],
        rows,
        lists_notes: true,
        transpose: true,
        ..Table::default()
    }
}

/// The last instance on which it did not succeed decides what is said.
fn failed(errand: &str, ran: &[Ran]) -> Option<Failure> {
    let code = ran.iter().rev().map(|ran| ran.exit_code).find(|code| *code != 0)?;
    Some(Failure::Errand {
        errand: errand.to_owned(),
        how: if code > 128 { "was canceled" } else { "completed with error" },
        code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(codes: &[i64]) -> Vec<Ran> {
        let line = |code: &i64| {
            let told = json!({
                "instance": {"group": "smoke", "id": "0403"}, "errand_name": "smoke", "exit_code": code,
                "stdout": "smoke out\n", "stderr": "smoke err\n", "logs": {"blobstore_id": "b", "sha1": "s"},
            });
            format!("{told}\n")
        };
        read(&codes.iter().map(line).collect::<String>()).unwrap()
    }

    #[test]
    fn errands_are_shown_and_fail_as_with_the_original() {
        let shown = table(&ran(&[0]));
        assert_eq!(shown.rows, [["smoke/0403", "0", "smoke out\n", "smoke err\n"]]);
        assert!(failed("smoke", &ran(&[0, 0])).is_none() && failed("smoke", &[]).is_none());
        let said = |codes: &[i64]| failed("smoke", &ran(codes)).unwrap().to_string();
        assert_eq!(said(&[3, 0]), "Errand 'smoke' completed with error (exit code 3)");
        assert_eq!(said(&[3, 143]), "Errand 'smoke' was canceled (exit code 143)");
    }
}
