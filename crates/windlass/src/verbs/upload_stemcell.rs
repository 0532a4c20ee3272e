//! `windlass upload-stemcell`: hands a stemcell to the director and its clouds.

use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::director_answers::Needed;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::task_view;

pub(crate) async fn run(session: &mut Session<'_>, file: &Path, fix: bool) -> Result<(), Failure> {
    let stemcell = windlass_stemcell::inspect(file)?;
    let (name, version) = (&stemcell.manifest.name, &stemcell.manifest.version);
    if !fix {
        let question = json!({"stemcell": {"name": name, "version": version}});
        let answer = session.director.post_json::<Needed>("/stemcell_uploads", &question).await;
        if !answer.while_(format!("checking whether stemcell '{name}/{version}' is there"))?.needed {
            session.screen.line(&format!("Stemcell '{name}/{version}' already exists."));
            return Ok(());
        }
    }
    let doing = format!("uploading stemcell '{name}/{version}'");
    let bar = progress_bar(stemcell.size, session.screen.is_live());
    let shown = bar.clone();
    let path = if fix { "/stemcells?fix=true" } else { "/stemcells" };
    let task = session.director.upload(path, file, move |sent| shown.set_position(sent)).await;
    bar.finish_and_clear();
    task_view::follow(session, task.while_(&doing)?, &doing).await
}

/// Bytes on their way, on a terminal.
pub(super) fn progress_bar(size: u64, live: bool) -> ProgressBar {
    let target = if live { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bare = ProgressStyle::default_bar();
    let template = "{bar:40} {binary_bytes} of {binary_total_bytes} {eta}";
    let style = bare.clone().template(template).unwrap_or(bare);
    ProgressBar::with_draw_target(Some(size), target).with_style(style)
}
