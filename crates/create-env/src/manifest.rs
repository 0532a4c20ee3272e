//! What a manifest wants: one instance on one VM. The keys are the original's; those that only it understands are left alone.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::json;
use windlass_contract::network::{Network, NetworkKind};
use windlass_contract::{MiB, Networks, Object};
use windlass_manifest::{At, Document, Fields, Findings, Placed};
use windlass_planning::desired::{WatchTime, merge_properties};
use windlass_planning::names::DiskName;
use windlass_planning::plan::DiskSpec;

use crate::releases::ReleasePlace;

/// The largest disk that anybody means, in MiB: an exbibyte.
const LARGEST_DISK: u64 = 1 << 40;

/// The instance that a manifest describes.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The deployment's name.
    pub name: String,
    /// The instance group's name.
    pub group: String,
    /// What its VM is made from.
    pub stemcell: StemcellPlace,
    /// All of them are on record; those that jobs are from are installed.
    pub releases: Vec<ReleasePlace>,
    /// What runs on the VM.
    pub jobs: Vec<WantedJob>,
    pub cloud_properties: Object,
    /// For the agent.
    pub env: Object,
    /// With addresses.
    pub networks: Networks,
    pub disk: Option<DiskSpec>,
    /// For the cloud.
    pub tags: Object,
    /// How long its start is watched.
    pub watch: WatchTime,
}

/// A job with what the manifest says for it.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedJob {
    pub name: String,
    pub release: String,
    pub properties: Object,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StemcellPlace {
    /// `file://…`, `http://…` or `https://…`.
    pub url: String,
    /// A digest, or several.
    pub sha1: Option<String>,
}

const TOP: &[&str] = &[
    "name",
    "releases",
    "resource_pools",
    "disk_pools",
    "networks",
    "instance_groups",
    "jobs",
    "cloud_provider",
    "properties",
    "tags",
    "update",
    "variables",
];

/// Reads what the manifest wants to exist.
pub fn read(document: &Document, findings: &mut Findings) -> Option<Wanted> {
    let mut top = Fields::of(&document.root(), TOP, findings)?;
    let name = top.name();
    let tags = top.object("tags");
    let mut properties = top.object("properties");
    let watch = watch(&mut top);
    let releases = top.list("releases");
    let releases = releases.iter().filter_map(|at| top.check(ReleasePlace::read(at))).collect();
    let pools = named(&mut top, "resource_pools");
    let disk_pools = named(&mut top, "disk_pools");
    let networks = named(&mut top, "networks");
    let group = the_group(&mut top)?;
    let mut group = Fields::of(&group, GROUP, top.findings())?;
    let group_name = group.name();
    merge_properties(&mut properties, &group.object("properties"));
    let jobs = read_jobs(&mut group, &properties);
    if let Some(count) = group.optional("instances")
        && group.check(count.unsigned()).is_some_and(|count| count != 1)
    {
        group.findings().push(count.problem("an environment has exactly one instance"));
    }
    let pool = group.text("resource_pool").and_then(|name| find(&pools, &name, "resource pool", group.findings()));
    let disk_pool = group.optional_text("persistent_disk_pool");
    let disk_pool = disk_pool.and_then(|name| find(&disk_pools, &name, "disk pool", group.findings()));
    let size = group.optional("persistent_disk");
    let size = size.and_then(|at| group.check(windlass_manifest::fields::number(&at, 0, LARGEST_DISK)));
    let joined = group.list("networks");
    if joined.is_empty() {
        group.push("an instance needs at least one network");
    }
    let findings = group.findings();
    let networks = read_networks(&joined, &networks, findings);
    let disk = match disk_pool {
        Some(pool) => read_disk_pool(&pool, findings),
        None => size.map(|size| DiskSpec { name: DiskName::Managed, size: MiB(size), cloud_properties: Object::new() }),
    };
    let (stemcell, cloud_properties, env) = pool.and_then(|pool| read_pool(&pool, findings))?;
    Some(Wanted {
        name: name?.value,
        group: group_name?.value,
        stemcell: stemcell?,
        releases,
        jobs,
        cloud_properties,
        env,
        networks,
        disk: disk.filter(|disk| disk.size > MiB(0)),
        tags,
        watch,
    })
}

/// The releases alone, as far as they can be read.
pub(crate) fn read_releases(document: &Document) -> Vec<ReleasePlace> {
    let listed = document.root().optional_list("releases").unwrap_or_default();
    listed.iter().filter_map(|at| ReleasePlace::read(at).ok()).collect()
}

const GROUP: &[&str] = &[
    "name",
    "instances",
    "resource_pool",
    "networks",
    "jobs",
    "templates",
    "persistent_disk",
    "persistent_disk_pool",
    "lifecycle",
    "properties",
];

/// Entries of a list by their names.
type Named<'a> = Vec<(String, At<'a>)>;

fn named<'a>(top: &mut Fields<'a, '_>, list: &str) -> Named<'a> {
    let mut found = Named::new();
    for at in top.list(list) {
        let name = top.check(at.field("name").and_then(|name| name.string().map(str::to_owned)));
        found.extend(name.map(|name| (name, at)));
    }
    found
}

fn find<'a>(among: &Named<'a>, name: &Placed<String>, what: &str, findings: &mut Findings) -> Option<At<'a>> {
    let found = among.iter().find(|(known, _)| *known == name.value).map(|(_, at)| at.clone());
    if found.is_none() {
        let known: Vec<_> = among.iter().map(|(name, _)| format!("'{name}'")).collect();
        let known =
            if known.is_empty() { "there is none".to_owned() } else { format!("there is {}", known.join(", ")) };
        findings.push(name.problem(format!("no {what} is named '{}'; {known}", name.value)));
    }
    found
}

/// The one group, under either of its names.
fn the_group<'a>(top: &mut Fields<'a, '_>) -> Option<At<'a>> {
    let (groups, jobs) = (top.list("instance_groups"), top.list("jobs"));
    if !groups.is_empty() && !jobs.is_empty() {
        top.push("has both 'instance_groups' and 'jobs', its older name; keep one of them");
        return None;
    }
    let mut all = groups.into_iter().chain(jobs);
    match (all.next(), all.next()) {
        (Some(one), None) => Some(one),
        (None, _) => {
            top.push("has no instance group; an environment has exactly one");
            None
        }
        (Some(_), Some(second)) => {
            let problem = second.problem("an environment has exactly one instance group");
            top.findings().push(problem);
            None
        }
    }
}

/// The jobs under either of their names. Properties of a job replace those of group and deployment.
fn read_jobs(group: &mut Fields<'_, '_>, shared: &Object) -> Vec<WantedJob> {
    let (jobs, templates) = (group.list("jobs"), group.list("templates"));
    if !jobs.is_empty() && !templates.is_empty() {
        group.push("has both 'jobs' and 'templates', its older name; keep one of them");
    }
    let mut read: Vec<WantedJob> = Vec::new();
    for at in jobs.iter().chain(&templates) {
        const KNOWN: &[&str] = &["name", "release", "properties", "consumes", "provides"];
        let Some(mut job) = Fields::of(at, KNOWN, group.findings()) else { continue };
        let own = job.optional("properties").and_then(|at| job.check(at.object()));
        let (Some(name), Some(release)) = (job.text("name"), job.text("release")) else { continue };
        if read.iter().any(|known| known.name == name.value) {
            let problem = name.problem(format!("the job '{}' is there already", name.value));
            job.findings().push(problem);
            continue;
        }
        let properties = own.unwrap_or_else(|| shared.clone());
        read.push(WantedJob { name: name.value, release: release.value, properties });
    }
    read
}

fn watch(top: &mut Fields<'_, '_>) -> WatchTime {
    let default = WatchTime { min: 0, max: 300_000 };
    let Some(update) = top.optional("update") else { return default };
    let Some(Some(at)) = top.check(update.optional("update_watch_time")) else { return default };
    let read =
        windlass_manifest::fields::text(&at).and_then(|text| text.parse().map_err(|error: String| at.problem(error)));
    top.check(read).unwrap_or(default)
}

fn read_pool(at: &At<'_>, findings: &mut Findings) -> Option<(Option<StemcellPlace>, Object, Object)> {
    const KNOWN: &[&str] = &["name", "network", "stemcell", "cloud_properties", "env", "size"];
    let mut pool = Fields::of(at, KNOWN, findings)?;
    let (cloud_properties, env) = (pool.object("cloud_properties"), pool.object("env"));
    let stemcell = pool.required("stemcell").and_then(|at| {
        let mut stemcell = Fields::of(&at, &["url", "sha1"], pool.findings())?;
        let sha1 = stemcell.optional_text("sha1").map(|sha1| sha1.value);
        let url = stemcell.text("url")?;
        let is_remote = url.value.starts_with("http://") || url.value.starts_with("https://");
        if !is_remote && !url.value.starts_with("file://") && !url.value.starts_with('/') {
            let problem = url.problem("expected a URL that begins with file://, http:// or https://");
            stemcell.findings().push(problem);
            return None;
        }
        if is_remote && sha1.is_none() {
            stemcell
                .push("a stemcell that is downloaded needs a 'sha1', so that it is known to be the one that is meant");
        }
        Some(StemcellPlace { url: url.value, sha1 })
    });
    Some((stemcell, cloud_properties, env))
}

fn read_disk_pool(at: &At<'_>, findings: &mut Findings) -> Option<DiskSpec> {
    let mut pool = Fields::of(at, &["name", "disk_size", "cloud_properties"], findings)?;
    let cloud_properties = pool.object("cloud_properties");
    let size = MiB(pool.number("disk_size", 1, LARGEST_DISK)?);
    Some(DiskSpec { name: DiskName::Managed, size, cloud_properties })
}

fn read_networks(joined: &[At<'_>], defined: &Named<'_>, findings: &mut Findings) -> Networks {
    let mut networks = Networks::new();
    for at in joined {
        let Some(mut entry) = Fields::of(at, &["name", "static_ips", "default"], findings) else { continue };
        let Some(name) = entry.text("name") else { continue };
        let addresses = entry.addresses("static_ips");
        let mut default: Vec<String> = entry.texts("default").into_iter().map(|text| text.value).collect();
        if joined.len() == 1 {
            default = vec!["dns".into(), "gateway".into()];
        }
        let place = entry.place();
        let findings = entry.findings();
        let Some(definition) = find(defined, &name, "network", findings) else { continue };
        if let Some(mut network) = read_network(&definition, findings) {
            network.ip = addresses.into_iter().next();
            network.default = (!default.is_empty()).then_some(default);
            if network.ip.is_none() && network.kind != NetworkKind::Dynamic {
                findings.push(place.problem("needs a static IP: nobody else chooses an address for an environment"));
            }
            networks.insert(name.value, network);
        }
    }
    for purpose in ["dns", "gateway"] {
        let claims = networks.values().filter(|network| network.is_default_for(purpose)).count();
        if let (Some(first), true) = (joined.first(), claims != 1 && networks.len() == joined.len()) {
            let problem =
                first.problem(format!("exactly one network must be the default for '{purpose}', {claims} are"));
            findings.push(problem);
        }
    }
    networks
}

fn read_network(at: &At<'_>, findings: &mut Findings) -> Option<Network> {
    const KNOWN: &[&str] = &["name", "type", "cloud_properties", "dns", "subnets"];
    let mut fields = Fields::of(at, KNOWN, findings)?;
    let kinds = [("manual", NetworkKind::Manual), ("dynamic", NetworkKind::Dynamic), ("vip", NetworkKind::Vip)];
    let mut network = Network {
        kind: fields.word("type", &kinds).unwrap_or_default(),
        cloud_properties: fields.object("cloud_properties"),
        ..Network::default()
    };
    match network.kind {
        NetworkKind::Vip => {}
        NetworkKind::Dynamic => network.dns = Some(fields.addresses("dns")).filter(|dns| !dns.is_empty()),
        NetworkKind::Manual => {
            let subnets = fields.list("subnets");
            let [subnet] = subnets.as_slice() else {
                fields.push("a manual network of an environment has exactly one subnet");
                return None;
            };
            read_subnet(subnet, &mut network, fields.findings());
        }
    }
    Some(network)
}

fn read_subnet(at: &At<'_>, network: &mut Network, findings: &mut Findings) {
    const KNOWN: &[&str] = &["range", "gateway", "dns", "cloud_properties", "static", "reserved"];
    let Some(mut subnet) = Fields::of(at, KNOWN, findings) else { return };
    network.cloud_properties = subnet.object("cloud_properties");
    network.dns = Some(subnet.addresses("dns")).filter(|dns| !dns.is_empty());
    let gateway = subnet.text("gateway");
    let Some(range) = subnet.text("range") else { return };
    let Ok(parsed) = range.value.parse::<IpNet>() else {
        let problem = range.problem(format!("'{}' is no range of addresses, such as 10.0.0.0/24", range.value));
        subnet.findings().push(problem);
        return;
    };
    network.netmask = Some(parsed.netmask().to_string());
    if let Some(gateway) = gateway {
        let inside = gateway.value.parse::<IpAddr>().is_ok_and(|address| parsed.contains(&address));
        if !inside {
            let problem = gateway.problem(format!("'{}' is not an address in {parsed}", gateway.value));
            subnet.findings().push(problem);
        }
        network.gateway = Some(gateway.value);
    }
}

impl Wanted {
    /// The env of the VM: what the manifest says, and where the agent listens if it says nothing about that.
    pub fn env_listening_at(&self, url: Option<&str>) -> Object {
        let mut env = self.env.clone();
        let bosh = env.entry("bosh").or_insert_with(|| json!({}));
        if let (Some(url), Some(bosh)) = (url, bosh.as_object_mut()) {
            let mbus = bosh.entry("mbus").or_insert_with(|| json!({}));
            if let Some(mbus) = mbus.as_object_mut() {
                mbus.entry("urls").or_insert_with(|| json!([url]));
            }
        }
        env
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(yaml: &str) -> (Option<Wanted>, String) {
        let document = Document::parse(yaml).unwrap();
        let mut findings = Findings::new();
        let wanted = read(&document, &mut findings);
        (wanted, findings.to_string())
    }

    const TINY: &str = r#"
name: tiny
resource_pools:
- {name: vms, network: net, stemcell: {url: "file://sc.tgz"}, cloud_properties: {a: 1}, env: {bosh: {mbus: {cert: {ca: x}}}}}
disk_pools: [{name: d, disk_size: 1024, cloud_properties: {t: ssd}}]
networks: [{name: net, type: manual, subnets: [{range: 10.0.0.0/24, gateway: 10.0.0.1, dns: [10.0.0.2]}]}]
instance_groups:
- {name: app, instances: 1, resource_pool: vms, persistent_disk_pool: d, networks: [{name: net, static_ips: [10.0.0.9]}]}
update: {update_watch_time: 1000-2000}
"#;

    #[test]
    fn a_manifest_is_one_instance_with_its_network_and_disk() {
        let (wanted, problems) = read_text(TINY);
        assert_eq!(problems, "");
        let wanted = wanted.unwrap();
        assert_eq!((wanted.name.as_str(), wanted.group.as_str()), ("tiny", "app"));
        assert_eq!(wanted.stemcell.url, "file://sc.tgz");
        let disk = wanted.disk.clone().unwrap();
        assert_eq!((disk.size, &disk.cloud_properties["t"]), (MiB(1024), &json!("ssd")));
        assert_eq!(
            serde_json::to_value(&wanted.networks["net"]).unwrap(),
            json!({"type": "manual", "ip": "10.0.0.9", "netmask": "255.255.255.0", "gateway": "10.0.0.1",
                "dns": ["10.0.0.2"], "default": ["dns", "gateway"], "cloud_properties": {}})
        );
        assert_eq!(wanted.watch, WatchTime { min: 1000, max: 2000 });
        let env = wanted.env_listening_at(Some("https://u:p@0.0.0.0:6868"));
        assert_eq!(env["bosh"]["mbus"], json!({"cert": {"ca": "x"}, "urls": ["https://u:p@0.0.0.0:6868"]}));
    }

    #[test]
    fn what_is_wrong_is_told_at_once_with_its_place() {
        let (_, problems) = read_text(
            r#"
name: tiny
resource_pools: [{name: vms, stemcell: {url: sc.tgz}}]
networks: [{name: net, type: manual, subnets: [{range: 10.0.0.0/24, gateway: 10.9.0.1}]}]
instance_groups:
- {name: app, instances: 3, resource_pool: vms, persistent_disk_pool: d, jobs: [{name: web}], networks: [{name: net}]}
"#,
        );
        for words in [
            "resource_pools[0].stemcell.url: expected a URL that begins with file://",
            "instance_groups[0].instances: an environment has exactly one instance",
            "instance_groups[0].jobs[0].release: is required",
            "instance_groups[0].persistent_disk_pool: no disk pool is named 'd'; there is none",
            "networks[0].subnets[0].gateway: '10.9.0.1' is not an address in 10.0.0.0/24",
            "instance_groups[0].networks[0]: needs a static IP",
        ] {
            assert!(problems.contains(words), "{words}\n{problems}");
        }
        let (_, none) = read_text("name: x\n");
        assert!(none.contains("has no instance group"), "{none}");
        let (_, both) = read_text("name: x\njobs: [{name: a}]\ninstance_groups: [{name: a}]\n");
        assert!(both.contains("keep one of them"), "{both}");
    }
}
