//! The socket of an ssh agent: who makes it, and who cannot.

use std::os::unix::net::UnixListener;

use stockade_core::SandboxSpec;
use stockade_core::sandbox::{SSH_AGENT_DIRECTORY, SSH_AGENT_SOCKET};

use super::super::harness::{Harness, within};
use super::super::sandbox::Sandbox;
use crate::error::Error;

async fn socket(sandbox: &Sandbox<'_>) -> Result<UnixListener, Error> {
    within("a socket", sandbox.runtime().agent_socket(sandbox.id())).await
}

/// It is there each time after it was made, although programs inside try to replace it.
pub(crate) async fn its_socket_cannot_be_replaced_from_inside(harness: &Harness) {
    let spec = SandboxSpec { ssh_agent: true, ..harness.spec() };
    let sandbox = harness.sandbox_with(&spec).await;
    let (directory, name) = (SSH_AGENT_DIRECTORY, SSH_AGENT_SOCKET);
    let look = format!("test -S {directory}/{name} && ls -A {directory}");
    for _ in 0..2 {
        let _made = socket(&sandbox).await.expect("a socket");
        assert_eq!(sandbox.good(&look).await.trim(), name);
        let change = format!(
            "cd {directory}; rm -f {name}; mv {name} other; echo x > {name}; echo x > new; chmod 0 {name}; \
             cd ..; mv ssh other; rm -rf ssh"
        );
        sandbox.sh(&change).await;
        assert_eq!(sandbox.good(&look).await.trim(), name);
    }
}

pub(crate) async fn without_one_there_is_no_socket(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    assert!(matches!(socket(&sandbox).await, Err(Error::Invalid(_))));
    let missing = within("a refusal", harness.runtime().agent_socket(&harness.id())).await;
    assert!(matches!(missing, Err(Error::NoSandbox(_))), "{missing:?}");
}
