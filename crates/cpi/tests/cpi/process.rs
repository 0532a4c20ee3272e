//! A noisy cloud as a real process: whatever it prints, stdout holds one answer.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn call(config: &Path, request: &[u8]) -> (Value, Output) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_noisy-cpi"))
        .arg(config)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(request).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    (serde_json::from_slice(&output.stdout).unwrap(), output)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn whatever_a_cloud_prints_stdout_holds_one_answer() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("cpi.json");
    std::fs::write(&config, r#"{"cloud":{"plugin":"noisy"}}"#).unwrap();

    let (answer, output) = call(&config, br#"{"method":"info","arguments":[]}"#);
    assert_eq!(answer["result"]["stemcell_formats"], json!([]));
    assert!(stderr(&output).contains("a stray print"));

    let (answer, output) = call(&config, br#"{"method":"has_vm","arguments":["vm-1"]}"#);
    assert_eq!(answer, json!({"result": true, "error": null, "log": ""}));
    assert!(stderr(&output).contains("a child's print"));

    let (answer, _) = call(&config, br#"{"method":"has_disk","arguments":["disk-1"]}"#);
    assert_eq!(answer["error"]["type"], "Bosh::Clouds::CpiError");

    let (answer, _) = call(&config, br#"{"method":"delete_disk","arguments":["disk-1"]}"#);
    assert_eq!(answer["error"], Value::Null);

    let begun = std::time::Instant::now();
    let hangs = br#"{"method":"reboot_vm","arguments":["vm-1"],"context":{"deadline":0.2}}"#;
    let (answer, _) = call(&config, hangs);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("'reboot_vm' took longer than its deadline of 200ms"), "{answer}");
    assert!(begun.elapsed().as_secs() < 60, "it was given up");

    let secret = br#"{"method":"create_disk","arguments":[1,{"password":"hunter2-disk"},null],"api_version":2}"#;
    let (answer, output) = call(&config, secret);
    assert!(stderr(&output).contains("noisy_cpi.rs:") && stderr(&output).contains("mistake with"), "{output:?}");
    assert!(!stderr(&output).contains("hunter2") && !answer.to_string().contains("hunter2"), "{output:?}");

    let secret = br#"{"method":"delete_vm","arguments":["vm-1"],"context":{"api_token":"hunter2-token"}}"#;
    let (answer, output) = call(&config, secret);
    assert_eq!(answer["error"]["message"], "the cloud refuses \"<redacted>\"");
    assert!(stderr(&output).contains(r#"the request was {"method":"delete_vm","arguments":["vm-1"]"#), "{output:?}");
    assert!(!stderr(&output).contains("hunter2"), "{output:?}");

    // A caller fails when it cannot write all of a request, even one that is refused.
    let (answer, _) = call(&folder.path().join("missing.json"), &vec![b' '; 1 << 20]);
    assert!(answer["error"]["message"].as_str().unwrap().contains("missing.json"), "{answer}");
}
