//! Links, end to end: what a job provides is in the files of those who consume it, in its own deployment and in others.

use std::fs;

use serde_json::json;
use windlass_rigs::own_machine::is_own_machine;

use super::release::{archive, digest};
use crate::keeping::api::Api;
use crate::site::Site;

const PG: &str = "name: pg\npackages: []\ntemplates: {ctl.erb: bin/ctl}\nproperties: {port: {default: 5432}}\n\
    provides: [{name: db, type: sql, properties: [port]}]\n";
const WEB: &str = "name: web\npackages: []\ntemplates: {ctl.erb: bin/ctl, db.erb: config/db}\nproperties: {}\n\
    consumes: [{name: db, type: sql}]\n";
const DB: &str =
    "<% link('db').instances.each do |instance| %><%= instance.address %> <% end %><%= link('db').p('port') %>";

/// A process that leaves a line and its configuration when it is started.
fn ctl(job: &str) -> String {
    format!(
        "#!/bin/sh\nrun=/var/vcap/sys/run/{job}\nmkdir -p $run\ncase $1 in\nstart)\n  cp /var/vcap/jobs/{job}/config/* /var/vcap/jobs/{job}/.bosh/links.json $run/\n  sleep 100000 &\n  echo $! > $run/pid\n  \
         echo $! >> /var/vcap/data/{job}/starts ;;\nstop)\n  kill $(cat $run/pid)\n  rm $run/pid ;;\nesac\n"
    )
}

fn monit(job: &str) -> String {
    format!(
        "check process {job}\n  with pidfile /var/vcap/sys/run/{job}/pid\n  start program \"/var/vcap/jobs/{job}/bin/ctl start\"\n  \
         stop program \"/var/vcap/jobs/{job}/bin/ctl stop\"\n  group vcap\n"
    )
}

fn release() -> Vec<u8> {
    let mut listed = String::new();
    let mut files = Vec::new();
    for (name, spec, config) in [("pg", PG, None), ("web", WEB, Some(DB))] {
        let (ctl, monit) = (ctl(name), monit(name));
        let mut content =
            vec![("job.MF", spec.as_bytes()), ("monit", monit.as_bytes()), ("templates/ctl.erb", ctl.as_bytes())];
        content.extend(config.map(|config| ("templates/db.erb", config.as_bytes())));
        let packed = archive(&content);
        let print = digest(spec.as_bytes());
        listed.push_str(&format!(
            "- {{name: {name}, version: {print}, fingerprint: {print}, sha1: 'sha256:{}', packages: []}}\n",
            digest(&packed)
        ));
        files.push((format!("jobs/{name}.tgz"), packed));
    }
    let manifest =
        format!("name: net\nversion: '1'\ncommit_hash: abc\nuncommitted_changes: false\njobs:\n{listed}packages: []\n");
    let mut all = vec![("release.MF", manifest.as_bytes())];
    all.extend(files.iter().map(|(name, content)| (name.as_str(), content.as_slice())));
    archive(&all)
}

struct Net {
    site: Site,
    /// The operating system of its stemcell.
    os: &'static str,
}

impl Net {
    fn new(site: Site, os: &'static str) -> Self {
        let tarball = site.file("net.tgz");
        fs::write(&tarball, release()).unwrap();
        site.ok(&["upload-release", tarball.to_str().unwrap()]);
        Self { site, os }
    }

    /// Writes a manifest of groups with one job each, and returns its path.
    fn manifest(&self, deployment: &str, groups: &[(&str, usize, &str)]) -> String {
        let group = |(name, instances, job): &(&str, usize, &str)| {
            format!(
                "- name: {name}\n  instances: {instances}\n  azs: [z1]\n  vm_type: small\n  stemcell: default\n  \
                 networks: [{{name: default}}]\n  jobs: [{{release: net, {job}}}]\n"
            )
        };
        let text = format!(
            "name: {deployment}\nreleases: [{{name: net, version: latest}}]\n\
             stemcells: [{{alias: default, os: {}, version: latest}}]\n\
             update: {{canaries: 1, max_in_flight: 2, canary_watch_time: 1-60000, update_watch_time: 1-60000}}\n\
             instance_groups:\n{}",
            self.os,
            groups.iter().map(group).collect::<String>()
        );
        let path = self.site.file(&format!("{deployment}.yml"));
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn deploy(&self, deployment: &str, groups: &[(&str, usize, &str)]) -> String {
        let manifest = self.manifest(deployment, groups);
        self.site.ok(&["-n", "-d", deployment, "deploy", &manifest])
    }

    /// A file below `/var/vcap` of each VM of a group.
    fn read(&self, deployment: &str, group: &str, path: &str) -> Vec<String> {
        let mut vms = self.site.rows(&["-d", deployment, "vms"]);
        vms.sort_by_key(|vm| vm["ips"].to_string());
        let of_group = vms.iter().filter(|vm| vm["instance"].as_str().unwrap().starts_with(&format!("{group}/")));
        let vcap =
            |vm: &serde_json::Value| self.site.store(vm["vm_cid"].as_str().unwrap()).parent().unwrap().to_owned();
        of_group.map(|vm| fs::read_to_string(vcap(vm).join(path)).unwrap_or_default()).collect()
    }

    fn starts(&self, deployment: &str, group: &str, job: &str) -> usize {
        self.read(deployment, group, &format!("data/{job}/starts")).iter().map(|starts| starts.lines().count()).sum()
    }

    /// What a consumer sees: addresses in their order, and the port.
    fn seen(&self, deployment: &str) -> Vec<String> {
        let seen = self.read(deployment, "front", "data/sys/run/web/db").concat();
        let mut words: Vec<String> = seen.split_whitespace().map(str::to_owned).collect();
        words.sort();
        words
    }

    /// What consumers of these instances of the provider are to see.
    fn expected(&self, port: &str) -> Vec<String> {
        let vms = self.site.rows(&["-d", "example", "vms"]);
        let back = vms.iter().filter(|vm| vm["instance"].as_str().unwrap().starts_with("back/"));
        let mut words: Vec<String> = back.map(|vm| vm["ips"].as_str().unwrap().to_owned()).collect();
        words.push(port.to_owned());
        words.sort();
        words
    }
}

#[test]
fn consumers_have_what_providers_provide_and_keep_it_until_they_are_deployed_again() {
    if !is_own_machine(
        "software::links::consumers_have_what_providers_provide_and_keep_it_until_they_are_deployed_again",
    ) {
        return;
    }
    consumers_keep_what_they_have(&Net::new(Site::ready_with_own_programs(""), "windlass-host"));
}

#[test]
fn consumers_have_what_providers_provide_with_the_originals_agents() {
    let test = "software::links::consumers_have_what_providers_provide_with_the_originals_agents";
    if let Some(site) = super::site_of_originals(test) {
        consumers_keep_what_they_have(&Net::new(site, "windlass-minimal"));
    }
}

fn consumers_keep_what_they_have(net: &Net) {
    let back =
        |port: u16| format!("name: pg, properties: {{port: {port}}}, provides: {{db: {{as: data, shared: true}}}}");
    let (front, first) = (("front", 1, "name: web"), back(5432));

    let alone = net.manifest("example", &[front]);
    let refused = net.site.fails(&["-n", "-d", "example", "deploy", &alone]);
    let expected = "instance_groups[0].jobs[0].name: Failed to resolve link 'db' with type 'sql' from job 'web' in instance group 'front'. Details below:";
    assert!(refused.contains(expected) && refused.contains("- No link providers found"), "{refused}");
    assert!(net.site.in_cloud("vms").is_empty());

    net.deploy("example", &[front, ("back", 1, &first)]);
    assert_eq!(net.seen("example"), net.expected("5432"));
    let provided =
        |group: &str, job: &str| net.read("example", group, &format!("data/sys/run/{job}/links.json")).concat();
    let of_pg = "[\n  {\n    \"name\": \"data\",\n    \"type\": \"sql\",\n    \"group\": \"3\"\n  }\n]\n";
    assert_eq!((provided("back", "pg").as_str(), provided("front", "web").as_str()), (of_pg, "[]\n"));

    // More instances of the provider: those who consume it restart, and nobody else.
    let more = [front, ("back", 2, first.as_str())];
    let plan = net.site.ok(&["plan", &net.manifest("example", &more)]);
    assert!(plan.contains("link 'db' of job 'web' changes: instances 1 → 2"), "{plan}");
    net.deploy("example", &more);
    assert_eq!(net.seen("example"), net.expected("5432"));
    assert_eq!(net.starts("example", "front", "web"), 2);
    assert_eq!(net.starts("example", "back", "pg"), 2, "one start of each");
    assert!(net.site.ok(&["plan", &net.manifest("example", &more)]).contains("nothing to do"));

    // An admin sees which lines of which files would change, and no value.
    let diff = |groups: &[(&str, usize, &str)]| net.site.ok(&["render", "--diff", &net.manifest("example", groups)]);
    assert!(diff(&more).contains("No file changes."));
    let told = diff(&[front, ("back", 2, &back(6543))]);
    let tags = "<%= instance.address %> <%= instance.address %> <%= link('db').p('port') %>";
    assert!(told.contains(&format!("job 'web' of front/0: config/db changes\n  ~    1  {tags}\n")), "{told}");
    assert!(!told.contains("6543") && !told.contains("5432") && !told.contains("job 'pg'"), "{told}");
    let told = diff(&[front, ("back", 3, &first)]);
    assert!(told.contains("job 'pg' of back/2: all files are new\n"), "{told}");

    // Another deployment consumes what this one shares.
    let other = [("front", 1, "name: web, consumes: {db: {from: data, deployment: example}}")];
    net.deploy("other", &other);
    let before = net.seen("other");
    assert_eq!(before, net.expected("5432"));
    let changed = back(6543);
    net.deploy("example", &[front, ("back", 1, &changed)]);
    assert_eq!(net.seen("example"), net.expected("6543"));
    for verb in ["stop", "start", "recreate", "restart"] {
        net.site.ok(&["-n", "-d", "other", verb]);
        assert_eq!(net.seen("other"), before, "after {verb}");
    }
    for verb in ["stop", "start"] {
        net.site.ok(&["-n", "-d", "other", verb, "front/0", "--no-converge"]);
    }
    assert_eq!(net.seen("other"), before);
    let plan = net.site.ok(&["plan", &net.manifest("other", &other)]);
    assert!(plan.contains("link 'db' of job 'web' changes: instances 2 → 1, property 'port'"), "{plan}");
    assert!(!plan.contains("6543"), "{plan}");
    net.deploy("other", &other);
    assert_eq!(net.seen("other"), net.expected("6543"));

    let api = Api::of(&net.site);
    let links = api.get("/links?deployment=other");
    assert_eq!(links.as_array().map(Vec::len), Some(1), "{links}");
    assert_eq!(links[0]["link_provider_id"], api.get("/link_providers?deployment=example")[0]["id"]);
    net.site.ok(&["-n", "-d", "example", "delete-deployment"]);
    assert_eq!(api.get("/links?deployment=other")[0]["link_provider_id"], json!(null), "it keeps what it has");
    net.site.ok(&["-n", "-d", "other", "restart"]);
    let gone = net.site.fails(&["-n", "-d", "other", "deploy", &net.manifest("other", &other)]);
    assert!(gone.contains("consumes from deployment 'example', but the deployment does not exist."), "{gone}");
    net.site.ok(&["-n", "-d", "other", "delete-deployment"]);
}
