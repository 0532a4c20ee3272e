//! The release of the demo, made from the sources in `examples/hello`.

use std::path::Path;

use windlass_durable::file;
use windlass_release_author::{Create, ReleaseDirectory};

use super::DemoError;

/// Its files, as an author has them.
const SOURCES: [(&str, &str); 9] = [
    ("config/final.yml", include_str!("../../../../examples/hello/config/final.yml")),
    ("config/blobs.yml", include_str!("../../../../examples/hello/config/blobs.yml")),
    ("jobs/hello/spec", include_str!("../../../../examples/hello/jobs/hello/spec")),
    ("jobs/hello/monit", include_str!("../../../../examples/hello/jobs/hello/monit")),
    ("jobs/hello/templates/ctl.erb", include_str!("../../../../examples/hello/jobs/hello/templates/ctl.erb")),
    ("jobs/hello/templates/greeting.erb", include_str!("../../../../examples/hello/jobs/hello/templates/greeting.erb")),
    ("packages/hello/spec", include_str!("../../../../examples/hello/packages/hello/spec")),
    ("packages/hello/packaging", include_str!("../../../../examples/hello/packages/hello/packaging")),
    ("src/hello/hello", include_str!("../../../../examples/hello/src/hello/hello")),
];

/// Lays the sources out in `folder`, and makes a tarball of them beside it.
pub(super) fn write(folder: &Path, tarball: &Path) -> Result<(), DemoError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| DemoError::Data { path, source }
    };
    for (name, text) in SOURCES {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed(parent))?;
        }
        file::write(&path, text.as_bytes(), 0o644).map_err(failed(&path))?;
    }
    // The demo leaves nothing in the home directory.
    let directory = ReleaseDirectory::at(folder)?.with_cache(&folder.join(".cache"));
    let options = Create { version: Some("1".to_owned()), force: true, ..Create::default() };
    Ok(directory.create(&options, &mut |_| {})?.write_tarball(tarball, &[])?)
}
