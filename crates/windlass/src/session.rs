//! What a verb works with: the director, the screen, and the deployment it is about.

use reqwest::Method;
use serde_json::Value;
use windlass_director_client::answers::Deployment;
use windlass_director_client::environment::Environment;
use windlass_director_client::known_names;
use windlass_director_client::{ClientError, DirectorClient};

use crate::cli::Global;
use crate::failure::{Failure, KnownNames};
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
        let environment = flags.environment()?;
        let user = match &environment.client {
            Some(client) => format!("as client '{client}'"),
            None => "as anonymous user".to_owned(),
        };
        screen.context(&format!("Using environment '{}' {user}", environment.url));
        Self::with(&environment, flags, screen)
    }

    /// The same without saying it.
    pub(crate) fn open_quietly(flags: &Global, screen: &'a mut Screen) -> Result<Self, Failure> {
        Self::with(&flags.environment()?, flags, screen)
    }

    fn with(environment: &Environment, flags: &Global, screen: &'a mut Screen) -> Result<Self, Failure> {
        let variable = |name: &str| flags.variable(name);
        let director = DirectorClient::new(environment).while_("connecting to the director")?;
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
        if all.iter().any(|deployment| deployment.name == name) {
            return Ok(Some(name));
        }
        let known = KnownNames(all.into_iter().map(|deployment| deployment.name).collect());
        Err(Failure::NoSuchDeployment { name: name.to_owned(), known })
    }

    /// Adds what there is to a failure about something that is not there.
    pub(crate) async fn name_what_there_is(&self, failure: Failure) -> Failure {
        let Some((message, kind, name)) = missing(&failure) else { return failure };
        match known_names::all(&self.director, kind, self.named_deployment()).await {
            Ok(known) => {
                let (name, known) =
                    if kind == known_names::Kind::Instance { by_group(name, known) } else { (name, known) };
                Failure::Missing { message, name, known: KnownNames(known) }
            }
            Err(_) => failure,
        }
    }

    /// Begins a task and follows it to its end. Fails if the task does.
    pub(crate) async fn carry_out(&mut self, call: Call<'_>, doing: &str) -> Result<u64, Failure> {
        let task = self.begin(call, doing).await?;
        task_view::follow(self, task, doing).await?;
        Ok(task)
    }

    /// Begins a task.
    pub(crate) async fn begin(&self, call: Call<'_>, doing: &str) -> Result<u64, Failure> {
        let task = match call.body {
            Body::Nothing => self.director.begin(call.method, &call.path, None).await,
            Body::Yaml(yaml) => self.director.begin(call.method, &call.path, Some(yaml)).await,
            Body::Json(json) => self.director.begin_json(call.method, &call.path, &json).await,
        };
        task.while_(doing)
    }

    /// What is not there need not be deleted, as for BOSH. A person who misspelt it wants to know.
    pub(crate) fn was_not_there(&mut self, what: &str) {
        if self.screen.is_for_people() {
            self.screen.line(&format!("{what}; nothing is left to delete"));
        }
    }

    /// Asks before something changes.
    pub(crate) fn confirm(&mut self) -> Result<(), Failure> {
        self.screen.confirm()
    }
}

/// What the director says, if that is that something does not exist; of which kind it is, and its name.
fn missing(failure: &Failure) -> Option<(String, known_names::Kind, String)> {
    let message = match failure {
        Failure::Director { source: ClientError::Refused { message, .. }, .. } => message,
        Failure::Task { why, .. } => why,
        _ => return None,
    };
    let (kind, rest) = message.split_once(" '")?;
    let kind = match kind {
        "Deployment" => known_names::Kind::Deployment,
        "Instance" => known_names::Kind::Instance,
        "Stemcell" => known_names::Kind::Stemcell,
        "Release" | "Release version" => known_names::Kind::Release,
        "Errand" => known_names::Kind::Errand,
        _ => return None,
    };
    let (name, _) = rest.split_once("' doesn't exist")?;
    Some((message.clone(), kind, name.to_owned()))
}

/// Who names a group that is not there is told of the groups; otherwise of the group's instances.
fn by_group(name: String, instances: Vec<String>) -> (String, Vec<String>) {
    let group_of = |instance: &str| instance.split('/').next().unwrap_or_default().to_owned();
    let group = group_of(&name);
    let mut groups: Vec<String> = instances.iter().map(|instance| group_of(instance)).collect();
    groups.dedup();
    match groups.contains(&group) {
        true => (name, instances.into_iter().filter(|instance| group_of(instance) == group).collect()),
        false => (group, groups),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_director_misses_is_recognised() {
        let refused = |message: &str| {
            let source = ClientError::Refused { status: reqwest::StatusCode::NOT_FOUND, message: message.to_owned() };
            missing(&Failure::Director { doing: "listing".to_owned(), source })
        };
        let (_, kind, name) = refused("Deployment 'shpo' doesn't exist").unwrap();
        assert_eq!((kind, name.as_str()), (known_names::Kind::Deployment, "shpo"));
        let (message, kind, name) = refused("Instance 'db/9' doesn't exist in deployment 'shop'").unwrap();
        assert_eq!((kind, name.as_str()), (known_names::Kind::Instance, "db/9"));
        assert!(message.ends_with("in deployment 'shop'"));
        assert!(refused("the manifest has no name").is_none());
    }

    #[test]
    fn who_misspells_a_group_is_told_of_groups_and_not_of_forty_ids() {
        let all = || ["db/1", "web/2", "web/3"].map(str::to_owned).to_vec();
        assert_eq!(by_group("wbe/0".into(), all()), ("wbe".into(), vec!["db".into(), "web".into()]));
        assert_eq!(by_group("web/9".into(), all()), ("web/9".into(), vec!["web/2".into(), "web/3".into()]));
    }
}
