//! `windlass man-pages`: manual pages, one for the program and one for each of its verbs.

use std::io;
use std::path::Path;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::screen::Screen;

pub(super) fn run(screen: &mut Screen, directory: &Path) -> Result<(), Failure> {
    let unusable = |source| Failure::File { path: directory.to_owned(), source };
    let pages = write(directory).map_err(unusable)?;
    screen.line(&format!("{pages} manual pages are in {}", directory.display()));
    Ok(())
}

/// Writes them, and says how many there are.
fn write(directory: &Path) -> io::Result<usize> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Cli::command(), directory)?;
    Ok(std::fs::read_dir(directory)?
        .flatten()
        .filter(|page| page.path().extension().is_some_and(|it| it == "1"))
        .count())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packages of Windlass would have no manual.
    #[test]
    fn every_verb_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("man1");
        assert!(write(&directory).unwrap() > 80);
        let page = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        assert!(page("windlass.1").contains("windlass\\-create\\-env(1)"));
        assert!(page("windlass-deploy.1").contains("dry\\-run"));
        assert!(page("windlass-stemcell-build.1").contains("rootfs"));
    }
}
