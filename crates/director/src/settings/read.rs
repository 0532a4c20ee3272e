//! Reads `director.yml`. It is written for us alone, so a key that we do not know is a mistake.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use windlass_blobs::BlobstoreChoice;
use windlass_contract::{ApiVersion, Secret};
use windlass_manifest::fields::{Fields, number};
use windlass_manifest::{At, Content, Document, Problem};
use windlass_planning::desired::Findings;
use windlass_variables::{Authorization, ExternalSettings};

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
            fields.findings().push(given.problem("expected a URL such as https://credhub.example.com:8844/api"));
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

const SIZES: [(&str, u64); 3] = [("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Bytes, or a number with a unit.
fn size(at: &At<'_>) -> Result<u64, Problem> {
    let parsed = match &at.node().content {
        Content::Number(bytes) => bytes.as_u64(),
        Content::String(text) => SIZES
            .iter()
            .find_map(|(unit, bytes)| text.strip_suffix(unit)?.trim().parse::<u64>().ok()?.checked_mul(*bytes)),
        _ => None,
    };
    parsed.filter(|size| *size > 0).ok_or_else(|| at.problem("expected a size such as 500MiB, 50GiB or 2TiB"))
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

fn optional_number(fields: &mut Fields<'_, '_>, key: &str, least: u64, most: u64) -> Option<u64> {
    let at = fields.optional(key)?;
    fields.check(number(&at, least, most))
}

fn set_count(fields: &mut Fields<'_, '_>, key: &str, most: u64, setting: &mut usize) {
    if let Some(count) = optional_number(fields, key, 1, most) {
        *setting = count as usize;
    }
}

fn set_duration(fields: &mut Fields<'_, '_>, key: &str, setting: &mut Duration) {
    if let Some(given) = fields.optional(key).and_then(|at| fields.check(duration(&at))) {
        *setting = given;
    }
}

fn set_never_or_duration(fields: &mut Fields<'_, '_>, key: &str, setting: &mut Option<Duration>) {
    let Some(at) = fields.optional(key) else { return };
    if matches!(&at.node().content, Content::String(word) if word == "never") {
        *setting = None;
    } else if let Some(given) = fields.check(duration(&at)) {
        *setting = Some(given);
    }
}

const UNITS: [(char, u64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 86400)];
/// A century: longer ones are slips, and would overflow where they are added to something.
const LONGEST: u64 = 100 * 365 * 86400;

/// Seconds, or a number with a unit.
fn duration(at: &At<'_>) -> Result<Duration, Problem> {
    let parsed = match &at.node().content {
        Content::Number(seconds) => seconds.as_u64(),
        Content::String(text) => UNITS
            .iter()
            .find_map(|(unit, seconds)| text.strip_suffix(*unit)?.trim().parse::<u64>().ok()?.checked_mul(*seconds)),
        _ => None,
    };
    let allowed = parsed.filter(|seconds| (1..=LONGEST).contains(seconds));
    allowed.map(Duration::from_secs).ok_or_else(|| {
        at.problem("expected a time such as 30s, 10m, 12h or 5d, of at least a second and at most a hundred years")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        settings(text, Path::new("/etc/windlass"))
    }

    #[test]
    fn an_empty_file_sets_nothing() {
        for text in ["", "---\n", "{}"] {
            let settings = read(text).unwrap();
            assert_eq!(settings.listen.to_string(), "127.0.0.1:25555");
            assert!(settings.takes_snapshots(), "the cloud is built in");
        }
    }

    #[test]
    fn a_highest_version_does_not_raise_a_preferred_one() {
        for (preferred, highest, expected) in [(1, 2, 1), (2, 1, 1), (2, 2, 2)] {
            let text = format!("cpi_preferred_api_version: {preferred}\ncpi_api_test_max_version: {highest}\n");
            assert_eq!(read(&text).unwrap().preferred_version, ApiVersion(expected), "{text}");
        }
    }

    #[test]
    fn what_is_documented_is_understood() {
        let text = "name: one\nlisten: 10.0.0.6:0\nadvertise: [director.example.com, 10.0.0.9]\ndb: postgres://u:p@h/n\n\
            cpi: {exec: bin/cpi, config: cpi.json, arguments: [-v]}\ncpi_api_test_max_version: 1\ncpi_deadline: 10m\nagent_wait: 90s\ntemplate_time: 2m\n\
            agent: {env: {bosh: {ntp: [a]}}}\nusers:\n- {name: eve, password: x, role: read-only}\n\
            - {name: bob, password: x, scopes: [bosh.read]}\n- {name: amy, password: 12}\n\
            - {name: sue, password: x, scopes: [bosh.teams.shop.admin, bosh.stemcells.upload]}\n\
            team_limits: {deployments: 7}\nworkers: 2\nresurrector: {enabled: false, meltdown: {percent: 50, within: 1h}}\n\
            schedules: {delete_orphan_disks_after: never, snapshot_every: 24h}\ncertificates: {lifetime: 90d}\n\
            tls: {certificate: tls.crt, private_key: /etc/tls.key}\nblobs_limit: 50GiB\n\
            blobstore: {provider: s3, options: {bucket_name: b, access_key_id: keyed, secret_access_key: hidden}}\n";
        let settings = read(text).unwrap();
        assert_eq!(settings.advertise, ["director.example.com", "10.0.0.9"]);
        let arguments = ["-v", "--config", "/etc/windlass/cpi.json"].map(str::to_owned).to_vec();
        assert_eq!(settings.cpi, CpiChoice::Executable { exec: "/etc/windlass/bin/cpi".into(), arguments });
        assert!(!settings.takes_snapshots(), "somebody else's CPI must be trusted first");
        assert_eq!(settings.preferred_version, ApiVersion::V1);
        assert_eq!(settings.agent_wait, Duration::from_secs(90));
        assert_eq!(settings.template_time, Duration::from_secs(120));
        assert_eq!(settings.agent_env["ntp"][0], "a");
        let scopes: Vec<_> = settings.users.iter().map(|user| (*user.scopes).clone()).collect();
        let of_shop = Scopes::parse(["bosh.teams.shop.admin", "bosh.stemcells.upload"]).unwrap();
        assert_eq!(scopes, [Scopes::read_only(), Scopes::read_only(), Scopes::admin(), of_shop]);
        assert_eq!(settings.team_limits, TeamLimits { deployments: 7, instances: 5000 });
        assert!(!settings.resurrector.enabled);
        assert_eq!(
            settings.resurrector.meltdown,
            Meltdown { instances: 5, percent: 50, within: Duration::from_secs(3600) }
        );
        assert_eq!(settings.schedules.delete_orphan_disks_after, None);
        assert_eq!(settings.certificates.leaf, Duration::from_secs(90 * 86400));
        let tls = settings.tls.clone().unwrap();
        assert!(
            tls.certificate.ends_with("tls.crt") && tls.private_key == Path::new("/etc/tls.key") && tls.ca.is_none()
        );
        let shown = format!("{settings:?}");
        assert!(settings.blobstore.is_shared() && settings.blobs_limit == Some(50 << 30));
        assert!(!shown.contains("keyed") && !shown.contains("hidden"), "{shown}");
        assert!(!shown.contains("u:p") && !shown.contains("\"12\""), "secrets print themselves: {shown}");
    }

    #[test]
    fn the_secret_of_a_webhook_is_in_a_file_or_a_variable_and_never_in_the_settings() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("hook.secret"), "shh\n").unwrap();
        std::fs::write(folder.path().join("empty"), "\n").unwrap();
        let read = |text: &str| settings(&format!("webhook: {text}\n"), folder.path());
        let webhook = read("{url: 'https://x.example/h?t=1', secret: {file: hook.secret}}").unwrap().webhook.unwrap();
        assert_eq!(webhook.secret.reveal(), "shh");
        assert_eq!(webhook.events.len(), NoticeKind::WORDS.len());
        let some = read("{url: 'http://127.0.0.1:1', secret: {env: PATH}, events: [deploy_failed]}").unwrap();
        assert_eq!(some.webhook.unwrap().events, [NoticeKind::DeployFailed]);
        for (text, expected) in [
            ("{url: 'https://x.example'}", "webhook: is without a secret"),
            ("{url: 'https://x.example', secret: shh}", "webhook.secret: "),
            ("{url: 'https://x.example', secret: {}}", "webhook.secret: say either file or env"),
            ("{url: 'https://x.example', secret: {file: none}}", "webhook.secret.file: the file cannot be read"),
            ("{url: 'https://x.example', secret: {file: empty}}", "webhook.secret: the secret is empty"),
            ("{url: 'https://x.example', secret: {env: NOT_SET_HERE}}", "the variable NOT_SET_HERE is not set"),
            ("{url: 'ftp://x.example', secret: {file: hook.secret}}", "webhook.url: expected a URL such as"),
            (
                "{url: 'https://x.example', secret: {file: hook.secret}, events: [rain]}",
                "expected one of vm_unresponsive,",
            ),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(expected), "expected '{expected}' in: {said}");
        }
    }

    #[test]
    fn the_other_ways_to_name_a_cpi() {
        assert_eq!(read("cpi: {installed: aws}").unwrap().cpi, CpiChoice::Installed { name: "aws".into() });
        assert!(read("cpi: {installed: aws, exec: x}").unwrap_err().to_string().contains("keep one of them"));
        assert_eq!(read("cpi: sim").unwrap().cpi, CpiChoice::Sim { config: None });
        assert_eq!(read("cpi: incus").unwrap().cpi, CpiChoice::Incus { config: None });
        let config = Some("/etc/windlass/sim.json".into());
        assert_eq!(read("cpi: {exec: sim, config: sim.json}").unwrap().cpi, CpiChoice::Sim { config });
        let choice =
            read("cpi: {exec: bin/cpi, config: cpi.json, arguments: ['-configPath={config}', -x]}").unwrap().cpi;
        let arguments = ["-configPath=/etc/windlass/cpi.json", "-x"].map(str::to_owned).to_vec();
        assert_eq!(choice, CpiChoice::Executable { exec: "/etc/windlass/bin/cpi".into(), arguments });
        assert_eq!(read("advertise: one.example.com").unwrap().advertise, ["one.example.com"]);
    }

    /// An operator whose setting was silently ignored believes that it is in force.
    #[test]
    fn every_mistake_is_told_at_once_with_path_and_line() {
        let fencing =
            settings("fencing: {command: [/opt/fence, now], timeout: 5s}\n", Path::new("/")).unwrap().fencing.unwrap();
        assert_eq!(
            (fencing.command, fencing.timeout),
            (vec!["/opt/fence".to_owned(), "now".to_owned()], Duration::from_secs(5))
        );
        for (text, words) in [
            ("fencing: {}\n", "fencing: is without a command"),
            ("fencing: {command: [fence]}\n", "expected an absolute path, found 'fence'"),
        ] {
            let error = settings(text, Path::new("/")).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let text = "listne: 1\nlisten: nowhere\nworkers: 0\nresurrector:\n  interval: soon\n  meltdown: {percent: 200}\n\
            users:\n- {name: a, password: x}\n- {name: a, password: y, role: king}\n- name: 'b:c'\n  password: z\n\
            - {name: d, password: x, scopes: []}\n- {name: e, password: x, scopes: [team.a.admin]}\n\
            - {name: f, password: x, role: admin, scopes: [bosh.read]}\n\
            blobs_limit: much\nblobstore: {provider: s3, options: {secret_access_key: hidden}}\n\
            isolation: jail\nenable_snapshots: sometimes\ncertificates: {lifetime: 10d, ca_lifetime: 10d}\nadvertise: 'a b'\n\
            cpi: {exe: x}\nagent: {env: {bosh: {mbus: {}}}}\ncpi_preferred_api_version: 9\n";
        let said = read(text).unwrap_err();
        for expected in [
            "listne: the key 'listne' is not known (did you mean 'listen'?) (line 1)",
            "listen: expected an address and a port such as 10.0.0.6:25555, found 'nowhere' (line 2)",
            "workers: expected a whole number from 1 to 1000, found 0 (line 3)",
            "resurrector.interval: expected a time such as",
            "resurrector.meltdown.percent: expected a whole number from 1 to 100, found 200 (line 6)",
            "users[1].role: expected 'admin' or 'read-only', found 'king' (line 9)",
            "users[1].name: the user 'a' is there already (line 9)",
            "users[2].name: a user's name must not contain ':' (line 10)",
            "users[3].scopes: expected at least one scope (line 12)",
            "users[4].scopes[0]: expected bosh.admin, bosh.read, bosh.teams.TEAM.admin,",
            "users[5].scopes: say either 'role' or 'scopes' (line 14)",
            "isolation: expected 'auto' or 'container' or 'process', found 'jail' (line 17)",
            "blobs_limit: expected a size such as 500MiB",
            "blobstore.provider: is 's3', and access_key_id and secret_access_key must be provided",
            "enable_snapshots: expected a boolean",
            "certificates: the CA must live longer",
            "advertise: expected a host name or an address, found 'a b' (line 20)",
            "cpi.exe: the key 'exe' is not known",
            "cpi.exec: is required",
            "agent.env.bosh.mbus: the director makes this itself",
            "cpi_preferred_api_version: expected a whole number from 1 to 2, found 9",
        ] {
            assert!(said.contains(expected), "expected '{expected}' in:\n{said}");
        }
        assert_eq!(said.lines().count(), 21, "{said}");
        assert!(!said.contains("hidden"), "{said}");
    }
}
