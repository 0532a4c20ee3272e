//! Where a director on this machine keeps everything, unless `--state-dir` says otherwise.

use std::path::PathBuf;

/// The default state directory.
pub(crate) fn default() -> Option<PathBuf> {
    choose(rustix::process::geteuid().is_root(), |name| std::env::var(name).ok())
}

fn choose(root: bool, variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if root {
        return Some("/var/lib/windlass".into());
    }
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("windlass"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_user_needs_no_privileges_for_it() {
        let only =
            |name: &'static str, value: &'static str| move |asked: &str| (asked == name).then(|| value.to_owned());
        assert_eq!(choose(true, |_| None), Some("/var/lib/windlass".into()));
        assert_eq!(choose(false, only("HOME", "/home/me")), Some("/home/me/.local/state/windlass".into()));
        assert_eq!(choose(false, only("XDG_STATE_HOME", "/x")), Some("/x/windlass".into()));
        assert_eq!(choose(false, only("XDG_STATE_HOME", "relative")), None);
    }
}
