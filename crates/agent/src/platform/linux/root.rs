//! The machine's tree of files: `/`, or a folder that stands for it in a test.

use std::path::{Path, PathBuf};

/// Where the machine's own files begin.
#[derive(Debug, Clone)]
pub(super) struct Root(PathBuf);

impl Root {
    /// The tree below `path`.
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where the absolute path `path` is in this tree.
    pub(super) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_never_names_a_file_of_the_real_machine() {
        let root = Root::new("/tree");
        assert_eq!(root.at("/etc/hosts"), Path::new("/tree/etc/hosts"));
        assert_eq!(Root::new("/").at("/etc/hosts"), Path::new("/etc/hosts"));
    }
}
