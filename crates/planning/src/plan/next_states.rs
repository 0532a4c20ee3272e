//! What becomes of an instance that is stopped. Its jobs are told: `pre-stop` in its environment, `drain` by its first argument.

use super::{ActionKind, InstancePlan};
use crate::records::InstanceState;

/// What becomes of an instance that is stopped, and of what it belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NextStates {
    pub vm_goes: bool,
    pub instance_goes: bool,
    pub deployment_goes: bool,
    /// Whether its jobs run again on the same VM with the same disks, perhaps in another version.
    pub is_update: bool,
}

impl InstancePlan {
    /// What this plan makes of the instance. A deployment that goes is not known to the plan of an instance.
    pub fn next_states(&self) -> NextStates {
        let does = |what: fn(&ActionKind) -> bool| self.actions.iter().any(|action| what(&action.what));
        let vm_goes = does(|what| matches!(what, ActionKind::DeleteVm { .. } | ActionKind::SwapVm { .. }));
        let moves_disks = does(|what| {
            matches!(
                what,
                ActionKind::CreateDisk { .. }
                    | ActionKind::AttachDisk { .. }
                    | ActionKind::DetachDisk { .. }
                    | ActionKind::ResizeDisk { .. }
                    | ActionKind::MigrateDisk { .. }
                    | ActionKind::OrphanDisk { .. }
            )
        });
        NextStates {
            vm_goes,
            instance_goes: does(|what| *what == ActionKind::RemoveInstance),
            deployment_goes: false,
            is_update: self.state == InstanceState::Started && !vm_goes && !moves_disks,
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_contract::{DiskCid, MiB, VmCid};

    use super::*;
    use crate::names::DiskName;
    use crate::plan::Action;

    fn states(state: InstanceState, whats: &[ActionKind]) -> NextStates {
        let actions: Vec<_> =
            whats.iter().map(|what| Action { what: what.clone(), reason: "a test".to_owned() }).collect();
        let plan = InstancePlan {
            id: "i".into(),
            group: "g".to_owned(),
            index: 0,
            az: None,
            bootstrap: false,
            state,
            spec: None,
            actions: actions.into(),
        };
        plan.next_states()
    }

    #[test]
    fn jobs_are_updated_only_where_their_vm_and_its_disks_stay() {
        let stop = || ActionKind::Stop { drain: true };
        let (disk, vm) = (DiskCid::new("d").unwrap(), VmCid::new("v").unwrap());
        let updated = states(InstanceState::Started, &[ActionKind::Prepare, stop(), ActionKind::Start]);
        assert_eq!(updated, NextStates { is_update: true, ..NextStates::default() });
        assert_eq!(states(InstanceState::Stopped, &[stop()]), NextStates::default());

        let grows = ActionKind::ResizeDisk { disk: disk.clone(), name: DiskName::Managed, from: MiB(1), to: MiB(2) };
        let first = ActionKind::CreateDisk { name: DiskName::Managed, size: MiB(1) };
        for change in [grows, first] {
            let what = [ActionKind::Prepare, stop(), change, ActionKind::Start];
            assert_eq!(states(InstanceState::Started, &what), NextStates::default());
        }

        let delete = ActionKind::DeleteVm { vm: vm.clone() };
        let without_vm = NextStates { vm_goes: true, ..NextStates::default() };
        let recreated = [stop(), delete.clone(), ActionKind::CreateVm, ActionKind::Start];
        assert_eq!(states(InstanceState::Started, &recreated), without_vm);
        let swapped = [ActionKind::CreateSpareVm, stop(), ActionKind::SwapVm { from: vm }, ActionKind::Start];
        assert_eq!(states(InstanceState::Started, &swapped), without_vm);
        let removed = [stop(), delete, ActionKind::OrphanDisk { disk }, ActionKind::RemoveInstance];
        assert_eq!(states(InstanceState::Started, &removed), NextStates { instance_goes: true, ..without_vm });
    }
}
