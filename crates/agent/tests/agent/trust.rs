//! Who may drive an agent, and how a caller learns why it may not.

use std::error::Error;
use std::time::Duration;

use windlass_agent_client::{AgentClient, AgentEndpoint, CallError, ClientTls, Stage};
use windlass_contract::{AgentId, Secret};

use crate::machine::{Machine, PASSWORD, base64_of};

async fn refused(tls: ClientTls, endpoint: AgentEndpoint) -> CallError {
    AgentClient::new(tls).unwrap().agent(endpoint).ping().await.unwrap_err()
}

fn chain(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| (*error).source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[tokio::test]
async fn only_the_director_with_the_password_is_obeyed() {
    let machine = Machine::started().await;
    let director = || machine.ca.client("director.bosh-internal");
    machine.director().ping().await.unwrap();

    let wrong_password = AgentEndpoint { password: Secret::new("guess"), ..machine.endpoint() };
    let error = refused(director(), wrong_password).await;
    assert!(matches!(error, CallError::Unauthorized { .. }), "{error:?}");
    assert_eq!(error.stage(), Stage::Tls);

    let error = refused(machine.ca.anonymous(), machine.endpoint()).await;
    assert!(chain(&error).contains("CertificateRequired"), "{}", chain(&error));
    assert_eq!(error.stage(), Stage::AddressAnswers);

    let another_agent = machine.ca.client(&AgentId::random().dns_name());
    let error = refused(another_agent, machine.endpoint()).await;
    assert_eq!(error.stage(), Stage::AddressAnswers, "{}", chain(&error));

    let stranger = crate::machine::Ca::new();
    let foreign = ClientTls { ca_pem: machine.ca.pem.clone(), ..stranger.client("director.bosh-internal") };
    let error = refused(foreign, machine.endpoint()).await;
    assert_eq!(error.stage(), Stage::AddressAnswers, "{}", chain(&error));
    machine.director().ping().await.unwrap();
}

#[tokio::test]
async fn a_director_talks_to_nobody_who_is_not_the_agent() {
    let machine = Machine::started().await;
    let director = || machine.ca.client("director.bosh-internal");
    let wrong_ca = ClientTls { ca_pem: crate::machine::Ca::new().pem, ..director() };
    let error = refused(wrong_ca, machine.endpoint()).await;
    assert_eq!(error.stage(), Stage::AddressAnswers);
    assert!(chain(&error).contains("invalid peer certificate"), "{}", chain(&error));

    let another = AgentEndpoint { agent_id: AgentId::random(), ..machine.endpoint() };
    let error = refused(director(), another).await;
    assert_eq!(error.stage(), Stage::AddressAnswers);
    assert!(chain(&error).contains("not valid for name"), "{}", chain(&error));
}

#[tokio::test]
async fn a_wait_for_the_wrong_credentials_says_so_and_keeps_the_password_to_itself() {
    let machine = Machine::started().await;
    let endpoint = AgentEndpoint { password: Secret::new("hunter2"), ..machine.endpoint() };
    let agent = AgentClient::new(machine.ca.client("director.bosh-internal")).unwrap().agent(endpoint);
    let not_ready = agent.wait_until_ready(Duration::from_millis(200)).await.unwrap_err();
    assert_eq!(not_ready.stage, Stage::Tls);
    assert!(chain(&not_ready).contains("refused the user and password"), "{}", chain(&not_ready));
    assert!(!format!("{not_ready:?} {agent:?}").contains("hunter2"));
    assert!(!machine.console().contains(PASSWORD));
}

#[tokio::test]
async fn a_wrong_password_is_refused_before_anything_is_told() {
    let machine = Machine::started_without_client_certificates().await;
    for headers in [String::new(), format!("Authorization: Basic {}\r\n", base64_of("director:p%40ss%3Aword"))] {
        for (method, path) in [("POST", "/agent"), ("GET", "/agent"), ("GET", "/blobs/ab/x"), ("PUT", "/blobs/ab/x")] {
            let answer = machine.request_with(method, path, &headers, br#"{"method":"ping"}"#).await;
            assert_eq!((answer.status, answer.body.len()), (401, 0), "{method} {path}");
            assert!(answer.head.contains("www-authenticate: basic realm=\"\""), "{}", answer.head);
        }
        assert_eq!(machine.request_with("GET", "/elsewhere", &headers, b"").await.status, 404);
    }
    assert_eq!(std::fs::read_dir(machine.base().join("data/blobs")).unwrap().count(), 0);
}

#[tokio::test]
async fn secrets_on_disk_are_the_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::started().await;
    let settings = std::fs::metadata(machine.base().join("bosh/settings.json")).unwrap();
    assert_eq!(settings.permissions().mode() & 0o777, 0o600);
    assert!(!machine.console().contains("PRIVATE KEY"));
}
