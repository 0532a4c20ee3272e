//! What a user must be allowed to for each route, and the scopes that allow it: those of BOSH, in its words.
//!
//! | scope | allows |
//! |---|---|
//! | `bosh.admin`, `bosh.UUID.admin` | everything |
//! | `bosh.read`, `bosh.UUID.read` | look at everything but logs |
//! | `bosh.teams.T.admin` | make deployments, which belong to the team from then on; everything with those; configs of the team; see releases and stemcells |
//! | `bosh.teams.T.read` | look at deployments of the team |
//! | `bosh.stemcells.upload`, `bosh.releases.upload` | that |
//! | `config_server.admin` | read and change values of variables, and nothing else |

use axum::extract::Query;
use axum::http::Uri;
use windlass_planning::names::DeploymentName;

use super::input::Parameters;
use super::{ApiError, User};
use crate::Director;
use crate::users::{Scopes, admins_of};

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    /// Right credentials; the route itself looks further.
    Known,
    Admin,
    Read,
    /// To see what belongs to teams, of which the route shows that of the user's.
    ReadOfTeams,
    /// The same, for admins of teams.
    ReadOfTeamAdmins,
    /// To make deployments, links and configs.
    Create,
    UploadStemcells,
    UploadReleases,
    /// To ask which packages an upload could leave out.
    MatchPackages,
    /// To read and change values of variables.
    Values,
    /// Something with the deployment that the path or the query names.
    Deployment(Access),
}

/// What is to be done with something that belongs to teams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Admin,
    /// To read, also what is not there yet.
    Compare,
}

/// Scopes of which one is needed.
type Expected = Vec<String>;

fn readers(uuid: &str) -> Expected {
    vec!["bosh.read".to_owned(), format!("bosh.{uuid}.read")]
}

fn of_teams<'t>(teams: impl IntoIterator<Item = &'t str>, access: &str) -> Expected {
    teams.into_iter().map(|team| format!("bosh.teams.{team}.{access}")).collect()
}

impl Permission {
    /// The scopes of which one is needed, as far as they do not depend on a deployment.
    fn expected(self, uuid: &str, scopes: &Scopes) -> Expected {
        let team_admins = || of_teams(scopes.teams("admin"), "admin");
        let rest = match self {
            Self::Known | Self::Admin | Self::Deployment(Access::Admin) => Vec::new(),
            Self::Read | Self::Deployment(Access::Read) => readers(uuid),
            Self::ReadOfTeams => [readers(uuid), team_admins(), of_teams(scopes.teams("read"), "read")].concat(),
            Self::ReadOfTeamAdmins | Self::Deployment(Access::Compare) => [readers(uuid), team_admins()].concat(),
            Self::Create => team_admins(),
            Self::UploadStemcells => vec!["bosh.stemcells.upload".to_owned()],
            Self::UploadReleases => vec!["bosh.releases.upload".to_owned()],
            Self::Values => vec!["config_server.admin".to_owned()],
            Self::MatchPackages => [readers(uuid), vec!["bosh.releases.upload".to_owned()]].concat(),
        };
        [admins_of(uuid), rest].concat()
    }
}

fn missing(expected: &[String]) -> ApiError {
    ApiError::unauthorized(600000, format!("Require one of the scopes: {}", expected.join(", ")))
}

/// The scopes of which one is needed for what belongs to some teams.
fn expected_of(access: Access, teams: &[String], uuid: &str) -> Expected {
    let teams = || teams.iter().map(String::as_str);
    let rest = match access {
        Access::Admin => Vec::new(),
        Access::Read | Access::Compare => [of_teams(teams(), "read"), readers(uuid)].concat(),
    };
    [admins_of(uuid), of_teams(teams(), "admin"), rest].concat()
}

impl User {
    fn has_one_of(&self, expected: &[String]) -> bool {
        expected.iter().any(|scope| self.scopes.has(scope))
    }

    /// Whether a user may do something that depends on no deployment.
    pub(super) fn may(&self, director: &Director, permission: Permission) -> bool {
        self.has_one_of(&permission.expected(&director.uuid, &self.scopes))
    }

    pub(super) fn must(&self, director: &Director, permission: Permission) -> Result<(), ApiError> {
        let expected = permission.expected(&director.uuid, &self.scopes);
        if self.has_one_of(&expected) { Ok(()) } else { Err(missing(&expected)) }
    }

    /// Whether a user may do something with what belongs to these teams.
    pub(super) fn may_with(&self, director: &Director, access: Access, teams: &[String]) -> bool {
        self.has_one_of(&expected_of(access, teams, &director.uuid))
    }

    pub(super) fn must_with(&self, director: &Director, access: Access, teams: &[String]) -> Result<(), ApiError> {
        if self.may_with(director, access, teams) { Ok(()) } else { Err(refusal(director, access, teams)) }
    }

    /// As [`Self::must_with`], in the words for tasks.
    pub(super) fn must_see_task(&self, director: &Director, teams: &[String]) -> Result<(), ApiError> {
        let expected = expected_of(Access::Read, teams, &director.uuid);
        if self.has_one_of(&expected) {
            return Ok(());
        }
        let reason = format!("One of the following scopes is required to access this task: {}", expected.join(", "));
        Err(ApiError::unauthorized(600000, reason))
    }

    /// Whether a user may do something with a deployment; one that is not there is named.
    pub(super) async fn must_with_deployment(
        &self,
        director: &Director,
        access: Access,
        deployment: &DeploymentName,
    ) -> Result<(), ApiError> {
        // Most users need no teams, so nobody looks for them.
        if self.may_with(director, access, &[]) {
            return Ok(());
        }
        // A user in no team that could have it is not told whether there is one.
        let teams = if access == Access::Admin { self.own_teams() } else { self.all_teams() };
        if teams.is_empty() {
            return Err(refusal(director, access, &[]));
        }
        match director.store.teams_of(deployment).await? {
            Some(teams) => self.must_with(director, access, &teams),
            None if access == Access::Compare => self.must(director, Permission::Deployment(access)),
            None => Err(super::deployments::no_such_deployment(deployment)),
        }
    }

    /// The teams that a deployment or config belongs to which this user makes.
    pub(super) fn own_teams(&self) -> Vec<String> {
        self.scopes.teams("admin").map(str::to_owned).collect()
    }

    /// The teams whose deployments this user may see.
    pub(super) fn all_teams(&self) -> Vec<String> {
        self.scopes.teams("admin").chain(self.scopes.teams("read")).map(str::to_owned).collect()
    }
}

/// What somebody is told who may not do something with what belongs to these teams.
pub(super) fn refusal(director: &Director, access: Access, teams: &[String]) -> ApiError {
    missing(&expected_of(access, teams, &director.uuid))
}

/// Whether a user may ask for a route with these parameters in its path.
pub(super) async fn check(
    director: &Director,
    permission: Permission,
    user: &User,
    deployment: Option<&str>,
    uri: &Uri,
) -> Result<(), ApiError> {
    let access = match permission {
        Permission::Known => return Ok(()),
        Permission::Deployment(access) => access,
        _ => return user.must(director, permission),
    };
    // Read as the route reads it, so that both speak of the same one.
    let Query(query): Parameters = Query::try_from_uri(uri).unwrap_or_default();
    match deployment.or(query.get("deployment")) {
        Some(deployment) => user.must_with_deployment(director, access, &deployment.into()).await,
        None => user.must(director, permission),
    }
}
