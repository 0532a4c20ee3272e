//! A container's root file system: the stemcell's below, shared and never written, and what the VM writes above.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::mount::MountFlags;

/// Mounts an overlay at `root`. The paths may hold any character but a line's end, which the kernel cannot be told.
pub(crate) fn mount_overlay(lower: &Path, upper: &Path, work: &Path, root: &Path, flags: MountFlags) -> io::Result<()> {
    let mut options = b"lowerdir=".to_vec();
    options.extend(escaped(lower));
    options.extend(b",upperdir=");
    options.extend(escaped(upper));
    options.extend(b",workdir=");
    options.extend(escaped(work));
    let options = CString::new(options)?;
    Ok(rustix::mount::mount(c"overlay", root, c"overlay", flags, options.as_c_str())?)
}

/// Commas end an option and colons a layer.
fn escaped(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b',' | b':' | b'\\') {
            bytes.push(b'\\');
        }
        bytes.push(*byte);
    }
    bytes
}
