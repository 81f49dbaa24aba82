//! The states of a sandbox as FireFlow stores them: `creating`, `running`, `paused`, `terminated`.
//! FireFlow has no state for a failure; Stockade adds `error` to the four.

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
