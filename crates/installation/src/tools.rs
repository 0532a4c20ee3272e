//! What this machine needs before a CPI can be installed: looked for first, and named.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use windlass_render::Renderer;

use crate::InstallError;
use crate::plan::CpiPlan;

/// Programs that packaging scripts start and that releases do not bring themselves.
const COMPILERS: &[&str] = &[
    "autoconf",
    "bzip2",
    "cc",
    "cmake",
    "g++",
    "gcc",
    "git",
    "make",
    "patch",
    "pkg-config",
    "python3",
    "unzip",
    "xz",
    "zip",
];

/// Whether a program is in the `PATH`.
pub fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// What every installation of this plan needs.
pub fn check(plan: &CpiPlan<'_>, renderer: &dyn Renderer) -> Result<(), InstallError> {
    if let Some(package) = plan.packages.first()
        && !is_here("tar")
    {
        return Err(InstallError::NoTool {
            why: format!("'tar' unpacks packages such as '{}'", package.name),
            tool: "tar",
        });
    }
    if let Some(package) = plan.packages.iter().find(|package| !package.is_compiled)
        && !is_here("bash")
    {
        let why = format!("the package '{}' is compiled by a script for bash", package.name);
        return Err(InstallError::NoTool { why, tool: "bash" });
    }
    for planned in &plan.jobs {
        if let Err(why) = renderer.check(planned.job)
            && !why.is_syntax
            && !is_here("ruby")
        {
            let why = format!("job '{}': {why}", planned.job.spec.name);
            return Err(InstallError::NoTool { why, tool: "ruby" });
        }
    }
    Ok(())
}

/// Which compilers a packaging script starts that are not here, as the end of a sentence. Only guessed, so it is said after the
/// script failed.
pub(crate) fn missing_for(source: &Path) -> String {
    let script = fs::read_to_string(source.join("packaging")).unwrap_or_default();
    let missing: Vec<_> = started(&script).into_iter().filter(|program| !is_here(program)).collect();
    if missing.is_empty() {
        return String::new();
    }
    format!("; it starts {}, which this machine does not have", missing.join(", "))
}

fn started(script: &str) -> BTreeSet<&'static str> {
    let commands = script.lines().flat_map(|line| line.split(['|', ';', '&', '(', '`']));
    let first_words = commands.filter_map(|command| command.split_whitespace().next());
    first_words.filter_map(|word| COMPILERS.iter().find(|known| **known == word).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_are_found_where_a_script_starts_them() {
        let script = "set -e # make\n./configure && make -j2\ncd x; gcc -o a a.c\necho unzip\ntar xf a | xz\n";
        assert_eq!(started(script).into_iter().collect::<Vec<_>>(), ["gcc", "make", "xz"]);
    }
}
