//! The release of the demo, made from the sources in `examples/hello`.

use std::path::Path;

use super::DemoError;
use crate::scratch_release;

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
    Ok(scratch_release::write(folder, &SOURCES, tarball)?)
}
