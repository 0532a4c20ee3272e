//! The life of a job: which of its scripts run, and in which order, at everything that an operator does with its instance.

use std::fs;

use windlass_rigs::own_machine::is_own_machine;

use super::release::{archive, digest};
use crate::site::Site;

const SCRIPTS: [&str; 6] = ["pre-start", "post-start", "post-deploy", "pre-stop", "drain", "post-stop"];
const MONIT: &str = "check process noter\n  with pidfile /var/vcap/sys/run/noter/pid\n  \
    start program \"/var/vcap/jobs/noter/bin/ctl start\" with timeout 30 seconds\n  \
    stop program \"/var/vcap/jobs/noter/bin/ctl stop\"\n  group vcap\n";
/// What happens is noted on the disk, which stays when VMs go.
const CTL: &str = "#!/bin/sh\nrun=/var/vcap/sys/run/noter\nmkdir -p $run\necho $1 >> /var/vcap/store/order\ncase $1 in\n\
    start)\n  sleep 100000 &\n  echo $! > $run/pid ;;\nstop)\n  kill $(cat $run/pid)\n  rm $run/pid ;;\nesac\n";

fn release() -> Vec<u8> {
    let templates: String = SCRIPTS.iter().map(|name| format!("  {name}.erb: bin/{name}\n")).collect();
    let spec = format!(
        "name: noter\npackages: []\ntemplates:\n  ctl.erb: bin/ctl\n{templates}properties: {{word: {{default: a}}}}\n"
    );
    let script = |name: &str| {
        let end = if name == "drain" { "echo 0\n" } else { "" };
        format!("#!/bin/sh\n# <%= p('word') %>\necho {name} >> /var/vcap/store/order\n{end}")
    };
    let scripts: Vec<(String, String)> =
        SCRIPTS.iter().map(|name| (format!("templates/{name}.erb"), script(name))).collect();
    let mut files =
        vec![("job.MF", spec.as_bytes()), ("monit", MONIT.as_bytes()), ("templates/ctl.erb", CTL.as_bytes())];
    files.extend(scripts.iter().map(|(name, text)| (name.as_str(), text.as_bytes())));
    let job = archive(&files);
    let print = digest(spec.as_bytes());
    let manifest = format!(
        "name: noter\nversion: '1'\ncommit_hash: abc\nuncommitted_changes: false\n\
         jobs: [{{name: noter, version: {print}, fingerprint: {print}, sha1: 'sha256:{}', packages: []}}]\npackages: []\n",
        digest(&job)
    );
    archive(&[("release.MF", manifest.as_bytes()), ("jobs/noter.tgz", &job)])
}

struct Noter {
    site: Site,
}

impl Noter {
    fn new() -> Self {
        let site = Site::ready_with_own_programs("");
        let tarball = site.file("noter.tgz");
        fs::write(&tarball, release()).unwrap();
        site.ok(&["upload-release", tarball.to_str().unwrap()]);
        Self { site }
    }

    fn deploy(&self, word: &str, update: &str, env: &str) {
        let text = format!(
            "name: example\nreleases: [{{name: noter, version: latest}}]\n\
             stemcells: [{{alias: default, os: windlass-host, version: latest}}]\n\
             update: {{canaries: 1, max_in_flight: 1, canary_watch_time: 1-60000, update_watch_time: 1-60000{update}}}\n\
             instance_groups:\n- name: web\n  instances: 1\n  azs: [z1]\n  vm_type: small\n  stemcell: default\n  \
             persistent_disk_type: disk\n  networks: [{{name: default}}]\n  env: {env}\n  \
             jobs: [{{name: noter, release: noter, properties: {{word: {word}}}}}]\n"
        );
        fs::write(self.site.manifest(), text).unwrap();
        self.site.deploy();
    }

    fn vm(&self) -> String {
        let vms = self.site.rows(&["-d", "example", "vms"]);
        assert_eq!(vms.len(), 1, "{vms:?}");
        vms[0]["vm_cid"].as_str().unwrap().to_owned()
    }

    /// What was noted since the last look.
    fn order(&self) -> String {
        let path = self.site.store(&self.vm()).join("order");
        let noted = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, "").unwrap();
        noted.lines().collect::<Vec<_>>().join(" ")
    }

    fn does(&self, words: &str) -> String {
        self.site.ok(&[&["-n", "-d", "example"], &words.split(' ').collect::<Vec<_>>()[..]].concat());
        self.order()
    }
}

#[test]
fn the_scripts_of_a_job_run_in_their_order_whatever_is_done_to_its_instance() {
    if !is_own_machine("software::life_cycle::the_scripts_of_a_job_run_in_their_order_whatever_is_done_to_its_instance")
    {
        return;
    }
    const STOPS: &str = "pre-stop drain stop post-stop";
    const STARTS: &str = "pre-start start post-start";
    let noter = Noter::new();
    noter.deploy("a", "", "{}");
    assert_eq!(noter.order(), format!("{STARTS} post-deploy"));
    noter.deploy("a", "", "{}");
    assert_eq!(noter.order(), "", "nothing changed");
    noter.deploy("b", "", "{}");
    assert_eq!(noter.order(), format!("{STOPS} {STARTS} post-deploy"));

    // With convergence everything that runs hears of the deploy; without it, only the instance is touched.
    assert_eq!(noter.does("stop web"), STOPS);
    assert_eq!(noter.does("start web"), format!("{STARTS} post-deploy"));
    assert_eq!(noter.does("restart web --skip-drain"), format!("stop post-stop {STARTS} post-deploy"));
    assert_eq!(noter.does("restart web/0 --no-converge"), format!("{STOPS} {STARTS}"));
    assert_eq!(noter.does("stop web/0 --no-converge --skip-drain"), "stop post-stop");
    assert_eq!(noter.does("start web/0 --no-converge"), STARTS);
    let before = noter.vm();
    assert_eq!(noter.does("recreate web/0 --no-converge"), format!("{STOPS} {STARTS}"));
    assert_ne!(noter.vm(), before);

    // The new VM is there before the old one stops.
    let before = noter.vm();
    let swap = ", vm_strategy: create-swap-delete";
    noter.deploy("b", swap, "{bosh: {swap_size: 1}}");
    assert_ne!(noter.vm(), before);
    assert_eq!(noter.order(), format!("{STOPS} {STARTS} post-deploy"));
    let running = noter.site.rows(&["-d", "example", "instances", "--ps"]);
    assert!(running.iter().any(|row| row["process"] == "noter" && row["process_state"] == "running"), "{running:?}");
    noter.site.ok(&["-n", "-d", "example", "delete-deployment"]);
}
