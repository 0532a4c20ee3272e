//! Load, memory and disks, as `get_state full` tells them: percentages, sizes and loads are strings. A container tells what is
//! its own; the load is the machine's, because the kernel counts no other.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use serde_json::{Value, json};
use windlass_contract::Object;

use crate::control_group;

/// Time that the processors spent, in any unit, since anything began.
#[derive(Debug, Clone, Copy, Default)]
struct Ticks {
    user: u64,
    system: u64,
    wait: u64,
    total: u64,
}

/// Remembers the last look at the processors, because their use is a difference.
#[derive(Debug)]
pub(crate) struct Vitals {
    last: Mutex<Ticks>,
    /// The group of the container that this is.
    group: Option<&'static Path>,
    begun: Instant,
}

impl Default for Vitals {
    fn default() -> Self {
        let group = control_group::is_own().then_some(Path::new(control_group::TOP));
        let vitals = Self { last: Mutex::default(), group, begun: Instant::now() };
        // What was before is not known of the machine's start, nor of ours.
        vitals.cpu();
        vitals
    }
}

impl Vitals {
    /// How the machine is now. What cannot be read is left out; sizes are told of file systems that are the VM's own.
    pub(crate) fn now(&self, file_systems: &[(&'static str, PathBuf)], are_own: bool) -> Value {
        let mut vitals = Object::new();
        if let Some(cpu) = self.cpu() {
            vitals.insert("cpu".into(), cpu);
        }
        let disk: Object =
            file_systems.iter().filter_map(|(name, path)| Some(((*name).to_owned(), usage(path, are_own)?))).collect();
        vitals.insert("disk".into(), Value::Object(disk));
        if let Some(load) = load() {
            vitals.insert("load".into(), load);
        }
        if let Some((memory, swap)) = memory(self.group) {
            vitals.insert("mem".into(), memory);
            vitals.insert("swap".into(), swap);
        }
        if let Some(seconds) = uptime() {
            vitals.insert("uptime".into(), json!({"secs": seconds}));
        }
        Value::Object(vitals)
    }

    fn cpu(&self) -> Option<Value> {
        let now = match self.group.and_then(|group| self.ticks_of(group)) {
            Some(own) => own,
            None => ticks(&std::fs::read_to_string("/proc/stat").ok()?)?,
        };
        let mut last = self.last.lock().ok()?;
        let since = std::mem::replace(&mut *last, now);
        let total = now.total.saturating_sub(since.total).max(1) as f64;
        let share = |now: u64, since: u64| format!("{:.1}", 100.0 * now.saturating_sub(since) as f64 / total);
        Some(json!({
            "sys": share(now.system, since.system), "user": share(now.user, since.user), "wait": share(now.wait, since.wait),
        }))
    }

    /// Of what the container may use. How long it waited for disks is not counted for it alone.
    fn ticks_of(&self, group: &Path) -> Option<Ticks> {
        let used = control_group::processor_time(group)?;
        let processors = control_group::processors(group).unwrap_or_else(processors_of_machine);
        let total = (self.begun.elapsed().as_micros() as f64 * processors) as u64;
        Some(Ticks { user: used.user, system: used.system, wait: 0, total })
    }
}

fn processors_of_machine() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_one =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    stat.lines().filter(is_one).count().max(1) as f64
}

fn ticks(stat: &str) -> Option<Ticks> {
    let fields: Vec<u64> =
        stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, wait, ..] = fields.as_slice() else { return None };
    Some(Ticks { user: user + nice, system: *system, wait: *wait, total: fields.iter().take(8).sum() })
}

fn load() -> Option<Value> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    Some(text.split_whitespace().take(3).collect())
}

fn uptime() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let machine: u64 = text.split('.').next()?.parse().ok()?;
    Some(machine.saturating_sub(start_of_first_process().unwrap_or_default()))
}

/// Seconds after the machine's boot; in a container, its own start.
fn start_of_first_process() -> Option<u64> {
    const TICKS_PER_SECOND: u64 = 100;
    let stat = std::fs::read_to_string("/proc/1/stat").ok()?;
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    Some(ticks / TICKS_PER_SECOND)
}

fn memory(group: Option<&Path>) -> Option<(Value, Value)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = |key: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let used = |total: u64, free: u64| {
        let used = total.saturating_sub(free);
        json!({"kb": used.to_string(), "percent": percent(used, total)})
    };
    let total = kib("MemTotal")?;
    let memory = match group.and_then(control_group::memory) {
        Some(own) => {
            let total = own.limit.unwrap_or(total).min(total);
            used(total, total.saturating_sub(own.used))
        }
        None => used(total, kib("MemAvailable")?),
    };
    Some((memory, used(kib("SwapTotal")?, kib("SwapFree")?)))
}

fn usage(path: &PathBuf, is_own: bool) -> Option<Value> {
    let found = rustix::fs::statvfs(path).ok()?;
    let mut usage = json!({
        "percent": percent(found.f_blocks.saturating_sub(found.f_bfree), found.f_blocks),
        "inode_percent": percent(found.f_files.saturating_sub(found.f_ffree), found.f_files),
    });
    if is_own {
        // Directors see by it whether a disk grew; clients ignore it.
        usage["kb"] = (found.f_blocks.saturating_mul(found.f_frsize) / 1024).to_string().into();
    }
    Some(usage)
}

fn percent(used: u64, total: u64) -> String {
    format!("{:.0}", 100.0 * used as f64 / total.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_strings_as_directors_expect_them() {
        let vitals = Vitals::default().now(&[("system", "/".into()), ("persistent", "/nonexistent".into())], true);
        for pointer in [
            "/cpu/sys",
            "/cpu/user",
            "/cpu/wait",
            "/mem/kb",
            "/swap/percent",
            "/disk/system/percent",
            "/disk/system/kb",
            "/load/2",
        ] {
            assert!(vitals.pointer(pointer).is_some_and(Value::is_string), "{pointer} in {vitals}");
        }
        assert!(vitals["uptime"]["secs"].is_u64());
        assert!(vitals["disk"].get("persistent").is_none(), "a disk that is not there is not told");
    }
}
