//! Settles what an earlier run left open: every open intent is settled, repeated, or kept in sight.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use windlass_contract::explain;
use windlass_durable::process::ProcessIdentity;

use crate::clock;
use crate::clouds::{Clouds, OnBehalfOf};
use crate::ledger::{Change, Elsewhere, Ledger, LedgerError, OpenIntent};

/// How long a CPI that outlived its director may go on before it is killed.
const LEFT_OVER: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long a CPI takes to end that is past its deadline, in seconds.
const AFTER_DEADLINE: i64 = 5;

/// Settles the changes that an earlier run began and did not hear the end of.
pub async fn settle_intents(clouds: &Clouds, ledger: &dyn Ledger) -> Result<(), LedgerError> {
    for open in ledger.open_intents().await? {
        settle(clouds, ledger, open).await;
    }
    Ok(())
}

pub async fn settle(clouds: &Clouds, ledger: &dyn Ledger, open: OpenIntent<'_>) {
    let (method, subject) = (open.change.method(), open.change.subject());
    tracing::warn!(method, subject, request = %open.id, "an earlier run did not hear the end of this");
    if let Some(child) = open.child {
        end(child).await;
    }
    if let Some(elsewhere) = &open.elsewhere {
        wait_out(elsewhere).await;
    }
    if let Some(image) = lost_image(&open.change) {
        tracing::warn!(image = %image.display(), "the image of this stemcell is gone; upload it again");
    }
    let log = |line: &str| tracing::debug!(line, "cpi");
    let who = OnBehalfOf { ledger, task: open.task, log: &log };
    match clouds.resolve(who, open).await {
        Ok(_) => tracing::info!(method, subject, "settled"),
        Err(error) => tracing::warn!(method, subject, error = explain(&error), "not settled"),
    }
}

/// Nobody here can see whether a CPI on another machine still runs, so it is taken to run as long as it may.
async fn wait_out(Elsewhere { host, until }: &Elsewhere) {
    let left = || u64::try_from(until + AFTER_DEADLINE - clock::now()).unwrap_or(0);
    if left() > 0 {
        tracing::warn!(
            host,
            seconds = left(),
            "its CPI may still run on that machine, and is waited for until its deadline"
        );
    }
    while left() > 0 {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// A stemcell's image does not outlive its upload.
fn lost_image(change: &Change) -> Option<&Path> {
    match change {
        Change::CreateStemcell { image, .. } if !image.exists() => Some(image),
        _ => None,
    }
}

/// A CPI that outlived its director is let finish, for a while: half of its work is worse than all of it.
async fn end(child: ProcessIdentity) {
    let deadline = tokio::time::Instant::now() + LEFT_OVER;
    while child.is_running() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    if child.is_running() {
        tracing::warn!(pid = child.pid, "a CPI of an earlier run does not end and is killed");
        if let Err(error) = child.signal_group(Signal::KILL) {
            tracing::warn!(pid = child.pid, %error, "it cannot be killed");
        }
        while child.is_running() && tokio::time::Instant::now() < deadline + LEFT_OVER {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cpi_on_another_machine_is_waited_for_until_its_deadline() {
        let elsewhere = |left: i64| Elsewhere { host: "other".into(), until: clock::now() - AFTER_DEADLINE + left };
        let begun = std::time::Instant::now();
        wait_out(&elsewhere(-10)).await;
        assert!(begun.elapsed() < LOOK_AGAIN);
        let waited = elsewhere(2);
        wait_out(&waited).await;
        assert!(clock::now() >= waited.until + AFTER_DEADLINE);
    }
}
