//! `ssh`, `scp` and `logs` with `--director`: on the VM that create-env made.

use std::path::Path;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::format_description;
use windlass_durable::{file, kill_point};

use crate::cli::{LogsArgs, ScpArgs, SshArgs};
use crate::failure::Failure;
use crate::screen::Screen;
use crate::verbs::{follow_logs, logs, scp, ssh};
use crate::visit::env_agent::{self, ask};

pub(super) async fn ssh(screen: &mut Screen, arguments: &SshArgs) -> Result<(), Failure> {
    let agent = env_agent::agent(&arguments.env).await?;
    env_agent::during(
        screen,
        &arguments.gateway,
        &agent,
        async |_, _| Ok(()),
        |screen, visit, host, ()| ssh::on(screen, visit, arguments, std::slice::from_ref(host)),
    )
    .await
}

pub(super) async fn scp(screen: &mut Screen, arguments: &ScpArgs) -> Result<(), Failure> {
    let agent = env_agent::agent(&arguments.env).await?;
    env_agent::during(
        screen,
        &arguments.gateway,
        &agent,
        async |_, _| Ok(()),
        |screen, visit, host, ()| scp::on(screen, visit, arguments, std::slice::from_ref(host)),
    )
    .await
}

pub(super) async fn logs(screen: &mut Screen, arguments: &LogsArgs) -> Result<(), Failure> {
    let agent = env_agent::agent(&arguments.env).await?;
    if logs::follows(arguments) {
        return env_agent::during(
            screen,
            &arguments.gateway,
            &agent,
            async |_, _| Ok(()),
            |screen, visit, host, ()| follow_logs::on(screen, visit, arguments, std::slice::from_ref(host)),
        )
        .await;
    }
    let bundle = async |agent: &_, user: &str| {
        let wanted = json!({"owning_user": user, "log_type": logs::kinds(arguments), "filters": arguments.filters});
        let bundle = ask(agent, "bundle_logs", vec![wanted]).await?;
        let text = |key: &str| bundle.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok((text("logs_tar_path"), text("sha512")))
    };
    let mut bundled = None;
    let fetched =
        env_agent::during(screen, &arguments.gateway, &agent, bundle, |screen, visit, host, (path, sha512)| {
            bundled = Some(path.clone());
            let local = arguments.dir.join(name());
            screen.line(&format!("Downloading {} logs to '{}'...", host.name(), local.display()));
            let temporary = file::beside(&local).map_err(|source| Failure::Write { path: local.clone(), source })?;
            let copied = scp::copy(screen, visit, host, &path, &temporary).and_then(|()| verify(&temporary, &sha512));
            let moved = copied.and_then(|()| {
                file::rename(&temporary, &local).map_err(|source| Failure::Write { path: local.clone(), source })
            });
            if moved.is_err() {
                kill_point("before logs that are not whole are removed");
                file::discard(&temporary);
            }
            moved
        })
        .await;
    let removed = match bundled {
        Some(path) => ask(&agent, "remove_file", vec![json!(path)]).await.map(|_| ()),
        None => Ok(()),
    };
    fetched.and(removed)
}

fn name() -> String {
    let stamp = format_description!("[year][month][day]-[hour][minute][second]-[subsecond digits:9]");
    format!("create-env-vm-logs-{}.tgz", OffsetDateTime::now_utc().format(stamp).unwrap_or_default())
}

/// What came is what the agent packed.
fn verify(path: &Path, sha512: &str) -> Result<(), Failure> {
    let unreadable = |source| Failure::File { path: path.to_owned(), source };
    let mut opened = std::fs::File::open(path).map_err(unreadable)?;
    let digest = windlass_archive::digest::sha512(&mut opened).map_err(unreadable)?;
    let expected = sha512.rsplit(':').next().unwrap_or_default();
    if digest.rsplit(':').next() == Some(expected) { Ok(()) } else { Err(Failure::DownloadDigest) }
}
