//! The ports of a sandbox that the server itself serves, and the headers with their access tokens.

use std::sync::Arc;

use stockade_api::Sandboxes;

use super::snapshots_in_use::SnapshotsInUse;
use super::terminal_clients::Clients;
use crate::code::Engine;
pub(super) use crate::inside::{Identity, Target};

/// The port of the interface for commands and files.
pub(crate) const EXECD_PORT: u16 = 44772;
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
    pub(super) code: Engine,
    /// The snapshots from which sessions are being created.
    pub(super) in_use: SnapshotsInUse,
}
