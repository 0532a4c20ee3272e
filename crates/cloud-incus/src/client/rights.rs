//! Who is trusted, and projects.

use hyper::Method;
use serde::Deserialize;
use serde_json::json;

use super::instances::Settings;
use super::{Client, ClientError, Request};

/// What the server knows of a client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Trusted {
    /// Whether it is confined to projects.
    #[serde(default)]
    pub restricted: bool,
    #[serde(default)]
    pub projects: Vec<String>,
}

#[derive(Deserialize)]
struct Root {
    #[serde(default)]
    auth: String,
}

impl Client {
    /// Whether the server knows our certificate.
    pub async fn is_trusted(&self) -> Result<bool, ClientError> {
        let root: Root = self.ask(Request::get(&[], "ask whether the server trusts us")).await?;
        Ok(root.auth == "trusted")
    }

    /// Has our certificate trusted, for a token that the server's operator made.
    pub async fn redeem(&self, token: &str, name: &str) -> Result<(), ClientError> {
        // LXD knows the first name of the token, Incus the second.
        let body = json!({"type": "client", "name": name, "password": token, "trust_token": token});
        let request =
            Request::new(Method::POST, &["certificates"], "have the certificate trusted for the token").json(&body);
        self.change(request).await
    }

    /// What the server knows of a certificate; only those that are not restricted may ask.
    pub async fn certificate(&self, fingerprint: &str) -> Result<Trusted, ClientError> {
        self.ask(Request::get(&["certificates", fingerprint], "look what the certificate may do")).await
    }

    /// Confines a certificate to a project.
    pub async fn restrict(&self, fingerprint: &str, project: &str) -> Result<(), ClientError> {
        let request = Request::new(
            Method::PATCH,
            &["certificates", fingerprint],
            format!("restrict the certificate to the project '{project}'"),
        );
        self.change(request.json(&json!({"restricted": true, "projects": [project]}))).await
    }

    /// Makes a project.
    pub async fn create_project(&self, name: &str, description: &str, config: &Settings) -> Result<(), ClientError> {
        let body = json!({"name": name, "description": description, "config": config});
        let request = Request::new(Method::POST, &["projects"], format!("make the project '{name}'")).json(&body);
        self.change(request).await
    }

    /// The configuration of a project.
    pub async fn config_of_project(&self, name: &str) -> Result<Settings, ClientError> {
        #[derive(Deserialize)]
        struct Project {
            #[serde(default)]
            config: Settings,
        }
        let project: Project = self.ask(Request::get(&["projects", name], format!("use the project '{name}'"))).await?;
        Ok(project.config)
    }
}
