//! How a command of a jail ended, in the form that all responses use.

use stockade_core::ending::{Ending, Step};
use stockade_jail as jail;

/// The ending of a run, from that of a jail.
pub fn of_jail(ending: jail::Ending) -> Ending {
    match ending {
        jail::Ending::Exited(code) => Ending::Exited(code),
        jail::Ending::Signaled(signal) => Ending::Signaled(signal),
        jail::Ending::Stopped(signal) => Ending::Stopped(signal),
        jail::Ending::TimedOut => Ending::TimedOut,
        jail::Ending::OutOfMemory => Ending::OutOfMemory,
        jail::Ending::OutputExceeded => Ending::OutputExceeded,
        jail::Ending::LimitExceeded(limit) => Ending::LimitExceeded(limit.to_owned()),
        jail::Ending::NotEntered(errno) => Ending::NotRun { errno, step: Step::EnterDirectory },
        jail::Ending::NotRun(errno) => Ending::NotRun { errno, step: Step::RunProgram },
    }
}
