//! What a daemon does in the background, and waiting for it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::answer::one_line;
use super::{Client, ClientError, Request};

/// One question waits this long for the end of an operation, in seconds.
const SLICE: u64 = 30;

/// An answer that comes sooner than this did not wait for anything; and the next question waits for so long.
const LEAST: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(50);

/// How long other operations on an object are waited for.
const OTHERS: Duration = Duration::from_secs(10 * 60);

#[derive(Debug, Deserialize)]
struct Operation {
    #[serde(default)]
    id: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    status_code: u16,
    #[serde(default)]
    err: Option<String>,
    #[serde(default)]
    resources: Option<BTreeMap<String, Option<Vec<String>>>>,
}

impl Operation {
    /// The end, if it has come. Pending is 105, running 103, cancelling 104, success 200, failure 400, cancelled 401.
    fn end(self, doing: &str) -> Option<Result<(), ClientError>> {
        match self.status_code {
            200 => Some(Ok(())),
            code @ 400.. => {
                let err = self.err.map(|err| one_line(&err)).filter(|err| !err.is_empty());
                let text = err.unwrap_or_else(|| format!("the operation ended as {}", self.status));
                Some(Err(ClientError::Refused { doing: doing.to_owned(), code, text }))
            }
            _ => None,
        }
    }

    fn is_on(&self, name: &str) -> bool {
        let resources = self.resources.iter().flatten().flat_map(|(_, paths)| paths.iter().flatten());
        let last = |path: &String| path.split('?').next().and_then(|path| path.rsplit('/').next()).map(str::to_owned);
        resources.filter_map(last).any(|last| last == name)
    }
}

impl Client {
    /// Waits for the end of an operation. A failure comes as an operation that failed, or as an error, by version.
    pub(crate) async fn wait(&self, operation: &str, doing: &str) -> Result<(), ClientError> {
        let begun = Instant::now();
        loop {
            let asked = Instant::now();
            let request = Request::at(format!("{operation}/wait"), doing).with("timeout", SLICE.to_string());
            let state: Operation = match self.ask(request).await {
                Ok(state) => state,
                // Finished operations are forgotten after some seconds, and all of them at a restart.
                Err(error) if error.is_missing() && error.says("operation") => {
                    return Err(ClientError::ForgottenOperation { doing: doing.to_owned() });
                }
                Err(error) => return Err(error),
            };
            if let Some(end) = state.end(doing) {
                return end;
            }
            pause_after(asked).await;
            if begun.elapsed() > self.patience.operation {
                return Err(ClientError::TooSlow { doing: doing.to_owned(), patience: self.patience.operation });
            }
        }
    }

    /// Waits until no operation runs on an object of this name, also those of others, and however it ends.
    pub async fn wait_for_others(&self, name: &str) -> Result<(), ClientError> {
        let doing = format!("wait for what is done to {name}");
        let begun = Instant::now();
        loop {
            let asked = Instant::now();
            let request = Request::get(&["operations"], doing.clone()).with("recursion", "1");
            let all: BTreeMap<String, Vec<Operation>> = self.ask(request).await?;
            let running = all.into_iter().filter(|(state, _)| state != "success" && state != "failure");
            let Some(on_it) = running.flat_map(|(_, list)| list).find(|operation| operation.is_on(name)) else {
                return Ok(());
            };
            if begun.elapsed() > OTHERS {
                return Err(ClientError::TooSlow { doing, patience: OTHERS });
            }
            let waited = self.wait(&format!("/1.0/operations/{}", on_it.id), &doing).await;
            if let Err(error @ (ClientError::Unreachable { .. } | ClientError::NoQuorum { .. })) = waited {
                return Err(error);
            }
            pause_after(asked).await;
        }
    }
}

/// A daemon waits itself until an operation ends, or [`SLICE`] is over. One that does not must not be asked without a pause.
async fn pause_after(asked: Instant) {
    if asked.elapsed() < LEAST {
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn operation(value: Value) -> Operation {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn an_operation_that_fails_after_a_success_status_is_a_failure() {
        let failed = operation(json!({"status": "Failure", "status_code": 400, "err": "Storage pool\nnot found"}));
        let error = failed.end("make it").unwrap().unwrap_err();
        assert_eq!(error.to_string(), "cannot make it: Storage pool not found");
        let silent = operation(json!({"status": "Cancelled", "status_code": 401, "err": ""}));
        assert!(silent.end("x").unwrap().unwrap_err().to_string().contains("ended as Cancelled"));
        assert!(operation(json!({"status": "Running", "status_code": 103, "metadata": null})).end("x").is_none());
        assert!(operation(json!({"status": "Success", "status_code": 200})).end("x").unwrap().is_ok());
    }

    #[test]
    fn operations_are_found_by_the_objects_last_name() {
        let on = |path: &str| operation(json!({"resources": {"instances": [path], "images": null}}));
        assert!(on("/1.0/instances/vm-1").is_on("vm-1") && on("/1.0/instances/vm-1?project=p").is_on("vm-1"));
        assert!(!on("/1.0/instances/vm-11").is_on("vm-1"));
    }
}
