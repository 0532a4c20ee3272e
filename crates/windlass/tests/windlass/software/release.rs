//! A small release, made as `bosh create-release` makes them: two packages of which one needs the other, and a job with a process.

use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// What a release is made of; versions differ where something is put in its place.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub(crate) version: &'static str,
    /// What `packaging` of the package `greeter` says.
    pub(crate) packaging: &'static str,
    /// The template of the job's configuration.
    pub(crate) template: &'static str,
}

const JOB: &str = "name: greeter\npackages: [greeter]\ntemplates:\n  ctl.erb: bin/ctl\n  greeting.erb: config/greeting\n  \
    pre-start.erb: bin/pre-start\n  post-deploy.erb: bin/post-deploy\n  pre-stop.erb: bin/pre-stop\n  drain.erb: bin/drain\n\
    properties:\n  greeting: {default: hello}\n  name: {}\n  shout: {default: false}\n";
const MONIT: &str = "check process greeter\n  with pidfile /var/vcap/sys/run/greeter/pid\n  \
    start program \"/var/vcap/jobs/greeter/bin/ctl start\" with timeout 30 seconds\n  \
    stop program \"/var/vcap/jobs/greeter/bin/ctl stop\"\n  group vcap\n";
/// Every start leaves a line, so that two copies of the process cannot hide.
const CTL: &str = "#!/bin/sh\nrun=/var/vcap/sys/run/greeter\nmkdir -p $run\ncase $1 in\nstart)\n  \
    echo $(/var/vcap/packages/greeter/greet) > $run/greeting\n  \
    sleep 100000 &\n  echo $! > $run/pid\n  echo $! >> /var/vcap/data/greeter/starts ;;\n\
    stop)\n  kill $(cat $run/pid)\n  rm $run/pid ;;\nesac\n";
const PRE_START: &str =
    "#!/bin/sh\necho <%= spec.name %>/<%= spec.index %> of <%= spec.deployment %> > /var/vcap/data/greeter/prepared\n";
const POST_DEPLOY: &str = "#!/bin/sh\necho done > /var/vcap/data/greeter/deployed\n";
/// What is said before a stop is kept on the disk, which stays when the VM goes.
const PRE_STOP: &str = "#!/bin/sh\nmkdir -p /var/vcap/store\n\
    echo $BOSH_VM_NEXT_STATE $BOSH_INSTANCE_NEXT_STATE $BOSH_DEPLOYMENT_NEXT_STATE >> /var/vcap/store/stops\n";
const DRAIN: &str = "#!/bin/sh\necho $@ >> /var/vcap/store/stops\necho 0\n";
const PACKAGING: &str = "set -e\ncp /var/vcap/packages/words/word $BOSH_INSTALL_TARGET/word\ncp greet $BOSH_INSTALL_TARGET/greet\n\
    chmod 755 $BOSH_INSTALL_TARGET/greet\n";
const GREET: &str =
    "#!/bin/sh\necho $(cat /var/vcap/jobs/greeter/config/greeting) $(cat /var/vcap/packages/greeter/word)\n";
const TEMPLATE: &str = "<%= p('greeting') %>\n<%- if_p('name') do |name| -%>\nto <%= name %> at <%= spec.ip %>\n<%- end.else do -%>\nto nobody\n<%- end -%>\n<% if p('shout') %>!<% end %>\n";

impl Default for Sources {
    fn default() -> Self {
        Self { version: "1", packaging: PACKAGING, template: TEMPLATE }
    }
}

pub(crate) fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Sources {
    /// Writes the release's tarball.
    pub(crate) fn write(&self, path: &Path) {
        let job_files = [
            ("job.MF", JOB),
            ("monit", MONIT),
            ("templates/ctl.erb", CTL),
            ("templates/greeting.erb", self.template),
            ("templates/pre-start.erb", PRE_START),
            ("templates/post-deploy.erb", POST_DEPLOY),
            ("templates/pre-stop.erb", PRE_STOP),
            ("templates/drain.erb", DRAIN),
        ];
        let greeter = [("packaging", self.packaging), ("greet", GREET)];
        let words = [("packaging", "set -e\ncp word $BOSH_INSTALL_TARGET/\n"), ("word", "world\n")];
        let fingerprint = |files: &[(&str, &str)]| {
            digest(files.iter().map(|(name, content)| format!("{name}{content}")).collect::<String>().as_bytes())
        };
        let packed = |files: &[(&str, &str)]| {
            archive(&files.iter().map(|(name, content)| (*name, content.as_bytes())).collect::<Vec<_>>())
        };
        let (job, greeter_archive, words_archive) = (packed(&job_files), packed(&greeter), packed(&words));
        let entry = |name: &str, files: &[(&str, &str)], archive: &[u8], rest: &str| {
            let print = fingerprint(files);
            format!(
                "- name: {name}\n  version: {print}\n  fingerprint: {print}\n  sha1: sha256:{}\n  {rest}\n",
                digest(archive)
            )
        };
        let manifest = format!(
            "name: greeter\nversion: \"{}\"\ncommit_hash: abc\nuncommitted_changes: false\njobs:\n{}packages:\n{}{}",
            self.version,
            entry("greeter", &job_files, &job, "packages: [greeter]"),
            entry("greeter", &greeter, &greeter_archive, "dependencies: [words]"),
            entry("words", &words, &words_archive, "dependencies: []"),
        );
        let release = archive(&[
            ("release.MF", manifest.as_bytes()),
            ("jobs/greeter.tgz", &job),
            ("packages/greeter.tgz", &greeter_archive),
            ("packages/words.tgz", &words_archive),
        ]);
        std::fs::write(path, release).unwrap();
    }
}
