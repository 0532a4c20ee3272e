//! Reads `director.yml`. It is written for us alone, so a key that we do not know is a mistake.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use windlass_blobs::BlobstoreChoice;
use windlass_contract::{ApiVersion, Secret};
use windlass_manifest::fields::Fields;
use windlass_manifest::{At, Content, Document};
use windlass_planning::desired::Findings;
use windlass_variables::{Authorization, ExternalSettings};

use super::units::{optional_number, set_count, set_duration, set_never_or_duration, size};
use super::{
    CpiChoice, FencingSettings, GivenCertificate, Isolation, KeySource, Lifetimes, LocalDnsSettings, Meltdown,
    NoticeKind, ResurrectorSettings, RubyUse, Schedules, Settings, TeamLimits, VariableSettings, WebhookSettings,
};
use crate::users::{Account, Credentials, Scopes};

const KEYS: [&str; 31] = [
    "name",
    "listen",
    "advertise",
    "db",
    "shared_dir",
    "cpi",
    "isolation",
    "cpi_preferred_api_version",
    "cpi_api_test_max_version",
    "cpi_deadline",
    "agent_wait",
    "template_time",
    "agent",
    "enable_cpi_resize_disk",
    "enable_snapshots",
    "users",
    "webhook",
    "workers",
    "max_threads",
    "resurrector",
    "fencing",
    "schedules",
    "certificates",
    "tls",
    "ruby",
    "blobstore",
    "blobs_limit",
    "variables",
    "config_server",
    "local_dns",
    "team_limits",
];

/// The settings, or all problems, one per line.
pub(super) fn settings(text: &str, folder: &Path) -> Result<Settings, String> {
    let mut settings = Settings::default();
    let document = Document::parse(text).map_err(|error| error.to_string())?;
    if document.root().node().content == Content::Null {
        return Ok(settings);
    }
    let mut findings = Findings::new();
    if let Some(fields) = Fields::strictly(&document.root(), &KEYS, &mut findings) {
        fill(&mut settings, fields, folder);
    }
    if findings.is_clean() { Ok(settings) } else { Err(findings.to_string()) }
}

fn fill(settings: &mut Settings, mut fields: Fields<'_, '_>, folder: &Path) {
    if let Some(name) = fields.optional_text("name") {
        settings.name = name.value;
    }
    if let Some(listen) = fields.optional_text("listen") {
        match listen.value.parse() {
            Ok(address) => settings.listen = address,
            Err(_) => {
                let problem =
                    format!("expected an address and a port such as 10.0.0.6:25555, found '{}'", listen.value);
                fields.findings().push(listen.problem(problem));
            }
        }
    }
    settings.advertise = advertise(&mut fields);
    settings.db = fields.optional_text("db").map(|url| Secret::new(url.value));
    settings.shared_dir = fields.optional_text("shared_dir").map(|path| folder.join(path.value));
    if let Some(at) = fields.optional("cpi") {
        let choice = cpi(&at, fields.findings(), folder);
        settings.cpi = choice.unwrap_or_else(|| settings.cpi.clone());
    }
    if let Some(isolation) = fields.word("isolation", &Isolation::WORDS) {
        settings.isolation = isolation;
    }
    if let Some(ruby) = fields.word("ruby", &RubyUse::WORDS) {
        settings.ruby = ruby;
    }
    for key in ["cpi_preferred_api_version", "cpi_api_test_max_version"] {
        let highest = u64::from(ApiVersion::HIGHEST.0);
        if let Some(version) = optional_number(&mut fields, key, 1, highest) {
            // Each of them is a limit: one that is higher than the other does not raise it.
            settings.preferred_version = settings.preferred_version.min(ApiVersion(version as u32));
        }
    }
    set_duration(&mut fields, "cpi_deadline", &mut settings.cpi_deadline);
    set_duration(&mut fields, "agent_wait", &mut settings.agent_wait);
    set_duration(&mut fields, "template_time", &mut settings.template_time);
    if let Some(agent) = fields.optional("agent") {
        settings.agent_env = agent_env(&agent, fields.findings()).unwrap_or_default();
    }
    settings.enable_cpi_resize_disk = fields.boolean("enable_cpi_resize_disk");
    settings.enable_snapshots = fields.boolean("enable_snapshots");
    settings.users = users(&mut fields);
    set_count(&mut fields, "workers", 1000, &mut settings.workers);
    set_count(&mut fields, "max_threads", 1000, &mut settings.max_threads);
    if let Some(at) = fields.optional("local_dns") {
        local_dns(&at, fields.findings(), &mut settings.local_dns);
    }
    if let Some(at) = fields.optional("team_limits") {
        team_limits(&at, fields.findings(), &mut settings.team_limits);
    }
    if let Some(at) = fields.optional("resurrector") {
        resurrector(&at, fields.findings(), &mut settings.resurrector);
    }
    if let Some(at) = fields.optional("fencing") {
        settings.fencing = fencing(&at, fields.findings());
    }
    if let Some(at) = fields.optional("schedules") {
        schedules(&at, fields.findings(), &mut settings.schedules);
    }
    if let Some(at) = fields.optional("webhook") {
        settings.webhook = webhook(&at, fields.findings(), folder);
    }
    if let Some(at) = fields.optional("blobstore") {
        let choice = blobstore(&at, fields.findings());
        settings.blobstore = choice.map_or(BlobstoreChoice::Local(None), |choice| choice.relative_to(folder));
    }
    settings.blobs_limit = fields.optional("blobs_limit").and_then(|at| fields.check(size(&at)));
    if let Some(at) = fields.optional("config_server") {
        settings.config_server = config_server(&at, fields.findings(), folder);
    }
    if let Some(at) = fields.optional("variables") {
        settings.variables = variables(&at, fields.findings(), folder).unwrap_or_default();
    }
    if let Some(at) = fields.optional("certificates") {
        certificates(&at, fields.findings(), &mut settings.certificates);
    }
    if let Some(at) = fields.optional("tls") {
        settings.tls = tls(&at, fields.findings(), folder);
    }
}

fn tls(at: &At<'_>, findings: &mut Findings, folder: &Path) -> Option<GivenCertificate> {
    let mut fields = Fields::strictly(at, &["certificate", "private_key", "ca"], findings)?;
    let (certificate, private_key) = (fields.text("certificate"), fields.text("private_key"));
    let ca = fields.optional_text("ca").map(|file| folder.join(file.value));
    Some(GivenCertificate {
        certificate: folder.join(certificate?.value),
        private_key: folder.join(private_key?.value),
        ca,
    })
}

fn variables(at: &At<'_>, findings: &mut Findings, folder: &Path) -> Option<VariableSettings> {
    let mut fields = Fields::strictly(at, &["key", "previous_key"], findings)?;
    let mut read = |name: &str| {
        let at = fields.optional(name)?;
        key_source(&at, fields.findings(), folder)
    };
    Some(VariableSettings { key: read("key"), previous_key: read("previous_key") })
}

fn config_server(at: &At<'_>, findings: &mut Findings, folder: &Path) -> Option<ExternalSettings> {
    let keys = ["url", "ca_cert", "client", "client_secret", "uaa_url", "uaa_ca_cert"];
    let mut fields = Fields::strictly(at, &keys, findings)?;
    let url = fields.text("url");
    let uaa_url = fields.optional_text("uaa_url");
    for given in url.iter().chain(&uaa_url) {
        let parsed = reqwest::Url::parse(&given.value).ok();
        if !parsed.is_some_and(|url| url.scheme() == "https" && url.has_host()) {
            fields.findings().push(given.problem("expected a URL such as https://config-server.example.com:8844/api"));
        }
    }
    let mut certificate = |name: &str| {
        let file = fields.optional_text(name)?;
        let read = std::fs::read_to_string(folder.join(&file.value));
        fields.check(read.map_err(|error| file.problem(format!("the file cannot be read: {error}"))))
    };
    let (ca_cert, uaa_ca_cert) = (certificate("ca_cert"), certificate("uaa_ca_cert"));
    let client = fields.optional_text("client").map(|client| client.value);
    let client_secret = fields.optional("client_secret").and_then(|at| secret(&at, fields.findings(), folder));
    let authorization = match (uaa_url, client, client_secret) {
        (None, None, None) => Authorization::Nothing,
        (None, Some(client), Some(secret)) => Authorization::Basic { client, secret },
        (Some(url), Some(client), Some(secret)) => {
            Authorization::Uaa { url: url.value, client, secret, ca_cert: uaa_ca_cert }
        }
        _ => {
            fields.push("needs both 'client' and 'client_secret': {file: PATH} or {env: VARIABLE}");
            return None;
        }
    };
    Some(ExternalSettings { url: url?.value, ca_cert, authorization })
}

fn key_source(at: &At<'_>, findings: &mut Findings, folder: &Path) -> Option<KeySource> {
    let mut fields = Fields::strictly(at, &["file", "env", "command"], findings)?;
    let file = fields.optional_text("file").map(|path| KeySource::File(folder.join(path.value)));
    let env = fields.optional_text("env").map(|name| KeySource::Environment(name.value));
    let words: Vec<_> = fields.texts("command").into_iter().map(|word| word.value).collect();
    let command = (!words.is_empty()).then_some(KeySource::Command(words));
    let mut given = [file, env, command].into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(one), None) => Some(one),
        _ => {
            fields.push("expected one of 'file', 'env' and 'command'");
            None
        }
    }
}

/// One name or a list of them.
fn advertise(fields: &mut Fields<'_, '_>) -> Vec<String> {
    let is_list = fields.optional("advertise").is_some_and(|at| matches!(at.node().content, Content::List(_)));
    let given =
        if is_list { fields.texts("advertise") } else { fields.optional_text("advertise").into_iter().collect() };
    let mut names = Vec::new();
    for name in given {
        let is_name = name.value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '*'));
        if is_name || name.value.parse::<IpAddr>().is_ok() {
            names.push(name.value);
        } else {
            let problem = format!("expected a host name or an address, found '{}'", name.value);
            fields.findings().push(name.problem(problem));
        }
    }
    names
}

fn cpi(at: &At<'_>, findings: &mut Findings, folder: &Path) -> Option<CpiChoice> {
    let place = |name: &str| match name {
        "local" | "incus" | "sim" => name.to_owned(),
        path => folder.join(path).display().to_string(),
    };
    if let Content::String(name) = &at.node().content {
        return Some(CpiChoice::named(&place(name), None, Vec::new()));
    }
    let mut fields = Fields::strictly(at, &["exec", "config", "arguments", "installed"], findings)?;
    if let Some(installed) = fields.optional_text("installed") {
        if let Some(other) = ["exec", "config", "arguments"].iter().find(|key| fields.optional(key).is_some()) {
            fields.push(format!("has '{other}' beside 'installed', which has all of its own; keep one of them"));
        }
        return Some(CpiChoice::Installed { name: installed.value });
    }
    let config = fields.optional_text("config").map(|path| folder.join(path.value));
    let arguments = fields.texts("arguments").into_iter().map(|argument| argument.value).collect();
    let exec = fields.text("exec")?;
    Some(CpiChoice::named(&place(&exec.value), config, arguments))
}

fn blobstore(at: &At<'_>, findings: &mut Findings) -> Option<BlobstoreChoice> {
    let mut fields = Fields::strictly(at, &["provider", "options"], findings)?;
    let options = fields.object("options");
    let provider = fields.text("provider")?;
    match BlobstoreChoice::read_strictly(&provider.value, &options) {
        Ok(choice) => Some(choice),
        Err(error) => {
            fields.findings().push(provider.problem(error.to_string()));
            None
        }
    }
}

fn agent_env(at: &At<'_>, findings: &mut Findings) -> Option<windlass_contract::Object> {
    let mut agent = Fields::strictly(at, &["env"], findings)?;
    let at = agent.optional("env")?;
    let mut env = Fields::strictly(&at, &["bosh"], agent.findings())?;
    let bosh = env.object("bosh");
    if let Some(mbus) = env.optional("bosh").and_then(|bosh| bosh.optional("mbus").ok().flatten()) {
        env.findings()
            .push(mbus.problem("the director makes this itself; with another, it could not reach its agents"));
    }
    Some(bosh)
}

fn users(fields: &mut Fields<'_, '_>) -> Vec<Account> {
    let mut users: Vec<Account> = Vec::new();
    for at in fields.list("users") {
        let Some(mut user) = Fields::strictly(&at, &["name", "password", "role", "scopes"], fields.findings()) else {
            continue;
        };
        let (name, password) = (user.text("name"), user.text("password"));
        let scopes = Arc::new(scopes(&mut user));
        let (Some(name), Some(password)) = (name, password) else { continue };
        if name.value.contains(':') {
            fields.findings().push(name.problem("a user's name must not contain ':'"));
        } else if users.iter().any(|other| other.credentials.user == name.value) {
            fields.findings().push(name.problem(format!("the user '{}' is there already", name.value)));
        } else {
            let credentials = Credentials { user: name.value, password: Secret::new(password.value) };
            users.push(Account { credentials, scopes });
        }
    }
    users
}

/// Said by a role or by scopes; without either, a user may do everything.
fn scopes(user: &mut Fields<'_, '_>) -> Scopes {
    let reads_only = user.word("role", &[("admin", false), ("read-only", true)]).unwrap_or(false);
    let Some(at) = user.optional("scopes") else {
        return if reads_only { Scopes::read_only() } else { Scopes::admin() };
    };
    let said = user.texts("scopes");
    if user.optional("role").is_some() {
        user.findings().push(at.problem("say either 'role' or 'scopes'"));
    } else if said.is_empty() {
        user.findings().push(at.problem("expected at least one scope"));
    }
    for scope in &said {
        if let Err(error) = Scopes::parse([scope.value.as_str()]) {
            user.findings().push(scope.problem(error.to_string()));
        }
    }
    Scopes::parse(said.iter().map(|scope| scope.value.as_str())).unwrap_or_default()
}

/// Without a list of events, all are told.
fn webhook(at: &At<'_>, findings: &mut Findings, folder: &Path) -> Option<WebhookSettings> {
    let mut fields = Fields::strictly(at, &["url", "secret", "events"], findings)?;
    let url = fields.text("url");
    if let Some(url) = &url {
        let parsed = reqwest::Url::parse(&url.value).ok();
        if !parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
            fields.findings().push(url.problem("expected a URL such as https://pager.example.com/hook"));
        }
    }
    let events = match fields.optional("events") {
        None => NoticeKind::WORDS.map(|(_, kind)| kind).to_vec(),
        Some(_) => {
            let mut events = Vec::new();
            for word in fields.texts("events") {
                match NoticeKind::WORDS.iter().find(|(known, _)| *known == word.value) {
                    Some((_, kind)) => events.push(*kind),
                    None => {
                        let known = NoticeKind::WORDS.map(|(word, _)| word).join(", ");
                        let problem = format!("expected one of {known}, found '{}'", word.value);
                        fields.findings().push(word.problem(problem));
                    }
                }
            }
            events
        }
    };
    let Some(at) = fields.optional("secret") else {
        fields.findings().push(at.problem("is without a secret: say secret: {file: PATH} or {env: VARIABLE}"));
        return None;
    };
    let secret = secret(&at, fields.findings(), folder)?;
    Some(WebhookSettings { url: Secret::new(url?.value), secret, events })
}

/// From a file or a variable, so that `director.yml` may be shown to others.
fn secret(at: &At<'_>, findings: &mut Findings, folder: &Path) -> Option<Secret> {
    let mut fields = Fields::strictly(at, &["file", "env"], findings)?;
    let found = match (fields.optional_text("file"), fields.optional_text("env")) {
        (Some(file), None) => std::fs::read_to_string(folder.join(&file.value))
            .map_err(|error| file.problem(format!("the file cannot be read: {error}"))),
        (None, Some(name)) => {
            std::env::var(&name.value).map_err(|_| name.problem(format!("the variable {} is not set", name.value)))
        }
        _ => Err(at.problem("say either file or env")),
    };
    match found {
        Ok(secret) if secret.trim().is_empty() => findings.push(at.problem("the secret is empty")),
        Ok(secret) => return Some(Secret::new(secret.trim().to_owned())),
        Err(problem) => findings.push(problem),
    }
    None
}

fn local_dns(at: &At<'_>, findings: &mut Findings, settings: &mut LocalDnsSettings) {
    let keys = ["enabled", "include_index", "use_dns_addresses"];
    let Some(mut fields) = Fields::strictly(at, &keys, findings) else { return };
    settings.enabled = fields.boolean("enabled").unwrap_or(settings.enabled);
    settings.include_index = fields.boolean("include_index").unwrap_or(settings.include_index);
    settings.use_dns_addresses = fields.boolean("use_dns_addresses").unwrap_or(settings.use_dns_addresses);
    if settings.use_dns_addresses && !settings.enabled {
        fields.push("nobody knows the names that use_dns_addresses wants; say enabled: true as well");
    }
}

fn team_limits(at: &At<'_>, findings: &mut Findings, settings: &mut TeamLimits) {
    let Some(mut fields) = Fields::strictly(at, &["deployments", "instances"], findings) else { return };
    set_count(&mut fields, "deployments", 1_000_000, &mut settings.deployments);
    set_count(&mut fields, "instances", 1_000_000, &mut settings.instances);
}

fn resurrector(at: &At<'_>, findings: &mut Findings, settings: &mut ResurrectorSettings) {
    let keys = ["enabled", "interval", "agent_timeout", "stateful", "meltdown"];
    let Some(mut fields) = Fields::strictly(at, &keys, findings) else { return };
    settings.enabled = fields.boolean("enabled").unwrap_or(settings.enabled);
    settings.stateful = fields.boolean("stateful").unwrap_or(settings.stateful);
    set_duration(&mut fields, "interval", &mut settings.interval);
    set_duration(&mut fields, "agent_timeout", &mut settings.agent_timeout);
    if let Some(at) = fields.optional("meltdown") {
        meltdown(&at, fields.findings(), &mut settings.meltdown);
    }
}

/// A program with its arguments, by an absolute path: directors have different folders and variables.
fn fencing(at: &At<'_>, findings: &mut Findings) -> Option<FencingSettings> {
    let mut fields = Fields::strictly(at, &["command", "timeout"], findings)?;
    let words = fields.texts("command");
    match words.first() {
        None => fields.push("is without a command: say command: [/path/of/a/program, ARGUMENT]"),
        Some(program) if !Path::new(&program.value).is_absolute() => {
            let problem = format!("expected an absolute path, found '{}'", program.value);
            fields.findings().push(program.problem(problem));
        }
        Some(_) => {}
    }
    let mut timeout = crate::fencing::TIMEOUT;
    set_duration(&mut fields, "timeout", &mut timeout);
    let command: Vec<String> = words.into_iter().map(|word| word.value).collect();
    (!command.is_empty()).then_some(FencingSettings { command, timeout })
}

fn meltdown(at: &At<'_>, findings: &mut Findings, settings: &mut Meltdown) {
    let Some(mut fields) = Fields::strictly(at, &["instances", "percent", "within"], findings) else { return };
    set_count(&mut fields, "instances", 1_000_000, &mut settings.instances);
    if let Some(percent) = optional_number(&mut fields, "percent", 1, 100) {
        settings.percent = percent as u8;
    }
    set_duration(&mut fields, "within", &mut settings.within);
}

fn schedules(at: &At<'_>, findings: &mut Findings, settings: &mut Schedules) {
    let keys = ["delete_orphan_disks_after", "delete_orphaned_vms_every", "snapshot_every", "keep_tasks"];
    let Some(mut fields) = Fields::strictly(at, &keys, findings) else { return };
    set_never_or_duration(&mut fields, "delete_orphan_disks_after", &mut settings.delete_orphan_disks_after);
    set_never_or_duration(&mut fields, "snapshot_every", &mut settings.snapshot_every);
    set_duration(&mut fields, "delete_orphaned_vms_every", &mut settings.delete_orphaned_vms_every);
    set_count(&mut fields, "keep_tasks", 1_000_000, &mut settings.keep_tasks);
}

fn certificates(at: &At<'_>, findings: &mut Findings, settings: &mut Lifetimes) {
    let Some(mut fields) = Fields::strictly(at, &["lifetime", "ca_lifetime"], findings) else { return };
    set_duration(&mut fields, "lifetime", &mut settings.leaf);
    set_duration(&mut fields, "ca_lifetime", &mut settings.ca);
    if settings.ca <= settings.leaf {
        fields.push("the CA must live longer than what it signs: 'ca_lifetime' must be more than 'lifetime'");
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
