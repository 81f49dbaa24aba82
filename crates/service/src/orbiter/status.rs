//! The states of a sandbox as Orbiter names them, with Orbiter's own table.

use stockade_core::{CannotTransition, State, names};

names! {
    /// Orbiter's `SandboxStatus`.
    pub enum Status: "status" {
        /// Created but not started.
        Init = "init",
        /// Active and accepting tool calls.
        Running = "running",
        /// Stopped, can be started again.
        Idle = "idle",
        /// Failed, can be started again.
        Error = "error",
        /// Shut down for good.
        Closed = "closed",
    }
}

names! {
    /// A call that changes the status.
    pub enum Call: "call" {
        /// Start the environment, for the first time or again.
        Start = "start",
        /// Stop it; it may be started again.
        Stop = "stop",
        /// Release everything and close for good.
        Cleanup = "cleanup",
    }
}

impl Status {
    /// Orbiter's name of a state. A sandbox that is being created is not started yet, so `init`.
    pub const fn from_state(state: State) -> Self {
        match state {
            State::New | State::Creating => Self::Init,
            State::Running => Self::Running,
            State::Paused | State::Stopped => Self::Idle,
            State::Error => Self::Error,
            State::Terminated => Self::Closed,
        }
    }

    /// The status `to`, if Orbiter's table has that transition.
    ///
    /// # Errors
    /// [`CannotTransition`] otherwise, also from a status to itself.
    pub fn transition_to(self, to: Self) -> Result<Self, CannotTransition<Self>> {
        let allowed = match (self, to) {
            (Self::Init | Self::Idle | Self::Error, Self::Running)
            | (Self::Running, Self::Idle)
            | (Self::Running | Self::Idle, Self::Error) => true,
            (from, Self::Closed) => !matches!(from, Self::Closed),
            _ => false,
        };
        if allowed { Ok(to) } else { Err(CannotTransition { from: self, to }) }
    }
}

impl Call {
    /// The status that the call leads to.
    pub const fn target(self) -> Status {
        match self {
            Self::Start => Status::Running,
            Self::Stop => Status::Idle,
            Self::Cleanup => Status::Closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of Orbiter, each status with its allowed targets.
    const TABLE: [(Status, &[Status]); 5] = {
        use Status::{Closed, Error, Idle, Init, Running};
        [
            (Init, &[Running, Closed]),
            (Running, &[Idle, Error, Closed]),
            (Idle, &[Running, Error, Closed]),
            (Error, &[Running, Closed]),
            (Closed, &[]),
        ]
    };

    #[test]
    fn the_table_of_orbiter_holds_whole() {
        for (from, targets) in TABLE {
            for to in Status::ALL {
                match from.transition_to(*to) {
                    Ok(reached) => assert!(targets.contains(to) && reached == *to, "{from} {to}"),
                    Err(error) => {
                        assert!(!targets.contains(to), "{from} {to}");
                        let text = format!("Cannot transition from {from} to {to}");
                        assert_eq!(error.to_string(), text);
                    }
                }
            }
        }
    }

    #[test]
    fn what_the_machine_can_do_orbiter_can_see() {
        for from in State::ALL {
            for to in from.successors() {
                let (seen_from, seen_to) = (Status::from_state(*from), Status::from_state(*to));
                // A start that fails is seen as `init` that turns to `error`.
                let failed_start = (*from, *to) == (State::Creating, State::Error);
                let allowed = seen_from == seen_to || seen_from.transition_to(seen_to).is_ok();
                assert!(allowed || failed_start, "{from} to {to}");
            }
        }
    }

    #[test]
    fn each_state_has_its_status() {
        let seen: Vec<_> =
            State::ALL.iter().map(|state| Status::from_state(*state).as_str()).collect();
        assert_eq!(seen, ["init", "init", "running", "idle", "idle", "error", "closed"]);
        let targets: Vec<_> = Call::ALL.iter().map(|call| call.target().as_str()).collect();
        assert_eq!(targets, ["running", "idle", "closed"]);
    }
}
