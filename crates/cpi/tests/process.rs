//! A noisy cloud as a real process: whatever it prints, stdout holds one answer. Called without arguments this is the
//! test, called with a configuration it is the CPI.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "in a test, a panic is the report, and noise is the point"
)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

use serde_json::{Value, json};
use windlass_contract::DiskCid;
use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::{CreateDisk, DeleteDisk, DeleteVm, HasDisk, HasVm, RebootVm};
use windlass_cpi::{Call, Cloud};

struct Noisy;

impl Cloud for Noisy {
    fn stemcell_formats(&self) -> Vec<String> {
        println!("a stray print");
        vec![]
    }

    async fn has_vm(&self, _: &Call, _: HasVm) -> Result<bool, CpiError> {
        let status = Command::new("echo").arg("a child's print").status();
        Ok(status.is_ok_and(|status| status.success()))
    }

    async fn has_disk(&self, _: &Call, _: HasDisk) -> Result<bool, CpiError> {
        panic!("an author's mistake")
    }

    /// Hangs in a way that no runtime can interrupt.
    async fn reboot_vm(&self, _: &Call, _: RebootVm) -> Result<(), CpiError> {
        std::thread::sleep(std::time::Duration::from_secs(600));
        Ok(())
    }

    async fn create_disk(&self, _: &Call, disk: CreateDisk) -> Result<DiskCid, CpiError> {
        panic!("an author's mistake with {}", disk.cloud_properties["password"])
    }

    async fn delete_vm(&self, call: &Call, _: DeleteVm) -> Result<(), CpiError> {
        Err(CpiError::cloud(format!("the cloud refuses {}", call.context.properties["api_token"])))
    }

    /// Timers and files work: there is a runtime.
    async fn delete_disk(&self, _: &Call, _: DeleteDisk) -> Result<(), CpiError> {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        Ok(())
    }
}

fn call(config: &Path, request: &[u8]) -> (Value, Output) {
    let mut child = Command::new(std::env::current_exe().unwrap())
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

fn main() -> ExitCode {
    // A harness's own flags, such as `--nocapture`, are not a configuration.
    if let Some(config) = std::env::args().nth(1).filter(|argument| Path::new(argument).is_absolute()) {
        return windlass_cpi::serve(Path::new(&config), |_| Ok(Noisy));
    }
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    if asked("--list") {
        // Test runners ask for the names of the tests first, and again for those that are not run.
        if !asked("--ignored") {
            println!("whatever_a_cloud_prints_stdout_holds_one_answer: test");
        }
        return ExitCode::SUCCESS;
    }
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
    assert!(stderr(&output).contains("process.rs:") && stderr(&output).contains("mistake with"), "{output:?}");
    assert!(!stderr(&output).contains("hunter2") && !answer.to_string().contains("hunter2"), "{output:?}");

    let secret = br#"{"method":"delete_vm","arguments":["vm-1"],"context":{"api_token":"hunter2-token"}}"#;
    let (answer, output) = call(&config, secret);
    assert_eq!(answer["error"]["message"], "the cloud refuses \"<redacted>\"");
    assert!(stderr(&output).contains(r#"the request was {"method":"delete_vm","arguments":["vm-1"]"#), "{output:?}");
    assert!(!stderr(&output).contains("hunter2"), "{output:?}");

    // A caller fails when it cannot write all of a request, even one that is refused.
    let (answer, _) = call(&folder.path().join("missing.json"), &vec![b' '; 1 << 20]);
    assert!(answer["error"]["message"].as_str().unwrap().contains("missing.json"), "{answer}");
    println!("test whatever_a_cloud_prints_stdout_holds_one_answer ... ok");
    ExitCode::SUCCESS
}
