//! Calls that were recorded between the original director, the original command line and a CPI. What they said, we
//! understand; what they would say, we say.
//!
//! `data/recorded-calls.jsonl` holds one call of each shape, with the scenario it comes from.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_contract::cpi::methods::*;
use windlass_contract::cpi::{Answer, Method, Request, Response};
use windlass_contract::{ApiVersion, RequestId};
use windlass_cpi_client::{CallError, Cpi, CpiCommand, CpiOptions, Environment};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Director,
    CommandLine,
}

#[derive(Debug)]
struct Recorded {
    from: String,
    caller: Caller,
    request: Value,
    /// What stood on stdout.
    stdout: String,
}

fn recordings() -> Vec<Recorded> {
    let lines: Vec<_> = include_str!("data/recorded-calls.jsonl").lines().map(Recorded::read).collect();
    let callers = |caller| lines.iter().filter(|line| line.caller == caller).count();
    assert!(callers(Caller::Director) > 60 && callers(Caller::CommandLine) > 10, "the recordings are not complete");
    let has_properties = |line: &Recorded| line.request["context"].get("region").is_some();
    assert!(lines.iter().any(has_properties), "no call of a cpi-config entry is recorded");
    lines
}

impl Recorded {
    fn read(line: &str) -> Self {
        let line: Value = serde_json::from_str(line).unwrap();
        let from = line["from"].as_str().unwrap().to_owned();
        let caller = if from.starts_with("create-env/") { Caller::CommandLine } else { Caller::Director };
        let stdout = match line["response_raw"].as_str() {
            Some(raw) => raw.to_owned(),
            None => line["response"].to_string(),
        };
        Self { from, caller, request: line["request"].clone(), stdout }
    }

    fn method(&self) -> &str {
        self.request["method"].as_str().unwrap()
    }

    fn request(&self) -> Request {
        serde_json::from_value(self.request.clone()).unwrap()
    }

    /// The request as we write it: networks whose netmask or gateway is `""` have none.
    fn without_empty_words(&self) -> Value {
        let mut request = self.request.clone();
        if self.method() == "create_vm" {
            for network in request["arguments"][3].as_object_mut().unwrap().values_mut() {
                network.as_object_mut().unwrap().retain(|_, value| *value != "");
            }
        }
        request
    }

    /// A CPI that answers `info` with `info` and everything else with `stdout`, and keeps each request in the file `request`.
    fn cpi(&self, info: &str, stdout: &str) -> (TempDir, Cpi) {
        let folder = tempfile::tempdir().unwrap();
        let script = "cd \"$0\"; cat > request; case $(head -c 16 request) in *info*) cat info;; *) cat stdout;; esac";
        std::fs::write(folder.path().join("info"), info).unwrap();
        std::fs::write(folder.path().join("stdout"), stdout).unwrap();
        let request = self.request();
        let command = CpiCommand {
            executable: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into(), folder.path().into()],
            environment: Environment::Director,
        };
        let options = CpiOptions {
            director_uuid: request.context.director_uuid,
            properties: request.context.properties,
            preferred_version: ApiVersion::V2,
            deadline: Duration::from_secs(30),
        };
        (folder, Cpi::new(command, options))
    }
}

/// Does something with the type of a recorded method.
macro_rules! by_method {
    ($name:expr, $act:ident($($argument:expr),*) $($await:tt)*) => {
        by_method!(@ $name, $act, ($($argument),*), ($($await)*), Info CreateStemcell DeleteStemcell CreateVm DeleteVm
            HasVm RebootVm SetVmMetadata CalculateVmCloudProperties CreateDisk DeleteDisk HasDisk AttachDisk DetachDisk
            SetDiskMetadata ResizeDisk UpdateDisk SnapshotDisk DeleteSnapshot)
    };
    (@ $name:expr, $act:ident, $arguments:tt, $await:tt, $($method:ident)*) => {
        match $name {
            $(name if name == $method::NAME => by_method!(@call $act, $method, $arguments, $await),)*
            other => panic!("'{other}' was never recorded"),
        }
    };
    (@call $act:ident, $method:ident, ($($argument:expr),*), ($($await:tt)*)) => {
        $act::<$method>($($argument),*) $($await)*
    };
}

#[test]
fn every_recorded_request_is_understood_and_written_as_it_was() {
    fn arguments_again<M: Method>(arguments: Vec<Value>) -> Vec<Value> {
        M::from_arguments(arguments).unwrap().to_arguments()
    }
    let mut methods = BTreeSet::new();
    for recorded in recordings() {
        let mut request = recorded.request();
        request.arguments = by_method!(recorded.method(), arguments_again(request.arguments));
        assert_eq!(serde_json::to_value(&request).unwrap(), recorded.without_empty_words(), "{}", recorded.from);
        methods.insert(recorded.method().to_owned());
    }
    assert_eq!(methods.len(), 19, "{methods:?}");
}

#[tokio::test]
async fn for_the_same_operation_we_send_the_same_request() {
    async fn ask<M: Method<Answer: Debug>>(cpi: &Cpi, request: &Request, id: &RequestId) {
        let call = M::from_arguments(request.arguments.clone()).unwrap();
        let stemcell = request.context.vm.map(|_| request.context.stemcell_version());
        let prepared = cpi.prepare(&call, stemcell, id.clone()).await.unwrap();
        cpi.send(prepared, &()).await.unwrap_err();
    }
    let info = json!({"result": {"api_version": 2, "stemcell_formats": ["dummy"]}, "error": null, "log": ""});
    // The differences that are meant, beside the empty words:
    // - `info` is asked once for a CPI and its properties, not before each call, and always without a version (the original
    //   command line sends 1, and the original director sends a second one with a version at a stemcell's upload);
    // - the request id is a UUID, because six digits repeat, and is sent from the command line, too.
    for recorded in recordings().iter().filter(|recorded| recorded.method() != "info") {
        let (folder, cpi) = recorded.cpi(&info.to_string(), "no answer");
        let id = RequestId::random();
        by_method!(recorded.method(), ask(&cpi, &recorded.request(), &id).await);
        let ours = std::fs::read(folder.path().join("request")).unwrap();
        let ours: Value = serde_json::from_slice(&ours).unwrap();
        let mut expected = recorded.without_empty_words();
        let replaced = expected["context"]["request_id"].take();
        assert_eq!(replaced.is_string(), recorded.caller == Caller::Director, "{}", recorded.from);
        expected["context"]["request_id"] = json!(id);
        assert_eq!(ours, expected, "{}", recorded.from);
    }
}

#[tokio::test]
async fn every_recorded_answer_is_taken_as_the_original_took_it() {
    /// The answer as a CPI of ours would write it, null where a method answers nothing.
    async fn understood<M: Method<Answer: Debug>>(cpi: &Cpi, request: &Request) -> Result<Value, CallError> {
        let version = request.api_version.unwrap_or(ApiVersion::V1);
        if M::NAME == Info::NAME {
            return Ok(cpi.info().await?.to_wire(version));
        }
        let call = M::from_arguments(request.arguments.clone()).unwrap();
        Ok(cpi.call(&call, None).await?.to_wire(version))
    }
    // What CPIs put there means nothing.
    let no_answer = [
        "delete_stemcell",
        "delete_vm",
        "set_vm_metadata",
        "delete_disk",
        "detach_disk",
        "set_disk_metadata",
        "resize_disk",
        "delete_snapshot",
    ];
    for recorded in recordings() {
        let request = recorded.request();
        let version =
            json!({"result": {"api_version": request.api_version.unwrap_or(ApiVersion::V1)}, "error": null, "log": ""});
        let info = if recorded.method() == "info" { recorded.stdout.clone() } else { version.to_string() };
        let (_folder, cpi) = recorded.cpi(&info, &recorded.stdout);
        let outcome = by_method!(recorded.method(), understood(&cpi, &request).await);
        let from = &recorded.from;
        match (serde_json::from_str::<Response>(&recorded.stdout), outcome) {
            (Ok(Response { error: Some(error), .. }), Err(outcome)) => {
                assert_eq!(outcome.cpi_error().unwrap().kind, error.kind, "{from}");
            }
            (Ok(Response { error: None, result, .. }), Ok(outcome)) => {
                let ignored = no_answer.contains(&recorded.method());
                assert_eq!(outcome, if ignored { Value::Null } else { result }, "{from}");
            }
            // A CPI that was killed in the middle of its work.
            (Err(_), Err(outcome)) => {
                assert!(recorded.stdout.is_empty() && outcome.effect_is_unknown(), "{from}: {outcome}");
            }
            (response, outcome) => panic!("{from}: {response:?} became {outcome:?}"),
        }
    }
}
