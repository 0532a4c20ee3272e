//! Actions of many events, carried out together: one write makes all of them last.

use std::collections::VecDeque;

use super::Action;
use super::snapshot::Change;

/// So many programs wait behind gates at a time: each of them is a process that takes memory.
pub const MOST_LAUNCHES: usize = 32;

/// What is done before the next events are looked at, in this order.
#[derive(Debug, Default)]
pub struct Round {
    /// First all of this.
    pub actions: Vec<Action>,
    /// Then this is saved.
    pub save: Option<Change>,
    /// Then the gates of these launches open.
    pub releases: Vec<u64>,
}

impl Round {
    /// Takes from `actions` what can be done together. Launches beyond [`MOST_LAUNCHES`] stay for the next round.
    pub fn take(actions: &mut VecDeque<Action>) -> Self {
        let mut round = Self::default();
        let mut launches = 0;
        for action in std::mem::take(actions) {
            match action {
                Action::Save(change) => {
                    round.save = Some(match round.save.take() {
                        Some(before) => before.then(*change),
                        None => *change,
                    });
                }
                Action::Release { launch } => round.releases.push(launch),
                Action::Launch { .. } if launches == MOST_LAUNCHES => actions.push_back(action),
                other => {
                    launches += usize::from(matches!(other, Action::Launch { .. }));
                    round.actions.push(other);
                }
            }
        }
        round
    }
}
