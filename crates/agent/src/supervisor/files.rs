//! The monit files of jobs: read where the jobs are installed, and put where supervisors and operators look, `monit/job`.

use std::io;
use std::path::Path;

use windlass_durable::file;
use windlass_supervise::monit::fleet::Fleet;

use super::SupervisorError;
use crate::layout::Base;
use crate::spec::Spec;

/// Everybody may read them; they are not for secrets.
const MODE: u32 = 0o644;

/// A file's name and its text.
pub(crate) type MonitFile = (String, String);

/// The monit files of the spec's jobs in `folder`, in BOSH's order and by its names: the last job first.
pub(super) fn of_jobs(folder: &Path, spec: &Spec) -> Result<Vec<MonitFile>, SupervisorError> {
    let mut files = Vec::new();
    for (position, job) in spec.jobs().iter().rev().enumerate() {
        let name = &job.name;
        files.extend(of_job(&folder.join(name), &format!("{position:04}_{name}"))?);
    }
    check(&files)?;
    Ok(files)
}

/// Refuses files that nobody could look after together.
pub(crate) fn check(files: &[MonitFile]) -> Result<(), SupervisorError> {
    Fleet::read(files.iter().map(|(name, text)| (name.as_str(), text.as_str())))?;
    Ok(())
}

/// `monit` and `LABEL.monit` in a job's folder. A job without them has no process that anybody looks after.
pub(crate) fn of_job(job: &Path, prefix: &str) -> Result<Vec<MonitFile>, SupervisorError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(job).map_err(failed(job))? {
        let path = entry.map_err(failed(job))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let name = match name.strip_suffix(".monit") {
            Some(label) => format!("{prefix}_{label}.monitrc"),
            None if name == "monit" => format!("{prefix}.monitrc"),
            None => continue,
        };
        files.push((name, std::fs::read_to_string(&path).map_err(failed(&path))?));
    }
    if files.is_empty() {
        tracing::info!("{} has no monit file: nothing of it is looked after", job.display());
    }
    files.sort();
    Ok(files)
}

/// Puts these files, and no others, where they are looked for.
pub(super) fn write(base: &Base, files: &[MonitFile]) -> Result<(), SupervisorError> {
    remove(base)?;
    let folder = base.monit_files();
    std::fs::create_dir_all(&folder).map_err(failed(&folder))?;
    for (name, text) in files {
        let path = folder.join(name);
        file::write(&path, text.as_bytes(), MODE).map_err(failed(&path))?;
    }
    Ok(())
}

/// The files that are there.
pub(super) fn read(base: &Base) -> Result<Vec<MonitFile>, SupervisorError> {
    let folder = base.monit_files();
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed(&folder))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed(&folder))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name.ends_with(".monitrc") && !file::is_leftover(name.as_ref()) {
            files.push((name.to_owned(), std::fs::read_to_string(&path).map_err(failed(&path))?));
        }
    }
    files.sort();
    Ok(files)
}

/// Between `apply` and `start` there are none.
pub(super) fn remove(base: &Base) -> Result<(), SupervisorError> {
    let folder = base.monit_files();
    file::remove_tree(&folder).map_err(failed(&folder))
}

pub(super) fn failed(path: &Path) -> impl FnOnce(io::Error) -> SupervisorError {
    let path = path.to_owned();
    move |source| SupervisorError::Io { path, source }
}
