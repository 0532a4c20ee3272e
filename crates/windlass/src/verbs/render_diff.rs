//! `windlass render --diff`: which lines of which files a deploy would change, without a value.

use std::path::Path;

use windlass_director_client::answers::{ChangedFile, ChangedFiles};
use windlass_director_client::query;
use windlass_manifest::interpolate::Strictness;

use super::read_yaml;
use crate::failure::Failure;
use crate::interpolation::InterpolationArgs;
use crate::session::{Session, While};

/// So many instances are named.
const NAMED: usize = 5;

pub(crate) async fn run(
    session: &mut Session<'_>,
    manifest: &Path,
    changes: &InterpolationArgs,
) -> Result<(), Failure> {
    let (text, document) = read_yaml(manifest, &changes.to_look(), Strictness::default())?;
    let name = document.root().field("name").and_then(|name| name.string());
    let name = name.map_err(|problem| Failure::Yaml { path: manifest.to_owned(), source: problem.into() })?;
    session.screen.context(&format!("Using deployment '{name}'"));
    let path = format!("/windlass/changed_files{}", query([("deployment", name.to_owned())]));
    let answer = session.director.post_yaml::<ChangedFiles>(&path, &text).await;
    let ChangedFiles { files, notes } = answer.while_(format!("comparing the files of deployment '{name}'"))?;
    notes.iter().for_each(|note| session.screen.context(note));
    if files.is_empty() {
        session.screen.block("No file changes.\n");
        return Ok(());
    }
    let told: Vec<_> = files.iter().map(told).collect();
    session.screen.block(&told.concat());
    Ok(())
}

fn told(file: &ChangedFile) -> String {
    let named = file.instances.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = file.instances.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = if file.file.is_empty() { "all files" } else { &file.file };
    let change = match file.change.as_str() {
        "new" if file.file.is_empty() => "are new",
        "new" => "is new",
        "removed" => "goes",
        _ => "changes",
    };
    let mut text = format!("job '{}' of {named}{more}: {what} {change}\n", file.job);
    for line in &file.lines {
        text.push_str(&format!("  {} {:>4}  {}\n", line.change, line.number, line.text));
    }
    if file.more > 0 {
        text.push_str(&format!("          and {} more lines\n", file.more));
    }
    text
}
