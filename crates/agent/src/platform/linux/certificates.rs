//! The certificates that the machine trusts on top of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_durable::file;

use super::Linux;
use super::command::{CommandError, exists, tool};

/// Begins the names of the files that are ours.
const PREFIX: &str = "bosh-trusted-cert-";
/// The tool hangs at times, and then works at the next try.
const PATIENCE: Duration = Duration::from_secs(60);
const TRIES: usize = 3;

/// why certificates are not trusted
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificatesError {
    #[error(transparent)]
    Tool(#[from] CommandError),
    /// a file cannot be changed
    #[error("cannot change {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Linux {
    pub(super) fn trust(&self, pem: &str) -> Result<(), CertificatesError> {
        let folder = self.root.at("/usr/local/share/ca-certificates");
        let wanted = certificates(pem);
        if wanted.is_empty() && !folder.is_dir() {
            return Ok(());
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| CertificatesError::Io { path, source }
        };
        std::fs::create_dir_all(&folder).map_err(failed(&folder))?;
        let mut kept = Vec::new();
        for (position, certificate) in wanted.iter().enumerate() {
            let path = folder.join(format!("{PREFIX}{}.crt", position + 1));
            file::write(&path, certificate.as_bytes(), 0o644).map_err(failed(&path))?;
            kept.push(path);
        }
        for entry in std::fs::read_dir(&folder).map_err(failed(&folder))? {
            let path = entry.map_err(failed(&folder))?.path();
            let is_ours = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
            if is_ours && !kept.contains(&path) {
                file::remove_file(&path).map_err(failed(&path))?;
            }
        }
        if !exists("update-ca-certificates") {
            tracing::warn!(
                "update-ca-certificates is not installed, so only programs that read {} trust them",
                folder.display()
            );
            return Ok(());
        }
        let mut tries = 1;
        loop {
            match tool("update-ca-certificates", ["-f"]).within(PATIENCE).run() {
                Ok(_) => return Ok(()),
                Err(error) if tries == TRIES => return Err(error.into()),
                Err(error) => tracing::warn!("try {tries} of {TRIES}: {error}"),
            }
            tries += 1;
        }
    }
}

/// The certificates in a text, without what is around them.
fn certificates(pem: &str) -> Vec<&str> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let pieces = pem.split_inclusive(END).filter(|piece| piece.ends_with(END));
    pieces.filter_map(|piece| piece.find(BEGIN).map(|start| &piece[start..])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_around_certificates_is_left_out() {
        let one = "-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----";
        let two = one.replace("\nA\n", "\nB\n");
        assert_eq!(certificates(&format!("comment\n{one}\n\n{two}\ncomment\n")), [one, two.as_str()]);
        assert!(certificates("").is_empty() && certificates("-----BEGIN CERTIFICATE-----").is_empty());
    }
}
