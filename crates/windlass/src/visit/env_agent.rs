//! A visit to the VM that create-env made: its agent lets the user in itself, as there is no director that would.

use std::net::IpAddr;

use serde_json::{Value, json};
use windlass_agent_client::{Agent, AgentClient, AgentEndpoint, ClientTls};
use windlass_contract::{AgentId, Secret};
use windlass_director_client::answers::SshHost;
use windlass_director_client::environment::read_ca;

use super::{Departure, SshUser, Visit};
use crate::cli::{EnvAgentArgs, GatewayArgs};
use crate::failure::Failure;
use crate::screen::Screen;
use crate::visit::Host;

/// What BOSH's client calls the only instance there is.
const GROUP: &str = "create-env-vm";

/// The agent that the flags name.
pub(crate) async fn agent(flags: &EnvAgentArgs) -> Result<Agent, Failure> {
    let bad = || Failure::AgentEndpoint;
    let (Some(endpoint), Some(ca)) = (&flags.agent_endpoint, &flags.agent_certificate) else { return Err(bad()) };
    let url = reqwest::Url::parse(endpoint.reveal()).map_err(|_| bad())?;
    let decoded =
        |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned());
    let user = decoded(url.username()).filter(|user| !user.is_empty()).ok_or_else(bad)?;
    let password = url.password().and_then(decoded).ok_or_else(bad)?;
    let host = url.host_str().map(|host| host.trim_matches(['[', ']']).to_owned()).ok_or_else(bad)?;
    let port = url.port_or_known_default().ok_or_else(bad)?;
    let found = tokio::net::lookup_host((host.as_str(), port)).await;
    let addresses: Vec<IpAddr> =
        found.map_err(|error| Failure::Process("cannot find the agent's host", error))?.map(|it| it.ip()).collect();
    let tls = ClientTls {
        ca_pem: read_ca(ca.clone())?,
        client_certificate_pem: String::new(),
        client_key_pem: Secret::new(""),
    };
    let client = AgentClient::new(tls).map_err(|error| Failure::Agent(error.into()))?;
    let password = Secret::new(password);
    Ok(client.agent_named(AgentEndpoint { agent_id: AgentId::random(), addresses, port, user, password }, host))
}

/// Does some work there. What `prepare` asks of the agent comes between the welcome and the work.
pub(crate) async fn during<T>(
    screen: &mut Screen,
    gateway: &GatewayArgs,
    agent: &Agent,
    prepare: impl AsyncFnOnce(&Agent, &str) -> Result<T, Failure>,
    work: impl FnOnce(&mut Screen, &Visit<'_>, &Host, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::SshKey(error.into()))?;
    let departure = Departure::listen()?;
    let user = SshUser::new(String::new(), folder.path())?;
    let identity = folder.path().join("key");
    let visit = Visit { gateway, identity, folder, is_strict: true, departure: departure.clone() };
    let entrance = json!({"user": user.user, "public_key": user.public_key});
    let leaving = vec![json!("cleanup"), json!({"user_regex": format!("^{}", user.user)})];
    let answer = ask(agent, "ssh", vec![json!("setup"), entrance]).await?;
    let mut host: SshHost = serde_json::from_value(answer).map_err(|error| Failure::Agent(error.into()))?;
    (host.job, host.id) = (GROUP.to_owned(), "0".to_owned());
    let went = match visit.hosts(&user.user, vec![host]) {
        Ok(hosts) => match departure.unless_asked(prepare(agent, &user.user)).await {
            Some(Ok(prepared)) => {
                let (agent, leaving, forget) = (agent.clone(), leaving.clone(), visit.forget());
                let abandoned = async move {
                    let _ = ask(&agent, "ssh", leaving).await;
                    forget.await;
                };
                departure.during(|| work(screen, &visit, &hosts[0], prepared), abandoned)
            }
            Some(Err(failure)) => Err(failure),
            None => Err(Failure::WayInInterrupted),
        },
        Err(failure) => Err(failure),
    };
    let cleaned = ask(agent, "ssh", leaving).await;
    went.and(cleaned.map(|_| ()))
}

/// Asks the agent for something.
pub(crate) async fn ask(agent: &Agent, method: &str, arguments: Vec<Value>) -> Result<Value, Failure> {
    agent.call(method, arguments).await.map_err(|error| Failure::Agent(error.into()))
}
