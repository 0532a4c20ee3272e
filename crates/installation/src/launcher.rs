//! What callers start: a script that gives the job's own `bin/cpi` the variables that BOSH gives it.

use std::io;
use std::path::Path;

use windlass_durable::file;

use crate::plan::CPI;

/// Writes the launcher. Replacing it is what puts another version in use.
pub fn write(launcher: &Path, packages: &Path, jobs: &Path, job: &str) -> io::Result<()> {
    let program = jobs.join(job).join(CPI);
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
    let text = format!(
        "#!/bin/sh\nexport BOSH_PACKAGES_DIR={} BOSH_JOBS_DIR={}\nexec {} \"$@\"\n",
        quoted(packages),
        quoted(jobs),
        quoted(&program)
    );
    file::write(launcher, text.as_bytes(), 0o700)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_jobs_own_program_gets_the_variables_of_bosh_and_all_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("it's here");
        let program = root.join("jobs/cloud_cpi/bin/cpi");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "#!/bin/sh\necho \"$BOSH_PACKAGES_DIR|$BOSH_JOBS_DIR|$*\"\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let launcher = root.join("cpi");
        write(&launcher, &root.join("packages"), &root.join("jobs"), "cloud_cpi").unwrap();
        let output = std::process::Command::new(&launcher).args(["a", "b c"]).output().unwrap();
        let expected = format!("{0}/packages|{0}/jobs|a b c\n", root.display());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }
}
