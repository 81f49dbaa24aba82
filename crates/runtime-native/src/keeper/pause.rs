//! Stopping every process of a jail, for as long as somebody wants that.
//!
//! ```text
//!         somebody wants it           nothing is being started      all have stopped
//!   Going ─────────────────► Settling ────────────────────────► Stopping ───────────► Stopped
//!     ▲                         │ │     no command runs            ▲ │                   │
//!     │                         │ └────────────────► Emptying ─────┘ │                   │
//!     │                         │                       │            │                   │
//!     └─────────────────────────┴───────────────────────┴────────────┴───────────────────┘
//!                              nobody wants it any more
//! ```
//!
//! A command that is being started could be born outside of what is stopped, so that is waited
//! for. Where there is nothing but init, nothing is stopped: to move init out of a group and back
//! takes the kernel longer than all the rest. So where no command runs, init is told first, which
//! has what waits for a command leave, and that is waited for a moment. Control groups stop where they can; else init does by a
//! signal. To end something that a
//! group has stopped, init stops everything by a signal too, and the group lets go then.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use stockade_jail::cgroup::Group;
use stockade_jail::control::Request;
use stockade_jail::watch;

use super::ClientId;
use super::moment::Moment;

/// How long it may take until all have stopped.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long until it is first looked again whether they have, and at most.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LATER_LOOK: Duration = Duration::from_millis(20);

/// How long what waits for a command may take to leave, and how long until it is first looked.
const LEAVING: Duration = Duration::from_millis(5);
const FIRST_LOOK_EMPTY: Duration = Duration::from_micros(200);

/// Who wants a jail's processes to be stopped, and how far that is.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// Somebody has paused it.
    pub(super) asked: bool,
    /// Who holds it still, to copy its files.
    pub(super) holders: BTreeSet<ClientId>,
    /// Who waits until they are stopped.
    pub(super) waiting: Vec<ClientId>,
    /// Init has stopped everything, so that the group need not any more.
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

/// What the commands of a jail do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commands {
    /// One is being started.
    Start,
    /// One runs, and none is being started.
    Run,
    /// None runs; what one has left may.
    Rest,
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// Say this to init.
    Say(Request),
    /// Look again after so long.
    Look(Duration),
    /// Tell those who wait: all have stopped.
    Stopped,
    /// Tell those who wait: they have not stopped in time, and go on.
    Failed,
    /// Let init go on, and do what had to wait.
    GoesOn,
}

impl Pause {
    /// A jail that another keeper has paused.
    pub(super) fn found() -> Self {
        Self { asked: true, phase: Phase::Stopped { by: Means::Group }, ..Self::default() }
    }

    /// Whether commands can be started now.
    pub(super) const fn is_going(&self) -> bool {
        matches!(self.phase, Phase::Going)
    }

    /// Notes that init has stopped everything by a signal, to end something. Once is enough.
    pub(super) const fn stopped_by_init(&mut self) {
        self.thaw = matches!(
            self.phase,
            Phase::Stopping { by: Means::Group, .. } | Phase::Stopped { by: Means::Group }
        );
    }

    fn is_wanted(&self) -> bool {
        self.asked || !self.holders.is_empty()
    }

    /// Takes one step; to be called until there is nothing to do, whenever something has changed.
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
            // Who copies files has them to himself.
            Phase::Stopping { .. } | Phase::Stopped { .. }
                if self.thaw && self.holders.is_empty() =>
            {
                self.thaw = false;
                if let Phase::Stopping { by, .. } | Phase::Stopped { by } = &mut self.phase {
                    *by = Means::Signal;
                }
                // Where it is not thawed, what is to be ended waits.
                let _ = group.go_on(init);
                self.step(group, init, commands)
            }
            Phase::Stopping { by, since, look } => match timed(|| have_stopped(by, group, init)) {
                (Ok(true), _) => {
                    self.phase = Phase::Stopped { by };
                    Step::Stopped
                }
                (Ok(false), took) if Moment::now().since(since) < PATIENCE => {
                    // Where there are many processes, others have their turn between looks.
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
            // Where it was not stopped, nothing happens. Init that cannot come back in is not
            // stopped the next time either.
            let _ = group.go_on(init);
        }
        Step::GoesOn
    }
}

/// Whether there is something to stop besides init, by a group.
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
        // Another who wants the same is told at once.
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
        // It is let go once, whatever is said again.
        pause.stopped_by_init();
        assert!(!pause.thaw);
    }
}
