//! What a check works with: the CPI, what was made, and the operator's ways to look into the cloud.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::answer::Answer;
use crate::ask::Ask;
use crate::caller::{self, Caller, Manner};
use crate::check::NotPassed;
use crate::command_line::CommandLine;
use crate::made::{Kind, Made};
use crate::patience::Patience;
use crate::profile::Profile;
use crate::seen::BrokenRules;
use crate::shared_vm::SharedVm;

/// Ways to look into the cloud beside the contract. Each is a command line of the operator.
#[derive(Debug, Clone, Default)]
pub struct Observers {
    /// Prints the agent's settings of `{vm_cid}` as JSON.
    pub show_settings: Option<CommandLine>,
    /// Prints the cids of everything that exists, one per line.
    pub list: Option<CommandLine>,
    /// Prints the size of `{disk_cid}` in MiB.
    pub disk_size: Option<CommandLine>,
}

/// The image that stemcells are made from.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) path: PathBuf,
    pub(crate) cloud_properties: Map<String, Value>,
}

pub(crate) struct Scene<'a> {
    pub(crate) caller: Caller,
    pub(crate) profile: &'a Profile,
    pub(crate) observers: &'a Observers,
    pub(crate) image: Image,
    stop: &'a AtomicBool,
    until: Option<Instant>,
    patience: Mutex<Patience>,
    cleaning: AtomicBool,
    made: Mutex<Made>,
    seen: Mutex<BrokenRules>,
    addresses: AtomicUsize,
    stemcell: Mutex<Shared>,
    vm: Mutex<Shared>,
    shared_vm: Mutex<SharedVm>,
}

/// The cid of what checks share, or why there is none; nothing before it is needed.
type Shared = Option<Result<String, (String, Vec<Answer>)>>;

impl<'a> Scene<'a> {
    pub(crate) fn new(
        caller: Caller,
        profile: &'a Profile,
        observers: &'a Observers,
        image: Image,
        stop: &'a AtomicBool,
        until: Option<Instant>,
    ) -> Self {
        Self {
            caller,
            profile,
            observers,
            image,
            stop,
            until,
            patience: Mutex::default(),
            cleaning: AtomicBool::new(false),
            made: Mutex::default(),
            seen: Mutex::default(),
            addresses: AtomicUsize::new(0),
            stemcell: Mutex::default(),
            vm: Mutex::default(),
            shared_vm: Mutex::default(),
        }
    }

    /// Takes other addresses than scenes that begin elsewhere: what a CPI has left there keeps its own.
    pub(crate) fn with_addresses_from(self, count: usize) -> Self {
        Self { addresses: AtomicUsize::new(count), ..self }
    }

    pub(crate) fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, BrokenRules> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn patience(&self) -> MutexGuard<'_, Patience> {
        self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn shared_vm(&self) -> MutexGuard<'_, SharedVm> {
        self.shared_vm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// How long something may take that would be waited for so long, if there were time without end.
    pub(crate) fn within(&self, wanted: Duration) -> Duration {
        self.until.map_or(wanted, |until| wanted.min(until.saturating_duration_since(Instant::now())))
    }

    /// From now on calls are made although somebody wants to end the run: they remove what it made.
    pub(crate) fn begin_cleaning(&self) {
        self.cleaning.store(true, Ordering::SeqCst);
    }

    pub(crate) fn ask(&self, method: &str, arguments: Value) -> Ask {
        Ask::new(method, arguments, &self.profile.context)
    }

    /// Sends arbitrary bytes.
    pub(crate) fn send(&self, request: &[u8], manner: &Manner) -> Result<Answer, NotPassed> {
        let is_cleaning = self.cleaning.load(Ordering::SeqCst);
        if self.interrupted() && !is_cleaning {
            return Err(NotPassed::Interrupted);
        }
        if self.within(Duration::MAX).is_zero() && !is_cleaning {
            return Err(NotPassed::not_observed("no time was left for it; give --within more minutes"));
        }
        let json = as_far_as_it_can_be_read(request);
        let method = json["method"].as_str().unwrap_or_default();
        let patience = self.patience().with(method, manner.deadline.unwrap_or(self.caller.deadline));
        let asked = self.made().before(&json);
        let exchange = self
            .caller
            .call(request, &Manner { deadline: Some(patience), ..manner.clone() })
            .map_err(|error| NotPassed::failed(format!("the CPI could not be started: {error}")))?;
        // What a check cuts short on purpose says nothing about the CPI.
        if manner.kill_after.is_none() && manner.deadline.is_none() {
            self.patience().note(method, exchange.took, exchange.timed_out);
        }
        let answer = Answer::new(exchange);
        self.made().after(asked, &json, answer.response.as_ref().ok());
        if manner.kill_after.is_none() {
            self.seen().note(&answer);
        }
        self.look_after_the_vm(&json, &answer);
        Ok(answer)
    }

    /// Whether the VM that checks share survived a call about it.
    fn look_after_the_vm(&self, request: &Value, answer: &Answer) {
        let named = self.shared_vm().note(request);
        let Some(vm) = named else { return };
        match self.exists(Kind::Vm, &vm) {
            Ok(false) => self.shared_vm().lose(Some(answer)),
            Ok(true) => self.shared_vm().seen(),
            Err(_) => {}
        }
    }

    pub(crate) fn call(&self, ask: &Ask) -> Result<Answer, NotPassed> {
        self.send(&ask.to_bytes(), &Manner::default())
    }

    /// As the director asks it.
    pub(crate) fn answer(&self, method: &str, arguments: Value) -> Result<Answer, NotPassed> {
        self.call(&self.ask(method, arguments))
    }

    /// As the director asks it, and it must succeed.
    pub(crate) fn must(&self, method: &str, arguments: Value) -> Result<Value, NotPassed> {
        self.answer(method, arguments)?.success()
    }

    /// `has_vm` and `has_disk`.
    pub(crate) fn exists(&self, kind: Kind, cid: &str) -> Result<bool, NotPassed> {
        let method = if kind == Kind::Disk { "has_disk" } else { "has_vm" };
        self.answer(method, json!([cid]))?.boolean()
    }

    pub(crate) fn create_stemcell(&self) -> Result<String, NotPassed> {
        self.answer("create_stemcell", self.stemcell_arguments())?.cid()
    }

    pub(crate) fn stemcell_arguments(&self) -> Value {
        json!([self.image.path, self.image.cloud_properties])
    }

    /// The stemcell that checks share.
    pub(crate) fn stemcell(&self) -> Result<String, NotPassed> {
        self.shared(&self.stemcell, "a stemcell is needed and create_stemcell did not work", || self.create_stemcell())
    }

    /// The VM that checks share; they leave it as it was. Another one where it got lost.
    pub(crate) fn vm(&self) -> Result<String, NotPassed> {
        self.stemcell()?;
        let watched = self.shared_vm().cid();
        if let Some(vm) = &watched
            && matches!(self.exists(Kind::Vm, vm), Ok(false))
        {
            self.shared_vm().lose(None);
        }
        if self.shared_vm().needs_successor() {
            *self.vm.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        self.shared(&self.vm, "a VM is needed and create_vm did not work", || {
            let vm = self.create_vm()?;
            // A has_vm that does not know it now says nothing about it later.
            if matches!(self.exists(Kind::Vm, &vm), Ok(true)) {
                self.shared_vm().watch(&vm);
            }
            Ok(vm)
        })
    }

    fn shared(
        &self,
        place: &Mutex<Shared>,
        what: &str,
        make: impl FnOnce() -> Result<String, NotPassed>,
    ) -> Result<String, NotPassed> {
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*place {
            return made.clone().map_err(|(why, calls)| NotPassed::NotObserved(why, calls));
        }
        self.made().sharing = true;
        let made = make();
        self.made().sharing = false;
        let made = made.map_err(|error| error.while_preparing(what));
        match &made {
            Err(NotPassed::Interrupted) => {}
            Err(NotPassed::NotObserved(why, calls)) => *place = Some(Err((why.clone(), calls.clone()))),
            Err(_) => *place = Some(Err((what.to_owned(), Vec::new()))),
            Ok(cid) => *place = Some(Ok(cid.clone())),
        }
        made
    }

    /// Makes a VM of the shared stemcell; version 2's answer is expected.
    fn create_vm(&self) -> Result<String, NotPassed> {
        let answer = self.answer("create_vm", self.vm_arguments()?)?;
        vm_cid(&answer)
    }

    /// A VM of this check's own.
    pub(crate) fn new_vm(&self) -> Result<String, NotPassed> {
        self.create_vm().map_err(|error| error.while_preparing("a VM is needed and create_vm did not work"))
    }

    /// A disk of this check's own.
    pub(crate) fn new_disk(&self) -> Result<String, NotPassed> {
        let made = self.answer("create_disk", self.disk_arguments()).and_then(|answer| answer.cid());
        made.map_err(|error| error.while_preparing("a disk is needed and create_disk did not work"))
    }

    /// A disk where `vm` can have it, as directors ask for them.
    pub(crate) fn new_disk_near(&self, vm: &str) -> Result<String, NotPassed> {
        let mut arguments = self.disk_arguments();
        arguments[2] = json!(vm);
        let made = self.answer("create_disk", arguments).and_then(|answer| answer.cid());
        made.map_err(|error| error.while_preparing("a disk is needed and create_disk did not work"))
    }

    /// A disk that is attached to `vm`, with its hint.
    pub(crate) fn new_attached_disk(&self, vm: &str) -> Result<(String, Value), NotPassed> {
        let disk = self.new_disk_near(vm)?;
        let hint = self.must("attach_disk", json!([vm, disk]));
        let hint = hint.map_err(|error| error.while_preparing("a disk must be attached and attach_disk did not work"));
        Ok((disk, hint?))
    }

    pub(crate) fn disk_arguments(&self) -> Value {
        json!([self.profile.disk.size, self.profile.disk.cloud_properties, null])
    }

    /// The six arguments of `create_vm` for a VM of the shared stemcell.
    pub(crate) fn vm_arguments(&self) -> Result<Value, NotPassed> {
        let stemcell = self.stemcell()?;
        let env = json!({"bosh": {"group": "certify", "groups": ["certify"], "tags": {"made-by": "windlass-certify"}}});
        let properties = &self.profile.vm.cloud_properties;
        Ok(json!([Uuid::new_v4(), stemcell, properties, {"default": self.network()}, [], env]))
    }

    /// The network of ordinary VMs.
    pub(crate) fn network(&self) -> Value {
        match &self.profile.networks.dynamic {
            Some(network) => network.to_json(),
            None => self.manual_network().unwrap_or_default(),
        }
    }

    /// A network with the next address.
    pub(crate) fn manual_network(&self) -> Result<Value, NotPassed> {
        let network = self.profile.networks.manual.as_ref();
        let network = network.ok_or_else(|| NotPassed::not_observed("the profile has no manual network"))?;
        Ok(network.to_json(self.addresses.fetch_add(1, Ordering::SeqCst)))
    }

    pub(crate) fn dynamic_network(&self) -> Result<Value, NotPassed> {
        let network = self.profile.networks.dynamic.as_ref();
        Ok(network.ok_or_else(|| NotPassed::not_observed("the profile has no dynamic network"))?.to_json())
    }

    /// The agent's settings of a VM, seen by the operator's command.
    pub(crate) fn settings(&self, vm: &str) -> Result<Value, NotPassed> {
        let command = self.observers.show_settings.as_ref();
        let command = command.ok_or_else(|| NotPassed::not_observed("needs --show-settings to look into the VM"))?;
        let text = caller::observe(command, "{vm_cid}", vm).map_err(NotPassed::not_observed)?;
        serde_json::from_str(&text)
            .map_err(|error| NotPassed::not_observed(format!("what --show-settings printed is not JSON: {error}")))
    }

    /// Everything that exists, seen by the operator's command.
    pub(crate) fn list(&self) -> Result<BTreeSet<String>, NotPassed> {
        let command = self.observers.list.as_ref();
        let command = command.ok_or_else(|| NotPassed::not_observed("needs --list to see what exists"))?;
        let text = caller::observe(command, "{}", "").map_err(NotPassed::not_observed)?;
        Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// A disk's size in MiB, seen by the operator's command.
    pub(crate) fn disk_size(&self, disk: &str) -> Result<u64, NotPassed> {
        let command = self.observers.disk_size.as_ref();
        let command = command.ok_or_else(|| NotPassed::not_observed("needs --disk-size to see how large a disk is"))?;
        let text = caller::observe(command, "{disk_cid}", disk).map_err(NotPassed::not_observed)?;
        let number = text.trim().parse();
        number.map_err(|_| NotPassed::not_observed(format!("what --disk-size printed is no number: {}", text.trim())))
    }
}

/// A request as JSON. Of one that is nested too deeply for that, at least the method: it may make something.
fn as_far_as_it_can_be_read(request: &[u8]) -> Value {
    #[derive(Deserialize)]
    struct Method {
        method: String,
    }
    let method = || serde_json::from_slice::<Method>(request).map(|named| json!({"method": named.method}));
    serde_json::from_slice(request).or_else(|_| method()).unwrap_or_default()
}

/// The cid in version 2's answer of `create_vm`.
pub(crate) fn vm_cid(answer: &Answer) -> Result<String, NotPassed> {
    match answer.success()? {
        Value::Array(elements) => match elements.first() {
            Some(Value::String(cid)) if !cid.is_empty() => Ok(cid.clone()),
            _ => Err(answer.fail("the first element is not a non-empty string")),
        },
        other => Err(answer.fail(format!("expected [cid, networks], got {other}"))),
    }
}
