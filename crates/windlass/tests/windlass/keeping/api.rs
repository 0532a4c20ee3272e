//! The director's API as a client sees it.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::site::Site;

/// Far more than any task takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A conversation with a director.
pub(crate) struct Api {
    url: String,
    secret: String,
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
}

impl Api {
    pub(crate) fn of(site: &Site) -> Self {
        let environment = fs::read_to_string(site.state_dir().join("env.sh")).unwrap();
        let value = |name: &str| {
            let line = environment.lines().find(|line| line.starts_with(&format!("export {name}="))).unwrap();
            line.split('\'').nth(1).unwrap().to_owned()
        };
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let ca = reqwest::Certificate::from_pem(&fs::read(value("BOSH_CA_CERT")).unwrap()).unwrap();
        let client = reqwest::Client::builder()
            .tls_certs_only([ca])
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(0)
            .build()
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { url: value("BOSH_ENVIRONMENT"), secret: value("BOSH_CLIENT_SECRET"), client, runtime }
    }

    fn send(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Option<String>, String) {
        self.runtime.block_on(async {
            let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
            let mut request =
                self.client.request(method, format!("{}{path}", self.url)).basic_auth("admin", Some(&self.secret));
            if let Some(body) = body {
                request = request.header("content-type", "application/json").body(body.to_string());
            }
            let response = request.send().await.unwrap();
            let location = response.headers().get("location").map(|it| it.to_str().unwrap().to_owned());
            (response.status().as_u16(), location, response.text().await.unwrap())
        })
    }

    pub(crate) fn text(&self, path: &str) -> String {
        let (status, _, text) = self.send("GET", path, None);
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    /// The value of a metric without labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.text("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
        line.parse().unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.text(path)).unwrap()
    }

    pub(crate) fn status(&self, method: &str, path: &str, body: Value) -> u16 {
        self.send(method, path, Some(body)).0
    }

    /// Asks for something that takes time, and waits for its end.
    pub(crate) fn task(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, location, text) = self.send(method, path, Some(body));
        assert_eq!(status, 302, "{path}: {text}");
        let path = location.unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let task = self.get(&path);
            if !["queued", "processing", "cancelling"].contains(&task["state"].as_str().unwrap()) {
                return task;
            }
            assert!(Instant::now() < deadline, "{task} does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn newest_task(&self) -> Value {
        self.get("/tasks?verbose=2&limit=1")[0].clone()
    }

    /// The problems that a scan finds.
    pub(crate) fn scan(&self, deployment: &str) -> Value {
        let task = self.task("POST", &format!("/deployments/{deployment}/scans"), json!({}));
        assert_eq!(task["result"], "scan complete", "{task}");
        self.get(&format!("/deployments/{deployment}/problems"))
    }

    /// Chooses a resolution where it is offered and `ignore` elsewhere, as the original client does; says how it ended.
    pub(crate) fn resolve(&self, deployment: &str, problems: &Value, resolution: Option<&str>) -> String {
        let choice = |problem: &Value| {
            let Some(wanted) = resolution else { return Value::Null };
            let offered = problem["resolutions"].as_array().unwrap().iter().any(|it| it["name"] == wanted);
            json!(if offered { wanted } else { "ignore" })
        };
        let problems = problems.as_array().unwrap().iter();
        let choices: serde_json::Map<_, _> = problems.map(|it| (it["id"].to_string(), choice(it))).collect();
        let path = format!("/deployments/{deployment}/problems");
        let task = self.task("PUT", &path, json!({"resolutions": choices}));
        match task["state"].as_str().unwrap() {
            "done" => "done".to_owned(),
            _ => task["result"].as_str().unwrap().to_owned(),
        }
    }

    /// Waits until the agent of a VM answers.
    pub(crate) fn wait_for_agent(&self, deployment: &str, vm: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (_, location, _) = self.send("GET", &format!("/deployments/{deployment}/vms?format=full"), None);
            let task = location.unwrap();
            while self.get(&task)["state"] != "done" {
                std::thread::sleep(Duration::from_millis(20));
            }
            let lines = self.text(&format!("{task}/output?type=result"));
            let mut lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            if lines.any(|line| line["vm_cid"] == vm && line["job_state"] == "running") {
                return;
            }
            assert!(Instant::now() < deadline, "{vm} does not answer");
        }
    }
}
