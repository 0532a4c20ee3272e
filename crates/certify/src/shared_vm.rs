//! The VM that checks share: whether it is still there, and which call it did not survive.

use serde_json::Value;

use crate::answer::Answer;

/// What only looks.
const HARMLESS: [&str; 3] = ["has_vm", "get_disks", "info"];

/// Watches the VM that checks share.
#[derive(Debug, Default)]
pub(crate) struct SharedVm {
    /// Known to have been there.
    cid: Option<String>,
    /// What was called since it was last seen.
    called: Vec<String>,
    needs_successor: bool,
    lost: Option<LostVm>,
}

/// A VM that is gone although nobody deleted it.
#[derive(Debug)]
pub(crate) struct LostVm {
    pub(crate) what: String,
    pub(crate) calls: Vec<Answer>,
}

impl SharedVm {
    pub(crate) fn watch(&mut self, cid: &str) {
        self.cid = Some(cid.to_owned());
        self.called.clear();
    }

    pub(crate) fn cid(&self) -> Option<String> {
        self.cid.clone()
    }

    /// Notes a call, and gives the VM if the call was about it and should have left it.
    pub(crate) fn note(&mut self, request: &Value) -> Option<String> {
        let method = request["method"].as_str().filter(|method| !HARMLESS.contains(method))?;
        let cid = self.cid.clone()?;
        if !self.called.iter().any(|called| called == method) {
            self.called.push(method.to_owned());
        }
        let is_about_it =
            request["arguments"].as_array().is_some_and(|arguments| arguments.contains(&cid.clone().into()));
        (is_about_it && method != "delete_vm").then_some(cid)
    }

    pub(crate) fn seen(&mut self) {
        self.called.clear();
    }

    /// `by`: the call after which it was not there any more.
    pub(crate) fn lose(&mut self, by: Option<&Answer>) {
        // Calls that run at once find out at once.
        let Some(cid) = self.cid.take() else { return };
        let what = match by.map(Answer::method) {
            Some(method) => {
                format!("{method} lost the VM '{cid}' that it was asked about: afterwards has_vm says false")
            }
            None => {
                let called = self.called.join(", ");
                format!("the VM '{cid}' that checks share is gone; called since it was last seen: {called}")
            }
        };
        self.needs_successor = true;
        self.lost = Some(LostVm { what, calls: by.into_iter().cloned().collect() });
    }

    /// Whether one was lost that has no successor yet; asked once.
    pub(crate) fn needs_successor(&mut self) -> bool {
        std::mem::take(&mut self.needs_successor)
    }

    /// The VM that was lost since this was last asked.
    pub(crate) fn take_lost(&mut self) -> Option<LostVm> {
        self.lost.take()
    }
}
