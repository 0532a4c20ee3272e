//! Blobs that are neither in the agent nor in a folder: stores that a program of the stemcell reaches, and signed URLs.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::machine::{Machine, exception};
use crate::software::{archive, sha1};

fn sha256(content: &str) -> String {
    let hex: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn records(version: u64) -> String {
    json!({"version": version, "records": [["10.0.0.1", "a.b"]]}).to_string()
}

#[tokio::test]
async fn a_store_of_any_provider_is_reached_by_the_stemcells_program() {
    let mut machine = Machine::new();
    let [programs, store] = ["programs", "store"].map(|name| machine.folder.path().join(name));
    for folder in [&programs, &store] {
        std::fs::create_dir(folder).unwrap();
    }
    let program = programs.join("bosh-blobstore-shelf");
    // It fails at first, as a store may, and complains loudly.
    let script = r#"#!/bin/sh
set -e
[ "$1" = -c ] && [ -r "$2" ]
if [ ! -e STORE/failed ]; then touch STORE/failed; cat "$2" >&2; exit 7; fi
case $3 in
get) [ -e "STORE/$4" ] || { cat "$2" >&2; exit 8; }; cp "STORE/$4" "$5" ;;
put) cp "$4" "STORE/$5" ;;
esac
"#;
    std::fs::write(&program, script.replace("STORE", store.to_str().unwrap())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    machine.programs = Some(programs);
    let options = json!({"user": "agent", "password": "hunter2hunter2"});
    machine.settings["blobstore"] = json!({"provider": "shelf", "options": options});
    machine.settings["env"]["bosh"]["mbus"]["require_client_cert"] = json!(false);
    machine.start().await;

    std::fs::write(store.join("dns"), records(3)).unwrap();
    let sync = async |id: &str| {
        machine.message(json!({"method": "sync_dns", "arguments": [id, sha256(&records(3)), 3]})).await
    };
    assert_eq!(sync("dns").await["value"], "synced");
    let fetched = machine.task(json!({"method": "fetch_logs", "arguments": ["job", []]})).await["value"].clone();
    assert!(store.join(fetched["blobstore_id"].as_str().unwrap()).exists(), "{fetched}");
    let newer = json!({"method": "sync_dns", "arguments": ["nope", sha256("x"), 4]});
    let missing = machine.message(newer).await;
    let words = exception(&missing);
    assert!(words.contains("Shelling out to bosh-blobstore-shelf cli, tried 3 times: exit status: 8"), "{words}");
    assert!(words.contains("<redacted>") && !words.contains("hunter2"), "{words}");

    let config = machine.base().join("bosh/etc/blobstore-shelf.json");
    assert_eq!(serde_json::from_slice::<Value>(&std::fs::read(&config).unwrap()).unwrap(), options);
    assert_eq!(config.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(machine.base().join("data/tmp")).unwrap().count(), 0, "nothing is left");
    assert!(!machine.console().contains("hunter2"));
}

/// A store over TLS that serves requests with `x-key: let-me-in`.
struct BlobServer {
    address: std::net::SocketAddr,
    blobs: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl BlobServer {
    async fn new(machine: &Machine) -> Self {
        let issued = machine.ca.server("127.0.0.1");
        let chain = vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let blobs = Arc::new(Mutex::new(BTreeMap::new()));
        let shared = blobs.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let _ = Self::answer(stream, &shared).await;
            }
        });
        Self { address, blobs }
    }

    async fn answer(
        stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
        blobs: &Mutex<BTreeMap<String, Vec<u8>>>,
    ) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await? == 0 {
                return Ok(());
            }
        }
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        stream.read_exact(&mut body).await?;
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let (status, answer) = match head.split(' ').next().unwrap() {
            _ if !head.contains("x-key: let-me-in") => (403, Vec::new()),
            "put" => {
                blobs.lock().unwrap().insert(path, body);
                (200, Vec::new())
            }
            _ => blobs.lock().unwrap().get(&path).map_or((404, Vec::new()), |blob| (200, blob.clone())),
        };
        let head = format!("HTTP/1.1 {status} Answer\r\nContent-Length: {}\r\n\r\n", answer.len());
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&answer).await?;
        stream.shutdown().await
    }

    fn url(&self, name: &str) -> String {
        format!("https://{}/{name}?signature=hunter2", self.address)
    }
}

#[tokio::test]
async fn blobs_at_signed_urls_are_fetched_and_stored() {
    let mut machine = Machine::new();
    let server = BlobServer::new(&machine).await;
    machine.settings["blobstore"] = json!({"provider": "dav", "options": {"tls": {"cert": {"ca": machine.ca.pem}}}});
    machine.settings["env"]["bosh"]["mbus"]["require_client_cert"] = json!(false);
    machine.start().await;
    std::fs::create_dir_all(machine.base().join("sys/log/web")).unwrap();
    std::fs::write(machine.base().join("sys/log/web/web.log"), "line\n".repeat(50_000)).unwrap();

    let headers = json!({"X-Key": "let-me-in"});
    let logs =
        json!({"signed_url": server.url("logs"), "log_type": "job", "filters": [], "blobstore_headers": headers});
    let stored = machine.task(json!({"method": "fetch_logs_with_signed_url", "arguments": [logs]})).await;
    let digests = stored["value"]["sha1"].as_str().unwrap_or_else(|| panic!("{stored}"));
    let (sha1, sha512) = digests.split_once(";sha512:").unwrap();
    assert_eq!((sha1.len(), sha512.len()), (40, 128));
    let blob = server.blobs.lock().unwrap()["/logs?signature=hunter2"].clone();
    let hex: String = sha2::Sha512::digest(&blob).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, sha512);

    server.blobs.lock().unwrap().insert("/dns?signature=hunter2".into(), records(3).into_bytes());
    let sync = async |name: &str, headers: Value, digest: String| {
        let located = json!({"signed_url": name, "multi_digest": digest, "version": 3, "blobstore_headers": headers});
        machine.message(json!({"method": "sync_dns_with_signed_url", "arguments": [located]})).await
    };
    let nowhere = sync("", json!(null), sha256("x")).await;
    assert!(exception(&nowhere).ends_with("Both signedURL and blobID are blank which is invalid"), "{nowhere}");
    let wrong = sync(&server.url("dns"), headers.clone(), sha256("x")).await;
    assert!(exception(&wrong).contains("fetching new DNS records: Checking downloaded blob digest"), "{wrong}");
    let other = sync("ftp://x/y?signature=hunter2", headers.clone(), sha256("x")).await;
    assert!(exception(&other).contains("the signed URL is not valid"), "{other}");
    assert_eq!(sync(&server.url("dns"), headers, sha256(&records(3))).await["value"], "synced");
    assert!(machine.state("etc_hosts").contains("10.0.0.1 a.b"));
    // Storing is not tried again, so a refusal is told at once.
    let logs = json!({"signed_url": server.url("logs"), "log_type": "job", "filters": []});
    let refused = machine.task(json!({"method": "fetch_logs_with_signed_url", "arguments": [logs]})).await;
    assert!(exception(&refused).contains("Error executing PUT, response was 403 from 127.0.0.1"), "{refused}");
    assert_eq!(std::fs::read_dir(machine.base().join("data/tmp")).unwrap().count(), 0, "nothing is left");
    assert!(!machine.console().contains("hunter2") && !machine.console().contains("let-me-in"));
}

#[tokio::test]
async fn packages_at_signed_urls_are_compiled_and_installed() {
    let mut machine = Machine::new();
    let server = BlobServer::new(&machine).await;
    machine.kind = ["-P", "directory", "-M", "dummy"];
    machine.settings["blobstore"] = json!({"provider": "dav", "options": {"tls": {"cert": {"ca": machine.ca.pem}}}});
    machine.settings["env"]["bosh"]["mbus"]["require_client_cert"] = json!(false);
    machine.start().await;
    let put = |name: &str, files: &[(&str, u32, &str)]| {
        let content = archive(files);
        let digest = sha1(&content);
        server.blobs.lock().unwrap().insert(format!("/{name}?signature=hunter2"), content);
        digest
    };
    let headers = json!({"X-Key": "let-me-in"});
    let packaging = "cat $(dirname $BOSH_INSTALL_TARGET)/library/lib.txt > $BOSH_INSTALL_TARGET/made\n";
    let (source, library) =
        (put("source", &[("packaging", 0o644, packaging)]), put("library", &[("lib.txt", 0o644, "lib")]));
    let dependency = json!({"name": "library", "version": "1", "sha1": library, "blobstore_id": "",
        "package_get_signed_url": server.url("library"), "blobstore_headers": headers});
    let located = json!({"package_get_signed_url": server.url("source"), "upload_signed_url": server.url("made"),
        "blobstore_headers": headers, "digest": source, "name": "app", "version": "fp.1", "deps": {"library": dependency}});
    let compiled = machine.task(json!({"method": "compile_package_with_signed_url", "arguments": [located]})).await;
    let digests = compiled["value"]["result"]["sha1"].as_str().unwrap_or_else(|| panic!("{compiled}")).to_owned();
    let made = server.blobs.lock().unwrap()["/made?signature=hunter2"].clone();
    assert!(digests.starts_with(&sha1(&made)), "{digests}");

    let package = json!({"name": "app", "version": "fp.1", "sha1": digests, "blobstore_id": "", "signed_url": server.url("made"),
        "blobstore_headers": headers});
    let spec = json!({"configuration_hash": "h", "networks": {}, "packages": {"app": package}});
    let applied = machine.task(json!({"method": "apply", "arguments": [spec]})).await;
    assert_eq!(applied["value"], "applied", "{applied}");
    assert_eq!(std::fs::read_to_string(machine.base().join("packages/app/made")).unwrap(), "lib");
    assert!(!machine.console().contains("hunter2") && !machine.console().contains("let-me-in"));
}
