//! The client against a registry that speaks real HTTP.

use serde_json::json;
use windlass_contract::Secret;
use windlass_contract::settings::AgentSettings;
use windlass_registry::{Client, RegistryError};
use windlass_rigs::recording_registry::{Asked, RecordingRegistry};

fn client(registry: &RecordingRegistry) -> Client {
    let endpoint = Secret::new(format!("http://{}", registry.address()));
    Client::new(&endpoint).unwrap().with_credentials("admin", Secret::new("hunter2"))
}

fn settings() -> AgentSettings {
    serde_json::from_value(json!({"agent_id": "a-1", "later": {"x": 1}})).unwrap()
}

#[tokio::test]
async fn settings_are_stored_read_and_removed_with_the_credentials() {
    let registry = RecordingRegistry::start();
    let client = client(&registry);
    assert_eq!(client.get("vm-1").await.unwrap(), None);
    client.put("vm-1", &settings()).await.unwrap();
    assert_eq!(client.get("vm-1").await.unwrap(), Some(settings()));
    client.delete("vm-1").await.unwrap();
    client.delete("vm-1").await.unwrap();
    let asked = registry.take();
    let methods: Vec<_> = asked.iter().map(|it| it.method.as_str()).collect();
    assert_eq!(methods, ["GET", "PUT", "GET", "DELETE", "DELETE"]);
    let put = Asked {
        method: "PUT".into(),
        id: "vm-1".into(),
        user: "admin".into(),
        password: "hunter2".into(),
        settings: serde_json::to_value(settings()).unwrap(),
    };
    assert_eq!(asked[1], put);
}

#[tokio::test]
async fn a_registry_that_recovers_is_asked_again_and_one_that_does_not_is_named() {
    let registry = RecordingRegistry::start();
    registry.fail_with(&[500, 503]);
    client(&registry).put("vm-1", &settings()).await.unwrap();
    assert_eq!(registry.take().len(), 3);
    registry.fail_with(&[500; 10]);
    let error = client(&registry).get("vm-1").await.unwrap_err();
    assert_eq!(registry.take().len(), 5, "the tries end");
    assert!(error.is_transient() && error.to_string().contains(&registry.address().to_string()), "{error}");

    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let gone = Client::new(&Secret::new(format!("http://u:hunter2@{closed}"))).unwrap();
    let error = gone.delete("vm-1").await.unwrap_err();
    assert!(matches!(error, RegistryError::Unreachable { .. }));
    assert!(error.to_string().contains(&closed.to_string()) && !format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn wrong_credentials_are_not_tried_again_and_not_shown() {
    let registry = RecordingRegistry::start();
    registry.fail_with(&[401; 5]);
    let error = client(&registry).put("vm-1", &settings()).await.unwrap_err();
    assert_eq!(registry.take().len(), 1);
    assert!(error.to_string().contains("credentials") && !error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test]
async fn what_is_no_settings_is_refused_without_being_shown() {
    let registry = RecordingRegistry::start();
    registry.store("vm-1", r#""hunter2""#);
    let error = client(&registry).get("vm-1").await.unwrap_err();
    assert!(matches!(error, RegistryError::Settings { .. }));
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_registry_behind_tls_is_verified() {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    let registry = RecordingRegistry::start_tls(config);
    let endpoint = Secret::new(format!("https://admin:hunter2@{}", registry.address()));
    let client = Client::new(&endpoint).unwrap();
    client.clone().with_ca(certificate.pem()).put("vm-1", &settings()).await.unwrap();
    assert!(registry.settings("vm-1").is_some());
    assert_eq!(registry.take()[0].password, "hunter2");
    let untrusted = client.get("vm-1").await.unwrap_err();
    assert!(matches!(untrusted, RegistryError::Unreachable { .. }), "{untrusted}");
    assert!(registry.take().is_empty(), "nothing is sent to a stranger");
}
