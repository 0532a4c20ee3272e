//! The release of the demo, from the sources in `examples/guestbook`.

use std::path::Path;

use super::DemoError;

macro_rules! source {
    ($path:literal) => {
        ($path, include_str!(concat!("../../../../examples/guestbook/", $path)))
    };
}

/// Its files, as an author has them.
const SOURCES: [(&str, &str); 15] = [
    source!("config/final.yml"),
    source!("config/blobs.yml"),
    source!("jobs/store/spec"),
    source!("jobs/store/monit"),
    source!("jobs/store/templates/ctl.erb"),
    source!("jobs/store/templates/drain"),
    source!("jobs/web/spec"),
    source!("jobs/web/monit"),
    source!("jobs/web/templates/ctl.erb"),
    source!("jobs/web/templates/title.erb"),
    source!("jobs/smoke-test/spec"),
    source!("jobs/smoke-test/monit"),
    source!("jobs/smoke-test/templates/run.erb"),
    source!("packages/guestbook/spec"),
    source!("packages/guestbook/packaging"),
];
const PROGRAM: (&str, &str) = source!("src/guestbook/guestbook.c");

/// Lays the sources out in `folder`.
#[expect(clippy::disallowed_methods, reason = "the demo removes its folder whole")]
pub(super) fn write(folder: &Path) -> Result<(), DemoError> {
    for (name, text) in SOURCES.iter().chain([&PROGRAM]) {
        let path = folder.join(name);
        let failed = |source| DemoError::Data { path: path.clone(), source };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        std::fs::write(&path, text).map_err(failed)?;
    }
    Ok(())
}
