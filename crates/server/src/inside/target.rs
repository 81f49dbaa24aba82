//! The sandbox of a request, and on whose behalf the request is executed.

use std::sync::Arc;

use stockade_api::{Caller, Problem, Sandbox};
use stockade_core::Code;

use crate::failure::Failure;

/// The sandbox of a request to a port, and on whose behalf it is executed.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) caller: Caller,
    pub(crate) sandbox: Arc<Sandbox>,
    /// Whose rights a request for files has; every right when absent.
    pub(crate) identity: Option<Identity>,
}

impl Target {
    /// Refuses a change of the owner that the identity of a request may not make.
    pub(crate) fn refuse_other_owner(
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
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}
