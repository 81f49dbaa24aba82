//! The lifecycle of a sandbox: one state machine, and which operations each state allows. Dialects
//! have their own names for these states, each defined in the crate of the dialect.
//!
//! ```text
//!                         ┌──► paused ────┬──► stopped
//!                         ▼               │
//! new ──► creating ──► running ───────────┼──► error ──► running
//!            │            ▲               │      ▲
//!            │            └──► stopped ───┤      │
//!            └────────────────────────────┴──────┘
//!
//! each of these ──► terminated
//! ```
//!
//! A paused sandbox stops when it expires or when its processes are lost.
//!
//! A sandbox is `running` only once it is ready. During a transition it stays in the state that it
//! came from until the transition is complete; the transition in progress is an [`Operation`].

use crate::error::{Code, Problem};
use crate::names::names;

names! {
    /// The state of a sandbox.
    pub enum State: "state" {
        /// Recorded, but nothing was created for it yet.
        New = "new",
        /// Being created for the first time.
        Creating = "creating",
        /// Ready for commands.
        Running = "running",
        /// Its processes are frozen, in memory.
        Paused = "paused",
        /// Its processes have ended, its files exist.
        Stopped = "stopped",
        /// It failed; its resources were released.
        Error = "error",
        /// Ended permanently.
        Terminated = "terminated",
    }
}

/// A transition that the state machine does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Cannot transition from {from} to {to}")]
pub struct CannotTransition<S: std::fmt::Display = State> {
    /// The current state, which is unchanged.
    pub from: S,
    /// The requested state.
    pub to: S,
}

impl State {
    /// The states that can follow directly.
    pub const fn successors(self) -> &'static [Self] {
        match self {
            Self::New => &[Self::Creating, Self::Terminated],
            Self::Creating => &[Self::Running, Self::Error, Self::Terminated],
            Self::Running => &[Self::Paused, Self::Stopped, Self::Error, Self::Terminated],
            Self::Paused => &[Self::Running, Self::Stopped, Self::Error, Self::Terminated],
            Self::Stopped => &[Self::Running, Self::Error, Self::Terminated],
            Self::Error => &[Self::Running, Self::Terminated],
            Self::Terminated => &[],
        }
    }

    /// The state `to`, if it can follow.
    ///
    /// # Errors
    /// [`CannotTransition`] if the machine has no such transition, also from a state to itself.
    pub fn transition_to(self, to: Self) -> Result<Self, CannotTransition> {
        if self.successors().contains(&to) {
            Ok(to)
        } else {
            Err(CannotTransition { from: self, to })
        }
    }

    /// Whether nothing can follow.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Terminated)
    }

    /// Whether an operation may start now, and the state after it succeeds.
    ///
    /// # Errors
    /// [`InvalidTransition`] with the reason. [`Operation::Kill`] is never refused: it is idempotent.
    pub const fn apply(self, operation: Operation) -> Result<Self, InvalidTransition> {
        use Operation::{Collect, Kill, Pause, Renew, Resume, Start, Stop, Use};
        match (operation, self) {
            (Kill, _) => Ok(Self::Terminated),
            (_, Self::Terminated) => Err(InvalidTransition::Terminated { operation }),
            // An operation whose end is reached already succeeds, except for a pause (FireFlow).
            (Start, Self::New | Self::Stopped | Self::Error | Self::Running)
            | (Resume, Self::Paused | Self::Running) => Ok(Self::Running),
            (Stop, Self::Running | Self::Paused | Self::Stopped) => Ok(Self::Stopped),
            (Pause, Self::Running) => Ok(Self::Paused),
            (Use, Self::Running) => Ok(Self::Running),
            (Collect, Self::Running | Self::Paused | Self::Stopped) => Ok(self),
            (Renew, state) => Ok(state),
            (_, state) => Err(InvalidTransition::State { operation, state }),
        }
    }
}

names! {
    /// An operation on a sandbox, as far as its state matters.
    pub enum Operation: "operation" {
        /// Create it, or create it again.
        Start = "start",
        /// End its processes and keep its files.
        Stop = "stop",
        /// Freeze its processes.
        Pause = "pause",
        /// Continue its processes.
        Resume = "resume",
        /// Change its expiry time.
        Renew = "renew",
        /// Anything that needs it running: a command, a file, a port, a snapshot.
        Use = "use",
        /// Collect its workspace changes, which exist as long as its files do.
        Collect = "collect",
        /// End it permanently.
        Kill = "kill",
    }
}

/// An operation that the state does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTransition {
    /// The sandbox has ended permanently.
    #[error("cannot {operation} it: the sandbox is terminated")]
    Terminated {
        /// The operation.
        operation: Operation,
    },
    /// The sandbox is in another state than the operation needs.
    #[error("cannot {operation} it: the sandbox is {state} but must be {}", operation.required_state())]
    State {
        /// The operation.
        operation: Operation,
        /// The current state.
        state: State,
    },
}

impl From<InvalidTransition> for Problem {
    fn from(refused: InvalidTransition) -> Self {
        let code = match refused {
            InvalidTransition::Terminated { .. } => Code::SandboxTerminated,
            InvalidTransition::State { .. } => Code::InvalidState,
        };
        Self::new(code, refused.to_string())
    }
}

impl<S: std::fmt::Display> From<CannotTransition<S>> for Problem {
    fn from(error: CannotTransition<S>) -> Self {
        Self::new(Code::InvalidState, error.to_string())
    }
}

impl Operation {
    /// The states in which it can start, in words.
    const fn required_state(self) -> &'static str {
        match self {
            Self::Start => "new, stopped, in error or running",
            Self::Use | Self::Pause => "running",
            Self::Stop => "running, paused or stopped",
            Self::Resume => "running or paused",
            Self::Collect => "running, paused or stopped",
            Self::Renew | Self::Kill => "there",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row: from. Column: to. Both in the order of `State::ALL`.
    const TABLE: [[bool; 7]; 7] = {
        const O: bool = false;
        const X: bool = true;
        //  new cre run pau sto err ter
        [
            [O, X, O, O, O, O, X], // new
            [O, O, X, O, O, X, X], // creating
            [O, O, O, X, X, X, X], // running
            [O, O, X, O, X, X, X], // paused
            [O, O, X, O, O, X, X], // stopped
            [O, O, X, O, O, O, X], // error
            [O, O, O, O, O, O, O], // terminated
        ]
    };

    #[test]
    fn the_machine_has_these_steps_and_no_other() {
        for (row, from) in TABLE.iter().zip(State::ALL) {
            for (allowed, to) in row.iter().zip(State::ALL) {
                let expected = if *allowed { Ok(*to) } else { Err((*from, *to)) };
                let step = from.transition_to(*to).map_err(|error| (error.from, error.to));
                assert_eq!(step, expected, "{from} to {to}");
            }
        }
        let error = State::New.transition_to(State::Paused).unwrap_err();
        assert_eq!(error.to_string(), "Cannot transition from new to paused");
    }

    #[test]
    fn operations_are_admitted_by_state() {
        use State::{Creating, Error, New, Paused, Running, Stopped, Terminated};
        let admitted = |operation| {
            let ends = State::ALL.iter().map(|state| (*state, state.apply(operation)));
            ends.filter_map(|(state, end)| end.ok().map(|end| (state, end))).collect::<Vec<_>>()
        };
        let cases: [(_, &[(State, State)]); 7] = [
            (
                Operation::Start,
                &[(New, Running), (Running, Running), (Stopped, Running), (Error, Running)],
            ),
            (Operation::Stop, &[(Running, Stopped), (Paused, Stopped), (Stopped, Stopped)]),
            (Operation::Pause, &[(Running, Paused)]),
            (Operation::Resume, &[(Running, Running), (Paused, Running)]),
            (Operation::Use, &[(Running, Running)]),
            (Operation::Collect, &[Running, Paused, Stopped].map(|state| (state, state))),
            (
                Operation::Renew,
                &[New, Creating, Running, Paused, Stopped, Error].map(|state| (state, state)),
            ),
        ];
        for (operation, expected) in cases {
            assert_eq!(admitted(operation), expected, "{operation}");
            assert_eq!(
                Terminated.apply(operation),
                Err(InvalidTransition::Terminated { operation }),
                "{operation}"
            );
        }
        assert!(State::ALL.iter().all(|state| state.apply(Operation::Kill) == Ok(Terminated)));
        assert_eq!(
            Paused.apply(Operation::Pause).unwrap_err().to_string(),
            "cannot pause it: the sandbox is paused but must be running"
        );
    }

    #[test]
    fn an_operation_ends_where_the_machine_can_go() {
        for state in State::ALL {
            for operation in Operation::ALL {
                let Ok(end) = state.apply(*operation) else { continue };
                let direct = end == *state || state.transition_to(end).is_ok();
                let made = *state == State::New && State::Creating.transition_to(end).is_ok();
                assert!(direct || made, "{operation} in {state}");
            }
        }
    }
}
