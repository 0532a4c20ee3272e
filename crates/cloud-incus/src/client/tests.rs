//! The client against daemons that answer as told: also by half, late, wrongly, or not at all.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, UnixListener};
use windlass_contract::Secret;

use super::*;

/// What a daemon does with one request.
#[derive(Clone)]
enum Said {
    /// Status and document.
    Answer(u16, Value),
    /// The head promises more than there is.
    Half,
    /// The connection ends without an answer.
    Nothing,
    /// Nothing for a long time.
    Late,
}

use Said::{Answer as Says, Half, Late, Nothing};

type Asked = Arc<Mutex<Vec<String>>>;

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, script: Arc<Mutex<Vec<Said>>>, asked: Asked) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if stream.read_line(&mut first).await.unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 || line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        asked.lock().unwrap().push(first.trim_end_matches(" HTTP/1.1\r\n").to_owned());
        let said = {
            let mut script = script.lock().unwrap();
            if script.is_empty() { Nothing } else { script.remove(0) }
        };
        let (head, body) = match &said {
            Says(status, document) => (*status, document.to_string()),
            Half => (200, r#"{"type":"sync","meta"#.to_owned()),
            Nothing => return,
            Late => {
                tokio::time::sleep(Duration::from_secs(30)).await;
                return;
            }
        };
        let length = if matches!(said, Half) { 1000 } else { body.len() };
        let answer = format!(
            "HTTP/1.1 {head} X\r\ncontent-type: application/json\r\netag: e1\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        if stream.write_all(answer.as_bytes()).await.is_err() || matches!(said, Half) {
            return;
        }
    }
}

struct Daemon {
    folder: tempfile::TempDir,
    asked: Asked,
}

impl Daemon {
    fn saying(script: Vec<Said>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let asked = Asked::default();
        let (script, heard) = (Arc::new(Mutex::new(script)), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, Arc::clone(&script), Arc::clone(&heard)));
            }
        });
        Self { folder, asked }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.folder.path().join("socket"))
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn hurried() -> Patience {
    let short = Duration::from_millis(400);
    Patience { reach: short, quorum: Duration::from_secs(5), answer: short, operation: Duration::from_secs(5) }
}

fn client(endpoints: Vec<Endpoint>) -> Client {
    Client::new(endpoints, None, "bosh-d1", hurried()).unwrap()
}

fn done(metadata: Value) -> Said {
    Says(200, json!({"type": "sync", "status": "Success", "status_code": 200, "metadata": metadata}))
}

fn refused(code: u16, text: &str) -> Said {
    Says(code, json!({"type": "error", "error_code": code, "error": text}))
}

fn begun() -> Said {
    Says(
        202,
        json!({"type": "async", "status_code": 100, "operation": "/1.0/operations/o-1?project=bosh-d1", "metadata": {}}),
    )
}

#[tokio::test]
async fn what_was_not_sent_goes_to_the_next_endpoint_and_the_next_request_to_the_one_that_answered() {
    let daemon = Daemon::saying(vec![done(json!([])), done(json!([]))]);
    let client = client(vec![Endpoint::Unix("/nowhere/socket".into()), daemon.endpoint()]);
    assert_eq!(client.find_instance("vm-1").await.unwrap(), None);
    assert_eq!(client.find_volumes("fast", "disk-1").await.unwrap(), []);
    assert_eq!(client.endpoint(), &daemon.endpoint());
    let asked = daemon.asked();
    assert_eq!(asked[0], "GET /1.0/instances?recursion=1&filter=name%20eq%20vm-1&project=bosh-d1");
}

#[tokio::test]
async fn when_no_endpoint_answers_all_of_them_are_named() {
    let client = client(vec![Endpoint::Unix("/nowhere/a".into()), Endpoint::Unix("/nowhere/b".into())]);
    let error = client.delete_instance("vm-1").await.unwrap_err();
    assert!(error.is_transient() && !error.is_unknown_effect(), "{error}");
    assert!(error.to_string().contains("/nowhere/a") && error.to_string().contains("/nowhere/b"), "{error}");
}

#[tokio::test]
async fn half_an_answer_to_a_question_is_asked_elsewhere_and_to_a_change_it_is_an_unknown_effect() {
    for failure in [Half, Nothing, Late] {
        let (broken, whole) = (Daemon::saying(vec![failure.clone()]), Daemon::saying(vec![done(json!([]))]));
        let asking = client(vec![broken.endpoint(), whole.endpoint()]);
        assert_eq!(asking.find_instance("vm-1").await.unwrap(), None);

        let (broken, whole) = (Daemon::saying(vec![failure]), Daemon::saying(vec![done(json!(null))]));
        let changing = client(vec![broken.endpoint(), whole.endpoint()]);
        let error = changing.delete_instance("vm-1").await.unwrap_err();
        assert!(matches!(error, ClientError::LostAnswer { .. }) && error.is_unknown_effect(), "{error}");
        assert!(whole.asked().is_empty(), "a change whose effect is unknown is never sent twice");
    }
}

#[tokio::test]
async fn an_operation_is_awaited_and_its_failure_is_one_in_both_forms() {
    let running = || done(json!({"id": "o-1", "status": "Running", "status_code": 103}));
    let ends = |end: Said| Daemon::saying(vec![begun(), running(), end]);
    let daemon = ends(done(json!({"status": "Success", "status_code": 200, "metadata": null})));
    client(vec![daemon.endpoint()]).delete_instance("vm-1").await.unwrap();
    assert_eq!(daemon.asked()[1], "GET /1.0/operations/o-1/wait?timeout=30&project=bosh-d1");
    for end in [
        done(json!({"status": "Failure", "status_code": 400, "err": "The instance is already running"})),
        refused(500, "The instance is already running"),
    ] {
        let error = client(vec![ends(end).endpoint()]).power("vm-1", Power::Start).await.unwrap_err();
        assert!(error.says("already running") && !error.is_unknown_effect(), "{error}");
    }
    let forgetful = ends(refused(404, "Operation not found"));
    let error = client(vec![forgetful.endpoint()]).delete_instance("vm-1").await.unwrap_err();
    assert!(error.is_unknown_effect(), "{error}");
}

#[tokio::test]
async fn a_daemon_that_does_not_wait_for_its_operations_is_not_asked_without_a_pause() {
    let running = || done(json!({"id": "o-1", "status": "Running", "status_code": 103}));
    let daemon = Daemon::saying([begun()].into_iter().chain((0..100_000).map(|_| running())).collect());
    let patience = Patience { operation: Duration::from_millis(600), ..hurried() };
    let client = Client::new(vec![daemon.endpoint()], None, "bosh-d1", patience).unwrap();
    let error = client.delete_instance("vm-1").await.unwrap_err();
    assert!(matches!(error, ClientError::TooSlow { .. }), "{error}");
    assert!((3..40).contains(&daemon.asked().len()), "{}", daemon.asked().len());
}

#[tokio::test]
async fn a_cluster_without_a_leader_is_asked_again_until_it_has_one() {
    let daemon = Daemon::saying(vec![refused(503, "no available dqlite leader server found"), done(json!(null))]);
    client(vec![daemon.endpoint()]).delete_volume("fast", &volume()).await.unwrap();
    assert_eq!(daemon.asked().len(), 2);
}

fn volume() -> Volume {
    serde_json::from_value(json!({"name": "disk-1", "location": "n2"})).unwrap()
}

#[tokio::test]
async fn a_change_that_others_got_ahead_of_says_so() {
    let daemon = Daemon::saying(vec![done(json!({"name": "disk-1"})), refused(412, "ETag doesn't match: a vs b")]);
    let client = client(vec![daemon.endpoint()]);
    let read = client.volume("fast", "disk-1", Some("n2")).await.unwrap();
    assert_eq!(read.etag, "e1");
    assert!(client.put_volume("fast", &read, &Settings::new(), "claim it").await.unwrap_err().is_stale());
    assert_eq!(daemon.asked()[0], "GET /1.0/storage-pools/fast/volumes/custom/disk-1?target=n2&project=bosh-d1");
}

#[tokio::test]
async fn a_server_that_is_not_for_us_is_named_with_the_remedy() {
    let extensions = json!([
        "api_filtering",
        "clustering_groups",
        "custom_block_volumes",
        "storage_api_remote_volume_handling",
        "storage_volume_api_filtering"
    ]);
    let root = |version: &str, auth: &str, extensions: &Value| {
        done(json!({"api_version": version, "auth": auth, "api_extensions": extensions,
            "environment": {"server": "incus", "server_version": "6.0.4", "server_clustered": true}}))
    };
    let server = |said: Said| async move {
        let daemon = Daemon::saying(vec![said]);
        client(vec![daemon.endpoint()]).server().await
    };
    let fine = server(root("1.0", "trusted", &extensions)).await.unwrap();
    assert!(fine.is_clustered && fine.kind == "incus" && !fine.leaves_snapshots_out());
    let words = |error: ClientError| error.to_string();
    let unknown = words(server(root("2.0", "trusted", &extensions)).await.unwrap_err());
    assert!(unknown.contains("version '2.0'") && unknown.contains("LXD from 5.0"), "{unknown}");
    let untrusted = words(server(root("1.0", "untrusted", &extensions)).await.unwrap_err());
    assert!(untrusted.contains("trust store") && untrusted.contains("'bosh-d1'"), "{untrusted}");
    let old = words(server(root("1.0", "trusted", &json!(["api_filtering"]))).await.unwrap_err());
    assert!(old.contains("clustering_groups"), "{old}");
}

#[tokio::test]
async fn only_the_pinned_server_is_talked_to_and_it_sees_our_certificate() {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["n1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Asked::default();
    let heard = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                let script = Arc::new(Mutex::new(vec![done(json!([]))]));
                tokio::spawn(converse(stream, script, Arc::clone(&heard)));
            }
        }
    });
    let endpoint = Endpoint::Https { host: "127.0.0.1".to_owned(), port };
    let identity = Identity { certificate: certificate.pem(), private_key: Secret::new(key.serialize_pem()) };
    let pin = Fingerprint::of_pem(&certificate.pem()).unwrap();
    let right = Client::new(vec![endpoint.clone()], Some((&identity, &pin)), "p", hurried()).unwrap();
    assert_eq!(right.find_instance("vm-1").await.unwrap(), None);
    let other = Fingerprint::parse(&"0".repeat(64)).unwrap();
    let wrong = Client::new(vec![endpoint], Some((&identity, &other)), "p", hurried()).unwrap();
    let error = wrong.delete_instance("vm-1").await.unwrap_err();
    assert!(matches!(error, ClientError::WrongServer { .. }), "{error}");
    assert!(error.to_string().contains(pin.as_str()) && error.to_string().contains("renewed"), "{error}");
    assert_eq!(asked.lock().unwrap().len(), 1, "nothing is sent to another server");
}

#[tokio::test]
async fn a_file_is_pushed_again_when_the_daemons_helper_does_not_listen_yet() {
    let refusal = |text: &str| Says(500, json!({"type": "error", "error_code": 500, "error": text}));
    let early = "dial unix /proc/self/fd/58/forkfile.sock: connect: no such file or directory";
    let daemon = Daemon::saying(vec![refusal(early), refusal(early), done(Value::Null), refusal("no space left")]);
    let client = client(vec![daemon.endpoint()]);
    let pushed = Pushed { path: "/x".to_owned(), kind: Kind::File, mode: "0600", content: b"x".to_vec() };
    client.push("vm-1", &pushed).await.unwrap();
    assert_eq!(daemon.asked().len(), 3);
    client.push("vm-1", &pushed).await.unwrap_err();
    assert_eq!(daemon.asked().len(), 4, "another refusal is one");
}
