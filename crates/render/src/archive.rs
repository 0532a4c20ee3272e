//! Rendered templates of an instance in one archive, as BOSH sends it over its message bus. The same input gives the same bytes.

use std::io::{self, Write as _};

use flate2::{Compression, GzBuilder};

use crate::{MONIT, RenderedJob};

/// 1980-01-02, which BOSH writes, too.
const MODIFIED: u64 = 315_619_200;

/// Packs jobs, sorted by name: of each `monit` first, then its files in their order.
pub fn archive(jobs: &[(&str, &RenderedJob)]) -> io::Result<Vec<u8>> {
    let mut jobs = jobs.to_vec();
    jobs.sort_by_key(|(name, _)| *name);
    let mut builder = tar::Builder::new(GzBuilder::new().write(Vec::new(), Compression::default()));
    for (name, job) in jobs {
        append(&mut builder, &format!("{name}/{MONIT}"), &job.monit)?;
        for file in &job.files {
            append(&mut builder, &format!("{name}/{}", file.destination), &file.content)?;
        }
    }
    let mut packed = builder.into_inner()?;
    packed.flush()?;
    packed.finish()
}

fn append(builder: &mut tar::Builder<impl io::Write>, path: &str, content: &str) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(MODIFIED);
    header.set_uid(0);
    header.set_gid(0);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_username("wheel")?;
    header.set_groupname("wheel")?;
    header.set_device_major(0)?;
    header.set_device_minor(0)?;
    if header.set_path(path).is_err() {
        // Longer than BOSH itself can send.
        return builder.append_data(&mut header, path, content.as_bytes());
    }
    header.set_cksum();
    let sum = header.cksum()?;
    if let Some(header) = header.as_ustar_mut() {
        header.cksum.copy_from_slice(format!("{sum:06o}\0 ").as_bytes().get(..8).unwrap_or(b"0000000\0"));
    }
    builder.append(&header, content.as_bytes())
}
