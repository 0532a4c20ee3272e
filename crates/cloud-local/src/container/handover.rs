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
# agent that moves a disk asks here for what it is to mount elsewhere. That folder itself is not listed: a disk that is nowhere else
# is not mounted. Everything else is done by the system's own program.
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
        "/ {DISKS_IN_VM}/"*) continue ;;
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

/// Programs of the agent's own, before all others in its `PATH`.
const UMOUNT: &str = "/var/vcap/bosh/bin/umount";

/// `umount`, but for the folders of disks: an agent that unmounts a disk names it so, and means the place where it mounted it.
fn umount_script() -> String {
    format!(
        r#"#!/bin/sh
# A disk that was handed over as a folder is unmounted wherever else it is mounted; the folder stays. Everything else is done by
# the system's own program.
system() {{
    for program in /usr/bin/umount /bin/umount; do
        if [ -x "$program" ]; then "$program" "$@"; return $?; fi
    done
    return 127
}}
disk=
case "$#:$1" in
    1:{DISKS_IN_VM}/*)
        while read -r id parent device root point rest; do
            [ "$point" != "$1" ] || disk="$device"
        done < /proc/self/mountinfo
        ;;
esac
[ -n "$disk" ] || {{ system "$@"; exit $?; }}
points=
while read -r id parent device root point rest; do
    case "$device $point" in
        "$disk {DISKS_IN_VM}/"*) ;;
        "$disk "*) points="$point $points" ;;
    esac
done < /proc/self/mountinfo
for point in $points; do
    system "$point" || exit 1
done
"#
    )
}

/// Puts the programs into a VM's root file system that its agent needs for disks; what the image has of its own stays.
pub(crate) fn put_programs(inside: &Root) -> io::Result<()> {
    if !inside.has_executable("/bin/sh") {
        return Ok(());
    }
    for (program, text) in [(MOUNT, script()), (UMOUNT, umount_script())] {
        if !inside.has(program) {
            inside.put_program(program.as_ref(), text.as_bytes())?;
        }
    }
    Ok(())
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
