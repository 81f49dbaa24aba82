//! The states of a sandbox as the rows of Smithers name them: a row is `pending` until
//! its request is sent, `shipped` until its result is there, and then what the result says.

use super::State;
use crate::names::names;

names! {
    /// How the work in a sandbox ended.
    pub enum Outcome: "outcome" {
        /// It came to its result.
        Finished = "finished",
        /// It failed.
        Failed = "failed",
        /// It was given up.
        Cancelled = "cancelled",
    }
}

names! {
    /// The column `status` of a sandbox's row.
    pub enum Status: "status" {
        /// Nothing was sent to it yet.
        Pending = "pending",
        /// Its request was sent.
        Shipped = "shipped",
        /// Its work came to a result.
        Finished = "finished",
        /// Its work failed, or the sandbox itself.
        Failed = "failed",
        /// Its work was given up.
        Cancelled = "cancelled",
    }
}

impl Status {
    /// What Smithers calls a state, once its work has ended or before. A sandbox that is gone
    /// without a result was given up.
    pub const fn of(state: State, outcome: Option<Outcome>) -> Self {
        match (outcome, state) {
            (Some(Outcome::Finished), _) => Self::Finished,
            (Some(Outcome::Failed), _) | (None, State::Error) => Self::Failed,
            (Some(Outcome::Cancelled), _) | (None, State::Terminated) => Self::Cancelled,
            (None, State::New | State::Creating) => Self::Pending,
            (None, State::Running | State::Paused | State::Stopped) => Self::Shipped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_status() {
        let seen = State::ALL.iter().map(|state| Status::of(*state, None).as_str());
        let expected =
            ["pending", "pending", "shipped", "shipped", "shipped", "failed", "cancelled"];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
        for outcome in Outcome::ALL {
            for state in State::ALL {
                assert_eq!(Status::of(*state, Some(*outcome)).as_str(), outcome.as_str());
            }
        }
    }
}
