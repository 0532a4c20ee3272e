//! The state directory: where a director on one machine keeps everything.

use std::io;
use std::path::{Path, PathBuf};

use windlass_durable::file;

/// The folders and files of a director. The directory is private to its owner.
#[derive(Debug, Clone)]
pub struct StateDir {
    root: PathBuf,
}

impl StateDir {
    /// Makes the directory if it is not there.
    pub fn open(root: &Path) -> io::Result<Self> {
        file::create_private_dir(root)?;
        let dir = Self { root: root.canonicalize()? };
        let cpi = dir.root.join("cpi");
        for folder in [dir.tasks(), dir.blobs(), dir.releases(), dir.temporary(), dir.pki(), dir.cloud(), cpi] {
            file::create_private_dir(&folder)?;
        }
        Ok(dir)
    }

    /// Held by the director that uses the directory.
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// The embedded database.
    pub fn database(&self) -> PathBuf {
        self.root.join("director.db")
    }

    /// Outputs of tasks.
    pub fn tasks(&self) -> PathBuf {
        self.root.join("tasks")
    }

    /// What tasks made for operators to fetch, such as logs.
    pub fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// The archives of releases: jobs and packages.
    pub fn releases(&self) -> PathBuf {
        self.root.join("releases")
    }

    /// Uploads and unpacked archives; emptied at each start.
    pub fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// Keys and certificates.
    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// The CA's certificate, for clients.
    pub fn ca_certificate(&self) -> PathBuf {
        self.root.join("ca.pem")
    }

    /// How to connect, for a shell.
    pub fn env_sh(&self) -> PathBuf {
        self.root.join("env.sh")
    }

    /// The configuration of a CPI that is built in.
    pub fn cpi_config(&self, plugin: &str) -> PathBuf {
        self.root.join("cpi").join(format!("{plugin}.json"))
    }

    /// The state of a simulated cloud.
    pub fn simulated_cloud(&self) -> PathBuf {
        self.root.join("sim")
    }

    /// The state of the embedded cloud.
    pub fn cloud(&self) -> PathBuf {
        self.root.join("cloud")
    }
}
