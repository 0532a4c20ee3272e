//! Files that are put into an instance.

use std::time::Duration;

use hyper::Method;

use super::content::Content;
use super::{Client, ClientError, Request};

/// How often the same is put there again: for about 14 s in all.
const TRIES: u64 = 40;
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What is put there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file with this content.
    File,
    Directory,
    /// A link whose target is the content.
    Symlink,
}

/// Something that is put into a stopped instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    pub path: String,
    pub kind: Kind,
    /// Its permissions, in octal digits.
    pub mode: &'static str,
    /// What is in it.
    pub content: Vec<u8>,
}

impl Client {
    /// Puts a file, folder or link into an instance. Mode and owner count only for what is new, and what is there is
    /// overwritten in place, so this is for instances that have not run yet.
    pub async fn push(&self, instance: &str, pushed: &Pushed) -> Result<(), ClientError> {
        let kind = match pushed.kind {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink => "symlink",
        };
        let doing = format!("write {} into the VM '{instance}'", pushed.path);
        let mut request = Request::new(Method::POST, &["instances", instance, "files"], doing)
            .with("path", pushed.path.clone())
            .content(Content::Bytes(pushed.content.clone().into()));
        // LXD knows the first names alone, Incus 7 the second ones alone: a mode that is not understood is 0644.
        for (lxd, incus, value) in [
            ("x-lxd-type", "x-incus-type", kind),
            ("x-lxd-mode", "x-incus-mode", pushed.mode),
            ("x-lxd-uid", "x-incus-uid", "0"),
            ("x-lxd-gid", "x-incus-gid", "0"),
            ("x-lxd-write", "x-incus-write", "overwrite"),
        ] {
            request = request.header(lxd, value).header(incus, value);
        }
        let mut tries = 0;
        loop {
            match self.change(request.clone()).await {
                // LXD asks a process for this which may not listen yet when many are started at once. The same again does no harm.
                Err(error) if error.says("forkfile.sock") && tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(Duration::from_millis(20 * tries).min(LONGEST_PAUSE)).await;
                }
                other => return other,
            }
        }
    }
}
