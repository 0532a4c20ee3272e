//! `windlass completion`: a script that lets a shell complete words.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::screen::Screen;

pub(super) fn run(screen: &mut Screen, shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "windlass", &mut script);
    screen.block(&String::from_utf8_lossy(&script));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_learns_the_verbs() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "windlass", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("cloud-check") && script.contains("vars-store"), "{shell}");
        }
    }
}
