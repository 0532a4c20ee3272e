//! What the operator asks of single instances: to start, to stop, to restart, to be recreated.

use serde::{Deserialize, Serialize};

use super::changes::{action, attachments, is_at_rest, parting, stop};
use super::{Action, ActionKind, CurrentInstance, InstancePlan};
use crate::names::IndexOrId;
use crate::records::{InstanceRecord, InstanceState};

/// A wish for some instances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateChange {
    pub selection: Selection,
    pub wish: Wish,
}

/// Some instances of a deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Their group; none for all.
    pub group: Option<String>,
    /// One of the group; none for all.
    pub instance: Option<IndexOrId>,
}

impl Selection {
    /// Whether the instance is one of them.
    pub fn includes(&self, record: &InstanceRecord) -> bool {
        let is_it = |which: &IndexOrId| *which == *record.id || *which == *record.index.to_string();
        self.group.as_ref().is_none_or(|group| *group == record.group) && self.instance.as_ref().is_none_or(is_it)
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    Start,
    /// It is stopped and keeps its VM.
    Stop,
    /// It is stopped and has no VM; its disks and addresses are kept.
    Detach,
    /// It is stopped and started.
    Restart,
    /// It gets a new VM, with its disks.
    Recreate,
}

impl Wish {
    const WORDS: [(Self, &'static str); 5] = [
        (Self::Start, "started"),
        (Self::Stop, "stopped"),
        (Self::Detach, "detached"),
        (Self::Restart, "restart"),
        (Self::Recreate, "recreate"),
    ];

    /// By the word that clients send.
    pub fn parse(word: &str) -> Option<Self> {
        Self::WORDS.into_iter().find(|(_, known)| *known == word).map(|(wish, _)| wish)
    }

    /// The state that an instance has then.
    pub fn state(self) -> InstanceState {
        match self {
            Self::Start | Self::Restart | Self::Recreate => InstanceState::Started,
            Self::Stop => InstanceState::Stopped,
            Self::Detach => InstanceState::Detached,
        }
    }

    pub fn verb(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop | Self::Detach => "stop",
            Self::Restart => "restart",
            Self::Recreate => "recreate",
        }
    }
}

/// Instances that are stopped without being drained.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipDrain {
    #[default]
    None,
    All,
    /// Those of these groups.
    Groups(Vec<String>),
}

impl SkipDrain {
    /// As clients write it: `true`, `*`, or groups with commas between them.
    pub fn parse(text: &str) -> Self {
        match text.trim() {
            "" | "false" => Self::None,
            "true" | "*" => Self::All,
            groups => Self::Groups(groups.split(',').map(|group| group.trim().to_owned()).collect()),
        }
    }

    /// Whether instances of a group are drained.
    pub fn drains(&self, group: &str) -> bool {
        match self {
            Self::None => true,
            Self::All => false,
            Self::Groups(groups) => !groups.iter().any(|skipped| skipped == group),
        }
    }
}

/// The reason of what nothing but a wish asks for.
pub const ASKED_FOR: &str = "it was asked for";

/// What fulfils a wish for one instance from what is on record, without looking at the manifest. An instance whose agent is
/// not to be asked (`silent`) is neither drained nor asked to unmount anything.
pub fn plan_state_change(present: &CurrentInstance, wish: Wish, drain: bool, silent: bool) -> InstancePlan {
    const REASON: &str = ASKED_FOR;
    let mut actions: Vec<Action> = Vec::new();
    let vm = present.vm.as_ref();
    if let Some(vm) = vm.filter(|vm| vm.ready && !silent) {
        match wish {
            Wish::Start => {}
            Wish::Stop | Wish::Restart => actions.push(stop(drain, REASON)),
            Wish::Detach | Wish::Recreate => actions.extend(parting(present, vm, drain, REASON)),
        }
    }
    let loses_vm = matches!(wish, Wish::Detach | Wish::Recreate);
    if let Some(vm) = vm.filter(|_| loses_vm) {
        actions.push(action(ActionKind::DeleteVm { vm: vm.cid.clone() }, REASON));
    }
    if wish.state() == InstanceState::Started {
        let keeps_vm = !loses_vm && vm.is_some_and(|vm| vm.ready);
        let attachments = attachments(present, keeps_vm);
        if !keeps_vm {
            actions.push(action(ActionKind::CreateVm, REASON));
        } else if wish == Wish::Start && !attachments.is_empty() && !is_at_rest(present) {
            // Jobs that run now write beside the disk.
            actions.push(stop(drain, REASON));
        }
        actions.extend(attachments);
        actions.push(action(ActionKind::Start, REASON));
    }
    let record = &present.record;
    InstancePlan { state: wish.state(), ..InstancePlan::of(record, actions) }
}
