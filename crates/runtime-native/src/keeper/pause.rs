//! Stopping every process of a jail, as long as a client wants that.
//!
//! ```text
//!         a client wants it           nothing is being started      all have stopped
//!   Going ─────────────────► Settling ────────────────────────► Stopping ───────────► Stopped
//!     ▲                         │ │     no command runs            ▲ │                   │
//!     │                         │ └────────────────► Emptying ─────┘ │                   │
//!     │                         │                       │            │                   │
//!     └─────────────────────────┴───────────────────────┴────────────┴───────────────────┘
//!                              no client wants it any more
//! ```
//!
//! The keeper waits for a command that is being started, since its process could be created outside
//! of the stopped group. If init is alone, nothing is stopped: to move init out of a group and back
//! takes the kernel longer than all the rest. So if no command runs, the keeper first notifies
//! init, which makes the idle subreaper exit, and waits a moment for that. Control groups stop
//! processes if they can; else init does so by a signal. To end a process that a group has stopped,
//! init stops everything by a signal too, and then the group is thawed.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use stockade_jail::cgroup::Group;
use stockade_jail::control::Request;
use stockade_jail::watch;

use super::ClientId;
use super::moment::Moment;

/// How long it may take until all processes have stopped.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long until the first check whether they have, and the longest interval.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LATER_LOOK: Duration = Duration::from_millis(20);

/// How long the idle subreaper may take to exit, and how long until the first check.
const LEAVING: Duration = Duration::from_millis(5);
const FIRST_LOOK_EMPTY: Duration = Duration::from_micros(200);

/// Which clients want a jail's processes to be stopped, and the progress of that.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// A client has paused it.
    pub(super) asked: bool,
    /// The clients that hold it, to copy its files.
    pub(super) holders: BTreeSet<ClientId>,
    /// The clients that wait until the processes are stopped.
    pub(super) waiting: Vec<ClientId>,
    /// Init has stopped everything, so the group may be thawed.
    thaw: bool,
    phase: Phase,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Going,
    Settling,
    Emptying {
        since: Moment,
        look: Duration,
    },
    Stopping {
        by: Means,
        since: Moment,
        look: Duration,
    },
    Stopped {
        by: Means,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    /// There was nothing to stop.
    None,
    Group,
    Signal,
}

/// The activity of a jail's commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commands {
    /// One is being started.
    Start,
    /// At least one runs, and none is being started.
    Run,
    /// None runs; descendants of an ended one may.
    Rest,
}

/// The next action.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// Send this request to init.
    Say(Request),
    /// Check again after this time.
    Look(Duration),
    /// Notify the waiting clients: all processes have stopped.
    Stopped,
    /// Notify the waiting clients: the processes have not stopped in time, and are resumed.
    Failed,
    /// Resume init, and do the deferred work.
    GoesOn,
}

impl Pause {
    /// The state of a jail that an earlier keeper has paused.
    pub(super) fn found() -> Self {
        Self { asked: true, phase: Phase::Stopped { by: Means::Group }, ..Self::default() }
    }

    /// Whether commands can be started now.
    pub(super) const fn is_going(&self) -> bool {
        matches!(self.phase, Phase::Going)
    }

    /// Records that init has stopped everything by a signal, to end a process. Once is enough.
    pub(super) const fn stopped_by_init(&mut self) {
        self.thaw = matches!(
            self.phase,
            Phase::Stopping { by: Means::Group, .. } | Phase::Stopped { by: Means::Group }
        );
    }

    fn is_wanted(&self) -> bool {
        self.asked || !self.holders.is_empty()
    }

    /// Takes one step. Call this whenever something has changed, until there is nothing to do.
    pub(super) fn step(&mut self, group: &Group, init: i32, commands: Commands) -> Step {
        match self.phase {
            Phase::Going if self.is_wanted() => {
                self.phase = Phase::Settling;
                self.step(group, init, commands)
            }
            Phase::Going => Step::Nothing,
            Phase::Settling | Phase::Emptying { .. } if !self.is_wanted() => {
                self.go_on(group, init)
            }
            Phase::Settling if commands == Commands::Start => Step::Nothing,
            Phase::Settling if commands == Commands::Rest && has_others(group, init) => {
                self.phase = Phase::Emptying { since: Moment::now(), look: FIRST_LOOK_EMPTY };
                Step::Say(Request::Stop { by_signal: false })
            }
            Phase::Emptying { since, look }
                if has_others(group, init) && Moment::now().since(since) < LEAVING =>
            {
                self.phase = Phase::Emptying { since, look: look * 2 };
                Step::Look(look)
            }
            Phase::Settling | Phase::Emptying { .. } => {
                let by = stop(group, init);
                self.phase = Phase::Stopping { by, since: Moment::now(), look: FIRST_LOOK };
                Step::Say(Request::Stop { by_signal: by == Means::Signal })
            }
            Phase::Stopping { .. } | Phase::Stopped { .. } if !self.is_wanted() => {
                self.go_on(group, init)
            }
            // A client that copies files has exclusive access to them.
            Phase::Stopping { .. } | Phase::Stopped { .. }
                if self.thaw && self.holders.is_empty() =>
            {
                self.thaw = false;
                if let Phase::Stopping { by, .. } | Phase::Stopped { by } = &mut self.phase {
                    *by = Means::Signal;
                }
                // If thawing fails, the process that is to be ended waits.
                let _ = group.go_on(init);
                self.step(group, init, commands)
            }
            Phase::Stopping { by, since, look } => match timed(|| have_stopped(by, group, init)) {
                (Ok(true), _) => {
                    self.phase = Phase::Stopped { by };
                    Step::Stopped
                }
                (Ok(false), took) if Moment::now().since(since) < PATIENCE => {
                    // With many processes, a check takes long; the pause between checks gives
                    // others their turn.
                    let next = (look * 2).min(LATER_LOOK).max(took * 4);
                    self.phase = Phase::Stopping { by, since, look: next };
                    Step::Look(look)
                }
                (Ok(false) | Err(_), _) => {
                    self.asked = false;
                    self.holders.clear();
                    Step::Failed
                }
            },
            Phase::Stopped { .. } if !self.waiting.is_empty() => Step::Stopped,
            Phase::Stopped { .. } => Step::Nothing,
        }
    }

    fn go_on(&mut self, group: &Group, init: i32) -> Step {
        let phase = std::mem::take(&mut self.phase);
        self.thaw = false;
        let was_stopped = !matches!(
            phase,
            Phase::Stopping { by: Means::None, .. } | Phase::Stopped { by: Means::None }
        );
        if was_stopped && group.can_stop() {
            // If the group was not stopped, nothing happens. If init cannot move back into its
            // group, it is not stopped the next time either.
            let _ = group.go_on(init);
        }
        Step::GoesOn
    }
}

/// Whether there are processes besides init that a group can stop.
fn has_others(group: &Group, init: i32) -> bool {
    group.can_stop() && !group.has_none_but(init).unwrap_or(true)
}

fn stop(group: &Group, init: i32) -> Means {
    if group.has_none_but(init).unwrap_or(false) {
        Means::None
    } else if group.can_stop() && group.stop(init).is_ok() {
        Means::Group
    } else {
        Means::Signal
    }
}

fn timed<T>(look: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Moment::now();
    (look(), Moment::now().since(begun))
}

fn have_stopped(by: Means, group: &Group, init: i32) -> io::Result<bool> {
    match by {
        Means::None => Ok(true),
        Means::Group => group.has_stopped(),
        Means::Signal => watch::have_stopped(init),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process: everything below it has stopped.
    const NOBODY: i32 = i32::MAX;

    #[test]
    fn what_is_being_started_is_waited_for() {
        let group = Group::default();
        let mut pause = Pause::default();
        assert_eq!(pause.step(&group, NOBODY, Commands::Rest), Step::Nothing);
        pause.asked = true;
        assert_eq!(pause.step(&group, NOBODY, Commands::Start), Step::Nothing);
        assert!(!pause.is_going());
        let said = pause.step(&group, NOBODY, Commands::Rest);
        assert_eq!(said, Step::Say(Request::Stop { by_signal: true }));
        assert_eq!(pause.step(&group, NOBODY, Commands::Rest), Step::Stopped);
        assert_eq!(pause.step(&group, NOBODY, Commands::Rest), Step::Nothing);
        // Another client that wants the same is notified immediately.
        pause.waiting.push(ClientId(1));
        assert_eq!(pause.step(&group, NOBODY, Commands::Rest), Step::Stopped);
    }

    #[test]
    fn it_goes_on_when_the_last_lets_go() {
        let group = Group::default();
        let mut pause = Pause::found();
        pause.holders.insert(ClientId(1));
        pause.asked = false;
        assert_eq!(pause.step(&group, NOBODY, Commands::Rest), Step::Nothing);
        pause.holders.clear();
        assert_eq!(pause.step(&group, NOBODY, Commands::Rest), Step::GoesOn);
        assert!(pause.is_going());
        pause.asked = true;
        assert_eq!(pause.step(&group, NOBODY, Commands::Start), Step::Nothing);
        pause.asked = false;
        assert_eq!(pause.step(&group, NOBODY, Commands::Start), Step::GoesOn);
    }

    #[test]
    fn who_copies_files_is_not_disturbed_by_what_is_to_end() {
        let group = Group::default();
        let mut pause = Pause::found();
        pause.holders.insert(ClientId(1));
        pause.stopped_by_init();
        assert_eq!(pause.step(&group, NOBODY, Commands::Rest), Step::Nothing);
        assert!(pause.thaw);
        pause.holders.clear();
        assert_eq!(pause.step(&group, NOBODY, Commands::Rest), Step::Nothing);
        assert!(!pause.thaw && !pause.is_going());
        // The group is thawed once, whatever is reported again.
        pause.stopped_by_init();
        assert!(!pause.thaw);
    }
}
