//! `windlass interpolate` against what the original printed for the same files.
//!
//! Each file in `cases` holds the arguments, the input files, and the original's output, or words that its refusal and ours
//! have in common. With `WINDLASS_ORIGINAL_BOSH` naming the original program, it is asked again, too.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::Value;

/// A case: its sections by name, in their order.
fn sections(text: &str) -> Vec<(String, String)> {
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in text.split_inclusive('\n') {
        let name = line.strip_prefix("-- ").and_then(|rest| rest.strip_suffix(" --\n"));
        match (name, sections.last_mut()) {
            (Some(name), _) => sections.push((name.to_owned(), String::new())),
            (None, Some((_, content))) => content.push_str(line),
            (None, None) => panic!("a case starts with a section, not with {line:?}"),
        }
    }
    sections
}

fn run(program: &str, folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(["-n", "interpolate"]).args(arguments).current_dir(folder);
    command.output().unwrap()
}

fn check(program: &str, name: &str, case: &[(String, String)]) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = Vec::new();
    let mut expected = None;
    let mut refused = None;
    for (section, content) in case {
        match section.as_str() {
            "args" => arguments = content.lines().collect(),
            "output" => expected = Some(content),
            "refused" => refused = Some(content),
            file => std::fs::write(folder.path().join(file), content).unwrap(),
        }
    }
    let output = run(program, folder.path(), &arguments);
    let (printed, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match (expected, refused) {
        (Some(expected), None) if output.status.success() && printed == *expected => Ok(()),
        (Some(expected), None) => Err(format!("{name}: expected\n{expected}\nbut got\n{printed}{message}")),
        (None, Some(words)) if !output.status.success() => {
            let said = format!("{printed}{message}");
            let missing: Vec<_> = words.lines().filter(|word| !said.contains(word)).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("{name}: {missing:?} not in\n{said}")) }
        }
        (None, Some(_)) => Err(format!("{name}: accepted, but the original refuses it\n{printed}")),
        _ => Err(format!("{name}: a case has an output or a refusal")),
    }
}

/// Both command lines give the same manifests, to the byte.
#[test]
fn the_same_input_gives_what_the_original_gives() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/windlass/interpolate/cases");
    let mut cases = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        cases.insert(name, sections(&std::fs::read_to_string(path).unwrap()));
    }
    assert!(cases.len() > 50, "only {} cases", cases.len());
    let mut programs = vec![env!("CARGO_BIN_EXE_windlass").to_owned()];
    programs.extend(std::env::var("WINDLASS_ORIGINAL_BOSH"));
    for program in programs {
        let wrong: Vec<_> = cases.iter().filter_map(|(name, case)| check(&program, name, case).err()).collect();
        assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    }
}

const DEFINITIONS: &str = "\
password: ((password))
variables:
- {name: password, type: password, options: {length: 30}}
- {name: ca, type: certificate, options: {is_ca: true, common_name: ca}}
- {name: inner, type: certificate, options: {is_ca: true, ca: ca, common_name: inner}}
- {name: leaf, type: certificate, options: {ca: inner, common_name: leaf, alternative_names: [((host)), 10.0.0.1]}}
- {name: rsa, type: rsa}
- {name: ssh, type: ssh}
";

/// Without this, a deployment's credentials would be lost, readable by others, or no TLS library would take them.
#[test]
fn made_values_are_kept_private_and_usable() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("manifest.yml"), DEFINITIONS).unwrap();
    let arguments = ["manifest.yml", "--vars-store", "store.yml", "-v", "host=db.example", "--var-errs"];
    let first = run(env!("CARGO_BIN_EXE_windlass"), folder.path(), &arguments);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let store = std::fs::read_to_string(path("store.yml")).unwrap();
    assert_eq!(std::fs::metadata(path("store.yml")).unwrap().permissions().mode() & 0o777, 0o600);

    let again = run(env!("CARGO_BIN_EXE_windlass"), folder.path(), &arguments);
    assert_eq!(again.stdout, first.stdout);
    assert_eq!(std::fs::read_to_string(path("store.yml")).unwrap(), store, "nothing is made twice");

    let values = windlass_manifest::Document::parse(&store).unwrap().node().to_json();
    let text = |path: &str| values.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("no {path}"));
    assert_eq!(String::from_utf8(first.stdout).unwrap(), format!("password: {}\nvariables: []\n", text("/password")));
    assert_eq!(text("/password").len(), 30);
    assert!(text("/rsa/public_key").starts_with("-----BEGIN PUBLIC KEY-----\n"));
    assert!(text("/ssh/public_key").starts_with("ssh-rsa "));
    assert_eq!(text("/ssh/public_key_fingerprint").split(':').count(), 16);
    assert_eq!(text("/leaf/ca"), text("/inner/certificate"));
    assert_eq!(text("/inner/ca"), text("/ca/certificate"));

    let certificate = |path: &str| CertificateDer::from_pem_slice(text(path).as_bytes()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate("/ca/certificate")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let (leaf, inner) = (certificate("/leaf/certificate"), certificate("/inner/certificate"));
    for (name, trusted) in [("db.example", true), ("10.0.0.1", true), ("other.example", false)] {
        let name = ServerName::try_from(name).unwrap();
        let verified = verifier.verify_server_cert(&leaf, std::slice::from_ref(&inner), &name, &[], UnixTime::now());
        assert_eq!(verified.is_ok(), trusted, "{name:?}: {verified:?}");
    }

    // The original takes our authorities for its own.
    if let Ok(original) = std::env::var("WINDLASS_ORIGINAL_BOSH") {
        let more =
            format!("{DEFINITIONS}- {{name: theirs, type: certificate, options: {{ca: inner, common_name: x}}}}\n");
        std::fs::write(path("manifest.yml"), more).unwrap();
        let theirs = run(&original, folder.path(), &arguments);
        assert!(theirs.status.success(), "{}", String::from_utf8_lossy(&theirs.stderr));
        assert!(std::fs::read_to_string(path("store.yml")).unwrap().contains("theirs:"));
    }
}
