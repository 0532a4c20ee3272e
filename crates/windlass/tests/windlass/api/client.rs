//! Requests to a director as any client makes them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::site::Site;

/// Far more than any task takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A client of one director.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    runtime: tokio::runtime::Runtime,
    url: String,
    user: (String, String),
}

/// What a director answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| Value::String(self.text()))
    }
}

/// A task that ended.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) state: String,
    pub(crate) result: String,
    /// The lines of its event log.
    pub(crate) events: Vec<Value>,
    /// What the command would print.
    pub(crate) output: String,
}

impl Client {
    pub(crate) fn of(site: &Site) -> Self {
        Self::at(&site.state_dir())
    }

    /// A client of the director with this state directory.
    pub(crate) fn at(state_dir: &Path) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let env = std::fs::read_to_string(state_dir.join("env.sh")).unwrap();
        let env: BTreeMap<&str, &str> = env
            .lines()
            .filter_map(|line| line.strip_prefix("export ")?.split_once('='))
            .map(|(name, value)| (name, value.trim_matches('\'')))
            .collect();
        let ca = std::fs::read(env["BOSH_CA_CERT"]).unwrap();
        let http = reqwest::Client::builder()
            .tls_certs_only(reqwest::Certificate::from_pem_bundle(&ca).unwrap())
            .redirect(reqwest::redirect::Policy::none())
            // The director closes connections that say nothing for 30 seconds.
            .pool_idle_timeout(std::time::Duration::from_secs(20))
            .no_proxy()
            .build()
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let user = (env["BOSH_CLIENT"].to_owned(), env["BOSH_CLIENT_SECRET"].to_owned());
        Self { http, runtime, url: env["BOSH_ENVIRONMENT"].to_owned(), user }
    }

    /// Sends a request with a body of the given type.
    pub(crate) fn send(&self, method: &str, path: &str, kind: &str, body: impl Into<reqwest::Body>) -> Answer {
        self.answer(self.request(method, path, kind, body).basic_auth(&self.user.0, Some(&self.user.1)))
    }

    /// The same for a part of what is there.
    #[allow(dead_code, reason = "not every test asks for parts")]
    pub(crate) fn send_ranged(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: String,
        range: Option<&str>,
    ) -> Answer {
        let mut request = self.request(method, path, kind, body).basic_auth(&self.user.0, Some(&self.user.1));
        if let Some(range) = range {
            request = request.header("range", range);
        }
        self.answer(request)
    }

    /// The same as somebody else, or as nobody.
    #[allow(dead_code, reason = "not every test asks as nobody")]
    pub(crate) fn send_as(
        &self,
        user: Option<(&str, &str)>,
        method: &str,
        path: &str,
        kind: &str,
        body: String,
    ) -> Answer {
        let request = self.request(method, path, kind, body);
        self.answer(match user {
            Some((name, password)) => request.basic_auth(name, Some(password)),
            None => request,
        })
    }

    fn request(&self, method: &str, path: &str, kind: &str, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.http.request(method, format!("{}{path}", self.url)).header("content-type", kind).body(body)
    }

    fn answer(&self, request: reqwest::RequestBuilder) -> Answer {
        self.runtime.block_on(async {
            let answer = request.send().await.unwrap();
            let (status, headers) = (answer.status(), answer.headers().clone());
            Answer { status, headers, body: answer.bytes().await.unwrap().to_vec() }
        })
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.send("GET", path, "", "");
        assert_eq!(answer.status, StatusCode::OK, "GET {path}: {}", answer.text());
        answer.json()
    }

    /// Sends a request that becomes a task, and waits for its end.
    pub(crate) fn task(&self, method: &str, path: &str, kind: &str, body: impl Into<reqwest::Body>) -> Task {
        let answer = self.send(method, path, kind, body);
        assert_eq!(answer.status, StatusCode::FOUND, "{method} {path}: {}", answer.text());
        self.finish(answer.headers[LOCATION].to_str().unwrap())
    }

    /// Waits for the end of the task at a path.
    pub(crate) fn finish(&self, path: &str) -> Task {
        let deadline = Instant::now() + PATIENCE;
        let task = loop {
            let task = self.get(path);
            if !["queued", "processing", "cancelling"].contains(&task["state"].as_str().unwrap()) {
                break task;
            }
            assert!(Instant::now() < deadline, "{path} does not end: {task}");
            std::thread::sleep(Duration::from_millis(20));
        };
        let output = |kind: &str| self.send("GET", &format!("{path}/output?type={kind}"), "", "").text();
        Task {
            state: task["state"].as_str().unwrap().to_owned(),
            result: task["result"].as_str().unwrap_or_default().to_owned(),
            events: output("event").lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            output: output("result"),
        }
    }

    /// A task that must end well; gives its result.
    pub(crate) fn done(&self, method: &str, path: &str, body: &str) -> String {
        let task = self.task(method, path, "application/json", body.to_owned());
        assert_eq!(task.state, "done", "{method} {path}: {task:?}");
        task.result
    }

    #[allow(dead_code, reason = "not every test makes tasks fail")]
    /// A task that must fail; gives the code and the words of its last line.
    pub(crate) fn fails(&self, method: &str, path: &str, body: &str) -> (u64, String) {
        let task = self.task(method, path, "application/json", body.to_owned());
        assert_eq!(task.state, "error", "{method} {path}: {task:?}");
        let error = &task.events.last().unwrap()["error"];
        (error["code"].as_u64().unwrap(), error["message"].as_str().unwrap().to_owned())
    }
}
