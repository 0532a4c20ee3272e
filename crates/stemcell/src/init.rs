//! What runs first in a VM of a stemcell.

use std::path::{Path, PathBuf};

/// What runs first in a VM of a stemcell, by what its root file system has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    /// `/usr/sbin/runsvdir-start`, as in container stemcells up to jammy.
    Runit,
    /// `/sbin/init`, which is systemd.
    Systemd,
    /// The agent itself, at `/var/vcap/bosh/bin/bosh-agent`.
    Agent,
}

impl Init {
    /// Looks at the root file system in the folder `root`, never outside of it.
    pub fn of(root: &Path) -> Self {
        Self::found(|path| {
            let path = root.join(path);
            let metadata = path.symlink_metadata().ok()?;
            Some(if metadata.is_symlink() { std::fs::read_link(path).unwrap_or_default() } else { PathBuf::new() })
        })
    }

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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_init_of_each_kind_of_stemcell_is_found() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Init::of(root.path()), Init::Agent);
        fs::create_dir_all(root.path().join("usr/sbin")).unwrap();
        symlink("usr/sbin", root.path().join("sbin")).unwrap();
        symlink("/bin/busybox", root.path().join("usr/sbin/init")).unwrap();
        assert_eq!(Init::of(root.path()), Init::Agent);
        fs::remove_file(root.path().join("usr/sbin/init")).unwrap();
        symlink("/lib/systemd/systemd", root.path().join("usr/sbin/init")).unwrap();
        assert_eq!(Init::of(root.path()), Init::Systemd);
        fs::write(root.path().join("usr/sbin/runsvdir-start"), "").unwrap();
        assert_eq!(Init::of(root.path()), Init::Runit);
    }
}
