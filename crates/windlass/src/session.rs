//! What a verb works with: the director, the screen, and the deployment it is about.

use reqwest::Method;
use serde_json::Value;

use crate::cli::Global;
use crate::director_answers::Deployment;
use crate::director_client::{ClientError, DirectorClient};
use crate::environment;
use crate::failure::Failure;
use crate::screen::Screen;
use crate::task_view;

/// A verb's conversation with the director and with its user.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pub(crate) director: DirectorClient,
    pub(crate) screen: &'a mut Screen,
    deployment: Option<String>,
    /// Deployments to ask at once.
    pub(crate) parallel: usize,
}

impl<'a> Session<'a> {
    /// Finds the director and says which it is.
    pub(crate) fn open(flags: &Global, screen: &'a mut Screen) -> Result<Self, Failure> {
        let variable = |name: &str| flags.variable(name);
        let environment = environment::resolve(flags, variable)?;
        let director = DirectorClient::new(&environment).while_("connecting to the director")?;
        let user = match &environment.client {
            Some(client) => format!("as client '{client}'"),
            None => "as anonymous user".to_owned(),
        };
        screen.context(&format!("Using environment '{}' {user}", environment.url));
        let deployment = flags.deployment.clone().or_else(|| variable("BOSH_DEPLOYMENT"));
        Ok(Self {
            director,
            screen,
            deployment: deployment.filter(|name| !name.is_empty()),
            parallel: usize::from(flags.parallel.max(1)),
        })
    }

    /// The deployment, if one is named.
    pub(crate) fn named_deployment(&self) -> Option<&str> {
        self.deployment.as_deref()
    }

    /// The deployment that the verb needs.
    pub(crate) fn deployment(&self) -> Result<String, Failure> {
        self.deployment.clone().ok_or(Failure::NoDeployment)
    }

    /// Tells the user which deployment it is about.
    pub(crate) fn using_deployment(&mut self) -> Result<String, Failure> {
        let name = self.deployment()?;
        self.screen.context(&format!("Using deployment '{name}'"));
        Ok(name)
    }

    /// The deployment that is named, if there is one of that name.
    pub(crate) async fn existing_deployment(&self) -> Result<Option<&str>, Failure> {
        let Some(name) = self.named_deployment() else { return Ok(None) };
        let path = "/deployments?exclude_configs=true&exclude_releases=true&exclude_stemcells=true";
        let all: Vec<Deployment> = self.director.get(path).await.while_("listing deployments")?;
        let exists = all.iter().any(|deployment| deployment.name == name);
        if exists { Ok(Some(name)) } else { Err(Failure::NoSuchDeployment(name.to_owned())) }
    }

    /// Begins a task and follows it to its end. Fails if the task does.
    pub(crate) async fn carry_out(&mut self, call: Call<'_>, doing: &str) -> Result<u64, Failure> {
        let task = match call.body {
            Body::Nothing => self.director.begin(call.method, &call.path, None).await,
            Body::Yaml(yaml) => self.director.begin(call.method, &call.path, Some(yaml)).await,
            Body::Json(json) => self.director.begin_json(call.method, &call.path, &json).await,
        };
        let task = task.while_(doing)?;
        task_view::follow(self, task, doing).await?;
        Ok(task)
    }

    /// Asks before something changes.
    pub(crate) fn confirm(&mut self) -> Result<(), Failure> {
        self.screen.confirm()
    }
}

/// A call that begins a task.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    method: Method,
    path: String,
    body: Body<'a>,
}

#[derive(Debug)]
enum Body<'a> {
    Nothing,
    Yaml(&'a str),
    Json(Value),
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), body: Body::Nothing }
    }

    pub(crate) fn with_yaml(self, yaml: &'a str) -> Self {
        Self { body: Body::Yaml(yaml), ..self }
    }

    pub(crate) fn with_json(self, json: Value) -> Self {
        Self { body: Body::Json(json), ..self }
    }
}

/// Says what was being done when a call failed.
pub(crate) trait While<T> {
    fn while_(self, doing: impl Into<String>) -> Result<T, Failure>;
}

impl<T> While<T> for Result<T, ClientError> {
    fn while_(self, doing: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|source| Failure::Director { doing: doing.into(), source })
    }
}
