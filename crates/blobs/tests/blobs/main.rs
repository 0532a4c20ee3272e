//! Blobs in object stores: a simulator of S3, and servers that do not do as they should.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use windlass_archive::digest::sha512;
use windlass_blobs::{BlobError, Blobstore, BlobstoreChoice, Drawer, Store};
use windlass_rigs::object_store::ObjectStore;

const DRAWERS: &[Drawer] = &[Drawer("releases"), Drawer("blobs")];

fn choice(provider: &str, options: Value) -> BlobstoreChoice {
    let Value::Object(options) = options else { panic!("no options") };
    BlobstoreChoice::read_strictly(provider, &options).unwrap()
}

fn file(folder: &Path, content: &[u8]) -> PathBuf {
    let path = folder.join("file");
    std::fs::write(&path, content).unwrap();
    path
}

/// More than one part.
fn large() -> Vec<u8> {
    (0..6_000_000u32).flat_map(u32::to_le_bytes).collect()
}

fn explained(error: &BlobError) -> String {
    let mut said = format!("{error} {error:?}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        said.push_str(&format!(": {error}"));
        cause = error.source();
    }
    said
}

async fn blobs_come_back_as_they_were(store: &Store, simulator: &ObjectStore, bucket: &str) {
    let folder = tempfile::tempdir().unwrap();
    for (id, content) in [("small", b"content".to_vec()), ("large", large()), ("empty", Vec::new())] {
        store.put(id, &file(folder.path(), &content)).await.unwrap();
        let into = folder.path().join("fetched");
        let digest = sha512(&mut content.as_slice()).unwrap();
        store.get(id, Some(&digest), &into).await.unwrap();
        assert!(std::fs::read(&into).unwrap() == content, "{id}");
        std::fs::remove_file(&into).unwrap();
        // What is not what its digest says does not appear.
        let error = store.get(id, Some("sha256:00"), &into).await.unwrap_err();
        assert!(matches!(error, BlobError::Digest { .. }), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing but what was sent");
    }
    assert_eq!(simulator.keys(bucket), ["kept/empty", "kept/large", "kept/small"]);
    let missing = store.get("nobody", None, &folder.path().join("fetched")).await.unwrap_err();
    assert!(missing.is_missing(), "{missing}");
    for id in ["small", "large", "empty", "nobody"] {
        store.remove(id).await.unwrap();
    }
    assert_eq!(simulator.keys(bucket), Vec::<String>::new());
}

#[tokio::test]
async fn blobs_in_s3_and_gcs_come_back_as_they_were() {
    let Some(simulator) = ObjectStore::start() else { return };
    simulator.make_bucket("one");
    let s3 = choice(
        "s3",
        json!({"bucket_name": "one", "folder_name": "kept", "host": simulator.host(), "port": simulator.port(),
            "use_ssl": false, "access_key_id": "id", "secret_access_key": "secret"}),
    );
    blobs_come_back_as_they_were(&Store::open(&s3, Path::new("")).unwrap(), &simulator, "one").await;
    simulator.make_bucket("other");
    let key = json!({"private_key": "unused", "private_key_id": "", "client_email": "", "disable_oauth": true,
        "gcs_base_url": simulator.url()});
    let gcs = choice("gcs", json!({"bucket_name": "other", "folder_name": "kept", "json_key": key.to_string()}));
    blobs_come_back_as_they_were(&Store::open(&gcs, Path::new("")).unwrap(), &simulator, "other").await;
    let read_only =
        choice("gcs", json!({"bucket_name": "other", "credentials_source": "none", "endpoint": simulator.url()}));
    let refused = Store::open(&read_only, Path::new("")).unwrap().put("x", Path::new("/dev/null")).await.unwrap_err();
    assert!(refused.to_string().contains("is read only without credentials"), "{refused}");
}

#[tokio::test]
async fn a_director_keeps_to_its_drawers_and_its_limit_and_shares_them_with_nobody() {
    let Some(simulator) = ObjectStore::start() else { return };
    simulator.make_bucket("shared");
    let s3 = choice(
        "s3",
        json!({"bucket_name": "shared", "folder_name": "one", "endpoint": simulator.url(), "access_key_id": "id",
            "secret_access_key": "secret"}),
    );
    let folder = tempfile::tempdir().unwrap();
    let open = |owner: &str, cache: &str| {
        let blobs = Blobstore::open(&s3, folder.path(), &folder.path().join(cache), DRAWERS).unwrap();
        blobs.owned_by(owner).with_limit(Some(3 << 20))
    };
    let (ours, theirs) = (open("ours", "cache"), open("theirs", "other-cache"));
    ours.claim().await.unwrap();
    ours.claim().await.unwrap();
    let refused = theirs.claim().await.unwrap_err().to_string();
    assert!(refused.contains("belongs to the director ours") && refused.contains("folder_name"), "{refused}");
    let content = vec![7; 2 << 20];
    let from = file(folder.path(), &content);
    assert!(theirs.keep(DRAWERS[0], "x", &from).await.is_err() && theirs.remove(DRAWERS[0], "x").await.is_err());
    ours.keep(DRAWERS[0], "package", &from).await.unwrap();
    assert!(!from.exists(), "it is moved");
    let digest = sha512(&mut content.as_slice()).unwrap();
    let (one, same) = (
        ours.file(DRAWERS[0], "package", Some(&digest)).await.unwrap(),
        ours.file(DRAWERS[0], "package", Some(&digest)).await.unwrap(),
    );
    assert_eq!(one.as_ref(), same.as_ref(), "it is fetched once");
    assert!(std::fs::read(one.as_ref()).unwrap() == content);
    let refused = ours.keep(DRAWERS[1], "more", &file(folder.path(), &content)).await.unwrap_err();
    assert!(matches!(refused, BlobError::Limit { .. }), "{refused}");
    // Another director, started later, counts what is there.
    assert_eq!(open("ours", "third-cache").used().await.unwrap(), 2 << 20);
    let listed = ours.list(DRAWERS[0]).await.unwrap();
    assert_eq!((listed.len(), listed[0].id.as_str(), listed[0].size), (1, "package", 2 << 20));
    ours.remove(DRAWERS[0], "package").await.unwrap();
    assert_eq!(simulator.keys("shared"), ["one/director.uuid"]);
}

/// Answers everything with an error that repeats what was sent, and what it knows.
fn parrot() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(100) {
            let Ok(mut stream) = stream else { return };
            let mut request = vec![0; 64 * 1024];
            let read = stream.read(&mut request).unwrap_or(0);
            let body = format!("<Error>{} marked-secret</Error>", String::from_utf8_lossy(&request[..read]));
            let _ = write!(
                stream,
                "HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn credentials_reach_no_message() {
    let endpoint = parrot();
    let folder = tempfile::tempdir().unwrap();
    let s3 = choice(
        "s3",
        json!({"bucket_name": "b", "endpoint": endpoint, "access_key_id": "marked-id", "secret_access_key": "marked-secret"}),
    );
    let store = Store::open(&s3, Path::new("")).unwrap();
    let put = store.put("x", &file(folder.path(), b"x")).await.unwrap_err();
    let got = store.get("x", None, &folder.path().join("y")).await.unwrap_err();
    let removed = store.remove("x").await.unwrap_err();
    let listed = store.list("x").await.unwrap_err();
    for error in [put, got, removed, listed] {
        let said = explained(&error);
        assert!(!said.contains("marked") && said.contains("the blobstore s3://b cannot"), "{said}");
    }
    assert!(!format!("{store:?}").contains("marked"), "{store:?}");
    let key = json!({"private_key": "marked-private", "private_key_id": "marked-private-id", "client_email": "e"});
    for key in [key.to_string(), "marked-and-no-json".to_owned()] {
        let gcs = choice("gcs", json!({"bucket_name": "b", "endpoint": endpoint, "json_key": key}));
        let said = match Store::open(&gcs, Path::new("")) {
            Err(error) => explained(&error),
            Ok(store) => explained(&store.remove("x").await.unwrap_err()),
        };
        assert!(!said.contains("marked"), "{said}");
    }
}
