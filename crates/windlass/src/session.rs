//! What a verb works with: the director, the screen, and the deployment it is about.

use crate::cli::Global;
use crate::director_client::{ClientError, DirectorClient};
use crate::environment;
use crate::failure::Failure;
use crate::screen::Screen;

/// A verb's conversation with the director and with its user.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pub(crate) director: DirectorClient,
    pub(crate) screen: &'a mut Screen,
    deployment: Option<String>,
}

impl<'a> Session<'a> {
    /// Finds the director and says which it is.
    pub(crate) fn open(flags: &Global, screen: &'a mut Screen) -> Result<Self, Failure> {
        let variable = |name: &str| std::env::var(name).ok();
        let environment = environment::resolve(flags, variable)?;
        let director = DirectorClient::new(&environment).while_("connecting to the director")?;
        let user = match &environment.client {
            Some(client) => format!("as client '{client}'"),
            None => "as anonymous user".to_owned(),
        };
        screen.line(&format!("Using environment '{}' {user}", environment.url));
        let deployment = flags.deployment.clone().or_else(|| variable("BOSH_DEPLOYMENT"));
        Ok(Self { director, screen, deployment: deployment.filter(|name| !name.is_empty()) })
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
        self.screen.line(&format!("Using deployment '{name}'"));
        Ok(name)
    }

    /// Asks a person before something changes.
    pub(crate) fn confirm(&mut self) -> Result<(), Failure> {
        if self.screen.confirms() { Ok(()) } else { Err(Failure::Declined) }
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
