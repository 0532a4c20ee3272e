//! `windlass logs`: the logs of instances, as a tarball.

use reqwest::Method;
use time::OffsetDateTime;
use time::macros::format_description;
use windlass_director_client::answers::Task;
use windlass_director_client::{escape, query};
use windlass_durable::file;

use crate::cli::{LogsArgs, Selection};
use crate::failure::Failure;
use crate::session::{Call, Session, While};
use crate::verbs::follow_logs;

pub(super) async fn run(session: &mut Session<'_>, arguments: &LogsArgs) -> Result<(), Failure> {
    if follows(arguments) {
        return follow_logs::run(session, arguments).await;
    }
    let deployment = session.using_deployment()?;
    let doing = format!("fetching logs of deployment '{deployment}'");
    let selected = match &arguments.instances {
        None => "*/*".to_owned(),
        Some(Selection::Group(group)) => format!("{}/*", escape(group)),
        Some(Selection::Instance(instance)) => instance.path(),
    };
    let mut asked = Vec::new();
    asked.extend((!arguments.filters.is_empty()).then(|| ("filters", arguments.filters.join(","))));
    asked.push(("type", kinds(arguments).to_owned()));
    let path = format!("/deployments/{}/jobs/{selected}/logs{}", escape(&deployment), query(asked));
    let task = session.carry_out(Call::new(Method::GET, path), &doing).await?;
    let ended: Task = session.director.get(&format!("/tasks/{task}")).await.while_(&doing)?;

    let mut name = deployment;
    match &arguments.instances {
        None => {}
        Some(Selection::Group(group)) => name.push_str(&format!(".{group}")),
        Some(Selection::Instance(instance)) => name.push_str(&format!(".{}.{}", instance.group, instance.id)),
    }
    download(session, (&ended.result.unwrap_or_default(), None), &arguments.dir, &name).await
}

/// Whether it shows ends of files.
pub(super) fn follows(arguments: &LogsArgs) -> bool {
    arguments.follow || arguments.num > 0
}

pub(super) fn kinds(arguments: &LogsArgs) -> &'static str {
    match (arguments.all_logs, arguments.agent, arguments.system) {
        (true, _, _) => "agent,job,system",
        (_, true, _) => "agent",
        (_, _, true) => "system",
        _ => "job",
    }
}

/// Fetches a blob, with this digest if that is known, into a file that is there as a whole or not at all.
pub(super) async fn download(
    session: &mut Session<'_>,
    (blob, digest): (&str, Option<&str>),
    folder: &std::path::Path,
    name: &str,
) -> Result<(), Failure> {
    let stamp = format_description!("[year][month][day]-[hour][minute][second]-[subsecond digits:9]");
    let stamp = OffsetDateTime::now_utc().format(stamp).unwrap_or_default();
    // What stands in a name cannot lead elsewhere.
    let path = folder.join(format!("{}-{stamp}.tgz", name.replace('/', "_")));
    session.screen.line(&format!("Downloading resource '{blob}' to '{}'...", path.display()));
    let unwritable = |source| Failure::Write { path: path.clone(), source };
    let temporary = file::beside(&path).map_err(unwritable)?;
    let mut opened = std::fs::File::create_new(&temporary).map_err(unwritable)?;
    let fetched = session.director.download(&format!("/resources/{}", escape(blob)), &mut opened).await;
    let is_whole = |temporary: &std::path::Path| match digest {
        Some(digest) => windlass_stemcell::digest::verify(temporary, digest).map_err(|_| Failure::DownloadDigest),
        None => Ok(()),
    };
    let fetched = fetched.while_("downloading").and_then(|()| is_whole(&temporary));
    let moved = fetched.and_then(|()| file::rename(&temporary, &path).map_err(unwritable));
    if moved.is_err() {
        file::discard(&temporary);
    }
    moved
}
