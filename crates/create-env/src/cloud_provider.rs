//! `cloud_provider`: which CPI makes the VM, and where its agent is reached.
//!
//! BOSH's form names jobs of releases (`template`, or several as `templates`), one of which is the CPI. Ours names an executable
//! (`cpi: local`, or `cpi: {exec: …, config: …}`) and needs no release. Where both are there, BOSH goes by its own and we by ours.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use windlass_contract::{Object, Secret};
use windlass_installation::JobReference;
use windlass_manifest::{At, Content, Document, Fields, Findings};

/// What a manifest says about the cloud.
#[derive(Debug, Clone)]
pub struct CloudProvider {
    pub cpi: CpiForm,
    /// Where the agent is reached; none if that is left to us.
    pub mbus: Option<Mbus>,
    /// The CA of its certificate, as PEM.
    pub ca: Option<String>,
    /// For the CPI.
    pub properties: Object,
    /// How the VM reaches a registry on this machine.
    pub ssh_tunnel: Option<SshTunnel>,
    /// Where the VM reaches a registry on this machine without a tunnel, and where that listens.
    pub registry: RegistryPlace,
}

#[derive(Debug, Clone, PartialEq)]
pub enum CpiForm {
    /// The embedded cloud.
    Local,
    /// Jobs of releases, one of which is the CPI.
    Release(Vec<JobReference>),
    /// An executable with its arguments, in which `{config}` is the path of its configuration.
    Exec {
        /// The command line.
        command: Vec<String>,
        /// Its configuration; `properties` in the usual form if it is not given.
        config: Option<Value>,
    },
}

/// Where an agent is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mbus {
    /// An address or a name.
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: Secret,
}

/// How the VM's loopback is tied to ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshTunnel {
    /// The VM.
    pub host: String,
    pub port: u16,
    pub user: String,
    /// A PEM text, or a path from the manifest's folder.
    pub private_key: Option<Secret>,
}

/// Where a registry on this machine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryPlace {
    /// The address that VMs use; none for the best guess.
    pub host: Option<IpAddr>,
    /// The port, which is the original's unless another one is given.
    pub port: u16,
}

/// The port that the original's registry had.
const REGISTRY_PORT: u16 = 6901;

const KNOWN: &[&str] =
    &["cpi", "template", "templates", "mbus", "cert", "properties", "ssh_tunnel", "registry", "release"];

/// Reads `cloud_provider`.
pub fn read(document: &Document, findings: &mut Findings) -> Option<CloudProvider> {
    let at = findings.check(document.root().field("cloud_provider"))?;
    let mut fields = Fields::of(&at, KNOWN, findings)?;
    let properties = fields.object("properties");
    let mbus = fields.optional_text("mbus").and_then(|url| {
        let parsed = parse_mbus(&url.value);
        if parsed.is_none() {
            let problem = url.problem("expected a URL such as https://USER:PASSWORD@10.0.0.9:6868");
            fields.findings().push(problem);
        }
        parsed
    });
    let ca = fields.optional("cert").and_then(|cert| match &cert.node().content {
        // An empty one, as manifests with variables have it.
        Content::Null => None,
        _ => fields.check(cert.optional("ca")).flatten().and_then(|ca| fields.check(ca.string().map(str::to_owned))),
    });
    let ssh_tunnel = fields.optional("ssh_tunnel").and_then(|at| read_tunnel(&at, fields.findings()));
    let registry = fields
        .optional("registry")
        .map_or(Some(RegistryPlace { host: None, port: REGISTRY_PORT }), |at| read_registry(&at, fields.findings()));
    let cpi = match fields.optional("cpi") {
        Some(at) => read_cpi(&at, fields.findings()),
        None => read_templates(&mut fields),
    };
    Some(CloudProvider { cpi: cpi?, mbus, ca, properties, ssh_tunnel, registry: registry? })
}

fn read_templates(fields: &mut Fields<'_, '_>) -> Option<CpiForm> {
    let (one, several) = (fields.optional("template"), fields.list("templates"));
    if one.is_some() && !several.is_empty() {
        fields.push("has both 'template' and 'templates'; keep one of them");
        return None;
    }
    let templates: Vec<At<'_>> = one.into_iter().chain(several).collect();
    if templates.is_empty() {
        fields.push(
            "names no CPI; add 'template: {name: JOB, release: RELEASE}' for a CPI release, 'cpi: local' for the embedded cloud, or \
             'cpi: {exec: \"/path/to/cpi -configPath {config}\"}' for any CPI executable",
        );
        return None;
    }
    let mut jobs = Vec::new();
    for at in &templates {
        let mut template = Fields::of(at, &["name", "release"], fields.findings())?;
        let (name, release) = (template.text("name"), template.text("release"));
        jobs.push(JobReference { job: name?.value, release: release?.value });
    }
    Some(CpiForm::Release(jobs))
}

fn read_cpi(at: &At<'_>, findings: &mut Findings) -> Option<CpiForm> {
    if let Content::String(word) = &at.node().content {
        if word == "local" {
            return Some(CpiForm::Local);
        }
        findings.push(at.problem(format!("expected 'local', or 'exec' with a command line, found '{word}'")));
        return None;
    }
    let mut fields = Fields::of(at, &["exec", "config"], findings)?;
    let exec = fields.required("exec")?;
    let command: Vec<String> = match &exec.node().content {
        Content::String(line) => line.split_whitespace().map(str::to_owned).collect(),
        _ => fields
            .check(exec.list())?
            .iter()
            .filter_map(|word| fields.check(word.string().map(str::to_owned)))
            .collect(),
    };
    if command.is_empty() {
        fields.findings().push(exec.problem("names no executable"));
    }
    let config = fields.optional("config").map(|at| at.node().to_json());
    if config.is_some() && !command.iter().any(|word| word.contains(CONFIG)) {
        let problem = exec.problem(format!("must say where its configuration goes: put {CONFIG} into it"));
        fields.findings().push(problem);
    }
    Some(CpiForm::Exec { command, config })
}

/// Stands for the path of the configuration.
const CONFIG: &str = "{config}";

fn read_tunnel(at: &At<'_>, findings: &mut Findings) -> Option<SshTunnel> {
    let mut fields = Fields::of(at, &["host", "port", "user", "password", "private_key"], findings)?;
    let port = fields.optional("port").and_then(|at| fields.check(windlass_manifest::fields::number(&at, 1, 65535)));
    let private_key = fields.optional_text("private_key").map(|key| Secret::new(key.value));
    let (host, user) = (fields.text("host"), fields.text("user"));
    let port = u16::try_from(port.unwrap_or(22)).unwrap_or(22);
    Some(SshTunnel { host: host?.value, port, user: user?.value, private_key })
}

fn read_registry(at: &At<'_>, findings: &mut Findings) -> Option<RegistryPlace> {
    let mut fields = Fields::of(at, &["host", "port"], findings)?;
    let port = fields.optional("port").and_then(|at| fields.check(windlass_manifest::fields::number(&at, 1, 65535)));
    let host = fields.optional_text("host").and_then(|host| {
        let parsed = host.value.parse().ok();
        if parsed.is_none() {
            let problem = host.problem("expected an address of this machine that the VM can reach");
            fields.findings().push(problem);
        }
        parsed
    });
    let port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(REGISTRY_PORT);
    Some(RegistryPlace { host, port })
}

fn parse_mbus(url: &str) -> Option<Mbus> {
    let rest = url.strip_prefix("https://")?;
    let (credentials, place) = rest.trim_end_matches('/').rsplit_once('@')?;
    let (user, password) = credentials.split_once(':')?;
    let (host, port) = place.rsplit_once(':')?;
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned());
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some(Mbus { host, port: port.parse().ok()?, user: decoded(user)?, password: Secret::new(decoded(password)?) })
}

impl Mbus {
    /// Where the agent itself listens.
    pub fn listen_url(&self) -> String {
        let encode =
            |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
        format!("https://{}:{}@0.0.0.0:{}", encode(&self.user), encode(self.password.reveal()), self.port)
    }
}

impl CloudProvider {
    /// The releases that the CPI is from.
    pub fn releases(&self) -> Vec<&str> {
        let CpiForm::Release(jobs) = &self.cpi else { return Vec::new() };
        let mut names: Vec<&str> = jobs.iter().map(|job| job.release.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The configuration of the CPI, in the usual form, with the registry if there is one. `cloud` is where the embedded cloud
    /// has its state unless the manifest says otherwise.
    pub fn config(&self, cloud: &Path, registry: Option<&Object>) -> Value {
        let mut config = match &self.cpi {
            CpiForm::Exec { config: Some(config), .. } => config.clone(),
            CpiForm::Exec { .. } | CpiForm::Release(_) => json!({"cloud": {"properties": self.properties}}),
            CpiForm::Local => {
                let mut properties = self.properties.clone();
                let local = properties.entry("local").or_insert_with(|| json!({}));
                if let Some(local) = local.as_object_mut() {
                    local.entry("state_dir").or_insert_with(|| json!(cloud));
                }
                json!({"cloud": {"plugin": "local", "properties": properties}})
            }
        };
        if let Some(registry) = registry {
            config["cloud"]["properties"]["registry"] = json!(registry);
        }
        config
    }

    /// The executable and its arguments. `own` is how our own CPI is started; `config` is its configuration, or what starts a CPI
    /// of a release, which knows where everything else is.
    pub fn command(&self, own: &OwnCpi, config: &Path) -> (PathBuf, Vec<OsString>) {
        match &self.cpi {
            CpiForm::Local => {
                let mut arguments = own.arguments.clone();
                arguments.extend(["local".into(), "--config".into(), config.into()]);
                (own.executable.clone(), arguments)
            }
            CpiForm::Release(_) => (config.to_owned(), Vec::new()),
            CpiForm::Exec { command, .. } => {
                let mut words = command.iter().map(|word| word.replace(CONFIG, &config.display().to_string()));
                (words.next().unwrap_or_default().into(), words.map(Into::into).collect())
            }
        }
    }
}

/// How our own CPI is started; `local …` is added.
#[derive(Debug, Clone)]
pub struct OwnCpi {
    pub executable: PathBuf,
    /// What comes before.
    pub arguments: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(yaml: &str) -> (Option<CloudProvider>, String) {
        let document = Document::parse(yaml).unwrap();
        let mut findings = Findings::new();
        let provider = read(&document, &mut findings);
        (provider, findings.to_string())
    }

    #[test]
    fn the_embedded_cloud_and_any_executable_can_be_named() {
        let own = OwnCpi { executable: "/bin/windlass".into(), arguments: vec!["cpi".into()] };
        let (local, problems) = read_text(
            "cloud_provider: {cpi: local, template: {name: x, release: y}, mbus: 'https://u:p%40@10.0.0.9:6868', cert: {ca: C}}",
        );
        assert_eq!(problems, "");
        let local = local.unwrap();
        let mbus = local.mbus.clone().unwrap();
        assert_eq!((mbus.host.as_str(), mbus.port, mbus.password.reveal()), ("10.0.0.9", 6868, "p@"));
        assert_eq!(mbus.listen_url(), "https://u:p%40@0.0.0.0:6868");
        let config = local.config(Path::new("/cloud"), Some(&json!({"endpoint": "e"}).as_object().unwrap().clone()));
        assert_eq!(
            config["cloud"]["properties"],
            json!({"local": {"state_dir": "/cloud"}, "registry": {"endpoint": "e"}})
        );
        assert_eq!(local.command(&own, Path::new("/c")).1, ["cpi", "local", "--config", "/c"]);

        let (exec, problems) =
            read_text("cloud_provider: {cpi: {exec: '/opt/cpi -configPath {config}'}, properties: {aws: {a: 1}}}");
        assert_eq!(problems, "");
        let exec = exec.unwrap();
        assert_eq!(exec.command(&own, Path::new("/c")), ("/opt/cpi".into(), vec!["-configPath".into(), "/c".into()]));
        assert_eq!(exec.config(Path::new("/x"), None), json!({"cloud": {"properties": {"aws": {"a": 1}}}}));
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_remedy() {
        for (yaml, words) in [
            ("name: x", "cloud_provider"),
            ("cloud_provider: {mbus: 'https://a:b@10.0.0.9:1'}", "add 'template: {name: JOB, release: RELEASE}'"),
            ("cloud_provider: {template: {name: a}}", "release"),
            (
                "cloud_provider: {template: {name: a, release: b}, templates: [{name: a, release: b}]}",
                "keep one of them",
            ),
            ("cloud_provider: {cpi: remote}", "expected 'local'"),
            ("cloud_provider: {cpi: {exec: /cpi, config: {}}}", "put {config} into it"),
            ("cloud_provider: {cpi: local, mbus: 'nats://x'}", "https://USER:PASSWORD@"),
            ("cloud_provider: {cpi: local, registry: {host: nowhere}}", "an address of this machine"),
        ] {
            let (_, problems) = read_text(yaml);
            assert!(problems.contains(words), "{yaml}: {problems}");
        }
    }
}
