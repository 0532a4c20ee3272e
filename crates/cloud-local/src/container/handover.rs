//! Disks as agents of BOSH take them, which know no folder that is a disk already.
//!
//! At a boot they mount the disk that they had only if it has a table of partitions, which a folder never has; so what was on the
//! store is put there for them. In a migration they move the new disk by the source that `mount` names, and find that mounted
//! twice; so there is a `mount` beside them which names a disk's folder. Our agent needs neither, and does its own.

use std::io;
use std::path::{Path, PathBuf};

use super::root::Root;
use crate::machine::DISKS_IN_VM;
use crate::state::VmRecord;

/// Where agents mount the persistent disk.
pub(crate) const STORE: &str = "/var/vcap/store";

/// The bare cid of the disk that the agent mounted last.
const LAST_DISK: &str = "/var/vcap/bosh/managed_disk_settings.json";

/// Where our agent notes which disk belongs where, also in the middle of a migration.
const OUR_PLACES: &str = "/var/vcap/bosh/disk_places.json";

/// Programs of the agent's own, before all others in its `PATH`.
const MOUNT: &str = "/var/vcap/bosh/bin/mount";

/// `mount`, but for the source of disks in its list.
fn script() -> String {
    format!(
        r#"#!/bin/sh
# The list of mounts, in which a disk that was handed over as a folder is named by that folder wherever else it is mounted: an
# agent that moves a disk asks here for what it is to mount elsewhere. Everything else is done by the system's own program.
if [ $# -gt 0 ]; then
    for program in /usr/bin/mount /bin/mount; do
        [ ! -x "$program" ] || exec "$program" "$@"
    done
    exit 127
fi
disks=
while read -r id parent device root point rest; do
    case "$point" in
        {DISKS_IN_VM}/*) disks="$disks $device=$point" ;;
    esac
done < /proc/self/mountinfo
while read -r id parent device root point options rest; do
    rest="${{rest#*- }}"
    kind="${{rest%% *}}"
    rest="${{rest#* }}"
    source="${{rest%% *}}"
    case "$root $point" in
        "/ {DISKS_IN_VM}/"*) ;;
        "/ "*)
            for disk in $disks; do
                [ "${{disk%%=*}}" != "$device" ] || source="${{disk#*=}}"
            done
            ;;
    esac
    echo "$source on $point type $kind ($options)"
done < /proc/self/mountinfo
"#
    )
}

/// Puts the programs into a VM's root file system that its agent needs for disks; what the image has of its own stays.
pub(crate) fn put_programs(inside: &Root) -> io::Result<()> {
    if !inside.has_executable("/bin/sh") || inside.has(MOUNT) {
        return Ok(());
    }
    inside.put_program(MOUNT.as_ref(), script().as_bytes())
}

/// The folder of the disk that the VM's agent had on its store and cannot put there itself; none if it had none, or it does.
pub(crate) fn last_disk(vm: &VmRecord, disks: &Path, inside: &Root) -> io::Result<Option<PathBuf>> {
    if inside.has(OUR_PLACES) {
        return Ok(None);
    }
    let last = inside.read(LAST_DISK)?.unwrap_or_default();
    let disk = vm.disks.keys().find(|disk| disk.as_str() == last.trim());
    Ok(disk.map(|disk| disks.join(disk.as_str())))
}
