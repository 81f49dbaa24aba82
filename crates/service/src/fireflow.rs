//! The states of a sandbox as FireFlow stores them: `creating`, `running`, `paused`, `terminated`.
//! In its view a sandbox ends with its time to live, so [`request`] asks for that.
//! FireFlow has no state for a failure; Stockade adds `error` to the four.

use stockade_api::{CreateSandbox, ExpiryAction};
use stockade_core::{State, names};

names! {
    /// The column `status` of `sandbox_instances`.
    pub enum Status: "status" {
        /// Not ready yet.
        Creating = "creating",
        /// Ready for commands.
        Running = "running",
        /// Not running, can be resumed.
        Paused = "paused",
        /// Failed; the reason is stored separately.
        Error = "error",
        /// Ended for good.
        Terminated = "terminated",
    }
}

/// A request with FireFlow's default: a sandbox that expires, or whose processes are lost, is
/// terminated.
#[must_use]
pub fn request(request: CreateSandbox) -> CreateSandbox {
    let on_expiry = request.on_expiry.or(Some(ExpiryAction::Terminate));
    CreateSandbox { on_expiry, ..request }
}

impl Status {
    /// FireFlow's name of a state.
    pub const fn from_state(state: State) -> Self {
        match state {
            State::New | State::Creating => Self::Creating,
            State::Running => Self::Running,
            State::Paused | State::Stopped => Self::Paused,
            State::Error => Self::Error,
            State::Terminated => Self::Terminated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_status() {
        let seen: Vec<_> =
            State::ALL.iter().map(|state| Status::from_state(*state).as_str()).collect();
        assert_eq!(
            seen,
            ["creating", "creating", "running", "paused", "paused", "error", "terminated"]
        );
    }
}
