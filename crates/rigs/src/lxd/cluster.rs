//! Three real LXD daemons that are one cluster, each in a network namespace of its own, on the machine of a test's own. Each member
//! is a zone: `z1` has `n1`, and so on.

use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::{BRIDGE, Lxd, POOL, PREFIX, obstacle};

/// How many members there are.
const MEMBERS: usize = 3;

/// The first three numbers of the members' addresses; this machine has the last one, 254.
pub const LAN: &str = "10.88.0";

/// The bridge of each member that is on their common network.
pub const LAN_BRIDGE: &str = "lanbr";

/// A cluster of three.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<Lxd>,
}

impl Cluster {
    /// A cluster with a pool and a bridge; none, with a line that says why, where the machine does not allow it.
    pub fn start(test: &str) -> Option<Self> {
        if let Some(obstacle) = obstacle() {
            eprintln!("{test} needs three LXD daemons and did not run: {obstacle}");
            return None;
        }
        // Names of namespaces are files of the whole machine otherwise.
        run(&format!(
            "mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip link add lan type bridge && ip link set lan up && \
                 ip address add {LAN}.254/24 dev lan"
        ));
        let mut members = Vec::new();
        for number in 1..=MEMBERS {
            run(&format!(
                "ip netns add wtn{number} && ip -n wtn{number} link set lo up && \
                 ip link add lan{number} type veth peer name eth0 netns wtn{number} && ip link set lan{number} master lan up && \
                 ip -n wtn{number} link add {LAN_BRIDGE} type bridge && \
                 ip -n wtn{number} link set eth0 master {LAN_BRIDGE} up && \
                 ip -n wtn{number} address add {LAN}.{number}/24 dev {LAN_BRIDGE} && ip -n wtn{number} link set {LAN_BRIDGE} up"
            ));
            let mut member = Lxd::new(Some(format!("wtn{number}")));
            member.start_daemon();
            members.push(member);
        }
        let cluster = Self { members };
        cluster.join();
        cluster.furnish();
        Some(cluster)
    }

    /// The members become one.
    fn join(&self) {
        for number in 1..=MEMBERS {
            let config = json!({"core.https_address": format!("{LAN}.{number}:8443")});
            self.member(number).ok("PUT", "/1.0", &json!({"config": config}));
        }
        self.done(1, "PUT", "/1.0/cluster", &json!({"server_name": "n1", "enabled": true}));
        let certificate = std::fs::read_to_string(self.member(1).home().join("cluster.crt")).unwrap();
        for number in 2..=MEMBERS {
            let name = format!("n{number}");
            let begun = self.member(1).ok("POST", "/1.0/cluster/members", &json!({"server_name": name}));
            let told = &begun["metadata"];
            let token = json!({"server_name": name, "fingerprint": told["fingerprint"], "addresses": told["addresses"],
                "secret": told["secret"], "expires_at": told["expiresAt"]});
            let token = BASE64_STANDARD.encode(token.to_string());
            let joins = json!({"server_name": name, "enabled": true, "cluster_address": format!("{LAN}.1:8443"),
                "server_address": format!("{LAN}.{number}:8443"), "cluster_certificate": certificate,
                "cluster_password": token, "cluster_token": token, "member_config": []});
            self.done(number, "PUT", "/1.0/cluster", &joins);
        }
    }

    /// A pool, a bridge, and a group per member.
    fn furnish(&self) {
        let first = self.member(1);
        for number in 1..=MEMBERS {
            let pool = json!({"name": POOL, "driver": "btrfs", "config": {"size": "2GiB"}});
            first.ok("POST", &format!("/1.0/storage-pools?target=n{number}"), &pool);
            first.ok("POST", &format!("/1.0/networks?target=n{number}"), &json!({"name": BRIDGE, "type": "bridge"}));
        }
        first.ok("POST", "/1.0/storage-pools", &json!({"name": POOL, "driver": "btrfs"}));
        let config = json!({"ipv4.address": format!("{PREFIX}.1/24"), "ipv4.nat": "false", "ipv6.address": "none"});
        first.ok("POST", "/1.0/networks", &json!({"name": BRIDGE, "type": "bridge", "config": config}));
        for number in 1..=MEMBERS {
            let group = json!({"name": format!("z{number}"), "members": [format!("n{number}")]});
            first.ok("POST", "/1.0/cluster/groups", &group);
        }
        first.ok("PATCH", "/1.0", &json!({"config": {"cluster.offline_threshold": "11"}}));
    }

    /// Pulls a member's plug: its daemon dies, and nobody reaches it or its containers any more.
    pub fn pull_plug(&mut self, number: usize) {
        run(&format!("ip link set lan{number} down"));
        self.member_mut(number).kill_daemon();
    }

    /// Puts it back; its containers ran on.
    pub fn plug_in(&mut self, number: usize) {
        run(&format!("ip link set lan{number} up"));
        self.member_mut(number).start_daemon();
        self.wait_until_member_is(number, "Online");
    }

    /// A member by its number, from 1 on.
    pub fn member(&self, number: usize) -> &Lxd {
        &self.members[number - 1]
    }

    /// As above.
    pub fn member_mut(&mut self, number: usize) -> &mut Lxd {
        &mut self.members[number - 1]
    }

    /// Asks a member, and waits for the end of what it begins.
    pub fn done(&self, number: usize, method: &str, path: &str, body: &Value) {
        let answer = self.member(number).ask(method, path, body).unwrap();
        assert_ne!(answer["type"], "error", "{method} {path}: {answer}");
        if answer["type"] == "async" {
            let operation = answer["operation"].as_str().unwrap().split('?').next().unwrap().to_owned();
            let end = self.member(number).ok("GET", &format!("{operation}/wait?timeout=60"), &Value::Null);
            assert_eq!(end["status_code"], 200, "{method} {path}: {end}");
        }
    }

    /// Waits until the cluster says of a member what it should.
    pub fn wait_until_member_is(&self, number: usize, status: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let member = self.member(1).ok("GET", &format!("/1.0/cluster/members/n{number}"), &Value::Null);
            if member["status"].as_str().is_some_and(|found| found.eq_ignore_ascii_case(status)) {
                return;
            }
            assert!(Instant::now() < deadline, "{member}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn run(script: &str) {
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}
