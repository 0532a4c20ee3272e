//! The one hook that every step with an effect passes.

/// Marks a point at which the process may die: just before and just after each effect that outlives it.
/// Without the feature `kill-points` this is nothing.
#[inline]
pub fn kill_point(name: &'static str) {
    #[cfg(feature = "kill-points")]
    armed::pass(name);
    #[cfg(not(feature = "kill-points"))]
    let _ = name;
}

/// Whether this build has the hook.
pub const HAS_KILL_POINTS: bool = cfg!(feature = "kill-points");

/// The variable that says at which point to die, counted from 1.
pub const KILL_AT: &str = "WINDLASS_KILL_AT";

#[cfg(feature = "kill-points")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static PASSED: AtomicU64 = AtomicU64::new(0);
    static KILL_AT: OnceLock<Option<u64>> = OnceLock::new();

    pub(super) fn pass(name: &'static str) {
        let Some(kill_at) = KILL_AT.get_or_init(|| std::env::var(super::KILL_AT).ok()?.parse().ok()) else { return };
        if PASSED.fetch_add(1, Ordering::SeqCst) + 1 == *kill_at {
            eprintln!("killed at point {kill_at}: {name}");
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}
