//! When a disk is full. Many VMs may send as much as each may, and a full disk stops everybody.

use std::io;
use std::path::Path;
use std::time::Duration;

use windlass_archive::Limits;

/// How often it is looked.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Waits until the file system of a folder has no more than its reserve left.
pub async fn wait_for(folder: &Path) -> io::Result<()> {
    while Limits::of_space(folder)?.bytes > 0 {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}
