//! The interface through which the owner gets the policy and the credentials of each sandbox
//! ([`Source`]).

use stockade_core::network::{Policy, Upstream};
use stockade_core::{Problem, SandboxId};

use crate::credential::Credential;

/// Provides the policy and credentials of each sandbox.
///
/// The owner calls it whenever a process starts to serve a sandbox, so that a restarted process
/// gets the current policies and credentials. It stores neither. The calls must not block. The source
/// of a run has the values in memory; that of a server has none, and values are given with
/// [`Owner::give_values`](crate::Owner::give_values).
pub trait Source: std::fmt::Debug + Send + Sync {
    /// The sandboxes that are to be served. While there is none, a process that ended is not started
    /// again.
    fn sandboxes(&self) -> Vec<SandboxId>;

    /// The network policy of a sandbox; `None` if it is not to be served any more.
    fn policy(&self, sandbox: &SandboxId) -> Option<Policy>;

    /// The proxy through which a sandbox's connections leave this machine; `None` for none.
    fn upstream(&self, sandbox: &SandboxId) -> Option<Upstream> {
        let _ = sandbox;
        None
    }

    /// Whether the requests of a sandbox that are read are reported, so that a policy can be learned.
    fn reports_requests(&self, sandbox: &SandboxId) -> bool {
        let _ = sandbox;
        false
    }

    /// The credentials of a sandbox, with values if the source has them.
    ///
    /// # Errors
    /// Why there are no values. The sandbox is then not served.
    fn credentials(&self, sandbox: &SandboxId) -> Result<Vec<Credential>, Problem> {
        let _ = sandbox;
        Ok(Vec::new())
    }
}
