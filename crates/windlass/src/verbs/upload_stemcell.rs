//! `windlass upload-stemcell`: hands a stemcell to the director and its clouds.

use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::director_answers::Needed;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::task_view;

pub(crate) async fn run(session: &mut Session<'_>, file: &Path, fix: bool) -> Result<(), Failure> {
    let bar = progress_bar(session.screen.is_live());
    let stemcell = windlass_stemcell::inspect(file, bar.reporter());
    bar.clear();
    let stemcell = stemcell?;
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
