//! Asks agents to let a person in, and to forget them again.

use std::net::IpAddr;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass_agent_client::Deadlines;
use windlass_contract::{Object, explain};
use windlass_operations::agents;
use windlass_planning::names::{DeploymentName, IndexOrId};
use windlass_planning::plan::is_compilation_group;
use windlass_planning::records::{InstanceRecord, VmRecord};

use super::{OutputKind, TaskError, TaskLog};
use crate::Director;
use crate::store::Event;

/// How many agents are asked at once.
const AT_ONCE: usize = 32;

/// Whom to let in where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SshRequest {
    /// `setup` or `cleanup`.
    pub command: String,
    /// To which instances.
    pub target: SshTarget,
    /// A user and a public key, or which users to forget.
    pub params: Object,
}

/// Some instances; one is meant if its uuid or its index is named, or nothing is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SshTarget {
    /// Their group; none for all.
    #[serde(default)]
    pub job: Option<String>,
    #[serde(default)]
    pub ids: Vec<IndexOrId>,
    /// The same once more, where indices may be numbers.
    #[serde(default)]
    pub indexes: Vec<Value>,
}

impl SshTarget {
    fn includes(&self, record: &InstanceRecord) -> bool {
        // What is compiled there is for deployments of all teams.
        if is_compilation_group(&record.group) {
            return false;
        }
        let group = self.job.as_ref().is_none_or(|job| job.is_empty() || *job == record.group);
        let index = record.index.to_string();
        let named = |word: &str| record.id == *word || word == index;
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let all = self.ids.is_empty() && self.indexes.is_empty();
        group && (all || self.ids.iter().any(|id| named(id)) || self.indexes.iter().any(|value| named(&text(value))))
    }

    /// For people and logs.
    pub(super) fn describe(&self) -> String {
        let instances = if self.ids.is_empty() {
            "*".to_owned()
        } else {
            self.ids.iter().map(IndexOrId::as_str).collect::<Vec<_>>().join(",")
        };
        format!("{}/{instances}", self.job.as_deref().unwrap_or("*"))
    }
}

pub(super) async fn run(
    director: &Director,
    log: &TaskLog,
    user: &str,
    deployment: &DeploymentName,
    request: &SshRequest,
) -> Result<String, TaskError> {
    let mut chosen = director.store.contacts(deployment).await?;
    chosen.retain(|one| one.vm.is_some() && request.target.includes(&one.record));
    if chosen.is_empty() {
        let what = request.target.describe();
        let reason = format!("No instance with a VM in deployment '{deployment}' matched filter {what}");
        return Err(TaskError::refused(100, reason));
    }
    let mut asking: Vec<BoxFuture<'_, Result<Value, TaskError>>> = Vec::new();
    for instance in &chosen {
        asking.push(Box::pin(async move {
            let record = &instance.record;
            let event = Event {
                task: Some(log.task()),
                deployment: Some(deployment.to_string()),
                instance: Some(record.name()),
                ..Event::new(user, &format!("{} ssh", request.command), "instance", Some(&record.name()))
            };
            let event = director.store.add_event(&event).await?;
            let answer = match &instance.vm {
                Some(vm) => ask(director, log, vm, request).await,
                None => json!({}),
            };
            let error = answer.get("error").and_then(Value::as_str);
            director.store.end_event(event, error).await?;
            let ip = instance.vm.as_ref().and_then(|vm| agents::addresses(&vm.networks).first().copied());
            Ok(complete(request, &answer, record, ip))
        }));
    }
    let answers: Vec<_> = stream::iter(asking).buffered(AT_ONCE).collect().await;
    let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    log.write(OutputKind::Result, &format!("{}\n", Value::Array(answers)));
    if log.is_cancelled() { Err(TaskError::Cancelled) } else { Ok(String::new()) }
}

/// An agent that fails does not keep the others: clients look at each answer's status. Neither does one that makes a task of it
/// without end, as no honest one does.
async fn ask(director: &Director, log: &TaskLog, vm: &VmRecord, request: &SshRequest) -> Value {
    let arguments = vec![json!(request.command), Value::Object(request.params.clone())];
    let message = Deadlines::default().message;
    let agent = director.agents.of(vm).with_deadlines(Deadlines { message, silence: message, task: message });
    let error = tokio::select! {
        answer = agent.call("ssh", arguments) => match answer {
            Ok(answer) => return answer,
            Err(error) => explain(&error),
        },
        () = log.cancelled() => TaskError::Cancelled.to_string(),
    };
    json!({"command": request.command, "status": "failed", "error": error})
}

/// How many bytes of a text are told.
const LONGEST: usize = 2000;

fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

/// What a client is told of an answer. The VM says whether it let the user in and which key it has; where it is, and how one
/// comes there, is not its to say.
fn complete(request: &SshRequest, answer: &Value, instance: &InstanceRecord, ip: Option<IpAddr>) -> Value {
    // All answers are in memory until the last one is there.
    let text = |key: &str| answer.get(key).and_then(Value::as_str).map(short);
    let key = text("host_public_key").and_then(windlass_contract::agent::host_key);
    let mut told = Object::new();
    let mut tell = |key: &str, value: Option<Value>| told.extend(value.map(|value| (key.to_owned(), value)));
    tell("command", Some(json!(request.command)));
    tell("status", text("status").or(answer.as_str().map(short)).map(|status| json!(status)));
    tell("error", text("error").map(|error| json!(error)));
    if request.command == "setup" {
        tell("ip", ip.map(|ip| json!(ip)));
        // Clients expect one, also where there is none to be told.
        tell("host_public_key", Some(json!(key.unwrap_or_default())));
    }
    tell("id", Some(json!(instance.id)));
    tell("index", Some(json!(instance.index)));
    tell("job", Some(json!(instance.group)));
    told.into()
}

#[cfg(test)]
mod tests {
    use windlass_operations::testing::new_instance_record;

    use super::*;

    fn told(answer: Value) -> Value {
        let request = SshRequest { command: "setup".into(), target: SshTarget::default(), params: Object::new() };
        let instance = new_instance_record("d", "db", "1f");
        complete(&request, &answer, &instance, Some([127, 78, 0, 2].into()))
    }

    #[test]
    fn nobody_is_let_into_vms_that_compile_for_all() {
        let of = |group: &str| new_instance_record("d", group, "1f");
        let worker = of("compilation-7f1d5b0e-5c0a-4d0e-9f4e-0d9d4a5f6a11");
        let (all, named) = (SshTarget::default(), SshTarget { ids: vec!["1f".into()], ..SshTarget::default() });
        for target in [all, named, SshTarget { job: Some(worker.group.clone()), ..SshTarget::default() }] {
            assert!(!target.includes(&worker), "{target:?}");
        }
        assert!(SshTarget::default().includes(&of("db")));
    }

    /// A VM could send the operator's ssh anywhere, and vouch for other VMs.
    #[test]
    fn a_vm_says_neither_where_it_is_nor_how_to_come_there_nor_which_keys_others_have() {
        let hostile = json!({"command": "setup", "status": "success", "ip": "127.0.0.66", "gateway_host": "127.0.0.66",
            "gateway_user": "root", "id": "other", "host_public_key": "ssh-ed25519 AAAA\n* ssh-ed25519 ATTACKER"});
        let expected = json!({"command": "setup", "status": "success", "ip": "127.78.0.2",
            "host_public_key": "", "id": "1f", "index": 0, "job": "db"});
        assert_eq!(told(hostile), expected);
        let honest = json!({"command": "setup", "status": "success", "host_public_key": "ssh-ed25519 AAAA root@db\n"});
        assert_eq!(told(honest)["host_public_key"], "ssh-ed25519 AAAA");
        assert_eq!(told(json!("no"))["status"], "no");
        let long = "ä".repeat(LONGEST);
        for answer in [json!(long), json!({"status": long, "error": long})] {
            let told = told(answer);
            assert_eq!(told["status"].as_str().unwrap().len(), LONGEST);
            assert!(told["error"].as_str().is_none_or(|error| error.len() == LONGEST));
        }
    }
}
