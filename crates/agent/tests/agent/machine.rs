//! A VM for a test: a directory, an address, certificates, an agent.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use windlass_agent_client::{Agent, AgentClient, AgentEndpoint, ClientTls};
use windlass_contract::{AgentId, DiskCid, DiskHint, Secret};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A CA that issues certificates.
pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn issue(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> Issued {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Issued { certificate, key: key.serialize_pem() }
    }

    pub(crate) fn server(&self, name: &str) -> Issued {
        self.issue(name, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// What a director has, if it is called `director.bosh-internal`.
    pub(crate) fn client(&self, name: &str) -> ClientTls {
        let Issued { certificate, key } = self.issue(name, ExtendedKeyUsagePurpose::ClientAuth);
        ClientTls { ca_pem: self.pem.clone(), client_certificate_pem: certificate, client_key_pem: Secret::new(key) }
    }

    /// A caller without a certificate.
    pub(crate) fn anonymous(&self) -> ClientTls {
        ClientTls { ca_pem: self.pem.clone(), client_certificate_pem: String::new(), client_key_pem: Secret::new("") }
    }
}

/// A connection to an agent.
pub(crate) type Stream = tokio_rustls::client::TlsStream<tokio::net::TcpStream>;

/// A VM. Its agent is killed and its directory removed at the end, also of a test that failed.
pub(crate) struct Machine {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) ca: Ca,
    pub(crate) agent_id: AgentId,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) settings: Value,
    /// agent.json; without it, the settings come from a file.
    pub(crate) config: Option<Value>,
    /// The step at which the agent is killed.
    pub(crate) kill_at: Option<u64>,
    /// The agent's executable.
    pub(crate) program: PathBuf,
    /// Where programs are that only this VM has.
    pub(crate) programs: Option<PathBuf>,
    /// The arguments for platform and job supervisor.
    pub(crate) kind: [&'static str; 4],
    child: Option<Child>,
}

/// `@` must be percent-encoded in the URL.
pub(crate) const PASSWORD: &str = "p@ss:word";

impl Machine {
    /// A VM whose agent demands a director's certificate, not started yet.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = IpAddr::V4(Ipv4Addr::new(127, high | 1, low, NEXT.fetch_add(1, Ordering::Relaxed)));
        let port = TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
        let (ca, agent_id) = (Ca::new(), AgentId::random());
        let issued = ca.server(&agent_id.dns_name());
        let settings = json!({
            "agent_id": agent_id,
            "vm": {"name": "vm-1"},
            "networks": {"default": {"type": "manual", "ip": address, "preconfigured": true}},
            "disks": {"system": "/dev/sda", "persistent": {}},
            "blobstore": {"provider": "local", "options": {"blobstore_path": "/var/vcap/micro_bosh/data/cache"}},
            "env": {"bosh": {"mbus": {
                "urls": [format!("https://director:p%40ss%3Aword@{address}:{port}")],
                "cert": {"ca": ca.pem, "certificate": issued.certificate, "private_key": issued.key},
                "require_client_cert": true,
            }}},
        });
        Self {
            folder: tempfile::tempdir().unwrap(),
            ca,
            agent_id,
            address,
            port,
            settings,
            config: None,
            kill_at: None,
            program: env!("CARGO_BIN_EXE_windlass-agent").into(),
            programs: None,
            kind: ["-P", "directory", "-M", "monit"],
            child: None,
        }
    }

    /// A VM whose agent answered its first ping.
    pub(crate) async fn started() -> Self {
        let mut machine = Self::new();
        machine.start().await;
        machine
    }

    /// One whose agent asks for no certificate, as the original does.
    pub(crate) async fn started_without_client_certificates() -> Self {
        let mut machine = Self::new();
        machine.settings["env"]["bosh"]["mbus"]["require_client_cert"] = json!(false);
        machine.start().await;
        machine
    }

    /// One for our agent and, if the variable names its executable, one for the original: what is true for both.
    pub(crate) async fn started_ours_and_the_original() -> Vec<Self> {
        let mut machines = vec![Self::started_without_client_certificates().await];
        if let Some(program) = std::env::var_os("WINDLASS_ORIGINAL_AGENT") {
            let mut machine = Self::new();
            machine.settings["env"]["bosh"]["mbus"]["require_client_cert"] = json!(false);
            machine.program = program.into();
            machine.kind = ["-P", "dummy", "-M", "dummy"];
            machine.start().await;
            machines.push(machine);
        }
        machines
    }

    pub(crate) fn base(&self) -> PathBuf {
        self.folder.path().join("base")
    }

    pub(crate) fn state(&self, name: &str) -> String {
        std::fs::read_to_string(self.base().join("bosh").join(name)).unwrap()
    }

    pub(crate) fn console(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("console.log")).unwrap_or_default()
    }

    /// Waits until the console holds these words.
    pub(crate) async fn console_says(&self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.console().contains(words) {
            assert!(Instant::now() < deadline, "{}", self.console());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Starts the process without waiting for it.
    pub(crate) fn spawn(&mut self) {
        std::fs::write(self.folder.path().join("settings.json"), self.settings.to_string()).unwrap();
        self.spawn_again();
    }

    /// Starts the process with the settings that are there, if any.
    pub(crate) fn spawn_again(&mut self) {
        let source = self.folder.path().join("settings.json");
        let config = json!({"Platform": {"Linux": {}}, "Infrastructure": {"Settings": {"Sources": [
            {"Type": "File", "SettingsPath": source}
        ]}}});
        let config = self.config.clone().unwrap_or(config);
        let config_path = self.folder.path().join("agent.json");
        std::fs::write(&config_path, config.to_string()).unwrap();
        let console =
            std::fs::File::options().create(true).append(true).open(self.folder.path().join("console.log")).unwrap();
        let child = Command::new(&self.program)
            .args(self.kind)
            .arg("-C")
            .arg(config_path)
            .arg("-b")
            .arg(self.base())
            .envs(self.kill_at.map(|step| (windlass_durable::kill_point::KILL_AT, step.to_string())))
            .envs(self.programs.iter().map(|programs| ("PATH", format!("{}:/usr/bin:/bin", programs.display()))))
            .stdin(Stdio::null())
            .stdout(console.try_clone().unwrap())
            .stderr(console)
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    pub(crate) async fn start(&mut self) {
        self.spawn();
        if let Err(error) = self.director().wait_until_ready(PATIENCE).await {
            panic!("{error}\n{:?}\n{}", error.last, self.console());
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Whether the agent has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            child.wait().unwrap();
        }
    }

    /// How the agent ended by itself.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.as_mut().unwrap().try_wait().unwrap() {
                self.child = None;
                return status;
            }
            assert!(Instant::now() < deadline, "the agent does not end\n{}", self.console());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn endpoint(&self) -> AgentEndpoint {
        AgentEndpoint {
            agent_id: self.agent_id.clone(),
            addresses: vec![self.address],
            port: self.port,
            user: "director".into(),
            password: Secret::new(PASSWORD),
        }
    }

    /// The agent as its director sees it.
    pub(crate) fn director(&self) -> Agent {
        AgentClient::new(self.ca.client("director.bosh-internal")).unwrap().agent(self.endpoint())
    }

    /// A directory that is a disk, with its hint.
    pub(crate) fn disk(&self, cid: &str) -> (DiskCid, DiskHint) {
        let path = self.folder.path().join("disks").join(cid);
        std::fs::create_dir_all(&path).unwrap();
        (DiskCid::new(cid).unwrap(), DiskHint::path(path.to_str().unwrap()))
    }

    /// Sends a request as it stands, with the right password, over a connection of its own. The VM must not demand a client
    /// certificate.
    pub(crate) async fn request(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        let authorization = format!("Authorization: Basic {}\r\n", base64_of(&format!("director:{PASSWORD}")));
        self.request_with(method, path, &authorization, body).await
    }

    pub(crate) async fn request_with(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        // TLS keeps the last bytes to itself while the socket is full.
        stream.flush().await.unwrap();
        let mut answer = Vec::new();
        // The end of the stream may come without TLS's farewell.
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
        Answer::parse(&answer)
    }

    /// A TLS connection without a client certificate.
    pub(crate) async fn connect(&self) -> Stream {
        self.connect_trusting(&self.ca.pem).await
    }

    /// One to an agent whose certificate comes from this CA.
    pub(crate) async fn connect_trusting(&self, ca_pem: &str) -> Stream {
        self.try_connect_trusting(ca_pem).await.unwrap()
    }

    async fn try_connect_trusting(&self, ca_pem: &str) -> std::io::Result<Stream> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = tokio::net::TcpStream::connect((self.address, self.port)).await?;
        let name = ServerName::try_from(self.agent_id.dns_name()).unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Sends a message without a protocol, as the command line does, and returns the reply.
    pub(crate) async fn message(&self, message: Value) -> Value {
        let answer = self.request("POST", "/agent", message.to_string().as_bytes()).await;
        assert_eq!(answer.status, 200);
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// The certificate that an agent made for itself, once it listens.
    pub(crate) async fn own_certificate(&self) -> String {
        self.console_says("listens on").await;
        let kept: Value = serde_json::from_str(&self.state("own_certificate.json")).unwrap();
        kept["certificate"].as_str().unwrap().to_owned()
    }

    /// Sends a message to an agent whose certificate comes from this CA, or is this one.
    pub(crate) async fn message_trusting(&self, ca_pem: &str, message: Value) -> Value {
        self.try_message_trusting(ca_pem, message).await.unwrap()
    }

    /// The same, if the agent lets us in.
    pub(crate) async fn try_message_trusting(&self, ca_pem: &str, message: Value) -> std::io::Result<Value> {
        self.until_it_listens().await;
        let mut stream = self.try_connect_trusting(ca_pem).await?;
        let (body, authorization) = (message.to_string(), base64_of(&format!("director:{PASSWORD}")));
        let head = format!(
            "POST /agent HTTP/1.1\r\nHost: agent\r\nConnection: close\r\nAuthorization: Basic {authorization}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        let mut answer = Vec::new();
        // The end of the stream may come without TLS's farewell.
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
        if answer.is_empty() {
            read?;
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_slice(&Answer::parse(&answer).body).unwrap())
    }

    async fn until_it_listens(&self) {
        let deadline = Instant::now() + PATIENCE;
        while tokio::net::TcpStream::connect((self.address, self.port)).await.is_err() {
            assert!(Instant::now() < deadline, "{}", self.console());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Sends a message over a connection that stays open, and returns the reply.
    pub(crate) async fn message_over(&self, stream: &mut Stream, message: Value) -> Value {
        let (body, authorization) = (message.to_string(), base64_of(&format!("director:{PASSWORD}")));
        let head = format!(
            "POST /agent HTTP/1.1\r\nHost: agent\r\nAuthorization: Basic {authorization}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let exchange = async {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            assert!(head.starts_with("http/1.1 200"), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let mut reply = vec![0; length.parse().unwrap()];
            stream.read_exact(&mut reply).await.unwrap();
            serde_json::from_slice(&reply).unwrap()
        };
        tokio::time::timeout(PATIENCE, exchange).await.unwrap()
    }

    /// Sends a message that becomes a task and returns what `get_task` says at its end.
    pub(crate) async fn task(&self, message: Value) -> Value {
        let begun = self.message(message).await;
        let handle = begun["value"].as_object().unwrap_or_else(|| panic!("no task: {begun}"));
        assert_eq!((handle.len(), &handle["state"]), (2, &json!("running")));
        self.task_end(handle["agent_task_id"].clone()).await
    }

    /// What `get_task` says when the task has ended.
    pub(crate) async fn task_end(&self, id: Value) -> Value {
        let get_task = json!({"method": "get_task", "arguments": [id]});
        let deadline = Instant::now() + PATIENCE;
        loop {
            let reply = self.message(get_task.clone()).await;
            if reply["value"]["state"] != "running" {
                assert_eq!(self.message(get_task).await, reply, "a result can be read again");
                return reply;
            }
            assert!(Instant::now() < deadline, "the task does not end");
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn base64_of(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("an HTTP answer");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_lowercase(), body: bytes[end + 4..].to_vec() }
    }
}

impl Answer {
    /// The body, without the marks of its parts where it came in parts.
    pub(crate) fn content(&self) -> Vec<u8> {
        if !self.head.contains("transfer-encoding: chunked") {
            return self.body.clone();
        }
        let (mut content, mut rest) = (Vec::new(), self.body.as_slice());
        while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
            let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
            if length == 0 {
                break;
            }
            content.extend_from_slice(&rest[end + 2..end + 2 + length]);
            rest = &rest[end + 2 + length + 2..];
        }
        content
    }
}

/// The message of an exception.
pub(crate) fn exception(reply: &Value) -> &str {
    reply["exception"]["message"].as_str().unwrap_or_else(|| panic!("no exception: {reply}"))
}
