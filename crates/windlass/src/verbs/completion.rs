//! `windlass completion`: a script that lets a shell complete words.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::screen::Screen;

pub(super) fn run(screen: &mut Screen, shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "windlass", &mut script);
    screen.block(&format!("{}{}", String::from_utf8_lossy(&script), with_names(shell)));
}

/// What lets a shell ask for the names that the director has, before it takes what the program itself knows.
fn with_names(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
        _ => "",
    }
}

const BASH: &str = r#"
_windlass_with_names() {
    local names
    names=$(windlass complete-names -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [ -n "$names" ]; then
        mapfile -t COMPREPLY <<< "$names"
    else
        _windlass "$@"
    fi
}
complete -F _windlass_with_names -o bashdefault -o default windlass
"#;

const ZSH: &str = r#"
_windlass_with_names() {
    local -a names
    names=(${(f)"$(windlass complete-names -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#names )); then compadd -a names; else _windlass "$@"; fi
}
compdef _windlass_with_names windlass
"#;

const FISH: &str = r#"
complete -c windlass -a '(set -l words (commandline -opc); windlass complete-names -- $words[2..] (commandline -ct) 2>/dev/null)'
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_learns_the_verbs() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "windlass", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(with_names(shell).contains("windlass complete-names -- "), "{shell}");
            assert!(script.contains("cloud-check") && script.contains("vars-store"), "{shell}");
        }
    }
}
