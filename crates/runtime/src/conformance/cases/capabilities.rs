//! A backend reports what it does not support here, and refuses it.

use stockade_core::SandboxSpec;
use stockade_core::network::Policy;
use stockade_core::sandbox::{HostMount, User, Workspace};

use super::super::harness::{Harness, within};
use super::super::sandbox::{command, volume};
use crate::capability::Capability;
use crate::error::{Error, Result};
use crate::exec::{Command, WindowSize};
use crate::runtime::Target;

/// Requests something that needs the capability. Limits are tested elsewhere.
async fn attempt(harness: &Harness, capability: Capability) -> Option<Result<()>> {
    let (runtime, host) = (harness.runtime(), harness.host().to_owned());
    let sandbox = harness.sandbox().await;
    let (id, exec) = (sandbox.id(), harness.exec_id());
    let execute = async |command: Command| runtime.execute(id, &exec, &command).await.map(|_| ());
    let create = async |spec: SandboxSpec| runtime.create(&harness.id(), &spec).await.map(|_| ());
    let spec = harness.spec();
    let attempt = match capability {
        Capability::Terminal => {
            let terminal = Some(WindowSize { rows: 24, columns: 80 });
            execute(Command { terminal, ..command(&["true"]) }).await
        }
        Capability::Users => {
            let user = Some(User { user: 4242, group: 4242 });
            execute(Command { user, ..command(&["true"]) }).await
        }
        Capability::Ports => runtime.connect(id, &Target::Tcp(1)).await.map(|_| ()),
        Capability::Pause => runtime.pause(id).await,
        Capability::Snapshot => runtime.snapshot(id, &harness.snapshot_id()).await.map(|_| ()),
        Capability::Workspace => {
            let workspace = Some(Workspace { host, inside: "/project".into() });
            create(SandboxSpec { workspace, ..spec }).await
        }
        Capability::HostMounts => {
            let mount = HostMount { host, inside: "/shown".into(), writable: false };
            create(SandboxSpec { mounts: vec![mount], ..spec }).await
        }
        Capability::Volumes => {
            let volume = volume("shared", "/shared");
            create(SandboxSpec { volumes: vec![volume], ..spec }).await
        }
        Capability::SshAgent => create(SandboxSpec { ssh_agent: true, ..spec }).await,
        Capability::Egress => {
            create(SandboxSpec { network: Some(Policy::default()), ..spec }).await
        }
        _ => return None,
    };
    Some(attempt)
}

pub(crate) async fn what_cannot_be_done_is_refused(harness: &Harness) {
    let runtime = harness.runtime();
    for capability in Capability::ALL {
        let supported = within("an answer", runtime.supports(capability)).await;
        let Err(told) = supported else { continue };
        assert!(!told.reason.is_empty(), "{capability}");
        match within("a refusal", attempt(harness, capability)).await {
            None => {}
            Some(Err(Error::Unsupported { capability: refused, .. })) => {
                assert_eq!(refused, capability);
            }
            other => panic!("{capability} is not supported: {other:?}"),
        }
    }
}

pub(crate) async fn what_can_be_done_is_not_refused(harness: &Harness) {
    let runtime = harness.runtime();
    for capability in Capability::ALL {
        if within("an answer", runtime.supports(capability)).await.is_ok() {
            let attempt = within("an attempt", attempt(harness, capability)).await;
            let refused = matches!(attempt, Some(Err(Error::Unsupported { .. })));
            assert!(!refused, "{capability} is supported: {attempt:?}");
        }
    }
}

pub(crate) async fn it_has_a_name(harness: &Harness) {
    let name = harness.runtime().name();
    let is_word = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    assert!(!name.is_empty() && is_word(name), "{name:?}");
}
