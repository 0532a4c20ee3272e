//! In which order a table is carried out and taken back. What each operation stands is tested in its file.

use super::*;

/// A table of four steps that notes what happens to it.
#[derive(Debug)]
struct Toy {
    context: Context,
    fail_at: Option<usize>,
    fail_undo_of: Option<usize>,
    done: Vec<usize>,
    log: Vec<String>,
}

/// An error with a cause, which must be told as well.
fn broken(what: &str, number: usize) -> StepError {
    let source = Box::new(StepError::NotOnRecord { instance: format!("{what} {number}"), what: "luck".into() });
    let (disk, vm) = (DiskCid::new("disk-1").unwrap(), VmCid::new("vm-1").unwrap());
    StepError::DiskNotMounted { instance: "db/uuid".into(), disk, vm, source }
}

fn act(toy: &mut Toy, number: usize) -> Result<(), StepError> {
    toy.log.push(format!("do {number}"));
    if toy.fail_at == Some(number) {
        return Err(broken("step", number));
    }
    toy.done.push(number);
    Ok(())
}

fn take_back(toy: &mut Toy, number: usize) -> Result<(), StepError> {
    toy.log.push(format!("undo {number}"));
    if toy.fail_undo_of == Some(number) {
        return Err(broken("undo", number));
    }
    toy.done.retain(|done| *done != number);
    Ok(())
}

macro_rules! toy_step {
    ($number:literal, $id:ident, $undo:expr) => {
        Step {
            id: StepId::$id,
            is_done: |toy: &Toy| toy.done.contains(&$number),
            act: |toy| Box::pin(async move { act(toy, $number) }),
            undo: $undo,
        }
    };
}

static TOY_STEPS: &[Step<Toy>] = &[
    toy_step!(1, CreateVm, Some(|toy| Box::pin(async move { take_back(toy, 1) }))),
    toy_step!(2, NameVm, None),
    toy_step!(3, WaitForAgent, Some(|toy| Box::pin(async move { take_back(toy, 3) }))),
    toy_step!(4, RecordVm, Some(|toy| Box::pin(async move { take_back(toy, 4) }))),
];

impl Operation for Toy {
    const NAME: &'static str = "toying";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [Step<Self>] {
        TOY_STEPS
    }
}

#[derive(Debug, Default)]
struct Listener {
    cancelled: bool,
}

impl Progress for Listener {
    fn status(&self, _: StepId) {}
    fn cpi_log(&self, _: &str) {}
    fn warning(&self, _: &str) {}
    fn is_cancelled(&self) -> bool {
        self.cancelled
    }
}

fn toy(listener: Listener) -> Toy {
    let context = Context { progress: Arc::new(listener), ..fault_tests::context() };
    Toy { context, fail_at: None, fail_undo_of: None, done: Vec::new(), log: Vec::new() }
}

#[tokio::test]
async fn what_an_agent_never_ends_ends_with_the_task() {
    let waits = |cancelled| async move {
        let context = Context { progress: Arc::new(Listener { cancelled }), ..fault_tests::context() };
        let endless = std::future::pending::<Result<(), StepError>>();
        tokio::time::timeout(CANCELLATION_LOOK * 3, context.unless_cancelled(endless)).await
    };
    assert!(matches!(waits(true).await, Ok(Err(StepError::Cancelled))));
    assert!(waits(false).await.is_err(), "nobody cancelled it");
}

#[tokio::test]
async fn whichever_step_fails_everything_before_it_is_taken_back_in_reverse() {
    for fail_at in 1..=TOY_STEPS.len() {
        let mut toy = toy(Listener::default());
        toy.fail_at = Some(fail_at);
        let error = run(&mut toy).await.unwrap_err();
        assert_eq!(error.step, TOY_STEPS[fail_at - 1].id);
        let undone: Vec<_> = toy.log.iter().filter(|line| line.starts_with("undo")).cloned().collect();
        let expected: Vec<_> =
            (1..=fail_at).rev().filter(|number| *number != 2).map(|number| format!("undo {number}")).collect();
        assert_eq!(undone, expected);
        assert!(toy.done.iter().all(|number| *number == 2), "only what cannot be undone is left");
    }
}

#[tokio::test]
async fn a_failed_undo_is_kept_beside_the_first_error_and_stops_nothing() {
    let mut toy = toy(Listener::default());
    (toy.fail_at, toy.fail_undo_of) = (Some(4), Some(3));
    let error = run(&mut toy).await.unwrap_err();
    let told = error.to_string();
    assert!(
        told.starts_with(
            "toying of db/uuid failed while recording the VM; taking back 'waiting for the agent' failed, too: db/uuid was not"
        ),
        "{told}"
    );
    assert!(told.ends_with("undo 3 has no luck on record; plan again"), "the cause is told as well: {told}");
    assert!(toy.log.contains(&"undo 1".to_owned()));
}

#[tokio::test]
async fn a_cancelled_task_does_no_further_step() {
    let mut toy = toy(Listener { cancelled: true });
    assert!(matches!(run(&mut toy).await.unwrap_err().cause, StepError::Cancelled));
    assert!(toy.done.is_empty());
}
