//! The actions on one instance, in the two stages in which a deploy carries them out.

use serde::{Deserialize, Serialize};

use super::{Action, ActionKind};

/// What is done to an instance, in order. Stored and sent as one list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Action>", into = "Vec<Action>")]
pub struct Actions {
    /// Makes a VM while nothing is done to the one that is there. All missing VMs are made first, in a stage of their own.
    pub creation: Option<Action>,
    /// What is done when the turn of the instance comes.
    pub rest: Vec<Action>,
}

impl From<Vec<Action>> for Actions {
    /// Only a creation that comes first can be done before everything else.
    fn from(mut actions: Vec<Action>) -> Self {
        let comes_first = actions
            .first()
            .is_some_and(|action| matches!(action.what, ActionKind::CreateVm | ActionKind::CreateSpareVm));
        let creation = comes_first.then(|| actions.remove(0));
        Self { creation, rest: actions }
    }
}

impl From<Actions> for Vec<Action> {
    fn from(actions: Actions) -> Self {
        actions.to_vec()
    }
}

impl Actions {
    pub fn iter(&self) -> impl Iterator<Item = &Action> {
        self.creation.iter().chain(&self.rest)
    }

    /// Both stages in one list.
    pub fn to_vec(&self) -> Vec<Action> {
        self.iter().cloned().collect()
    }

    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.creation.is_none() && self.rest.is_empty()
    }

    /// Leaves out the actions that `keep` refuses.
    pub fn retain(&mut self, keep: impl Fn(&Action) -> bool) {
        self.creation.take_if(|action| !keep(action));
        self.rest.retain(keep);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stored_plans_are_one_list_and_a_creation_that_comes_first_is_a_stage_of_its_own() {
        let create = json!({"what": "create_vm", "reason": "r"});
        let start = json!({"what": "start", "reason": "r"});
        for (stored, creates_first) in [
            (json!([create, start]), true),
            (json!([start, create]), false),
            (json!([]), false),
            (json!([start]), false),
        ] {
            let actions: Actions = serde_json::from_value(stored.clone()).unwrap();
            assert_eq!(actions.creation.is_some(), creates_first, "{stored}");
            assert_eq!(serde_json::to_value(&actions).unwrap(), stored);
            assert_eq!(actions.iter().count(), stored.as_array().unwrap().len());
        }
    }
}
