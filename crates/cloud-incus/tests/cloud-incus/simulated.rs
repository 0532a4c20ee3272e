//! A cluster that is not real: it keeps volumes and instances as Incus does, moves volumes between members, and answers what it is
//! told where a real one could not be made to. Real ones show that it is like them; this one is there for every point of a move.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// The cluster, at a socket.
pub(crate) struct Simulated {
    folder: tempfile::TempDir,
    world: Arc<Mutex<World>>,
}

/// What it has.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) instances: BTreeMap<String, Value>,
    pub(crate) project: BTreeMap<String, String>,
    pub(crate) members: BTreeMap<String, &'static str>,
    /// Volumes that members offer to others: their names and members.
    offers: Vec<(String, String)>,
    /// What is answered to requests whose first line has these words, instead of what is true.
    pub(crate) says: Vec<(&'static str, Said)>,
    /// Methods and paths of all requests that change something.
    pub(crate) asked: Vec<String>,
    /// Networks by name, as they were asked for.
    pub(crate) networks: BTreeMap<String, Value>,
    revision: u64,
}

/// An answer that is not true.
#[derive(Clone)]
pub(crate) enum Said {
    Document(Value),
    Refusal(u16, &'static str),
    /// An operation is begun, and ends so.
    Failure(&'static str),
    Half,
    Late(Duration),
}

/// A volume on a member.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Volume {
    pub(crate) pool: String,
    pub(crate) name: String,
    pub(crate) member: String,
    pub(crate) config: BTreeMap<String, String>,
    /// Its files.
    pub(crate) content: String,
    revision: u64,
}

impl Volume {
    pub(crate) fn stage(&self) -> &str {
        self.config.get("user.windlass.stage").map_or("", String::as_str)
    }
}

impl Simulated {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let world = Arc::new(Mutex::<World>::default());
        let served = Arc::clone(&world);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let served = Arc::clone(&served);
                std::thread::spawn(move || serve(&stream, &served));
            }
        });
        let simulated = Self { folder, world };
        simulated.change(|world| {
            world.members = ["n1", "n2", "n3"].map(|name| (name.to_owned(), "Online")).into();
            let features = ["features.images", "features.storage.volumes"];
            world.project = features.map(|feature| (feature.to_owned(), "true".to_owned())).into();
        });
        simulated
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("unix:{}", self.folder.path().join("socket").display())
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut self.world.lock().unwrap())
    }

    pub(crate) fn says(&self, words: &'static str, said: Said) {
        self.change(|world| world.says.push((words, said)));
    }

    /// A VM of the director `d-1` on a member.
    pub(crate) fn add_vm(&self, name: &str, member: &str) {
        let config = json!({"user.windlass.director": "d-1", "user.windlass.stage": "ready"});
        let vm = json!({"name": name, "status": "Running", "status_code": 103, "location": member, "config": config,
            "devices": {}});
        self.change(|world| world.instances.insert(name.to_owned(), vm));
    }

    /// A disk of the director `d-1` on a member, with content.
    pub(crate) fn add_disk(&self, name: &str, member: &str, content: &str) {
        let config = [("user.windlass.director", "d-1"), ("user.windlass.stage", "made"), ("size", "64MiB")];
        let config = config.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let (pool, name, member) = ("fast".to_owned(), name.to_owned(), member.to_owned());
        let content = content.to_owned();
        self.change(|world| world.volumes.push(Volume { pool, name, member, config, content, revision: 0 }));
    }

    pub(crate) fn volumes(&self) -> Vec<Volume> {
        self.change(|world| world.volumes.clone())
    }
}

type Answer = Result<(Value, Option<u64>), (u16, String)>;

/// A request's method, path, query and document.
struct Request {
    method: String,
    path: Vec<String>,
    query: BTreeMap<String, String>,
    if_match: Option<String>,
    body: Value,
}

fn serve(stream: &UnixStream, world: &Mutex<World>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut first, mut length, mut if_match) = (String::new(), 0, None);
        if reader.read_line(&mut first).ok()? == 0 {
            return None;
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            if line.trim().is_empty() {
                break;
            }
            let (name, value) = line.split_once(':')?;
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok()?,
                "if-match" => if_match = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let request = read(&first, if_match, &body)?;
        let said = {
            let mut world = world.lock().unwrap();
            if request.method != "GET" {
                world.asked.push(format!("{} /{}", request.method, request.path.join("/")));
            }
            world.says.iter().find(|(words, _)| first.contains(words)).map(|(_, said)| said.clone())
        };
        let mut stream = stream;
        let (status, document, etag) = match said {
            Some(Said::Half) => {
                write!(stream, "HTTP/1.1 200 X\r\ncontent-length: 1000\r\n\r\n{{\"type\":\"sync\"").ok()?;
                return None;
            }
            Some(Said::Late(time)) => {
                std::thread::sleep(time);
                answered(world.lock().unwrap().answer(&request))
            }
            Some(Said::Document(metadata)) => answered(Ok((metadata, None))),
            Some(Said::Refusal(code, text)) => answered(Err((code, text.to_owned()))),
            Some(Said::Failure(text)) => {
                let operation = json!({"status": "Failure", "status_code": 400, "err": text});
                world.lock().unwrap().says.push(("/wait", Said::Document(operation)));
                (202, json!({"type": "async", "status_code": 100, "operation": "/1.0/operations/o-1"}), None)
            }
            None if request.body["migration"] == true => offered(world.lock().unwrap().offer(&request)),
            None => answered(world.lock().unwrap().answer(&request)),
        };
        let etag = etag.map(|etag| format!("etag: {etag}\r\n")).unwrap_or_default();
        let text = document.to_string();
        write!(stream, "HTTP/1.1 {status} X\r\n{etag}content-length: {}\r\n\r\n{text}", text.len()).ok()?;
    }
}

fn answered(answer: Answer) -> (u16, Value, Option<u64>) {
    match answer {
        Ok((metadata, etag)) => (200, json!({"type": "sync", "status_code": 200, "metadata": metadata}), etag),
        Err((code, text)) => (code, json!({"type": "error", "error_code": code, "error": text}), None),
    }
}

/// An operation that waits for a client with its secrets.
fn offered(answer: Result<usize, (u16, String)>) -> (u16, Value, Option<u64>) {
    match answer {
        Ok(number) => {
            let told = json!({"metadata": {"control": format!("secret-{number}"), "fs": format!("secret-{number}")}});
            let operation = format!("/1.0/operations/offer-{number}");
            (202, json!({"type": "async", "status_code": 100, "operation": operation, "metadata": told}), None)
        }
        Err(refusal) => answered(Err(refusal)),
    }
}

fn read(first: &str, if_match: Option<String>, body: &[u8]) -> Option<Request> {
    let mut words = first.split(' ');
    let method = words.next()?.to_owned();
    let (path, query) = words.next().map(|uri| uri.split_once('?').unwrap_or((uri, "")))?;
    let path = path.trim_start_matches("/1.0").split('/').filter(|part| !part.is_empty()).map(decoded).collect();
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = query.map(|(key, value)| (key.to_owned(), decoded(value))).collect();
    Some(Request { method, path, query, if_match, body: serde_json::from_slice(body).unwrap_or_default() })
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |it: Option<u8>| it.and_then(|it| char::from(it).to_digit(16)).unwrap_or_default() as u8;
        bytes.push(if byte == b'%' { hex(rest.next()) * 16 + hex(rest.next()) } else { byte });
    }
    String::from_utf8(bytes).unwrap()
}

fn missing(what: &str) -> (u16, String) {
    (404, format!("{what} not found"))
}

impl World {
    fn answer(&mut self, request: &Request) -> Answer {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        let wanted = request.query.get("filter").and_then(|filter| filter.strip_prefix("name eq "));
        match (request.method.as_str(), path.as_slice()) {
            ("GET", []) => Ok((self.root(), None)),
            ("GET", ["projects", _]) => Ok((json!({"config": self.project}), None)),
            ("GET", ["operations"]) => Ok((json!({}), None)),
            ("GET", ["cluster", "members"]) => {
                let member = |(name, status): (&String, &&str)| json!({"server_name": name, "status": status, "url": format!("https://{name}:8443"), "groups": ["default", name.replace('n', "z")]});
                Ok((self.members.iter().map(member).collect(), None))
            }
            ("GET", ["instances"]) => {
                let found = self.instances.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name));
                Ok((found.map(|(_, instance)| instance.clone()).collect(), None))
            }
            ("PATCH", ["instances", name]) => self.patch_instance(name, &request.body),
            ("PUT", ["instances", name]) => {
                let instance = self.instances.get_mut(*name).ok_or_else(|| missing("Instance"))?;
                instance["devices"] = request.body["devices"].clone();
                Ok((Value::Null, None))
            }
            ("GET", ["instances", name]) => {
                Ok((self.instances.get(*name).cloned().ok_or_else(|| missing("Instance"))?, Some(0)))
            }
            ("GET", ["networks"]) => Ok((self.networks.values().cloned().collect(), None)),
            ("POST", ["networks"]) => {
                let mut network = request.body.clone();
                network["managed"] = json!(true);
                network["status"] = json!("Created");
                self.networks.insert(request.body["name"].as_str().unwrap().to_owned(), network);
                Ok((Value::Null, None))
            }
            (method, ["networks", name]) => {
                let network = self.networks.get(*name).cloned().ok_or_else(|| missing("Network"))?;
                if method == "DELETE" {
                    self.networks.remove(*name);
                }
                Ok((network, None))
            }
            ("GET", ["storage-pools", "fast"]) => Ok((json!({"driver": "btrfs"}), None)),
            ("GET", ["storage-pools", "fast", "volumes", "custom"]) => {
                let found = self.volumes.iter().filter(|volume| wanted.is_none_or(|wanted| wanted == volume.name));
                Ok((found.map(|volume| self.shown(volume)).collect(), None))
            }
            ("POST", ["storage-pools", "fast", "volumes", "custom"]) => self.make_volume(request),
            (_, ["storage-pools", "fast", "volumes", "custom", name]) => self.volume(request, name),
            _ => Err(missing(&format!("{} /{}", request.method, path.join("/")))),
        }
    }

    fn root(&self) -> Value {
        let extensions = [
            "api_filtering",
            "clustering_groups",
            "custom_block_volumes",
            "storage_api_remote_volume_handling",
            "storage_volume_api_filtering",
        ];
        json!({"api_version": "1.0", "auth": "trusted", "api_extensions": extensions,
            "environment": {"server": "incus", "server_version": "6.0", "server_clustered": true, "certificate": "PEM"}})
    }

    fn users(&self, volume: &Volume) -> Vec<String> {
        let has_it = |instance: &&Value| {
            let is_it = |device: &Value| device["source"] == volume.name && device["pool"] == volume.pool;
            instance["location"] == volume.member
                && instance["devices"].as_object().is_some_and(|devices| devices.values().any(is_it))
        };
        let users = self.instances.values().filter(has_it);
        users.map(|instance| format!("/1.0/instances/{}?project=p", instance["name"].as_str().unwrap())).collect()
    }

    fn shown(&self, volume: &Volume) -> Value {
        json!({"name": volume.name, "config": volume.config, "content_type": "filesystem", "location": volume.member,
            "used_by": self.users(volume)})
    }

    fn patch_instance(&mut self, name: &str, change: &Value) -> Answer {
        let instance = self.instances.get(name).cloned().ok_or_else(|| missing("Instance"))?;
        for device in change["devices"].as_object().into_iter().flat_map(|devices| devices.values()) {
            // A volume of another member cannot be attached.
            let is_here = |volume: &&Volume| device["source"] == volume.name && instance["location"] == volume.member;
            if !self.volumes.iter().any(|volume| is_here(&volume)) {
                return Err((404, "Failed add validation for device: Storage volume not found".to_owned()));
            }
        }
        let instance = self.instances.get_mut(name).ok_or_else(|| missing("Instance"))?;
        for part in ["config", "devices"] {
            for (key, value) in change[part].as_object().into_iter().flatten() {
                instance[part][key] = value.clone();
            }
        }
        Ok((Value::Null, None))
    }

    fn offer(&mut self, request: &Request) -> Result<usize, (u16, String)> {
        let (Some(name), Some(member)) = (request.path.last(), request.query.get("target")) else {
            return Err(missing("Storage volume"));
        };
        if !self.volumes.iter().any(|volume| volume.name == *name && volume.member == *member) {
            return Err(missing("Storage volume"));
        }
        self.offers.push((name.clone(), member.clone()));
        Ok(self.offers.len() - 1)
    }

    /// What a member offers to clients that ask the right member with the right secrets.
    fn offered(&self, source: &Value) -> Option<&Volume> {
        let is_it = |(number, (_, member)): &(usize, &(String, String))| {
            source["operation"] == format!("https://{member}:8443/1.0/operations/offer-{number}")
                && source["secrets"]["fs"] == format!("secret-{number}")
                && source["certificate"] == "PEM"
        };
        let (_, (name, member)) = self.offers.iter().enumerate().find(is_it)?;
        self.volumes.iter().find(|volume| volume.name == *name && volume.member == *member)
    }

    fn make_volume(&mut self, request: &Request) -> Answer {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, member) = (text(&request.body["name"]), request.query.get("target").cloned().unwrap_or_default());
        if self.volumes.iter().any(|volume| volume.name == name && volume.member == member) {
            return Err((409, "Volume by that name already exists".to_owned()));
        }
        let source = &request.body["source"];
        let content = match source["type"].as_str() {
            Some("migration") => self.offered(source).ok_or_else(|| missing("Storage volume"))?.content.clone(),
            _ => String::new(),
        };
        let config = serde_json::from_value(request.body["config"].clone()).unwrap();
        self.revision += 1;
        let (pool, revision) = ("fast".to_owned(), self.revision);
        self.volumes.push(Volume { pool, name, member, config, content, revision });
        Ok((Value::Null, None))
    }

    fn volume(&mut self, request: &Request, name: &str) -> Answer {
        let target = request.query.get("target");
        let is_it = |volume: &Volume| volume.name == name && target.is_none_or(|target| *target == volume.member);
        let found: Vec<usize> = (0..self.volumes.len()).filter(|at| is_it(&self.volumes[*at])).collect();
        let at = match found.as_slice() {
            [at] => *at,
            [] => return Err(missing("Storage volume")),
            _ => return Err((500, "More than one cluster member has a volume of this name".to_owned())),
        };
        let revision = self.volumes[at].revision;
        match request.method.as_str() {
            "GET" => Ok((self.shown(&self.volumes[at]), Some(revision))),
            "DELETE" if !self.users(&self.volumes[at]).is_empty() => {
                Err((400, "The storage volume is still in use".to_owned()))
            }
            "DELETE" => {
                self.volumes.remove(at);
                Ok((Value::Null, None))
            }
            _ => {
                if request.if_match.as_ref().is_some_and(|etag| *etag != revision.to_string()) {
                    return Err((412, "ETag doesn't match".to_owned()));
                }
                let new: BTreeMap<String, String> = serde_json::from_value(request.body["config"].clone()).unwrap();
                self.revision += 1;
                let volume = &mut self.volumes[at];
                if request.method == "PUT" {
                    volume.config.clear();
                }
                volume.config.extend(new);
                volume.revision = self.revision;
                Ok((Value::Null, None))
            }
        }
    }
}
