//! A simulator of S3 on loopback. Google's XML interface has the same form, so it stands for that one as well.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A store that ends with this value.
#[derive(Debug)]
pub struct ObjectStore {
    child: Child,
    address: String,
}

impl ObjectStore {
    /// Starts one. Where `bin/test` did not install the simulator, a test says that it did not run; in CI it fails.
    pub fn start() -> Option<Self> {
        let Some(program) = find() else {
            assert!(std::env::var_os("CI").is_none(), "the simulator of S3 is missing: bin/test installs it");
            eprintln!("did not run: the simulator of S3 is missing; bin/test installs it, where there is pip");
            return None;
        };
        // It ends with the test, however that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).args(["-H", "127.0.0.1", "-p", "0"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, address) = line.split_once("http://")?;
            Some(address.trim().to_owned())
        });
        // What it says of each request nobody reads; with nobody to take it, it would stop.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { child, address: address.expect("the simulator of S3 says where it listens") })
    }

    pub fn host(&self) -> &str {
        self.address.split(':').next().unwrap_or_default()
    }

    pub fn port(&self) -> u16 {
        self.address.rsplit(':').next().unwrap_or_default().parse().unwrap()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn make_bucket(&self, name: &str) {
        let answer = self.ask("PUT", &format!("/{name}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// The keys in a bucket, in their order.
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        let listed = self.ask("GET", &format!("/{bucket}?list-type=2"));
        let keys = listed.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next());
        keys.map(str::to_owned).collect()
    }

    pub fn remove(&self, bucket: &str, key: &str) {
        self.ask("DELETE", &format!("/{bucket}/{key}"));
    }

    fn ask(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let credential = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request";
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: {credential}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.address
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn find() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/simulators/bin/moto_server");
    Some(target).filter(|program| program.is_file())
}
