//! The logs below a folder that jobs can write to, one after the other, for an agent that may be root.
//!
//! Links are not followed, neither as logs nor on the way to them: what they lead to would be read as root and shown as a log. And
//! a job cannot keep the agent busy for ever, or end it, with folders in folders and files without number.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::log_file;

/// How deep folders are gone into. Each is open while those in it are looked at.
const DEEPEST: usize = 64;
/// How many files and folders are looked at in each folder at the top, which is a job's: those of one job do not hide those of others.
const MOST: usize = 200_000;

/// why the logs below a folder are not all known
#[derive(Debug)]
pub(crate) struct WalkError {
    /// Where below the folder.
    pub(crate) below: PathBuf,
    pub(crate) source: io::Error,
}

/// Calls `visit` for every plain file below `folder`, in the order of their names: with its path below the folder, and with one by
/// which it is reached whatever jobs put in the place of folders meanwhile.
pub(crate) fn each(folder: &Path, visit: impl FnMut(&Path, &Path) -> io::Result<()>) -> Result<(), WalkError> {
    each_within(folder, MOST, visit)
}

fn each_within(
    folder: &Path,
    most: usize,
    mut visit: impl FnMut(&Path, &Path) -> io::Result<()>,
) -> Result<(), WalkError> {
    let opened = match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(|source| WalkError { below: PathBuf::new(), source })?,
    };
    let mut walk = Walk { most, left: most, has_left_out: false };
    walk.folder(&opened, Path::new(""), 0, &mut visit)?;
    if walk.has_left_out {
        tracing::warn!(
            "{} has a folder with more than {most} files and folders, or ones more than {DEEPEST} deep; the rest is left out",
            folder.display()
        );
    }
    Ok(())
}

struct Walk {
    most: usize,
    left: usize,
    has_left_out: bool,
}

impl Walk {
    fn folder(
        &mut self,
        opened: &File,
        below: &Path,
        depth: usize,
        visit: &mut dyn FnMut(&Path, &Path) -> io::Result<()>,
    ) -> Result<(), WalkError> {
        let at = log_file::name_of(opened);
        let failed = |source| WalkError { below: below.to_owned(), source };
        for (name, is_folder) in self.entries(&at).map_err(failed)? {
            let (below, at) = (below.join(&name), at.join(&name));
            let failed = |source| WalkError { below: below.clone(), source };
            if depth == 0 {
                self.left = self.most;
            }
            if !is_folder {
                visit(&below, &at).map_err(failed)?;
            } else if depth == DEEPEST {
                self.has_left_out = true;
            } else if let Some(inner) = unless_replaced(log_file::open_folder(&at)).map_err(failed)? {
                self.folder(&inner, &below, depth + 1, visit)?;
            }
        }
        Ok(())
    }

    /// The plain files and the folders in a folder, sorted, and which of them are folders.
    fn entries(&mut self, folder: &Path) -> io::Result<Vec<(OsString, bool)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let Some(left) = self.left.checked_sub(1) else {
                self.has_left_out = true;
                break;
            };
            self.left = left;
            let entry = entry?;
            // One whose kind is not known any more is gone.
            if let Ok(kind) = entry.file_type()
                && (kind.is_dir() || kind.is_file())
            {
                found.push((entry.file_name(), kind.is_dir()));
            }
        }
        found.sort();
        Ok(found)
    }
}

/// What is gone by now, or a link, is no folder.
fn unless_replaced(opened: io::Result<File>) -> io::Result<Option<File>> {
    use rustix::io::Errno;
    match opened {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_with_files_without_number_does_not_hide_the_logs_of_others() {
        let folder = tempfile::tempdir().unwrap();
        for name in (0..30).map(|number| format!("a/{number}")).chain(["b/deep/b.log".to_owned()]) {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let mut found = Vec::new();
        let visit = |below: &Path, _: &Path| {
            found.push(below.to_owned());
            Ok(())
        };
        each_within(folder.path(), 10, visit).unwrap();
        assert_eq!(found.len(), 11, "{found:?}");
        assert_eq!(found[10], Path::new("b/deep/b.log"));
    }
}
