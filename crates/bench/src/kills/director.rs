//! The director killed at each of its steps, and its CPI failing in each of its calls before and after the effect. After each
//! the director goes on with its task, and the operator tries again; then the simulated cloud must hold exactly what the
//! director knows of, and the data of the disk.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use serde_json::{Value, json};
use windlass_cloud_local::LoopbackNet;
use windlass_durable::sweep::{self, Points};

use crate::scratch_director::ScratchDirector;

/// What an operator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Deploy for the first time.
    Deploy,
    /// Make the disk larger in place.
    Resize,
    /// Copy the disk to another kind of disk.
    Migrate,
    /// Recreate the VM.
    Recreate,
    /// Make another VM beside it, which takes its place.
    Swap,
    /// Stop it and give its VM up.
    Detach,
    /// Delete the deployment.
    Delete,
}

impl Operation {
    pub(super) const ALL: [(Self, &'static str); 7] = [
        (Self::Deploy, "deploy"),
        (Self::Resize, "resize"),
        (Self::Migrate, "migrate"),
        (Self::Recreate, "recreate"),
        (Self::Swap, "swap"),
        (Self::Detach, "detach"),
        (Self::Delete, "delete"),
    ];

    fn verb(self, scene: &DirectorScene) -> Vec<&str> {
        let words = match self {
            Self::Deploy => vec!["deploy", &scene.small],
            Self::Resize => vec!["deploy", &scene.large],
            Self::Migrate => vec!["deploy", &scene.other],
            Self::Recreate => vec!["recreate", "db"],
            Self::Swap => vec!["deploy", &scene.swapped],
            Self::Detach => vec!["stop", "--hard", "db"],
            Self::Delete => vec!["delete-deployment"],
        };
        ["-d", "example"].into_iter().chain(words).collect()
    }

    /// What the disk is afterwards.
    fn disk(self) -> (u64, Value) {
        match self {
            Self::Resize => (128, json!({})),
            Self::Migrate => (64, json!({"type": "other"})),
            _ => (64, json!({})),
        }
    }
}

/// What was done to an operation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// How often the director was killed.
    pub(super) kills: u64,
    /// How often its CPI failed before the effect of a call.
    pub(super) before: u64,
    /// How often its CPI failed after the effect of a call.
    pub(super) after: u64,
    /// How often it was killed while a call of its CPI failed as well.
    pub(super) both: u64,
}

/// How far apart the points are at which the director is killed while a call fails: there are too many pairs for all.
const BETWEEN_POINTS: u64 = 29;

/// A call of the CPI that is to fail.
#[derive(Debug, Clone, Copy)]
struct FailingCall {
    method: &'static str,
    /// Which of its calls, counted from 1.
    nth: u64,
    /// `fail` before its effect, `fail_after` after it.
    fault: &'static str,
}

impl FailingCall {
    /// The cloud's configuration. A CPI that fails after its effect and says that asking again is no use has to clean up
    /// itself, so that one says otherwise.
    fn fault(&self) -> Value {
        let Self { method, nth, fault } = self;
        let error = json!({"type": "Bosh::Clouds::CloudError", "ok_to_retry": *fault == "fail_after"});
        json!({"faults": [{"method": method, "nth": nth, "fault": fault, "error": error}]})
    }
}

impl std::fmt::Display for FailingCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "call {} of {} with '{}'", self.nth, self.method, self.fault)
    }
}

/// A director with one instance.
#[derive(Debug)]
pub(super) struct DirectorScene {
    director: ScratchDirector,
    _net: LoopbackNet,
    small: String,
    large: String,
    other: String,
    swapped: String,
}

/// What runs on the instance would miss it.
const PRECIOUS: &str = "precious";

/// The methods that the director changes its cloud with.
const METHODS: [&str; 8] = [
    "create_vm",
    "set_vm_metadata",
    "create_disk",
    "attach_disk",
    "set_disk_metadata",
    "detach_disk",
    "resize_disk",
    "delete_vm",
];

fn manifest(disk_type: &str, vm_type: &str, strategy: &str) -> String {
    format!(
        "name: example\nstemcells: [{{alias: default, os: windlass-minimal, version: latest}}]\n\
         update: {{canaries: 1, max_in_flight: 1, canary_watch_time: 1-30000, update_watch_time: 1-30000, \
         vm_strategy: {strategy}}}\n\
         instance_groups:\n- {{name: db, instances: 1, azs: [z1], vm_type: {vm_type}, stemcell: default, \
         persistent_disk_type: {disk_type}, networks: [{{name: default}}]}}\n"
    )
}

impl DirectorScene {
    pub(super) async fn new() -> io::Result<Self> {
        let net = LoopbackNet::claim()?;
        let prefix = &net.prefix;
        let mut director = ScratchDirector::new(&json!({}))?;
        director.start(None).await?;
        director
            .prepare(&format!(
                "azs: [{{name: z1}}]\nvm_types: [{{name: small}}, {{name: large, cloud_properties: {{ram: 2}}}}]\ndisk_types:\n- {{name: small, disk_size: 64}}\n\
                 - {{name: large, disk_size: 128}}\n- {{name: other, disk_size: 64, cloud_properties: {{type: other}}}}\n\
                 networks: [{{name: default, subnets: [{{range: {prefix}0/24, gateway: {prefix}1, azs: [z1]}}]}}]\n"
            ))
            .await?;
        let write = |name: &str, text: String| director.write(&format!("{name}.yml"), &text);
        let [small, large, other] = ["small", "large", "other"].map(|disk| manifest(disk, "small", "delete-create"));
        let (small, large, other) = (write("small", small)?, write("large", large)?, write("other", other)?);
        let swapped = write("swapped", manifest("small", "large", "create-swap-delete"))?;
        Ok(Self { director, _net: net, small, large, other, swapped })
    }

    /// Brings the deployment to where an operation begins.
    async fn set(&self, operation: Operation) -> io::Result<()> {
        if operation == Operation::Deploy {
            self.director.ok(&["-d", "example", "delete-deployment"]).await?;
            return Ok(());
        }
        self.director.ok(&["-d", "example", "deploy", &self.small]).await?;
        if operation == Operation::Detach {
            self.director.ok(&["-d", "example", "start", "db"]).await?;
        }
        if !self.director.rows(&["orphaned-vms"]).await?.is_empty() {
            self.director.ok(&["clean-up"]).await?;
        }
        let inventory = self.director.inventory()?;
        let disk = inventory.disks.iter().find(|disk| disk.attached_to.is_some());
        let disk = disk.ok_or_else(|| io::Error::other("no disk is attached at the start"))?;
        let content = self.director.cloud().join("disks").join(disk.cid.as_str()).join("content");
        fs::write(content.join(PRECIOUS), disk.cid.as_str())
    }

    /// Kills the director at one point after the other until it survives.
    pub(super) async fn kill_everywhere(&mut self, operation: Operation, every: u64) -> io::Result<u64> {
        for (kills, point) in (0..).zip(Points::one_in(every, sweep::seed())) {
            self.set(operation).await?;
            self.director.kill().await?;
            self.director.start(Some(point)).await?;
            let verb: Vec<String> = operation.verb(self).into_iter().map(str::to_owned).collect();
            let words: Vec<&str> = verb.iter().map(String::as_str).collect();
            let survived = self.director.ok_while_alive(&words).await?;
            self.director.kill().await?;
            self.director.start(None).await?;
            self.director.until_idle().await?;
            let at = |error: io::Error| {
                io::Error::other(format!("{operation:?}, the director killed at point {point}: {error}"))
            };
            self.try_again(operation, &words, survived).await.map_err(at)?;
            if survived {
                return Ok(kills);
            }
        }
        Err(io::Error::other("there is no end of points"))
    }

    /// Has every so many of the calls fail, before their effect and after it.
    pub(super) async fn fail_everywhere(&self, operation: Operation, every: u64) -> io::Result<(u64, u64)> {
        let mut counts = (0, 0);
        // There are far fewer calls than points to be killed at; odd, so that both kinds come.
        for call in self.calls_of(operation).await?.into_iter().step_by(every.min(11) as usize) {
            self.fail_once(operation, &call).await?;
            match call.fault {
                "fail" => counts.0 += 1,
                _ => counts.1 += 1,
            }
        }
        Ok(counts)
    }

    /// Kills the director while a call of its CPI fails as well: every call with some points of its own, or, in a sample, one
    /// call that the seed chooses.
    pub(super) async fn kill_and_fail(&mut self, operation: Operation, every: u64) -> io::Result<u64> {
        let (mut calls, seed) = (self.calls_of(operation).await?, sweep::seed());
        if every > 1 {
            let chosen = (seed % calls.len().max(1) as u64) as usize;
            calls = calls.into_iter().skip(chosen).take(1).collect();
        }
        let mut kills = 0;
        for (number, call) in (0..).zip(calls) {
            let mut point = 1 + (seed.wrapping_add(number * 7)) % BETWEEN_POINTS;
            while !self.kill_while_failing(operation, &call, point).await? {
                (kills, point) = (kills + 1, point + BETWEEN_POINTS.max(every));
            }
        }
        Ok(kills)
    }

    /// Whether the director survived.
    async fn kill_while_failing(&mut self, operation: Operation, call: &FailingCall, point: u64) -> io::Result<bool> {
        self.set(operation).await?;
        self.director.kill().await?;
        self.forget_calls()?;
        self.director.change_cloud(&call.fault())?;
        self.director.start(Some(point)).await?;
        let verb: Vec<String> = operation.verb(self).into_iter().map(str::to_owned).collect();
        let words: Vec<&str> = verb.iter().map(String::as_str).collect();
        self.director.ok_while_alive(&words).await?;
        let survived = self.director.runs()?;
        self.director.kill().await?;
        self.director.change_cloud(&json!({}))?;
        self.director.start(None).await?;
        self.director.until_idle().await?;
        let at = |error: io::Error| {
            io::Error::other(format!("{operation:?}, {call}, and the director killed at point {point}: {error}"))
        };
        self.try_again(operation, &words, false).await.map_err(at)?;
        Ok(survived)
    }

    /// Every call of an operation, with each way to fail.
    async fn calls_of(&self, operation: Operation) -> io::Result<Vec<FailingCall>> {
        let counted = self.count_calls(operation).await?;
        let calls = counted.into_iter().flat_map(|(method, calls)| (1..=calls).map(move |nth| (method, nth)));
        let both = |(method, nth)| ["fail", "fail_after"].map(|fault| FailingCall { method, nth, fault });
        Ok(calls.flat_map(both).collect())
    }

    /// How often an operation calls each method.
    async fn count_calls(&self, operation: Operation) -> io::Result<Vec<(&'static str, u64)>> {
        // Calls are counted where there are faults; this one never comes.
        let never = |method| json!({"method": method, "nth": u64::MAX, "fault": "fail"});
        self.set(operation).await?;
        self.forget_calls()?;
        self.director.change_cloud(&json!({"faults": METHODS.map(never)}))?;
        self.director.ok(&operation.verb(self)).await?;
        self.director.change_cloud(&json!({}))?;
        Ok(METHODS.map(|method| (method, self.calls(method))).to_vec())
    }

    fn calls(&self, method: &str) -> u64 {
        let path = self.director.cloud().join("calls").join(method);
        fs::read_to_string(path).unwrap_or_default().trim().parse().unwrap_or(0)
    }

    fn forget_calls(&self) -> io::Result<()> {
        windlass_durable::file::remove_tree(&self.director.cloud().join("calls"))
    }

    async fn fail_once(&self, operation: Operation, call: &FailingCall) -> io::Result<()> {
        self.set(operation).await?;
        self.forget_calls()?;
        self.director.change_cloud(&call.fault())?;
        let verb = operation.verb(self);
        let succeeded = self.director.attempt(&verb).await?.status.success();
        self.director.change_cloud(&json!({}))?;
        let at = |error: io::Error| io::Error::other(format!("{operation:?}, {call}: {error}"));
        require(self.calls(call.method) >= call.nth, "the call did not come").map_err(at)?;
        self.try_again(operation, &verb, succeeded).await.map_err(at)
    }

    /// What the operator does after a failure, and what must be true then.
    async fn try_again(&self, operation: Operation, verb: &[&str], succeeded: bool) -> io::Result<()> {
        if !succeeded {
            self.director.ok(verb).await?;
        }
        if operation == Operation::Detach {
            require(self.director.inventory()?.vms.is_empty(), "a VM is left after 'stop --hard'")?;
            self.director.ok(&["-d", "example", "start", "db"]).await?;
        }
        self.check(operation).await
    }

    async fn check(&self, operation: Operation) -> io::Result<()> {
        let cids = |rows: &[Value], column: &str| -> BTreeSet<String> {
            rows.iter().filter_map(|row| row[column].as_str()).map(str::to_owned).collect()
        };
        let inventory = self.director.inventory()?;
        let gone = operation == Operation::Delete;
        let known_vms = match gone {
            true => BTreeSet::new(),
            false => cids(&self.director.rows(&["-d", "example", "vms"]).await?, "vm_cid"),
        };
        let vms: BTreeSet<String> = inventory.vms.iter().map(|vm| vm.cid.to_string()).collect();
        let given_up = cids(&self.director.rows(&["orphaned-vms"]).await?, "vm_cid");
        require_same("VMs", &vms, &known_vms.union(&given_up).cloned().collect())?;
        require(known_vms.len() == usize::from(!gone), "there is not exactly one VM")?;
        require(given_up.is_empty() || operation == Operation::Swap, "a VM was given up")?;
        let owned = self.director.rows(&["disks"]).await?;
        let orphans = cids(&self.director.rows(&["disks", "--orphaned"]).await?, "disk_cid");
        let known_disks = cids(&owned, "disk_cid").union(&orphans).cloned().collect();
        let disks: BTreeSet<String> = inventory.disks.iter().map(|disk| disk.cid.to_string()).collect();
        require_same("disks", &disks, &known_disks)?;
        require(self.director.rows(&["leaks"]).await?.is_empty(), "there are possible leaks")?;
        let attached: Vec<_> = inventory.disks.iter().filter(|disk| disk.attached_to.is_some()).collect();
        if gone {
            return require(attached.is_empty() && owned.is_empty(), "a disk is not an orphan");
        }
        let [disk] = attached.as_slice() else {
            return Err(io::Error::other(format!("{} disks are attached", attached.len())));
        };
        let (size, properties) = operation.disk();
        require(
            disk.size_mib == size && json!(disk.cloud_properties) == properties,
            "the disk is not what it should be",
        )?;
        let vm = disk.attached_to.as_ref().map(ToString::to_string).unwrap_or_default();
        require(known_vms.contains(&vm), "the disk is attached to another VM")?;
        let store = self.director.cloud().join("vms").join(vm).join("base/store");
        let content = self.director.cloud().join("disks").join(disk.cid.as_str()).join("content");
        require(store.canonicalize().ok() == content.canonicalize().ok(), "the disk is not mounted")?;
        if operation != Operation::Deploy {
            require(content.join(PRECIOUS).is_file(), "the data is lost")?;
        }
        let wanted = match operation {
            Operation::Resize => &self.large,
            Operation::Migrate => &self.other,
            Operation::Swap => &self.swapped,
            _ => &self.small,
        };
        let plan = self.director.ok(&["-d", "example", "plan", wanted]).await?;
        require(plan.contains("nothing to do"), &format!("the deployment has not converged: {plan}"))
    }
}

fn require(holds: bool, otherwise: &str) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::other(otherwise.to_owned())) }
}

fn require_same(what: &str, cloud: &BTreeSet<String>, director: &BTreeSet<String>) -> io::Result<()> {
    let same = cloud == director;
    require(same, &format!("the cloud has the {what} {cloud:?}, and the director knows {director:?}"))
}
