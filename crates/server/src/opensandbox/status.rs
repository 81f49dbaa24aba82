//! The states of a sandbox with the names of OpenSandbox, including its transitional states
//! (`sandbox-lifecycle.yml`, `SandboxStatus`).

use stockade_core::{Operation, State, names};

names! {
    /// The field `status.state` of a sandbox.
    pub enum Status: "status" {
        /// Being provisioned.
        Pending = "Pending",
        /// Ready to accept requests.
        Running = "Running",
        /// In transition to `Paused`.
        Pausing = "Pausing",
        /// Paused, with its state kept.
        Paused = "Paused",
        /// In transition to `Running`.
        Resuming = "Resuming",
        /// In transition to `Terminated`.
        Stopping = "Stopping",
        /// Ended permanently.
        Terminated = "Terminated",
        /// It had a critical error.
        Failed = "Failed",
    }
}

impl Status {
    /// The OpenSandbox name of a state, while an operation is in progress or not.
    pub const fn of(state: State, under_way: Option<Operation>) -> Self {
        match (state, under_way) {
            (State::Terminated, _) => Self::Terminated,
            (_, Some(Operation::Kill)) => Self::Stopping,
            (State::New | State::Creating, _) => Self::Pending,
            (State::Running, Some(Operation::Pause | Operation::Stop)) => Self::Pausing,
            (State::Running, _) => Self::Running,
            (State::Paused | State::Stopped, Some(Operation::Resume | Operation::Start)) => {
                Self::Resuming
            }
            (State::Paused | State::Stopped, _) => Self::Paused,
            (State::Error, Some(Operation::Start)) => Self::Pending,
            (State::Error, _) => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_status() {
        let seen = |operation: Option<Operation>| -> Vec<&str> {
            State::ALL.iter().map(|state| Status::of(*state, operation).as_str()).collect()
        };
        let at_rest = ["Pending", "Pending", "Running", "Paused", "Paused", "Failed", "Terminated"];
        assert_eq!(seen(None), at_rest);
        assert_eq!(seen(Some(Operation::Use)), at_rest);
        assert_eq!(seen(Some(Operation::Renew)), at_rest);
        assert_eq!(seen(Some(Operation::Collect)), at_rest);
        let killed = ["Stopping"; 6].into_iter().chain(["Terminated"]).collect::<Vec<_>>();
        assert_eq!(seen(Some(Operation::Kill)), killed);
    }

    #[test]
    fn what_is_under_way_is_named() {
        for (state, operation, status) in [
            (State::Running, Operation::Pause, Status::Pausing),
            (State::Running, Operation::Stop, Status::Pausing),
            (State::Paused, Operation::Resume, Status::Resuming),
            (State::Stopped, Operation::Start, Status::Resuming),
            (State::Error, Operation::Start, Status::Pending),
        ] {
            assert_eq!(Status::of(state, Some(operation)), status, "{operation} in {state}");
        }
    }
}
