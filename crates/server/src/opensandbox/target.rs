//! The ports of a sandbox that the server itself serves, the headers with their access tokens, and the
//! sandbox of a request to a port.

use std::sync::Arc;

use stockade_api::{Caller, Problem, Sandbox, Sandboxes};
use stockade_core::Code;

use super::snapshots_in_use::SnapshotsInUse;
use super::terminal_clients::Clients;
use crate::failure::Failure;

/// The port of the interface for commands and files.
pub(super) const EXECD_PORT: u16 = 44772;
/// The port of the interface for the network policy.
pub(super) const EGRESS_PORT: u16 = 18080;
/// The headers with the access token, as clients of each port send it.
pub(super) const EXECD_TOKEN: &str = "X-EXECD-ACCESS-TOKEN";
pub(super) const EGRESS_TOKEN: &str = "OPENSANDBOX-EGRESS-AUTH";
pub(super) const PORT_TOKEN: &str = "OpenSandbox-Secure-Access";

/// The variable with the path of the file inside with variables for later commands.
pub(super) const VARIABLES: &str = "EXECD_ENVS";
/// The metadata with that path, if the environment of the sandbox sets the variable.
pub(super) const VARIABLES_FILE: &str = "opensandbox.io/execd-envs";

/// The shared state of the routes on a port.
#[derive(Debug, Clone)]
pub(super) struct PortState {
    pub(super) sandboxes: Arc<dyn Sandboxes>,
    /// The clients of terminals.
    pub(super) clients: Clients,
    /// The snapshots from which sessions are being created.
    pub(super) in_use: SnapshotsInUse,
}

/// The sandbox of a request to a port, and on whose behalf it is executed.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) caller: Caller,
    pub(super) sandbox: Arc<Sandbox>,
    /// Whose rights a request for files has; every right when absent.
    pub(super) identity: Option<Identity>,
}

impl Target {
    /// Refuses a change of the owner that the identity of a request may not make.
    pub(super) fn refuse_other_owner(
        &self,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), Failure> {
        let Some(identity) = self.identity else { return Ok(()) };
        let is_other = uid.is_some_and(|uid| uid != identity.uid)
            || gid.is_some_and(|gid| gid != identity.gid);
        if !is_other {
            return Ok(());
        }
        let message = format!("the user {} may not give a file to another owner", identity.uid);
        Err(Problem::new(Code::AccessDenied, message).into())
    }
}

/// A user inside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) uid: u32,
    pub(super) gid: u32,
}
