//! Small releases, each made in a line or two.

use crate::software::release::{archive, digest};

/// A release: jobs and packages of which nothing is said twice.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    jobs: Vec<Job>,
    packages: Vec<Package>,
}

/// A job: its spec without templates, and these.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    name: &'static str,
    /// The rest of its spec, in YAML: packages, properties, links.
    spec: String,
    /// Where each template goes, and its text.
    templates: Vec<(String, String)>,
    process: bool,
}

/// A package whose script copies its one file.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    name: &'static str,
    dependencies: &'static [&'static str],
    packaging: String,
    content: &'static str,
}

impl Release {
    pub(crate) fn new(name: &'static str, version: &'static str) -> Self {
        Self { name, version, jobs: Vec::new(), packages: Vec::new() }
    }

    pub(crate) fn job(mut self, job: Job) -> Self {
        self.jobs.push(job);
        self
    }

    pub(crate) fn package(mut self, package: Package) -> Self {
        self.packages.push(package);
        self
    }

    /// The release's tarball.
    pub(crate) fn tarball(&self) -> Vec<u8> {
        let mut files: Vec<(String, Vec<u8>)> = Vec::new();
        let (mut jobs, mut packages) = (String::new(), String::new());
        for job in &self.jobs {
            let content = job.files();
            let packed = pack(&content);
            let print = fingerprint(&content);
            jobs.push_str(&format!(
                "- {{name: {}, version: {print}, fingerprint: {print}, sha1: 'sha256:{}'}}\n",
                job.name,
                digest(&packed)
            ));
            files.push((format!("jobs/{}.tgz", job.name), packed));
        }
        for package in &self.packages {
            let content = package.files();
            let packed = pack(&content);
            let print = fingerprint(&content);
            packages.push_str(&format!(
                "- {{name: {}, version: {print}, fingerprint: {print}, sha1: 'sha256:{}', dependencies: [{}]}}\n",
                package.name,
                digest(&packed),
                package.dependencies.join(", ")
            ));
            files.push((format!("packages/{}.tgz", package.name), packed));
        }
        let manifest = format!(
            "name: {}\nversion: '{}'\ncommit_hash: abc\nuncommitted_changes: false\njobs:{}packages:{}",
            self.name,
            self.version,
            if jobs.is_empty() { " []\n".to_owned() } else { format!("\n{jobs}") },
            if packages.is_empty() { " []\n".to_owned() } else { format!("\n{packages}") },
        );
        let mut all = vec![("release.MF", manifest.as_bytes())];
        all.extend(files.iter().map(|(name, content)| (name.as_str(), content.as_slice())));
        archive(&all)
    }
}

impl Job {
    pub(crate) fn new(name: &'static str, spec: &str) -> Self {
        Self { name, spec: spec.to_owned(), templates: Vec::new(), process: false }
    }

    pub(crate) fn template(mut self, target: &str, text: &str) -> Self {
        self.templates.push((target.to_owned(), text.to_owned()));
        self
    }

    /// A process that monit looks after.
    pub(crate) fn process(mut self) -> Self {
        self.process = true;
        self
    }

    /// A script that leaves a line in the file that the property `log` names, then does the rest. The line has who ran what, and
    /// with which arguments.
    pub(crate) fn script(self, name: &str, rest: &str) -> Self {
        let text = format!(
            "#!/bin/sh\necho \"<%= spec.name %>/<%= spec.index %> {} {name} $*\" >> <%= p('log') %>\n{rest}\n",
            self.name
        );
        self.template(&format!("bin/{name}"), &text)
    }

    fn files(&self) -> Vec<(String, String)> {
        let source = |target: &str| format!("{}.erb", target.rsplit('/').next().unwrap());
        let templates: Vec<String> =
            self.templates.iter().map(|(target, _)| format!("{}: {target}", source(target))).collect();
        let spec = format!("name: {}\ntemplates: {{{}}}\n{}\n", self.name, templates.join(", "), self.spec);
        let monit = match self.process {
            true => format!(
                "check process {0}\n  with pidfile /var/vcap/sys/run/{0}/pid\n  start program \"/var/vcap/jobs/{0}/bin/ctl start\"\n  \
                 stop program \"/var/vcap/jobs/{0}/bin/ctl stop\"\n  group vcap\n",
                self.name
            ),
            false => String::new(),
        };
        let mut files = vec![("job.MF".to_owned(), spec), ("monit".to_owned(), monit)];
        files.extend(
            self.templates.iter().map(|(target, text)| (format!("templates/{}", source(target)), text.clone())),
        );
        files
    }
}

impl Package {
    pub(crate) fn new(name: &'static str, dependencies: &'static [&'static str], content: &'static str) -> Self {
        let packaging = "set -e\ncp content $BOSH_INSTALL_TARGET/\n".to_owned();
        Self { name, dependencies, packaging, content }
    }

    /// Another script makes it.
    pub(crate) fn packaging(mut self, script: &str) -> Self {
        self.packaging = script.to_owned();
        self
    }

    fn files(&self) -> Vec<(String, String)> {
        vec![("packaging".to_owned(), self.packaging.clone()), ("content".to_owned(), self.content.to_owned())]
    }
}

fn pack(files: &[(String, String)]) -> Vec<u8> {
    archive(&files.iter().map(|(name, content)| (name.as_str(), content.as_bytes())).collect::<Vec<_>>())
}

fn fingerprint(files: &[(String, String)]) -> String {
    digest(files.iter().map(|(name, content)| format!("{name}{content}")).collect::<String>().as_bytes())
}
