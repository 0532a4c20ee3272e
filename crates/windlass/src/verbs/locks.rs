//! `windlass locks`: what is being changed, and by which task. `unlock` removes what no task gives back.

use windlass_director_client::answers::Lock;
use windlass_director_client::escape;

use crate::failure::Failure;
use crate::formats;
use crate::session::{Session, While};
use crate::table::Table;

pub(crate) async fn run(session: &mut Session<'_>) -> Result<(), Failure> {
    let locks = session.director.get("/locks").await.while_("listing locks")?;
    session.screen.table(&table(locks));
    Ok(())
}

/// A name alone is that of a deployment.
pub(crate) async fn unlock(session: &mut Session<'_>, name: &str) -> Result<(), Failure> {
    session.confirm()?;
    let lock = if name.contains(':') { name.to_owned() } else { format!("deployment:{name}") };
    let path = format!("/windlass/locks/{}", escape(&lock));
    session.director.delete(&path).await.while_(format!("removing the lock '{lock}'"))
}

fn table(locks: Vec<Lock>) -> Table {
    let row = |lock: Lock| {
        let expires = lock.timeout.split('.').next().and_then(|seconds| seconds.parse().ok());
        vec![lock.kind, lock.resource.join(":"), lock.task_id, expires.map(formats::date).unwrap_or_default()]
    };
    Table {
        content: "locks",
        header: vec!["Type", "Resource", "Task ID", "Expires at"],
        rows: locks.into_iter().map(row).collect(),
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_shown_as_by_the_original() {
        let locks = r#"[{"type":"deployment","resource":["misc"],"timeout":"1794772066.123456","task_id":"168"}]"#;
        let expected = "deployment\tmisc\t168\tSun Nov 15 19:47:46 UTC 2026\t\n";
        assert_eq!(table(serde_json::from_str(locks).unwrap()).for_scripts(), expected);
    }
}
