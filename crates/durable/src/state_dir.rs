//! Where Windlass keeps its state on this machine, unless it is told otherwise.

use std::path::PathBuf;

/// The default state directory; none for a user without a home directory.
pub fn default() -> Option<PathBuf> {
    choose(rustix::process::geteuid().is_root(), |name| std::env::var(name).ok(), std::env::home_dir)
}

fn choose(
    root: bool,
    variable: impl Fn(&str) -> Option<String>,
    home: impl FnOnce() -> Option<PathBuf>,
) -> Option<PathBuf> {
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
}
