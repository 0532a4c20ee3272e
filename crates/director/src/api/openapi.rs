//! `/openapi.json`: every route, what it takes and what it gives, for authors of clients. Answers are described by the types that
//! the routes write.

use serde_json::{Map, Value, json};
use windlass_contract::director::{
    self, Certificate, ChangedFiles, CleanUpPlan, CloudConfig, CloudProblem, Config, Deployment, DeploymentConfig,
    Diff, Disk, Explained, Info, InstanceSummary, Known, Leak, Lock, Manifest, Named, Needed, Network, OrphanedDisk,
    OrphanedVm, RecordedEvent, Release, ReleaseContents, Resurrection, ShownPlan, Snapshot, Stemcell, Variable,
    VariableExpiry, VariableUsers, schema,
};

use super::Json;

/// What a route takes.
#[derive(Debug, Clone, Copy)]
enum Takes {
    /// Nothing but its path and query.
    Nothing,
    /// A JSON document.
    Json,
    /// A YAML document.
    Yaml,
    Tarball,
    /// Frames, for as long as it takes.
    Frames,
}

/// What a route gives.
#[derive(Debug, Clone, Copy)]
enum Gives {
    /// A JSON document that is described by nothing but examples.
    Json,
    /// A JSON document of a type, by its schema.
    Answer(fn() -> Value),
    /// `302` to the task that does it.
    Task,
    /// Nothing but a status.
    Status,
    Text,
    /// Frames, for as long as it takes.
    Frames,
}

struct Route(&'static str, &'static str, Takes, Gives, &'static str);

use Gives::{Answer, Frames as AnyFrames, Json as AnyJson, Status, Task, Text};
use Takes::{Frames as FramesBody, Json as JsonBody, Nothing, Tarball, Yaml};

#[rustfmt::skip]
const ROUTES: &[Route] = &[
    Route("get", "/info", Nothing, Answer(schema::<Info>), "Who this is; the only JSON without credentials"),
    Route("get", "/health", Nothing, Text, "Whether the director is well; without credentials"),
    Route("get", "/metrics", Nothing, Text, "What is counted, in the text format of Prometheus"),
    Route("get", "/director/certificate_expiry", Nothing, Answer(schema::<Vec<Certificate>>), "When the director's certificates end"),
    Route("get", "/openapi.json", Nothing, AnyJson, "This document"),
    Route("get", "/stemcells", Nothing, Answer(schema::<Vec<Stemcell>>), "Stemcells"),
    Route("post", "/stemcells", Tarball, Task, "Upload a stemcell, or name where it is"),
    Route("post", "/stemcell_uploads", JsonBody, Answer(schema::<Needed>), "Whether a stemcell is needed"),
    Route("delete", "/stemcells/{name}/{version}", Nothing, Task, "Delete a stemcell"),
    Route("get", "/releases", Nothing, Answer(schema::<Vec<Release>>), "Releases"),
    Route("post", "/releases", Tarball, Task, "Upload a release, or name where it is"),
    Route("get", "/releases/{name}", Nothing, Answer(schema::<ReleaseContents>), "A release"),
    Route("delete", "/releases/{name}", Nothing, Task, "Delete a release"),
    Route("post", "/releases/export", JsonBody, Task, "Compile a release for a stemcell and pack it"),
    Route("post", "/packages/matches", Yaml, Answer(schema::<Vec<String>>), "Packages that are there already"),
    Route("post", "/packages/matches_compiled", Yaml, Answer(schema::<Vec<String>>), "Compiled packages that are there already"),
    Route("get", "/networks", Nothing, Answer(schema::<Vec<Network>>), "Managed networks"),
    Route("delete", "/networks/{name}", Nothing, Task, "Delete a managed network"),
    Route("get", "/configs", Nothing, Answer(schema::<Vec<Config>>), "Configs of every type"),
    Route("post", "/configs", JsonBody, Answer(schema::<Config>), "Add a config"),
    Route("delete", "/configs", Nothing, Status, "Delete a config by type and name"),
    Route("get", "/configs/{id}", Nothing, Answer(schema::<Config>), "A config"),
    Route("delete", "/configs/{id}", Nothing, Status, "Delete a config"),
    Route("post", "/configs/diff", JsonBody, Answer(schema::<Diff>), "Compare configs"),
    Route("get", "/cloud_configs", Nothing, Answer(schema::<Vec<CloudConfig>>), "Cloud configs"),
    Route("post", "/cloud_configs", Yaml, Status, "Replace a cloud config"),
    Route("post", "/cloud_configs/diff", Yaml, Answer(schema::<Diff>), "Compare with the cloud config"),
    Route("get", "/runtime_configs", Nothing, Answer(schema::<Vec<CloudConfig>>), "Runtime configs"),
    Route("post", "/runtime_configs", Yaml, Status, "Replace a runtime config"),
    Route("post", "/runtime_configs/diff", Yaml, Answer(schema::<Diff>), "Compare with the runtime config"),
    Route("get", "/cpi_configs", Nothing, Answer(schema::<Vec<CloudConfig>>), "CPI configs"),
    Route("post", "/cpi_configs", Yaml, Status, "Replace the CPI config"),
    Route("post", "/cpi_configs/diff", Yaml, Answer(schema::<Diff>), "Compare with the CPI config"),
    Route("get", "/deployment_configs", Nothing, Answer(schema::<Vec<DeploymentConfig>>), "Which configs deployments use"),
    Route("get", "/deployments", Nothing, Answer(schema::<Vec<Deployment>>), "Deployments"),
    Route("post", "/deployments", Yaml, Task, "Deploy a manifest"),
    Route("get", "/deployments/{deployment}", Nothing, Answer(schema::<Manifest>), "A deployment's manifest"),
    Route("delete", "/deployments/{deployment}", Nothing, Task, "Delete a deployment; its disks are orphaned"),
    Route("post", "/deployments/{deployment}/diff", Yaml, Answer(schema::<Diff>), "Compare with the manifest that was deployed"),
    Route("get", "/deployments/{deployment}/vms", Nothing, Answer(schema::<Vec<InstanceSummary>>), "VMs; with format=full a task that asks their agents"),
    Route("get", "/deployments/{deployment}/instances", Nothing, Answer(schema::<Vec<InstanceSummary>>), "Instances; with format=full a task that asks their agents"),
    Route("put", "/deployments/{deployment}/jobs/{group}", Yaml, Task, "Change the state of a group, or of all with *"),
    Route("put", "/deployments/{deployment}/jobs/{group}/{instance}", Yaml, Task, "Change the state of an instance"),
    Route("get", "/deployments/{deployment}/jobs/{group}/{instance}/logs", Nothing, Task, "Fetch logs"),
    Route("post", "/deployments/{deployment}/jobs/{group}/{instance}/snapshots", Nothing, Task, "Take snapshots of an instance's disks"),
    Route("put", "/deployments/{deployment}/jobs/{group}/{instance}/resurrection", JsonBody, Status, "Gone; use a resurrection config"),
    Route("post", "/deployments/{deployment}/instance_groups/{group}/{instance}/actions/{action}", Nothing, Task, "Start, stop, restart or recreate one instance alone"),
    Route("put", "/deployments/{deployment}/instance_groups/{group}/{instance}/ignore", JsonBody, Status, "Leave an instance alone, or no longer"),
    Route("get", "/deployments/{deployment}/snapshots", Nothing, Answer(schema::<Vec<Snapshot>>), "Snapshots"),
    Route("post", "/deployments/{deployment}/snapshots", Nothing, Task, "Take snapshots of all disks"),
    Route("delete", "/deployments/{deployment}/snapshots", Nothing, Task, "Delete all snapshots"),
    Route("delete", "/deployments/{deployment}/snapshots/{cid}", Nothing, Task, "Delete a snapshot"),
    Route("post", "/deployments/{deployment}/ssh", JsonBody, Task, "Set up or clean up access by ssh"),
    Route("get", "/link_providers", Nothing, AnyJson, "Links that a deployment provides"),
    Route("get", "/link_consumers", Nothing, AnyJson, "Links that a deployment consumes"),
    Route("get", "/links", Nothing, AnyJson, "Links of a deployment's consumers"),
    Route("post", "/links", JsonBody, AnyJson, "Consume a shared link from outside of deployments"),
    Route("delete", "/links/{id}", Nothing, Status, "Give such a link up"),
    Route("get", "/link_address", Nothing, AnyJson, "The name of a link's instances in DNS"),
    Route("get", "/deployments/{deployment}/errands", Nothing, Answer(schema::<Vec<Named>>), "Errands"),
    Route("post", "/deployments/{deployment}/errands/{errand}/runs", JsonBody, Task, "Run an errand"),
    Route("get", "/deployments/{deployment}/variables", Nothing, Answer(schema::<Vec<Variable>>), "Variables"),
    Route("get", "/deployments/{deployment}/certificate_expiry", Nothing, Answer(schema::<Vec<VariableExpiry>>), "When certificates among the variables end"),
    Route("get", "/deployed_variables/{name}", Nothing, Answer(schema::<VariableUsers>), "Which deployments use which version of a variable"),
    Route("get", "/v1/data", Nothing, AnyJson, "Versions of a variable by its name, newest first, with their values"),
    Route("put", "/v1/data", JsonBody, AnyJson, "Set the value of a variable"),
    Route("post", "/v1/data", JsonBody, AnyJson, "Make the value of a variable, if it has none"),
    Route("delete", "/v1/data", Nothing, Status, "Forget a variable with all of its versions"),
    Route("get", "/v1/data/{id}", Nothing, AnyJson, "A version of a variable by its id, with its value"),
    Route("get", "/windlass/variables", Nothing, Answer(schema::<Vec<String>>), "The names of all variables"),
    Route("post", "/deployments/{deployment}/scans", JsonBody, Task, "Compare the records with agents and clouds"),
    Route("get", "/deployments/{deployment}/problems", Nothing, Answer(schema::<Vec<CloudProblem>>), "Problems that a scan found, with what can be done about them"),
    Route("put", "/deployments/{deployment}/problems", JsonBody, Task, "Do something about problems"),
    Route("put", "/deployments/{deployment}/scan_and_fix", JsonBody, Task, "Look at instances, and recreate VMs that are lost"),
    Route("get", "/resurrection", Nothing, Answer(schema::<Resurrection>), "Whether VMs that are lost are recreated"),
    Route("put", "/resurrection", JsonBody, Status, "Pause the resurrector, or let it go on"),
    Route("get", "/tasks", Nothing, Answer(schema::<Vec<director::Task>>), "Tasks"),
    Route("get", "/tasks/{id}", Nothing, Answer(schema::<director::Task>), "A task"),
    Route("get", "/tasks/{id}/output", Nothing, Text, "The output of a task, from a byte on"),
    Route("delete", "/task/{id}", Nothing, Status, "Cancel a task"),
    Route("post", "/tasks/cancel", JsonBody, Status, "Cancel tasks"),
    Route("get", "/events", Nothing, Answer(schema::<Vec<RecordedEvent>>), "Events, the newest first"),
    Route("post", "/events", JsonBody, Status, "Add an event"),
    Route("get", "/events/{id}", Nothing, Answer(schema::<RecordedEvent>), "An event"),
    Route("get", "/locks", Nothing, Answer(schema::<Vec<Lock>>), "Locks that are held"),
    Route("delete", "/windlass/locks/{name}", Nothing, Status, "Remove a lock whose task does not run"),
    Route("post", "/windlass/webhook/test", Nothing, Status, "Send a test to the webhook, and say whether it took it"),
    Route("get", "/disks", Nothing, Answer(schema::<Vec<OrphanedDisk>>), "Orphaned disks"),
    Route("delete", "/disks/{cid}", Nothing, Task, "Delete an orphaned disk, or orphan one"),
    Route("put", "/disks/{cid}/attachments", Nothing, Task, "Give a disk to an instance"),
    Route("get", "/orphaned_vms", Nothing, Answer(schema::<Vec<OrphanedVm>>), "VMs that others took the places of"),
    Route("delete", "/vms/{cid}", Nothing, Task, "Delete a VM"),
    Route("post", "/cleanup", JsonBody, Task, "Delete what nobody uses"),
    Route("get", "/cleanup/dryrun", Nothing, Answer(schema::<CleanUpPlan>), "What a clean-up would delete"),
    Route("get", "/resources/{id}", Nothing, Text, "A blob, such as fetched logs"),
    Route("post", "/windlass/plan", Yaml, Answer(schema::<ShownPlan>), "What a deploy would do, each action with its reason"),
    Route("post", "/windlass/changed_files", Yaml, Answer(schema::<ChangedFiles>), "Which files of jobs a deploy would change, with values hidden"),
    Route("get", "/windlass/deployments/{deployment}/instances/{group}/{instance}", Nothing, Answer(schema::<Explained>), "Why an instance is as it is"),
    Route("post", "/windlass/deployments/{deployment}/instances/{group}/{instance}/way-in", FramesBody, AnyFrames, "Run a command, copy files or follow logs through the agent; input and output are frames"),
    Route("get", "/windlass/disks", Nothing, Answer(schema::<Vec<Disk>>), "Disks of instances, with where their VMs find them"),
    Route("get", "/windlass/leaks", Nothing, Answer(schema::<Vec<Leak>>), "Changes in clouds of which nobody knows whether they happened"),
    Route("post", "/windlass/leaks/deletions", JsonBody, Task, "Delete what a cloud has and nobody owns"),
    Route("get", "/windlass/known", Nothing, Answer(schema::<Known>), "Everything in the clouds that is on record"),
];

pub(super) async fn document() -> Json<Value> {
    Json(built())
}

pub(super) fn built() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let entry = paths.entry(route.1).or_insert_with(|| json!({}));
        entry[route.0] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Windlass director", "version": env!("CARGO_PKG_VERSION")},
        "components": {"securitySchemes": {"basic": {"type": "http", "scheme": "basic"}}},
        "security": [{"basic": []}],
        "paths": paths,
    })
}

fn operation(Route(_, path, takes, gives, summary): &Route) -> Value {
    let parameters: Vec<Value> = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    let content = |kind: &str| json!({"content": {kind: {"schema": {}}}});
    let (status, mut answer) = match gives {
        Gives::Json => ("200", content("application/json")),
        Gives::Answer(schema) => ("200", json!({"content": {"application/json": {"schema": schema()}}})),
        Gives::Text => ("200", content("text/plain")),
        Gives::Frames => ("200", content("application/octet-stream")),
        Gives::Task => ("302", json!({"headers": {"Location": {"schema": {"type": "string"}}}})),
        Gives::Status => ("default", json!({})),
    };
    answer["description"] = json!(match gives {
        Gives::Task => "The task is at /tasks/{id}",
        _ => "What was asked for",
    });
    let mut operation = json!({"summary": summary, "parameters": parameters, "responses": {status: answer}});
    let body = match takes {
        Takes::Nothing => None,
        Takes::Json => Some("application/json"),
        Takes::Yaml => Some("text/yaml"),
        Takes::Tarball => Some("application/x-compressed"),
        Takes::Frames => Some("application/octet-stream"),
    };
    if let Some(kind) = body {
        operation["requestBody"] = content(kind);
    }
    if matches!(*path, "/info" | "/health") {
        operation["security"] = json!([]);
    }
    operation
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A document that leaves something out, or names what is not there, misleads.
    #[test]
    fn every_route_is_described_and_nothing_else() {
        let source = include_str!("mod.rs").split("\n/// Serves until").next().unwrap();
        let routes: BTreeSet<&str> =
            source.split('"').skip(1).step_by(2).filter(|literal| literal.starts_with('/')).collect();
        let described: BTreeSet<&str> = ROUTES.iter().map(|route| route.1).collect();
        let missing: Vec<_> = routes.difference(&described).collect();
        let gone: Vec<_> = described.difference(&routes).collect();
        assert!(missing.is_empty() && gone.is_empty(), "not in ROUTES: {missing:?}; no routes any more: {gone:?}");
        let document = built();
        assert_eq!(document["paths"]["/info"]["get"]["security"], json!([]));
        assert_eq!(document["paths"]["/tasks/{id}"]["get"]["parameters"][0]["name"], "id");
        let answer = &document["paths"]["/tasks/{id}"]["get"]["responses"]["200"]["content"]["application/json"];
        assert_eq!(answer["schema"]["properties"]["state"]["type"], "string");
    }
}
