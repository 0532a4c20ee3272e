//! Whether this machine lets VMs have a root of their own, found out by trying: there are many ways to forbid it, and no one place
//! that tells.

use std::fs;
use std::path::Path;

use windlass_contract::explain;
use windlass_durable::file;

use super::start;

/// Where a trial makes its root: a folder that every machine has, covered in namespaces that end with the trial.
const PLACE: &str = "/usr";

/// Where VMs have something of their own, so that nothing of this machine can be shown there.
const TAKEN: [&str; 12] =
    ["/usr", "/etc", "/proc", "/sys", "/dev", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/var/vcap"];

/// Why VMs that are processes cannot have a root file system of their own, without which jobs of releases do not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What was tried, and what came of it.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.why, self.remedy)
    }
}

/// Tries whether VMs with their state in the folder `state` can have a root of their own; `program` is this one. What was possible
/// once is believed until the machine boots again.
pub fn try_own_root(state: &Path, program: &Path) -> Result<(), Refusal> {
    if let Some(taken) = TAKEN.iter().find(|taken| state.starts_with(taken)) {
        let why = format!("the state folder is below {taken}, where VMs have files of their own");
        return Err(Refusal { why, remedy: "move it elsewhere".to_owned() });
    }
    let folder = state.join("attempt");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let success = format!("{} {boot}", rustix::process::geteuid().as_raw());
    let note = folder.join("own_root");
    if fs::read_to_string(&note).is_ok_and(|noted| noted == success) {
        return Ok(());
    }
    start::attempt(program, Path::new(PLACE))
        .map_err(|error| Refusal { why: explain(&error), remedy: remedy().to_owned() })?;
    if state.is_dir() {
        // A note that is lost costs another trial.
        let _ = file::create_private_dir(&folder).and_then(|()| file::write(&note, success.as_bytes(), file::PRIVATE));
    }
    Ok(())
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
