//! The running agent: takes messages, finds their action, answers.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use windlass_contract::agent::{Message, Reply, TaskHandle};
use windlass_contract::explain;
use windlass_durable::file;

use crate::actions::{self, Action, ActionError, Arguments, Mode};
use crate::alerts::{Alerts, Severity};
use crate::boot::Ending;
use crate::dns::resolver::Resolver;
use crate::embedded::{Handling, Simulation};
use crate::layout::Base;
use crate::platform::Platform;
use crate::scripts::ScriptError;
use crate::scripts::process::Runner;
use crate::server::entrance::Gate;
use crate::settings::SettingsStore;
use crate::supervisor::Supervisor;
use crate::tasks::{TaskAction, Tasks};
use crate::vitals::Vitals;
use crate::way_in::VisitorLimit;

/// Everything that an action may use.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) base: Base,
    pub(crate) settings: SettingsStore,
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) supervisor: Supervisor,
    /// Whether it can be told where disks are.
    pub(crate) takes_hints: bool,
    pub(crate) tasks: Tasks,
    pub(crate) gate: Gate,
    pub(crate) vitals: Vitals,
    pub(crate) alerts: Alerts,
    /// Held while the names of other instances change.
    pub(crate) dns: Mutex<()>,
    /// Answers questions for those names; none unless the settings want it.
    pub(crate) resolver: Option<Arc<Resolver>>,
    pub(crate) visitors: VisitorLimit,
    pub(crate) ending: UnboundedSender<Ending>,
    /// What it is like to talk to, if it is only simulated.
    pub(crate) simulation: Option<Arc<dyn Simulation>>,
}

/// What comes of a request with a message.
#[derive(Debug)]
pub(crate) enum Answer {
    Reply(Reply),
    /// It has none.
    NoMessage,
    /// The connection ends, as that of a simulated agent may.
    CutOff,
}

impl Agent {
    /// Answers a message.
    pub(crate) async fn answer(self: &Arc<Self>, body: &[u8]) -> Answer {
        let Ok(message) = serde_json::from_slice::<Message>(body) else { return Answer::NoMessage };
        let handling = match &self.simulation {
            Some(simulation) => simulation.before(&message.method).await,
            None => Handling::Answered,
        };
        match handling {
            Handling::Answered => Answer::Reply(self.handle(message, body).await),
            Handling::Refused(reason) => Answer::Reply(Reply::exception(reason)),
            Handling::Dropped => Answer::CutOff,
            Handling::AnswerLost => {
                self.handle(message, body).await;
                Answer::CutOff
            }
        }
    }

    async fn handle(self: &Arc<Self>, message: Message, body: &[u8]) -> Reply {
        let Some(action) = actions::find(&message.method).filter(|action| self.knows(action)) else {
            return Reply::exception(format!("unknown message {}", message.method));
        };
        tracing::debug!("message {}", action.name);
        let arguments = Arguments::new(message.arguments);
        let as_task = match action.mode {
            Mode::Instant => return reply(action, (action.run)(self, arguments)),
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
        answered.await.unwrap_or_else(|_| Reply::exception("the agent failed inside; its log says where"))
    }

    /// The state of the jobs, which is also left where their scripts can read it.
    pub(crate) fn record_health(&self) -> &'static str {
        let state = self.supervisor.state();
        let (path, text) = (self.base.health(), json!({"state": state}).to_string());
        let is_known = std::fs::read(&path).is_ok_and(|known| known == text.as_bytes());
        if !is_known && let Err(error) = file::write(&path, text.as_bytes(), 0o644) {
            tracing::warn!("{} does not say that the jobs are {state}: {error}", path.display());
        }
        state
    }

    /// Runs scripts of jobs for the task that asks.
    pub(crate) fn runner(&self) -> Runner<'_> {
        Runner::new(&self.base, &self.tasks)
    }

    /// Waits for scripts that an agent before this one left running: none runs beside itself.
    pub(crate) fn settle_scripts(&self) -> Result<(), ActionError> {
        let unsettled = |source| ActionError::Unsettled(ScriptError::Io { path: self.base.scripts(), source });
        match self.runner().settle().map_err(unsettled)? {
            true => Err(ActionError::Unsettled(ScriptError::Cancelled)),
            false => Ok(()),
        }
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

    fn work(self: &Arc<Self>, action: &'static Action, arguments: Arguments) -> TaskAction {
        let agent = self.clone();
        Box::new(move || {
            (action.run)(&agent, arguments).map_err(|error| {
                let message = explain(&error);
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
            let (method, work): (_, TaskAction) = match (action, message) {
                (Some(action), Some(message)) => (action.name, self.work(action, Arguments::new(message.arguments))),
                _ => ("unknown", Box::new(|| Err("the task cannot be resumed".to_owned()))),
            };
            tracing::info!("resuming task {} ({})", kept.id, kept.method);
            if let Err(error) = self.tasks.resume(kept.id, method, work) {
                self.alerts.raise(Severity::Error, format!("{} - not resumed", kept.method), explain(&error));
            }
        }
    }
}

fn reply(action: &Action, result: Result<Value, ActionError>) -> Reply {
    match result {
        Ok(value) => Reply::Value { value },
        Err(error) => Reply::exception(format!("Action Failed {}: {}", action.name, explain(&error))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;
    use crate::boot::{self, Booted};
    use crate::command_line::AgentOptions;
    use crate::supervisor::SupervisorKind;

    /// An agent that everything may be said to: on this platform nothing outside of its folder changes.
    fn booted(folder: &std::path::Path) -> Booted {
        let (config, source) = (folder.join("agent.json"), folder.join("settings.json"));
        let sources = json!([{"Type": "File", "SettingsPath": source}]);
        std::fs::write(&config, json!({"Infrastructure": {"Settings": {"Sources": sources}}}).to_string()).unwrap();
        let networks = json!({"default": {"ip": "127.0.0.1"}});
        let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(vec!["a".into()]).unwrap();
        let cert = json!({"ca": cert.pem(), "certificate": cert.pem(), "private_key": signing_key.serialize_pem()});
        let mbus = json!({"urls": ["https://u:p@127.0.0.1:6868"], "cert": cert});
        let settings = json!({"agent_id": "a", "networks": networks, "env": {"bosh": {"mbus": mbus}}});
        std::fs::write(&source, settings.to_string()).unwrap();
        boot::boot(&AgentOptions {
            platform: "dummy".into(),
            config: Some(config),
            supervisor: SupervisorKind::Dummy,
            base: folder.join("base"),
        })
        .unwrap()
    }

    /// Sends a message and, if it becomes a task, waits for its end. Fails if the agent does.
    fn say(runtime: &tokio::runtime::Runtime, agent: &Arc<Agent>, body: &[u8]) {
        let Answer::Reply(mut reply) = runtime.block_on(agent.answer(body)) else { return };
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Reply::Value { value } = &reply
            && let Ok(handle) = serde_json::from_value::<TaskHandle>(value.clone())
        {
            assert!(Instant::now() < deadline, "no end of {}", String::from_utf8_lossy(body));
            let poll = json!({"method": "get_task", "arguments": [handle.agent_task_id]}).to_string();
            let Answer::Reply(next) = runtime.block_on(agent.answer(poll.as_bytes())) else {
                panic!("a poll is no message")
            };
            reply = next;
        }
        if let Reply::Exception { exception } = &reply {
            assert!(!exception.message.contains("failed inside"), "{}: {exception:?}", String::from_utf8_lossy(body));
        }
    }

    fn text() -> impl Strategy<Value = String> {
        let known: &'static [&'static str] = &[
            "", ".", "..", "../x", "/", "a\0b", "job", "setup", "cleanup", "bosh_x", "(", ".*", "full", "update",
            "shutdown", "disk-1", "sha1:00", "sha256:", ";", "drain", "http://x", "1", "-1",
        ];
        prop_oneof![proptest::sample::select(known).prop_map(str::to_owned), any::<String>(), "[a-z]{200,300}"]
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let key = proptest::sample::select(
            &[
                "user",
                "public_key",
                "user_regex",
                "blob_id",
                "checksum",
                "payload",
                "ips",
                "env",
                "log_type",
                "filters",
                "networks",
                "default",
                "ip",
                "job",
                "templates",
                "name",
                "packages",
                "configuration_hash",
                "path",
                "lun",
                "mbus",
                "urls",
                "cert",
                "ca",
                "disk_associations",
                "cid",
                "blobstores",
                "trusted_certs",
                "persistent_disk",
                "index",
            ][..],
        );
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((key.clone(), inner), 0..6)
                    .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            ]
        })
    }

    #[test]
    fn no_message_makes_the_agent_fail() {
        let folder = tempfile::tempdir().unwrap();
        let booted = booted(folder.path());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let names: Vec<&str> = actions::ACTIONS.iter().map(|action| action.name).collect();
        let message = (proptest::sample::select(names), proptest::collection::vec(json_value(), 0..4), 0..5u32);
        proptest!(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() },
        |((method, arguments, protocol) in message)| {
            let body = json!({"method": method, "arguments": arguments, "protocol": protocol}).to_string();
            say(&runtime, &booted.agent, body.as_bytes());
        });
        proptest!(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() },
            |(body in proptest::collection::vec(any::<u8>(), 0..200))| say(&runtime, &booted.agent, &body));
        proptest!(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() },
            |(value in json_value())| say(&runtime, &booted.agent, value.to_string().as_bytes()));
        say(&runtime, &booted.agent, &[b"[".repeat(100_000), b"]".repeat(100_000)].concat());
        let deep = format!(r#"{{"method": "apply", "arguments": {}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        say(&runtime, &booted.agent, deep.as_bytes());
    }
}
