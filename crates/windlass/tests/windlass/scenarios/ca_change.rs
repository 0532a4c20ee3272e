//! Certificates of a deployment get another CA in three deploys, as the page on variables tells. Instances are updated one after the
//! other, so those of one step talk to those of the next: real handshakes with the files that are on the VMs.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use serde_json::{Value, json};

use super::release::{Job, Release};
use super::stand::{Scene, Stand, group, with};

const NAME: &str = "web.internal";

/// What an instance has on its disk.
struct Files {
    trusted: String,
    certificate: String,
    key: String,
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
}

/// Whether who trusts these CAs talks to a server with these files.
fn accepts(trusted: &str, server: &Files) -> bool {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(trusted) {
        roots.add(certificate).unwrap();
    }
    let client = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let key = PrivateKeyDer::from_pem_slice(server.key.as_bytes()).unwrap();
    let of_server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let of_server = of_server.with_no_client_auth().with_single_cert(certificates(&server.certificate), key).unwrap();
    let mut client = ClientConnection::new(Arc::new(client), ServerName::try_from(NAME).unwrap()).unwrap();
    let mut server = ServerConnection::new(Arc::new(of_server)).unwrap();
    for _ in 0..10 {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        bytes.clear();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut bytes.as_slice()).unwrap();
        if client.process_new_packets().is_err() {
            return false;
        }
        if !client.is_handshaking() {
            return true;
        }
    }
    panic!("the handshake does not end");
}

/// An authority would be trusted too late, or too long; instances could not talk to each other in between.
#[test]
fn another_ca_comes_in_three_deploys_and_nobody_is_refused_in_between() {
    let stand = Stand::new();
    let properties = "properties: {trusted: {}, certificate: {}, key: {}}";
    stand.upload(
        &Release::new("kit", "1").job(
            Job::new("tls", properties)
                .template("trusted.pem", "<%= p('trusted') %>")
                .template("certificate.pem", "<%= p('certificate') %>")
                .template("key.pem", "<%= p('key') %>"),
        ),
    );
    let scene = Scene { stand: &stand, name: "rotated".to_owned() };
    let ca = |name: &str| {
        json!({"name": name, "type": "certificate",
            "options": {"is_ca": true, "common_name": name, "key_length": 2048}})
    };
    let step = |trusted: &str, variables: Vec<Value>, signer: &str| {
        let leaf = json!({"name": "web_tls", "type": "certificate", "update_mode": "converge", "options": {
            "ca": signer, "common_name": NAME, "alternative_names": [NAME], "key_length": 2048}});
        let properties =
            json!({"trusted": trusted, "certificate": "((web_tls.certificate))", "key": "((web_tls.private_key))"});
        let job = json!({"name": "tls", "release": "kit", "properties": properties});
        let manifest = scene.manifest(json!([group("web", 1, json!([job]))]));
        let variables: Vec<Value> = variables.into_iter().chain([leaf]).collect();
        scene.deploy_manifest(&with(manifest, json!({"variables": variables})));
        let read = |file: &str| scene.read("web/0", &format!("jobs/tls/{file}"));
        Files { trusted: read("trusted.pem"), certificate: read("certificate.pem"), key: read("key.pem") }
    };
    let (old, both, new) =
        ("((ca.certificate))", "((ca.certificate))((next_ca.certificate))", "((next_ca.certificate))");
    let steps = [
        step(old, vec![ca("ca")], "ca"),
        step(both, vec![ca("ca"), ca("next_ca")], "ca"),
        step(both, vec![ca("ca"), ca("next_ca")], "next_ca"),
        step(new, vec![ca("next_ca")], "next_ca"),
    ];
    assert_eq!(steps.each_ref().map(|files| certificates(&files.trusted).len()), [1, 2, 2, 1]);
    for pair in steps.windows(2) {
        let [before, after] = pair else { unreachable!() };
        for client in [before, after] {
            assert!(accepts(&client.trusted, before) && accepts(&client.trusted, after), "{}", client.trusted);
        }
    }
    let (only_old, only_new) = (&steps[0].trusted, &steps[3].trusted);
    assert_eq!(steps.each_ref().map(|server| accepts(only_old, server)), [true, true, false, false]);
    assert_eq!(steps.each_ref().map(|server| accepts(only_new, server)), [false, false, true, true]);
    assert_eq!(steps[0].certificate, steps[1].certificate, "one more authority signs nothing again");
    assert_eq!(steps[2].certificate, steps[3].certificate);
    let listed = scene.client().get(&format!("/deployments/{}/variables", scene.name)).to_string();
    assert!(listed.contains("/next_ca\"") && !listed.contains("/ca\""), "{listed}");
}
