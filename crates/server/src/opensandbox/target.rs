//! The ports of a sandbox that the server itself serves, the headers with their access tokens, and the
//! sandbox of a request to a port.

use std::sync::Arc;

use stockade_api::{Caller, Sandbox, Sandboxes};

/// The port of the interface for commands and files.
pub(super) const EXECD_PORT: u16 = 44772;
/// The port of the interface for the network policy.
pub(super) const EGRESS_PORT: u16 = 18080;
/// The headers with the access token, as clients of each port send it.
pub(super) const EXECD_TOKEN: &str = "X-EXECD-ACCESS-TOKEN";
pub(super) const EGRESS_TOKEN: &str = "OPENSANDBOX-EGRESS-AUTH";
pub(super) const PORT_TOKEN: &str = "OpenSandbox-Secure-Access";

/// The shared state of the routes on a port.
#[derive(Debug, Clone)]
pub(super) struct PortState {
    pub(super) sandboxes: Arc<dyn Sandboxes>,
}

/// The sandbox of a request to a port, and on whose behalf it is executed.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) caller: Caller,
    pub(super) sandbox: Arc<Sandbox>,
}
