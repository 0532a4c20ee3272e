//! The state directory: where a director on one machine keeps everything.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use windlass_durable::file;
use windlass_installation::InstalledCpis;

/// The folders and files of a director. The directory is private to its owner.
#[derive(Debug, Clone)]
pub(crate) struct StateDir {
    root: PathBuf,
    /// Where that is which another director needs when it takes over; without others, the same.
    shared: PathBuf,
    /// The name of this run's folder of temporary files.
    run: String,
}

impl StateDir {
    /// Makes the directory if it is not there.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        file::create_private_dir(root)?;
        let root = root.canonicalize()?;
        must_be_ours(&root)?;
        let dir = Self { shared: root.clone(), root, run: uuid::Uuid::new_v4().simple().to_string() };
        for folder in [dir.own_pki(), dir.cloud(), dir.root.join("cpi")] {
            file::create_private_dir(&folder)?;
        }
        dir.make_shared_folders()?;
        Ok(dir)
    }

    /// The same with a folder for what other directors need as well. It must be there: one that is not mounted must not be
    /// taken for an empty one.
    pub(crate) fn shared_in(self, shared: &Path) -> io::Result<Self> {
        let shared = shared.canonicalize()?;
        must_be_ours(&shared)?;
        Ok(Self { shared, ..self })
    }

    /// Makes the folders of what may be shared.
    pub(crate) fn make_shared_folders(&self) -> io::Result<()> {
        let blobs = [crate::blobs::RELEASES, crate::blobs::MADE].map(|drawer| self.shared.join(drawer.0));
        for folder in [self.tasks(), self.temporary(), self.pki()].into_iter().chain(blobs) {
            file::create_private_dir(&folder)?;
        }
        Ok(())
    }

    /// CPIs of releases.
    pub(crate) fn installed_cpis(&self) -> InstalledCpis {
        InstalledCpis::in_state_dir(&self.root)
    }

    /// The uuid of the director that a shared folder belongs to.
    pub(crate) fn owner(&self) -> PathBuf {
        self.shared.join("director.uuid")
    }

    /// Held by the director that uses the directory.
    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// The embedded database.
    pub(crate) fn database(&self) -> PathBuf {
        self.root.join("director.db")
    }

    /// Outputs of tasks.
    pub(crate) fn tasks(&self) -> PathBuf {
        self.shared.join("tasks")
    }

    /// Where the folders of blobs are, unless they are kept elsewhere.
    pub(crate) fn kept(&self) -> &Path {
        &self.shared
    }

    /// Copies of blobs that are kept elsewhere.
    pub(crate) fn cached_blobs(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// Uploads and unpacked archives of this run.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.shared.join("tmp").join(&self.run)
    }

    /// Uploads and unpacked archives of earlier runs.
    pub(crate) fn left_over(&self) -> io::Result<Vec<PathBuf>> {
        let ours = self.temporary();
        let entries = std::fs::read_dir(self.shared.join("tmp"))?.map(|entry| Ok(entry?.path()));
        let entries: io::Result<Vec<PathBuf>> = entries.collect();
        Ok(entries?.into_iter().filter(|path| *path != ours).collect())
    }

    /// Removes an upload whose task is over. One of an earlier run takes that run's folder with it, if it was the last.
    pub(crate) fn forget_upload(&self, tarball: &Path) -> io::Result<()> {
        file::remove_file(tarball)?;
        match tarball.parent() {
            Some(run) if run != self.temporary() => remove_if_empty(run),
            _ => Ok(()),
        }
    }

    /// Keys and certificates.
    pub(crate) fn pki(&self) -> PathBuf {
        self.shared.join("pki")
    }

    /// What values of variables are encrypted with, unless the operator keeps that elsewhere.
    pub(crate) fn variables_key(&self) -> PathBuf {
        self.shared.join("variables.key")
    }

    /// The certificate that a director shows which stands by.
    pub(crate) fn own_pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// The CA's certificate, for clients.
    pub(crate) fn ca_certificate(&self) -> PathBuf {
        self.root.join("ca.pem")
    }

    /// How to connect, for a shell.
    pub(crate) fn env_sh(&self) -> PathBuf {
        self.root.join("env.sh")
    }

    /// The configuration of a CPI that is built in.
    pub(crate) fn cpi_config(&self, plugin: &str) -> PathBuf {
        self.root.join("cpi").join(format!("{plugin}.json"))
    }

    /// What the CPI of a cluster remembers of its requests. Shared, so that another director goes on with them.
    pub(crate) fn cluster_cloud(&self) -> PathBuf {
        self.shared.join("incus")
    }

    /// The state of a simulated cloud.
    pub(crate) fn simulated_cloud(&self) -> PathBuf {
        self.shared.join("sim")
    }

    /// The state of the embedded cloud.
    pub(crate) fn cloud(&self) -> PathBuf {
        self.root.join("cloud")
    }
}

/// Removes a folder of an earlier run unless something is still in it.
pub(crate) fn remove_if_empty(run: &Path) -> io::Result<()> {
    match std::fs::remove_dir(run) {
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => Err(error),
        _ => Ok(()),
    }
}

const WRITTEN_BY_OTHERS: u32 = 0o002;

/// It holds keys and credentials: a user who can replace these files controls the director.
fn must_be_ours(root: &Path) -> io::Result<()> {
    let found = std::fs::metadata(root)?;
    let us = rustix::process::geteuid().as_raw();
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if found.uid() != us {
        return refuse(format!(
            "it belongs to the user {}, not to {us}; use chown, or another --state-dir",
            found.uid()
        ));
    }
    if found.mode() & WRITTEN_BY_OTHERS != 0 {
        return refuse("everybody may write to it; use chmod o-w, or another --state-dir".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_directory_that_others_can_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("state");
        std::fs::create_dir(&root).unwrap();
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = StateDir::open(&root).unwrap_err().to_string();
        assert!(refused.contains("everybody may write to it"), "{refused}");
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0, "nothing was put there");
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).unwrap();
        StateDir::open(&root).unwrap();
        // Only root can give a folder away.
        if chown(&root, Some(65534), None).is_ok() {
            let refused = StateDir::open(&root).unwrap_err().to_string();
            assert!(refused.contains("belongs to the user 65534"), "{refused}");
        }
    }
}
