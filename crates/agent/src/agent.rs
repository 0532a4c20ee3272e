//! The running agent: takes messages, finds their action, answers.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use windlass_contract::agent::{Message, Reply, TaskHandle};

use crate::actions::{self, Action, ActionError, Arguments, Mode};
use crate::boot::Ending;
use crate::chain;
use crate::layout::Base;
use crate::platform::Platform;
use crate::settings::SettingsStore;
use crate::supervisor::Supervisor;
use crate::tasks::{Tasks, Work};
use crate::vitals::Vitals;

/// Everything that an action may use.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) base: Base,
    pub(crate) settings: SettingsStore,
    pub(crate) platform: Box<dyn Platform>,
    pub(crate) supervisor: Supervisor,
    /// Whether it can be told where disks are.
    pub(crate) takes_hints: bool,
    pub(crate) tasks: Tasks,
    pub(crate) vitals: Vitals,
    /// Held while the names of other instances change.
    pub(crate) dns: Mutex<()>,
    pub(crate) ending: UnboundedSender<Ending>,
}

impl Agent {
    /// Answers a message; none if it is not one.
    pub(crate) async fn answer(self: &Arc<Self>, body: &[u8]) -> Option<Reply> {
        let message: Message = serde_json::from_slice(body).ok()?;
        let Some(action) = actions::find(&message.method).filter(|action| self.knows(action)) else {
            return Some(Reply::exception(format!("unknown message {}", message.method)));
        };
        tracing::debug!("message {}", action.name);
        let arguments = Arguments::new(message.arguments);
        let as_task = match action.mode {
            Mode::Instant => return Some(reply(action, (action.run)(self, arguments))),
            Mode::Direct => false,
            Mode::Task | Mode::KeptTask => true,
            Mode::TaskFromProtocol3 => message.protocol.unwrap_or_default() >= 3,
        };
        // Even starting a task may write a file, and the thread of the connections never waits for one.
        let (agent, body) = (self.clone(), body.to_vec());
        let answered = tokio::task::spawn_blocking(move || match as_task {
            true => reply(action, agent.begin(action, arguments, &body)),
            false => reply(action, (action.run)(&agent, arguments)),
        });
        Some(answered.await.unwrap_or_else(|_| Reply::exception("the agent failed inside; its log says where")))
    }

    /// An agent from before version 2 of the contract finds disks in its settings alone.
    fn knows(&self, action: &Action) -> bool {
        self.takes_hints || !action.takes_hints()
    }

    fn begin(
        self: &Arc<Self>,
        action: &'static Action,
        arguments: Arguments,
        body: &[u8],
    ) -> Result<Value, ActionError> {
        let work = self.work(action, arguments);
        let id = match action.mode {
            Mode::KeptTask => self.tasks.begin_kept(action.name, body, work)?,
            _ => self.tasks.begin(action.name, work)?,
        };
        Ok(json!(TaskHandle { agent_task_id: id, state: "running".to_owned() }))
    }

    fn work(self: &Arc<Self>, action: &'static Action, arguments: Arguments) -> Work {
        let agent = self.clone();
        Box::new(move || {
            (action.run)(&agent, arguments).map_err(|error| {
                let message = chain(&error);
                tracing::warn!("{} failed: {message}", action.name);
                message
            })
        })
    }

    /// Does again what a restart interrupted, under the same ids; doing it twice is harmless.
    pub(crate) fn resume_tasks(self: &Arc<Self>) {
        for kept in self.tasks.interrupted() {
            let message = kept.payload().and_then(|payload| serde_json::from_slice::<Message>(&payload).ok());
            let action = actions::find(&kept.method).filter(|action| action.mode == Mode::KeptTask);
            let (method, work): (_, Work) = match (action, message) {
                (Some(action), Some(message)) => (action.name, self.work(action, Arguments::new(message.arguments))),
                _ => ("unknown", Box::new(|| Err("the task cannot be resumed".to_owned()))),
            };
            tracing::info!("resuming task {} ({})", kept.id, kept.method);
            if let Err(error) = self.tasks.resume(kept.id, method, work) {
                tracing::warn!("{}", chain(&error));
            }
        }
    }
}

fn reply(action: &Action, result: Result<Value, ActionError>) -> Reply {
    match result {
        Ok(value) => Reply::Value { value },
        Err(error) => Reply::exception(format!("Action Failed {}: {}", action.name, chain(&error))),
    }
}
