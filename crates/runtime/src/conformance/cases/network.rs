//! The listeners of a network with a policy: which sandbox they belong to, and who gets them. The
//! traffic through them is tested with the code that serves them.

use std::net::{TcpListener, UdpSocket};

use crate::egress::EgressListeners;
use rustix::net::sockopt;
use stockade_core::SandboxSpec;
use stockade_core::access::Effect;
use stockade_core::network::{Policy, TRUSTED_INSIDE};

use super::super::harness::{Harness, within};
use super::super::sandbox::{Sandbox, command};
use crate::error::Error;
use crate::exec::Command;

/// The spec of a sandbox with a network. No host is allowed.
fn spec(harness: &Harness) -> SandboxSpec {
    SandboxSpec { network: Some(Policy::default()), ..harness.spec() }
}

async fn listeners(sandbox: &Sandbox<'_>) -> EgressListeners {
    let (runtime, id) = (sandbox.runtime(), sandbox.id());
    within("the ways out", runtime.listeners(id)).await.expect("the ways out")
}

/// The unique identity of each socket.
fn cookies(listeners: &EgressListeners) -> [u64; 4] {
    listeners.each().map(|socket| sockopt::socket_cookie(socket).unwrap())
}

pub(crate) async fn its_ways_out_are_handed_out(harness: &Harness) {
    let sandbox = harness.sandbox_with(&spec(harness)).await;
    let EgressListeners { everything, proxy, resolver_datagrams, resolver_streams } =
        listeners(&sandbox).await;
    for listener in [everything, proxy, resolver_streams] {
        assert!(sockopt::socket_acceptconn(&listener).unwrap());
        // No connection has arrived yet.
        let listener = TcpListener::from(listener);
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
    let socket = UdpSocket::from(resolver_datagrams);
    socket.set_nonblocking(true).unwrap();
    let received = socket.recv_from(&mut [0; 1]);
    assert_eq!(received.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

pub(crate) async fn they_are_the_same_each_time(harness: &Harness) {
    let sandbox = harness.sandbox_with(&spec(harness)).await;
    let first = cookies(&listeners(&sandbox).await);
    let (second, third) = tokio::join!(listeners(&sandbox), listeners(&sandbox));
    assert_eq!((cookies(&second), cookies(&third)), (first, first));
    harness.reopen().await;
    assert_eq!(cookies(&listeners(&sandbox).await), first);
}

pub(crate) async fn each_sandbox_has_its_own(harness: &Harness) {
    let spec = spec(harness);
    let (one, two) = (harness.sandbox_with(&spec).await, harness.sandbox_with(&spec).await);
    let mut all = [cookies(&listeners(&one).await), cookies(&listeners(&two).await)].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 8);
}

pub(crate) async fn without_a_policy_there_are_none(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let refused = within("a refusal", sandbox.runtime().listeners(sandbox.id())).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

pub(crate) async fn of_nothing_there_are_none(harness: &Harness) {
    let sandbox = harness.sandbox_with(&spec(harness)).await;
    let result = listeners(&sandbox).await;
    sandbox.cleanup().await;
    let refused = within("a refusal", harness.runtime().listeners(sandbox.id())).await;
    assert!(matches!(refused, Err(Error::NoSandbox(_))), "{refused:?}");
    // A process that still has them receives nothing through them.
    let proxy = TcpListener::from(result.proxy);
    proxy.set_nonblocking(true).unwrap();
    assert!(proxy.accept().is_err());
}

/// The policy is part of the request, like everything else.
pub(crate) async fn another_policy_is_another_sandbox(harness: &Harness) {
    let sandbox = harness.sandbox_with(&spec(harness)).await;
    let runtime = harness.runtime();
    let allowing = Some(Policy::new(Effect::Allow, Vec::new()).unwrap());
    for network in [None, allowing] {
        let spec = SandboxSpec { network, ..harness.spec() };
        let refused = within("a refusal", runtime.create(sandbox.id(), &spec)).await;
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    }
    within("the same", runtime.create(sandbox.id(), &spec(harness))).await.unwrap();
}

pub(crate) async fn a_paused_one_has_them(harness: &Harness) {
    let sandbox = harness.sandbox_with(&spec(harness)).await;
    let before = cookies(&listeners(&sandbox).await);
    let runtime = harness.runtime();
    within("a pause", runtime.pause(sandbox.id())).await.unwrap();
    assert_eq!(cookies(&listeners(&sandbox).await), before);
    within("going on", runtime.resume(sandbox.id())).await.unwrap();
    assert_eq!(cookies(&listeners(&sandbox).await), before);
}

/// A restored sandbox has the network of its own request, and no other.
pub(crate) async fn a_restored_one_has_its_own(harness: &Harness) {
    let sandbox = harness.sandbox_with(&spec(harness)).await;
    let (runtime, snapshot) = (harness.runtime(), harness.snapshot_id());
    within("a snapshot", runtime.snapshot(sandbox.id(), &snapshot)).await.unwrap();
    let (with, without) = (harness.id(), harness.id());
    within("a restore", runtime.restore(&snapshot, &with, &spec(harness))).await.unwrap();
    within("a restore", runtime.restore(&snapshot, &without, &harness.spec())).await.unwrap();
    let with = harness.existing(with).await;
    assert_ne!(cookies(&listeners(&with).await), cookies(&listeners(&sandbox).await));
    let refused = within("a refusal", runtime.listeners(&without)).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

/// Programs find the proxy by their environment, unless the request overrides it, and resolve names
/// by the resolver. A sandbox without a network has none of this.
pub(crate) async fn commands_find_their_way(harness: &Harness) {
    let sandbox = harness.sandbox_with(&spec(harness)).await;
    let look = "echo \"$HTTP_PROXY $https_proxy $NO_PROXY\"; cat /etc/resolv.conf";
    let found = sandbox.good(look).await;
    let proxy = "http://127.0.0.1:";
    assert!(found.starts_with(proxy) && found.contains(&format!(" {proxy}")), "{found}");
    assert!(found.contains("localhost") && found.ends_with("nameserver 127.0.0.1\n"), "{found}");
    let environment = [("HTTP_PROXY".into(), "mine".into())].into();
    let command = Command { environment, ..command(&["sh", "-c", "echo $HTTP_PROXY"]) };
    assert_eq!(sandbox.start(&command).await.finish().await.output(), "mine\n");
    let without = harness.sandbox().await;
    let found = without.good("env; cat /etc/resolv.conf /etc/nsswitch.conf || true").await;
    assert!(!found.to_lowercase().contains("proxy") && !found.contains("127.0.0.1"), "{found}");
}

/// The configuration of name lookups belongs to the network, and to no snapshot.
pub(crate) async fn nothing_of_it_is_in_a_snapshot(harness: &Harness) {
    let sandbox = harness.sandbox_with(&spec(harness)).await;
    // A command that tries to preserve it cannot change it either.
    sandbox.sh("echo kept >> /etc/resolv.conf; rm -f /etc/resolv.conf; mv /etc /kept").await;
    assert_eq!(sandbox.good("cat /etc/resolv.conf").await, "nameserver 127.0.0.1\n");
    let (runtime, snapshot) = (harness.runtime(), harness.snapshot_id());
    within("a snapshot", runtime.snapshot(sandbox.id(), &snapshot)).await.unwrap();
    let id = harness.id();
    within("a restore", runtime.restore(&snapshot, &id, &harness.spec())).await.unwrap();
    let restored = harness.existing(id).await;
    let found = restored.good("cat /etc/resolv.conf /etc/nsswitch.conf || true").await;
    assert!(!found.contains("127.0.0.1") && !found.contains("dns"), "{found}");
}

/// The process that holds the sandboxes is killed, and its successor gets the same listeners.
pub(crate) async fn its_ways_out_outlast_the_holder(harness: &Harness) {
    let sandbox = harness.sandbox_with(&spec(harness)).await;
    let before = cookies(&listeners(&sandbox).await);
    for _ in 0..2 {
        harness.kill_holder().await;
        harness.reopen().await;
        assert_eq!(cookies(&listeners(&sandbox).await), before);
    }
}

/// Programs find the certificates that were written last, and cannot change them.
pub(crate) async fn certificates_are_replaced(harness: &Harness) {
    let sandbox = harness.sandbox_with(&spec(harness)).await;
    let read = format!("cat {TRUSTED_INSIDE}");
    // A shorter text leaves nothing of a longer one.
    for text in ["the first certificates\n", "others\n", ""] {
        trust(&sandbox, text).await.unwrap();
        assert_eq!(sandbox.good(&read).await, text);
    }
    trust(&sandbox, "ours\n").await.unwrap();
    let change = format!(
        "echo x >> {TRUSTED_INSIDE}; rm -f {TRUSTED_INSIDE}; mv {TRUSTED_INSIDE} /tmp/moved; \
         echo x > /tmp/other; mv /tmp/other {TRUSTED_INSIDE}; chmod 600 {TRUSTED_INSIDE}"
    );
    sandbox.sh(&change).await;
    assert_eq!(sandbox.good(&read).await, "ours\n");
    trust(&sandbox, "later\n").await.unwrap();
    assert_eq!(sandbox.good(&read).await, "later\n");
}

/// A restored sandbox trusts what its own owner says, and nothing else.
pub(crate) async fn certificates_are_in_no_snapshot(harness: &Harness) {
    let sandbox = harness.sandbox_with(&spec(harness)).await;
    trust(&sandbox, "ours\n").await.unwrap();
    let (runtime, snapshot) = (harness.runtime(), harness.snapshot_id());
    within("a snapshot", runtime.snapshot(sandbox.id(), &snapshot)).await.unwrap();
    for spec in [harness.spec(), spec(harness)] {
        let id = harness.id();
        within("a restore", runtime.restore(&snapshot, &id, &spec)).await.unwrap();
        let restored = harness.existing(id).await;
        let found = restored.good(&format!("cat {TRUSTED_INSIDE} || true")).await;
        assert!(!found.contains("ours"), "{found}");
    }
}

pub(crate) async fn certificates_need_a_policy(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let refused = trust(&sandbox, "ours\n").await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let other = harness.sandbox_with(&spec(harness)).await;
    other.cleanup().await;
    let refused = trust(&other, "ours\n").await;
    assert!(matches!(refused, Err(Error::NoSandbox(_))), "{refused:?}");
}

async fn trust(sandbox: &Sandbox<'_>, certificates: &str) -> crate::error::Result<()> {
    within("the certificates", sandbox.runtime().trust(sandbox.id(), certificates)).await
}
