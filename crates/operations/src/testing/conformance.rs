//! What every [`Ledger`] must do. A ledger is tested by implementing [`Subject`] and by one line:
//! `windlass_operations::ledger_conformance!(make_one);`

#![allow(clippy::unwrap_used, reason = "tests alone use this")]

use async_trait::async_trait;
use windlass_contract::{Object, RequestId, VmCid};
use windlass_durable::process::ProcessIdentity;

use super::{LegalFacts, new_vm_record};
use crate::ledger::{Change, Fact, Intent, Ledger, LedgerError, Model, NewDisk, OpenIntent};
use windlass_planning::names::CpiName;

/// Instances that exist when a test begins.
pub const INSTANCES: [&str; 2] = ["instance-1", "instance-2"];

/// A ledger that is tested.
#[async_trait]
pub trait Subject: Send + Sync + Sized {
    fn ledger(&self) -> &dyn Ledger;

    /// What is on record, in the words of the model.
    async fn records(&self) -> Model;

    /// The same ledger, as the next process finds it.
    async fn reopened(self) -> Self;

    /// What of the model this ledger keeps. Intended differences, and their reasons, stand here and in
    /// [`takes`](Self::takes).
    fn keeps(model: Model) -> Model {
        model
    }

    /// Whether this ledger ever hears of such a fact.
    fn takes(_: &Fact) -> bool {
        true
    }

    /// Whether this ledger takes such a fact twice in a row, as if it came once.
    fn takes_twice(_: &Fact) -> bool {
        true
    }
}

/// Makes a test of each promise. `make` is an async function that makes a [`Subject`] with [`INSTANCES`] and nothing else.
#[macro_export]
macro_rules! ledger_conformance {
    ($make:expr) => {
        #[tokio::test]
        async fn an_intent_ends_exactly_once() {
            $crate::testing::conformance::an_intent_ends_exactly_once($make().await).await;
        }

        #[tokio::test]
        async fn a_fact_and_the_end_of_its_intent_are_on_record_together() {
            $crate::testing::conformance::a_fact_comes_with_the_end_of_its_intent($make().await).await;
        }

        #[tokio::test]
        async fn intents_are_listed_oldest_first_and_survive_the_process() {
            $crate::testing::conformance::intents_are_listed_oldest_first($make().await).await;
        }

        #[test]
        fn whatever_becomes_true_the_records_are_those_of_the_model() {
            use proptest::prelude::*;
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let choices = proptest::collection::vec(any::<u16>(), 1..60);
            proptest!(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() }, |(choices in choices)| {
                runtime.block_on(async { $crate::testing::conformance::follows_the_model($make().await, &choices).await });
            });
        }
    };
}

fn intent(change: Change) -> Intent {
    let id = RequestId::random();
    Intent {
        id,
        task: None,
        cpi: CpiName::Default,
        stemcell_version: None,
        change,
        child: None,
        elsewhere: None,
        doubt: None,
    }
}

fn reboot() -> Intent {
    intent(Change::RebootVm { cid: VmCid::new("vm-1").unwrap() })
}

fn vm_created(cid: &str) -> Fact {
    Fact::VmCreated { vm: Box::new(new_vm_record(VmCid::new(cid).unwrap(), &INSTANCES[0].into(), false)) }
}

async fn ids(ledger: &dyn Ledger) -> Vec<RequestId> {
    ledger.intents().await.unwrap().into_iter().map(|intent| intent.id).collect()
}

/// Another handle on an intent that is open: what a second process would have.
async fn second_handle<'a>(ledger: &'a dyn Ledger, id: &RequestId) -> OpenIntent<'a> {
    ledger.open_intents().await.unwrap().into_iter().find(|open| open.id == *id).unwrap()
}

/// Every end of an intent that has ended fails, says why, and changes nothing.
pub async fn an_intent_ends_exactly_once<S: Subject>(subject: S) {
    for end in 0..2 {
        let ledger = subject.ledger();
        let open = ledger.open_intent(reboot()).await.unwrap();
        let id = open.id.clone();
        let child = ProcessIdentity { pid: 1, start_time: 2 };
        open.note_child(child).await.unwrap();
        assert_eq!(ledger.intents().await.unwrap()[0].child, Some(child));
        let late = [
            second_handle(ledger, &id).await,
            second_handle(ledger, &id).await,
            second_handle(ledger, &id).await,
            second_handle(ledger, &id).await,
        ];
        match end {
            0 => open.settle(&Fact::Nothing).await.unwrap(),
            _ => open.abandon("the cloud refused").await.unwrap(),
        }
        let before = subject.records().await;
        let [settled, abandoned, doubted, noted] = late;
        assert_is_ended(settled.settle(&vm_created("vm-late")).await);
        assert_is_ended(abandoned.abandon("no").await);
        assert_is_ended(doubted.doubt("who knows").await);
        assert_is_ended(noted.note_child(child).await);
        assert_is_ended(ledger.note_child(&RequestId::random(), child).await);
        assert_eq!(subject.records().await, before, "a fact without its intent is not recorded");
        assert!(ledger.intents().await.unwrap().is_empty());
    }
    let ledger = subject.ledger();
    let twin = reboot();
    let _open = ledger.open_intent(twin.clone()).await.unwrap();
    assert!(ledger.open_intent(twin.clone()).await.is_err(), "an id is used once");
    assert_eq!(ids(ledger).await, [twin.id]);
}

fn assert_is_ended(result: Result<(), LedgerError>) {
    let error = result.unwrap_err();
    assert!(error.is_not_one_intent(), "{error:?}");
}

/// Settled and opened again, both are there; not settled, neither.
pub async fn a_fact_comes_with_the_end_of_its_intent<S: Subject>(subject: S) {
    let ledger = subject.ledger();
    let first = ledger.open_intent(reboot()).await.unwrap();
    let (first, kept) = (first.id.clone(), reboot());
    let _ = ledger.open_intent(kept.clone()).await.unwrap();
    let empty = subject.records().await;
    let subject = subject.reopened().await;
    assert_eq!(subject.records().await, empty);
    assert_eq!(ids(subject.ledger()).await, [first.clone(), kept.id.clone()]);
    second_handle(subject.ledger(), &first).await.settle(&vm_created("vm-1")).await.unwrap();
    let subject = subject.reopened().await;
    assert_eq!(subject.records().await.vms.len(), 1);
    assert_eq!(ids(subject.ledger()).await, std::slice::from_ref(&kept.id));
    second_handle(subject.ledger(), &kept.id).await.doubt("the answer got lost").await.unwrap();
    let subject = subject.reopened().await;
    assert!(subject.ledger().open_intents().await.unwrap().is_empty());
    let doubtful = subject.ledger().doubtful_intents().await.unwrap().pop().unwrap();
    assert_eq!(doubtful.doubt.as_deref(), Some("the answer got lost"));
    assert_eq!(doubtful.change, kept.change, "it can be repeated exactly");
    doubtful.settle(&Fact::Nothing).await.unwrap();
    assert!(subject.ledger().intents().await.unwrap().is_empty(), "a doubt can be decided later");
}

/// In the order in which they were written, also within a second, and with those in doubt in their places.
pub async fn intents_are_listed_oldest_first<S: Subject>(subject: S) {
    let ledger = subject.ledger();
    let mut written = Vec::new();
    for _ in 0..12 {
        written.push(ledger.open_intent(reboot()).await.unwrap().id.clone());
    }
    assert_eq!(ids(ledger).await, written);
    for id in written.iter().step_by(3) {
        second_handle(ledger, id).await.doubt("who knows").await.unwrap();
    }
    let subject = subject.reopened().await;
    assert_eq!(ids(subject.ledger()).await, written);
    let doubtful: Vec<_> = written.iter().step_by(3).cloned().collect();
    let listed = subject.ledger().doubtful_intents().await.unwrap();
    assert_eq!(listed.iter().map(|open| open.id.clone()).collect::<Vec<_>>(), doubtful);
    written.retain(|id| !doubtful.contains(id));
    let listed = subject.ledger().open_intents().await.unwrap();
    assert_eq!(listed.iter().map(|open| open.id.clone()).collect::<Vec<_>>(), written);
}

/// Records one legal fact after the other, by these choices, and compares with the model after each.
pub async fn follows_the_model<S: Subject>(mut subject: S, choices: &[u16]) {
    let mut facts = LegalFacts::default();
    let mut model = Model::of_instances(INSTANCES);
    for choice in choices {
        let legal: Vec<Fact> = facts.after(&model).into_iter().filter(S::takes).collect();
        let fact = &legal[usize::from(choice / 8) % legal.len()];
        model.apply(fact);
        match choice % 8 {
            0..4 => subject.ledger().record(fact).await.unwrap(),
            _ => {
                let open = subject.ledger().open_intent(intent(change_behind(fact))).await.unwrap();
                open.settle(fact).await.unwrap();
            }
        }
        if choice % 4 == 1 && S::takes_twice(fact) {
            subject.ledger().record(fact).await.unwrap();
        }
        if choice % 16 == 2 {
            subject = subject.reopened().await;
        }
        let expected = S::keeps(model.clone()).sorted();
        assert_eq!(subject.records().await.sorted(), expected, "after {fact:?}");
    }
}

/// A change that this fact could be the end of, or one that says nothing.
fn change_behind(fact: &Fact) -> Change {
    match fact {
        Fact::DiskCreated { disk } => {
            let (instance, name, cpi) = (disk.instance.clone(), disk.name.clone(), disk.cpi.clone());
            let disk = NewDisk { instance, name, cpi, size: disk.size, cloud_properties: Object::new() };
            Change::CreateDisk { disk, near: None }
        }
        Fact::VmDeleted { cid } => Change::DeleteVm { cid: cid.clone() },
        Fact::DiskDeleted { disk } => Change::DeleteDisk { cid: disk.clone() },
        Fact::DiskDetached { disk } => Change::DetachDisk { vm: VmCid::new("vm-1").unwrap(), disk: disk.clone() },
        _ => reboot().change,
    }
}
