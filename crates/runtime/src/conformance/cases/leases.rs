//! A sandbox lives as long as its lease, and no longer.

use std::time::Duration;

use stockade_core::SandboxSpec;

use super::super::harness::{Harness, eventually, within};
use super::super::sandbox::{Sandbox, command};
use crate::exec::Ending;

const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(3600);

async fn leased<'a>(harness: &'a Harness, lease: Duration) -> Sandbox<'a> {
    harness.empty_sandbox(&SandboxSpec { lease: Some(lease), ..harness.spec() }).await
}

async fn renew(sandbox: &Sandbox<'_>, lease: Option<Duration>) {
    within("a renewal", sandbox.runtime().renew(sandbox.id(), lease)).await.expect("a renewal");
}

async fn ends(sandbox: &Sandbox<'_>) {
    eventually("the end of a lease", async || sandbox.has_ended().await).await;
}

pub(crate) async fn it_ends_with_its_lease(harness: &Harness) {
    let sandbox = leased(harness, SHORT).await;
    ends(&sandbox).await;
    sandbox.cleanup().await;
    assert!(sandbox.inspect().await.is_err());
}

pub(crate) async fn its_commands_end_with_it(harness: &Harness) {
    let sandbox = leased(harness, 3 * SHORT).await;
    let running = sandbox.start(&command(&["sleep", "1000"])).await;
    assert_eq!(running.finish().await.ending, Ending::SandboxEnded);
    ends(&sandbox).await;
}

/// A renewed sandbox outlives one that was created later with its original lease.
pub(crate) async fn a_renewed_one_lives_on(harness: &Harness) {
    let renewed = leased(harness, 3 * SHORT).await;
    renew(&renewed, Some(LONG)).await;
    let freed = leased(harness, 3 * SHORT).await;
    renew(&freed, None).await;
    let other = leased(harness, 3 * SHORT).await;
    ends(&other).await;
    let left = renewed.inspect().await.unwrap().lease_left.expect("a lease");
    assert!(left <= LONG && left > LONG / 2, "{left:?}");
    assert_eq!(freed.inspect().await.unwrap().lease_left, None);
    for sandbox in [&renewed, &freed] {
        assert_eq!(sandbox.run(&["true"]).await.ending, Ending::Exited(0));
    }
}

pub(crate) async fn a_lease_can_be_made_shorter(harness: &Harness) {
    let endless = harness.sandbox().await;
    let long = leased(harness, LONG).await;
    for sandbox in [&endless, &long] {
        renew(sandbox, Some(SHORT)).await;
        ends(sandbox).await;
    }
}

/// The lease is part of the request: repeating the request returns the same sandbox, without
/// renewal.
pub(crate) async fn creating_again_does_not_renew(harness: &Harness) {
    let sandbox = leased(harness, LONG).await;
    renew(&sandbox, Some(3 * SHORT)).await;
    let spec = SandboxSpec { lease: Some(LONG), ..harness.spec() };
    within("a sandbox", harness.runtime().create(sandbox.id(), &spec)).await.unwrap();
    ends(&sandbox).await;
}
