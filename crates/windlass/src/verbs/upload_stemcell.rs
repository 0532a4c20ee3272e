//! `windlass upload-stemcell`: hands a stemcell to the director and its clouds.

use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use reqwest::Method;
use serde_json::json;
use windlass_director_client::answers::Needed;
use windlass_stemcell::ReadError;

use super::document_kind::{STEMCELL, mistaken};
use crate::cli::UploadStemcellArgs;
use crate::failure::Failure;
use crate::session::{Call, Session, While};
use crate::task_view;

pub(crate) async fn run(session: &mut Session<'_>, arguments: &UploadStemcellArgs) -> Result<(), Failure> {
    let source = &arguments.source;
    if source.starts_with("http://") || source.starts_with("https://") {
        return fetch(session, arguments).await;
    }
    send(session, Path::new(source.strip_prefix("file://").unwrap_or(source)), arguments.fix).await
}

/// The director fetches it.
async fn fetch(session: &mut Session<'_>, arguments: &UploadStemcellArgs) -> Result<(), Failure> {
    let named = arguments.name.as_deref().zip(arguments.stemcell_version.as_deref());
    if let Some((name, version)) = named.filter(|_| !arguments.fix)
        && !is_needed(session, name, version).await?
    {
        return Ok(());
    }
    let path = if arguments.fix { "/stemcells?fix=true" } else { "/stemcells" };
    let mut body = json!({"location": arguments.source});
    if let (Some(sha1), Some(body)) = (&arguments.sha1, body.as_object_mut()) {
        body.insert("sha1".to_owned(), json!(sha1));
    }
    let doing = format!("uploading stemcell '{}'", arguments.source);
    session.carry_out(Call::new(Method::POST, path).with_json(body), &doing).await.map(|_| ())
}

/// Whether a stemcell is missing; otherwise the user is told.
async fn is_needed(session: &mut Session<'_>, name: &str, version: &str) -> Result<bool, Failure> {
    let question = json!({"stemcell": {"name": name, "version": version}});
    let answer = session.director.post_json::<Needed>("/stemcell_uploads", &question).await;
    let needed = answer.while_(format!("checking whether stemcell '{name}/{version}' is there"))?.needed;
    if !needed {
        session.screen.line(&format!("Stemcell '{name}/{version}' already exists."));
    }
    Ok(needed)
}

async fn send(session: &mut Session<'_>, file: &Path, fix: bool) -> Result<(), Failure> {
    let bar = progress_bar(session.screen.is_live());
    let stemcell = windlass_stemcell::inspect(file, bar.reporter());
    bar.clear();
    let stemcell = stemcell.map_err(|error| match &error {
        ReadError::NotTarball { .. } => mistaken(file, STEMCELL).unwrap_or(Failure::Stemcell(error)),
        _ => Failure::Stemcell(error),
    })?;
    let (name, version) = (&stemcell.manifest.name, &stemcell.manifest.version);
    if !fix && !is_needed(session, name, version).await? {
        return Ok(());
    }
    let doing = format!("uploading stemcell '{name}/{version}'");
    let bar = progress_bar(session.screen.is_live());
    let mut report = bar.reporter();
    let size = stemcell.size;
    let path = if fix { "/stemcells?fix=true" } else { "/stemcells" };
    let task = session.director.upload(path, file, move |sent| report(sent, Some(size))).await;
    bar.clear();
    task_view::follow(session, task.while_(&doing)?, &doing).await
}

/// Bytes on their way, on a terminal; nothing elsewhere.
pub(super) fn progress_bar(live: bool) -> BytesBar {
    let target = if live { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    BytesBar(ProgressBar::with_draw_target(None, target).with_style(style(UNMEASURED)))
}

/// A bar for bytes, or a count of them while nobody knows how many there will be.
pub(super) struct BytesBar(ProgressBar);

const MEASURED: &str = "{bar:40} {binary_bytes} of {binary_total_bytes} {eta}";
const UNMEASURED: &str = "{spinner} {binary_bytes}";

impl BytesBar {
    /// What tells the bar how many bytes are done, and of how many.
    pub(super) fn reporter(&self) -> impl FnMut(u64, Option<u64>) + Send + 'static {
        let bar = self.0.clone();
        move |done, total| {
            if let Some(total) = total
                && bar.length() != Some(total)
            {
                bar.set_style(style(MEASURED));
                bar.set_length(total);
            }
            bar.set_position(done);
        }
    }

    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    let bare = ProgressStyle::default_bar();
    bare.clone().template(template).unwrap_or(bare)
}
