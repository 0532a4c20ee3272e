//! Whether this machine lets VMs have a root of their own, found out by trying: there are many ways to forbid it, and no one place
//! that tells.

use std::fs;
use std::path::Path;
use std::time::Duration;

use windlass_contract::explain;
use windlass_durable::file;
use windlass_durable::lock::FileLock;

use super::start;

/// How long a trial waits for those of other calls.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where VMs have something of their own, so that nothing of this machine can be shown there.
const TAKEN: [&str; 12] =
    ["/usr", "/etc", "/proc", "/sys", "/dev", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/var/vcap"];

/// Why VMs in the state folder `state` cannot have a root of their own, with what to do about it; `program` is ours. What was
/// possible once is believed until the machine boots again.
pub(crate) fn refusal(state: &Path, program: &Path) -> Option<String> {
    if let Some(taken) = TAKEN.iter().find(|taken| state.starts_with(taken)) {
        return Some(format!(
            "the state folder is below {taken}, where VMs have files of their own; move it elsewhere"
        ));
    }
    let folder = state.join("attempt");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let user = rustix::process::geteuid().as_raw();
    let success = format!("{user} {boot}");
    let note = folder.join("own_root");
    if fs::read_to_string(&note).is_ok_and(|noted| noted == success) {
        return None;
    }
    let tried = file::create_private_dir(&folder)
        .and_then(|()| file::create_private_dir(&folder.join("own")))
        .and_then(|()| FileLock::acquire(&folder.join("lock"), PATIENCE));
    let _alone = match tried {
        Ok(lock) => lock,
        Err(error) => return Some(format!("it cannot be tried in {}: {error}", folder.display())),
    };
    match start::attempt(program, &folder.join("own")) {
        Ok(()) => {
            // A note that is lost costs another trial.
            let _ = file::write(&note, success.as_bytes(), file::PRIVATE);
            None
        }
        Err(error) => Some(format!("{}; {}", explain(&error), remedy())),
    }
}

/// What most likely forbids it here.
fn remedy() -> &'static str {
    let says = |name: &str, value: &str| {
        fs::read_to_string(Path::new("/proc/sys").join(name)).is_ok_and(|text| text.trim() == value)
    };
    if says("user/max_user_namespaces", "0") {
        "allow user namespaces: 'sysctl user.max_user_namespaces=10000'"
    } else if says("kernel/unprivileged_userns_clone", "0") {
        "allow user namespaces: 'sysctl kernel.unprivileged_userns_clone=1'"
    } else if says("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "allow user namespaces, which AppArmor restricts: 'sysctl kernel.apparmor_restrict_unprivileged_userns=0', or give \
         windlass a profile with 'userns,'"
    } else {
        "run on a machine that allows user namespaces: inside of a container they need its leave (for example '--privileged')"
    }
}
