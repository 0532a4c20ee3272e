//! `monit.log`, where operators look.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use time::OffsetDateTime;
use time::macros::format_description;

#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
}

impl Log {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Adds a line in monit's form. The file is opened for each, so that it can be moved away at any time. A log that cannot be
    /// written is no reason to stop supervising.
    pub(super) fn say(&self, service: &str, text: &str) {
        let format = format_description!("[month repr:short] [day] [hour]:[minute]:[second]");
        let at = OffsetDateTime::now_utc().format(&format).unwrap_or_default();
        let subject = if service.is_empty() { String::new() } else { format!("'{service}' ") };
        let text = text.replace('\n', " ");
        let line = format!("[UTC {at}] info     : {subject}{text}\n");
        let file = OpenOptions::new().create(true).append(true).mode(0o640).open(&self.path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
