//! `windlass alias-env`, `unalias-env`, `environments`, `log-in` and `log-out`: directors that a user gave names to.

use windlass_contract::Secret;
use windlass_director_client::DirectorClient;
use windlass_director_client::answers::Info;
use windlass_director_client::environment::Environment;
use windlass_director_client::known_environments::KnownEnvironments;

use crate::cli::Global;
use crate::failure::Failure;
use crate::screen::Screen;
use crate::session::While;
use crate::table::Table;
use crate::verbs::env;

pub(super) fn list(screen: &mut Screen, flags: &Global) -> Result<(), Failure> {
    let mut rows: Vec<_> = KnownEnvironments::open(|name| flags.variable(name))?
        .all()
        .into_iter()
        .map(|known| vec![known.url, known.alias])
        .collect();
    rows.sort();
    screen.table(&Table { content: "environments", header: vec!["URL", "Alias"], rows, ..Table::default() });
    Ok(())
}

/// The director is asked who it is first: a name for a mistyped address helps nobody.
pub(super) async fn alias(screen: &mut Screen, flags: &Global, alias: &str) -> Result<(), Failure> {
    let environment = flags.environment()?;
    let info = who(&environment).await?;
    let mut known = KnownEnvironments::open(|name| flags.variable(name))?;
    known.set_alias(&environment.url, alias, environment.ca.as_deref());
    known.save()?;
    screen.line(&format!("Using environment '{}'", environment.url));
    screen.table(&env::table(info, screen.is_for_people()));
    Ok(())
}

pub(super) fn unalias(flags: &Global, alias: &str) -> Result<(), Failure> {
    let mut known = KnownEnvironments::open(|name| flags.variable(name))?;
    known.remove_alias(alias)?;
    Ok(known.save()?)
}

pub(super) async fn log_in(screen: &mut Screen, flags: &Global) -> Result<(), Failure> {
    let mut environment = flags.environment()?;
    screen.line(&format!("Using environment '{}'", environment.url));
    let given = flags.client.clone().or_else(|| flags.variable("BOSH_CLIENT"));
    if given.is_none() {
        environment.client = screen.ask("User");
        environment.client_secret = screen.ask_secretly("Password").map(Secret::new);
    }
    let (Some(client), Some(secret)) = (environment.client.clone(), environment.client_secret.clone()) else {
        return Err(Failure::NoCredentialsToLogIn);
    };
    if who(&environment).await?.user.is_empty() {
        return Err(Failure::WrongCredentials { url: environment.url });
    }
    let mut known = KnownEnvironments::open(|name| flags.variable(name))?;
    known.set_credentials(&environment.url, Some((&client, &secret)));
    known.save()?;
    screen.line(&format!("Logged in to '{}'", environment.url));
    Ok(())
}

pub(super) fn log_out(screen: &mut Screen, flags: &Global) -> Result<(), Failure> {
    let environment = flags.environment()?;
    let mut known = KnownEnvironments::open(|name| flags.variable(name))?;
    known.set_credentials(&environment.url, None);
    known.save()?;
    screen.line(&format!("Logged out from '{}'", environment.url));
    Ok(())
}

async fn who(environment: &Environment) -> Result<Info, Failure> {
    let doing = "asking the director who it is";
    DirectorClient::new(environment).while_(doing)?.get("/info").await.while_(doing)
}
