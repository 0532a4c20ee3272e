//! The hashes by which BOSH tells whether rendered templates changed.

use sha1::{Digest as _, Sha1};

use crate::{RenderedFile, RenderedJob};

impl RenderedJob {
    /// SHA-1 of `monit` and all contents, sorted by source.
    pub fn template_hash(&self) -> String {
        let mut hasher = Sha1::new();
        hasher.update(&self.monit);
        self.by_source().iter().for_each(|file| hasher.update(&file.content));
        hex(hasher)
    }

    fn by_source(&self) -> Vec<&RenderedFile> {
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_by(|left, right| left.source.cmp(&right.source));
        files
    }
}

/// One hash over all jobs of an instance.
pub fn configuration_hash(jobs: &[(&str, &RenderedJob)]) -> String {
    let mut jobs = jobs.to_vec();
    jobs.sort_by_key(|(name, _)| *name);
    let mut hasher = Sha1::new();
    for (name, job) in jobs {
        hasher.update(&job.monit);
        hasher.update(name);
        for file in job.by_source() {
            hasher.update(&file.content);
            hasher.update(&file.destination);
        }
    }
    hex(hasher)
}

fn hex(hasher: Sha1) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
