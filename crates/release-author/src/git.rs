//! What git knows of a release directory.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::AuthorError;
use crate::yaml;

const IGNORED: &str = "config/private.yml
blobs
dev_releases
releases/*.tgz
releases/**/*.tgz
.dev_builds
.final_builds/jobs/**/*.tgz
.final_builds/packages/**/*.tgz
.DS_Store
.idea
*.swp
*~
*#
#*
";

/// What git says; otherwise what it says is wrong.
fn git(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot be started: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn is_repository(folder: &Path) -> bool {
    folder.join(".git").exists() || git(folder, &["rev-parse", "--git-dir"]).is_ok()
}

fn failed(what: &str, said: String) -> AuthorError {
    AuthorError::Git { what: what.to_owned(), said }
}

/// Whether there are changes that no commit has; refused unless forced.
pub(crate) fn is_dirty(folder: &Path, force: bool) -> Result<bool, AuthorError> {
    match git(folder, &["status", "--porcelain=1"]) {
        Err(_) if !is_repository(folder) => Ok(false),
        Err(said) => Err(failed("status", said)),
        Ok(changes) if changes.is_empty() => Ok(false),
        Ok(_) if force => Ok(true),
        Ok(changes) => Err(AuthorError::Dirty(changes)),
    }
}

/// The last commit, shortened; a word if there is none.
pub(crate) fn last_commit(folder: &Path) -> Result<String, AuthorError> {
    match git(folder, &["rev-parse", "--short", "HEAD"]) {
        Ok(hash) => Ok(hash),
        Err(_) if !is_repository(folder) => Ok("non-git".to_owned()),
        Err(said) if said.contains("Needed a single revision") => Ok("empty".to_owned()),
        Err(said) => Err(failed("rev-parse", said)),
    }
}

/// Makes a repository that leaves out what does not belong into one.
pub(crate) fn init(folder: &Path) -> Result<(), AuthorError> {
    git(folder, &["init", "."]).map_err(|said| failed("init", said))?;
    yaml::save(&folder.join(".gitignore"), IGNORED)
}
