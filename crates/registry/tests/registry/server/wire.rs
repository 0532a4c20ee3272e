//! What crosses the wire, as the original's clients expect it.

use serde_json::{Value, json};
use windlass_registry::server::{Identity, Registry};

use super::desk::{Answer, Base, as_writer, ask, eventually, exchange, request, writer};

const SETTINGS: &str = r#"{"agent_id": "a-1",  "disks":{"persistent":{"d-1":"/dev/sdc"}}, "name": "Zoë \u0000"}"#;

fn answered(answer: &Answer, status: u16, body: Value) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(serde_json::from_str::<Value>(&answer.body).unwrap(), body);
}

#[tokio::test]
async fn the_originals_requests_get_the_originals_answers() {
    for base in Base::each() {
        let registry = base.registry().await;
        let path = "/instances/i-0.a:b/settings";
        let ok = || json!({"status": "ok"});
        answered(&ask(&registry, "GET", path, &as_writer(), "").await, 404, json!({"status": "not_found"}));
        for _ in 0..2 {
            answered(&ask(&registry, "PUT", path, &as_writer(), SETTINGS).await, 200, ok());
            let read = ask(&registry, "GET", path, &as_writer(), "").await;
            answered(&read, 200, json!({"status": "ok", "settings": SETTINGS}));
        }
        for _ in 0..2 {
            answered(&ask(&registry, "DELETE", path, &as_writer(), "").await, 200, ok());
            answered(&ask(&registry, "GET", path, &as_writer(), "").await, 404, json!({"status": "not_found"}));
        }
        for (method, path) in [
            ("GET", "/"),
            ("GET", "/instances"),
            ("POST", path),
            ("GET", "/instances/a/b/settings"),
            ("PUT", "/health"),
        ] {
            let answer = ask(&registry, method, path, &as_writer(), "").await;
            answered(&answer, 404, json!({"status": "not_found"}));
        }
        let refused = ask(&registry, "PUT", path, "", SETTINGS).await;
        answered(&refused, 401, json!({"status": "access_denied"}));
        assert!(refused.head.contains("www-authenticate: basic realm=\"bosh registry\""), "{}", refused.head);
        registry.stop().await;
    }
}

#[tokio::test]
async fn what_no_agent_could_boot_from_is_refused_and_replaces_nothing() {
    let base = Base::sqlite();
    let registry = base.registry().await;
    let path = "/instances/vm-1/settings";
    ask(&registry, "PUT", path, &as_writer(), SETTINGS).await;
    let too_large = format!("{{\"a\": \"{}\"}}", "x".repeat(1 << 20));
    for (body, status) in [("", 400), ("{", 400), ("[]", 400), ("\"hunter3\"", 400), (too_large.as_str(), 413)] {
        let answer = ask(&registry, "PUT", path, &as_writer(), body).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(!answer.body.contains("hunter3"), "{answer:?}");
    }
    let mut not_text = request("PUT", path, &as_writer(), r#"{"a": "??"}"#);
    not_text.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xff);
    assert_eq!(exchange(registry.address(), &not_text).await.status, 400);
    let chunked = format!(
        "PUT {path} HTTP/1.1\r\nHost: r\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n{}\r\n{:x}\r\n{too_large}\r\n0\r\n\r\n",
        as_writer(),
        too_large.len()
    );
    assert_eq!(exchange(registry.address(), chunked.as_bytes()).await.status, 413);
    for id in ["%00", "%ff", "a%0Ab", &"x".repeat(256)] {
        let answer = ask(&registry, "PUT", &format!("/instances/{id}/settings"), &as_writer(), SETTINGS).await;
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    let kept = ask(&registry, "GET", path, &as_writer(), "").await;
    answered(&kept, 200, json!({"status": "ok", "settings": SETTINGS}));
    let large = format!("{{\"a\": \"{}\"}}", "x".repeat(1 << 19));
    assert_eq!(ask(&registry, "PUT", path, &as_writer(), &large).await.status, 200);
    let escaped = "/instances/a%2Fb%20%C3%A9/settings";
    assert_eq!(ask(&registry, "PUT", escaped, &as_writer(), SETTINGS).await.status, 200);
    assert!(writer(&registry).get("a/b é").await.unwrap().is_some());
}

#[tokio::test]
async fn behind_tls_nothing_is_spoken_in_the_clear() {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let base = Base::sqlite();
    let mut config = base.config();
    let private_key = windlass_contract::Secret::new(key.serialize_pem());
    config.tls = Some(Identity { certificate: certificate.pem(), private_key });
    let registry = Registry::start(config.clone()).await.unwrap();
    assert!(registry.endpoint().starts_with("https://127.0.0.1:"));
    let settings = serde_json::from_str(SETTINGS).unwrap();
    let client = writer(&registry).with_ca(certificate.pem());
    client.put("vm-1", &settings).await.unwrap();
    assert_eq!(client.get("vm-1").await.unwrap(), Some(settings));
    let in_the_clear = ask(&registry, "GET", "/instances/vm-1/settings", &as_writer(), "").await;
    assert_eq!((in_the_clear.status, in_the_clear.body.as_str()), (0, ""));

    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    config.tls = Some(Identity { certificate: certificate.pem(), private_key: windlass_contract::Secret::new(other) });
    let error = Registry::start(config).await.unwrap_err();
    assert!(error.to_string().contains("belong together"), "{error}");
}

#[tokio::test]
async fn health_and_metrics_tell_how_it_is_and_no_secrets() {
    let base = Base::sqlite();
    let registry = base.registry().await;
    ask(&registry, "PUT", "/instances/vm-1/settings", &as_writer(), SETTINGS).await;
    ask(&registry, "GET", "/instances/vm-1/settings", "", "").await;
    answered(&ask(&registry, "GET", "/health", "", "").await, 200, json!({"status": "ok"}));
    // A connection is counted until shortly after its client saw its end.
    let alone =
        async || ask(&registry, "GET", "/metrics", "", "").await.body.contains("windlass_registry_connections 1\n");
    eventually("nobody else is connected", alone).await;
    let metrics = ask(&registry, "GET", "/metrics", "", "").await.body;
    for line in [
        "windlass_registry_requests_total{method=\"PUT\",status=\"200\"} 1",
        "windlass_registry_requests_total{method=\"GET\",status=\"401\"} 1",
        "windlass_registry_writes_total 1",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} is not in:\n{metrics}");
    }
    assert!(!metrics.contains("vm-1"), "{metrics}");
}
