//! What runs first in a VM of a stemcell.

use std::path::{Path, PathBuf};

/// What runs first in a VM of a stemcell. CPIs tell it by what its root file system has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Init {
    /// `/usr/sbin/runsvdir-start`, as in container stemcells up to jammy.
    Runit,
    /// `/sbin/init`, which is systemd and has a unit for the agent.
    Systemd,
    /// The agent itself.
    Agent,
}

impl Init {
    /// By a function that tells for a path whether it exists, and where it leads if it is a link.
    pub(crate) fn found(target: impl Fn(&Path) -> Option<PathBuf>) -> Self {
        if target(Path::new("usr/sbin/runsvdir-start")).is_some() {
            return Self::Runit;
        }
        let is_systemd = |path| target(Path::new(path)).is_some_and(|target| target.ends_with("systemd"));
        // `sbin` is a link to `usr/sbin` in newer systems.
        if is_systemd("sbin/init") || is_systemd("usr/sbin/init") { Self::Systemd } else { Self::Agent }
    }
}
