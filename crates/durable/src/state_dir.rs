//! Where Windlass keeps its state on this machine, unless it is told otherwise.

use std::path::PathBuf;

/// The default state directory: the one that `WINDLASS_STATE_DIR` names, or else the user's; none for a user without a home
/// directory.
pub fn default() -> Option<PathBuf> {
    choose(rustix::process::geteuid().is_root(), |name| std::env::var(name).ok(), std::env::home_dir)
}

fn choose(
    root: bool,
    variable: impl Fn(&str) -> Option<String>,
    home: impl FnOnce() -> Option<PathBuf>,
) -> Option<PathBuf> {
    if let Some(named) = variable("WINDLASS_STATE_DIR").filter(|named| !named.is_empty()) {
        // Where the shell goes next must not change which director is meant.
        return Some(std::path::absolute(&named).unwrap_or_else(|_| named.into()));
    }
    if root {
        return Some("/var/lib/windlass".into());
    }
    let told = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    // A CPI may be called without HOME; the user database knows it, too.
    told.or_else(|| home().filter(|path| path.is_absolute()).map(|home| home.join(".local/state")))
        .map(|state| state.join("windlass"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_user_needs_no_privileges_for_it() {
        let told = |path: &'static str| move |name: &str| (name == "XDG_STATE_HOME").then(|| path.to_owned());
        let home = || Some("/home/me".into());
        assert_eq!(choose(true, |_| None, || None), Some("/var/lib/windlass".into()));
        assert_eq!(choose(false, |_| None, home), Some("/home/me/.local/state/windlass".into()));
        assert_eq!(choose(false, told("/x"), home), Some("/x/windlass".into()));
        assert_eq!(choose(false, told("relative"), home), Some("/home/me/.local/state/windlass".into()));
        assert_eq!(choose(false, |_| None, || None), None);
    }

    #[test]
    fn a_variable_names_another_one_for_every_command_of_a_shell() {
        let told = |name: &str| (name == "WINDLASS_STATE_DIR").then(|| "/srv/windlass".to_owned());
        assert_eq!(choose(true, told, || None), Some("/srv/windlass".into()));
        assert_eq!(choose(false, told, || Some("/home/me".into())), Some("/srv/windlass".into()));
        let empty = |name: &str| (name == "WINDLASS_STATE_DIR").then(String::new);
        assert_eq!(choose(true, empty, || None), Some("/var/lib/windlass".into()));
        let relative = choose(true, |name| (name == "WINDLASS_STATE_DIR").then(|| "s".to_owned()), || None);
        assert!(relative.is_some_and(|path| path.is_absolute() && path.ends_with("s")));
    }
}
