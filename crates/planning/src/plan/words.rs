//! A plan as a text for people.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::{Action, ActionKind, InstancePlan, Plan};
use crate::names::DiskName;

/// This many instances with the same change are still listed one by one.
const LISTED_ALONE: usize = 3;

impl ActionKind {
    /// For people.
    pub fn describe(&self) -> String {
        match self {
            Self::DetachDisk { disk } => format!("detach disk {disk}"),
            Self::DeleteVm { vm } => format!("delete VM {vm}"),
            Self::SwapVm { from } => format!("swap VM {from} for the new one"),
            Self::AttachDisk { disk: Some(disk), name } => format!("attach disk{} {disk}", quoted(name)),
            Self::ResizeDisk { disk, to, .. } => format!("resize disk {disk} to {to}"),
            Self::MigrateDisk { disk, to, .. } => format!("migrate disk {disk} to a new one of {to}"),
            Self::OrphanDisk { disk } => format!("orphan disk {disk} (data is kept)"),
            _ => self.describe_for_many(),
        }
    }

    /// The same without ids, which differ between instances.
    fn describe_for_many(&self) -> String {
        match self {
            Self::Prepare => "install packages".to_owned(),
            Self::Stop { drain: true } => "stop".to_owned(),
            Self::Stop { drain: false } => "stop without draining".to_owned(),
            Self::DetachDisk { .. } => "detach the disk".to_owned(),
            Self::DeleteVm { .. } => "delete the VM".to_owned(),
            Self::CreateVm => "create VM".to_owned(),
            Self::CreateSpareVm => "create a VM beside the old one".to_owned(),
            Self::SwapVm { .. } => "swap the VM for the new one".to_owned(),
            Self::SetMetadata => "tell the cloud its names".to_owned(),
            Self::CreateDisk { name, size } => format!("create disk{} of {size}", quoted(name)),
            Self::AttachDisk { disk: Some(_), name } => format!("attach the disk{}", quoted(name)),
            Self::AttachDisk { disk: None, name } => format!("attach the new disk{}", quoted(name)),
            Self::ResizeDisk { to, .. } => format!("resize the disk to {to}"),
            Self::MigrateDisk { to, .. } => format!("migrate the disk to a new one of {to}"),
            Self::OrphanDisk { .. } => "orphan the disk (data is kept)".to_owned(),
            Self::Start => "start".to_owned(),
            Self::RemoveInstance => "remove instance".to_owned(),
        }
    }
}

fn quoted(name: &DiskName) -> String {
    match name {
        DiskName::Managed => String::new(),
        DiskName::Named(name) => format!(" '{name}'"),
    }
}

impl Plan {
    /// For people: one line per instance, one per action below it.
    pub fn describe(&self) -> String {
        let alone = self.changed().map(|instance| vec![instance]).collect();
        self.with_instances(alone)
    }

    /// The same in fewer lines: instances of a group that change alike are told together.
    pub fn describe_briefly(&self) -> String {
        let mut told: Vec<Vec<&InstancePlan>> = Vec::new();
        let mut places: HashMap<_, usize> = HashMap::new();
        for instance in self.changed() {
            let words: Vec<_> = instance.actions.iter().map(words_for_many).collect();
            let place = *places.entry((&instance.group, words)).or_insert(told.len());
            match told.get_mut(place) {
                Some(alike) => alike.push(instance),
                None => told.push(vec![instance]),
            }
        }
        let split = |alike: Vec<_>| match alike.len() > LISTED_ALONE {
            true => vec![alike],
            false => alike.into_iter().map(|instance| vec![instance]).collect(),
        };
        self.with_instances(told.into_iter().flat_map(split).collect())
    }

    /// Instances to which something is done, in the order in which they are told.
    fn changed(&self) -> impl Iterator<Item = &InstancePlan> {
        self.removed.iter().chain(self.instances()).filter(|instance| !instance.actions.is_empty())
    }

    /// The text about these instances. Those that stand together change alike.
    fn with_instances(&self, told: Vec<Vec<&InstancePlan>>) -> String {
        let mut text: String = self.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
        if self.is_empty() {
            let _ = writeln!(text, "{}: nothing to do", self.deployment);
            return text;
        }
        let _ = writeln!(text, "{}", self.deployment);
        for package in self.compilation.iter().flat_map(|compilation| &compilation.packages) {
            let _ = writeln!(text, "  compile {}: {}", package.label(), package.reason());
        }
        for alike in told {
            let Some(first) = alike.first() else { continue };
            let (label, words): (String, fn(&ActionKind) -> String) = match alike.len() {
                1 => (first.label(), ActionKind::describe),
                count => {
                    let indexes = ranges(alike.iter().map(|instance| instance.index).collect());
                    (format!("{} ({indexes}): each of {count} instances", first.group), ActionKind::describe_for_many)
                }
            };
            let _ = writeln!(text, "  {label}");
            for action in first.actions.iter() {
                let _ = writeln!(text, "    {}: {}", words(&action.what), action.reason);
            }
        }
        text
    }
}

fn words_for_many(action: &Action) -> (String, &str) {
    (action.what.describe_for_many(), &action.reason)
}

/// `0-7, 9`.
fn ranges(mut indexes: Vec<i64>) -> String {
    indexes.sort_unstable();
    let range = |run: &[i64]| match run {
        [first, .., last] => format!("{first}-{last}"),
        run => run.iter().map(i64::to_string).collect(),
    };
    indexes.chunk_by(|one, next| one + 1 == *next).map(range).collect::<Vec<_>>().join(", ")
}
