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
//! of the stopped group. Where init follows renames, it finishes those that are under way meanwhile: a thread
//! that waits for its rename cannot be stopped. If init is alone, nothing is stopped: to move init out of a group and back
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
use super::boot_time::BootTime;

/// How long it may take until all processes have stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long until the first check whether they have, and the longest interval.
const FIRST_POLL: Duration = Duration::from_millis(1);
const MAX_POLL: Duration = Duration::from_millis(20);

/// How long the renames that are under way may take until processes are stopped nevertheless.
const RENAMES_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the idle subreaper may take to exit, and how long until the first check.
const EMPTY_TIMEOUT: Duration = Duration::from_millis(5);
const FIRST_EMPTY_POLL: Duration = Duration::from_micros(200);

/// Which clients want a jail's processes to be stopped, and the progress of that.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// A client has paused it.
    pub(super) is_requested: bool,
    /// The clients that hold it, to copy its files.
    pub(super) holders: BTreeSet<ClientId>,
    /// The clients that wait until the processes are stopped.
    pub(super) waiting: Vec<ClientId>,
    /// Init has stopped everything, so the group may be thawed.
    thaw: bool,
    renames: Renames,
    phase: Phase,
}

/// The renames that init makes for its commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Renames {
    /// It makes none.
    #[default]
    None,
    /// Some may be under way.
    Possible,
    /// It was asked to finish those that are under way.
    Finishing { since: BootTime },
    /// None is under way.
    Finished,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Running,
    Settling,
    Emptying {
        since: BootTime,
        poll_after: Duration,
    },
    Stopping {
        by: Method,
        since: BootTime,
        poll_after: Duration,
    },
    Stopped {
        by: Method,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
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
    Idle,
}

/// The next action.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// Send this request to init.
    Send(Request),
    /// Check again after this time.
    Poll(Duration),
    /// Notify the waiting clients: all processes have stopped.
    Stopped,
    /// Notify the waiting clients: the processes have not stopped in time, and are resumed.
    Failed,
    /// Resume init, and do the deferred work.
    Resumed,
}

impl Pause {
    /// The state of a running jail, whose init follows renames or not.
    pub(super) fn following_renames(follows: bool) -> Self {
        let renames = if follows { Renames::Possible } else { Renames::None };
        Self { renames, ..Self::default() }
    }

    /// Records that an earlier keeper has paused the jail.
    pub(super) fn was_paused(&mut self) {
        self.is_requested = true;
        self.phase = Phase::Stopped { by: Method::Group };
    }

    /// Records that init has finished the renames that were under way.
    pub(super) fn renames_finished(&mut self) {
        if matches!(self.renames, Renames::Finishing { .. }) {
            self.renames = Renames::Finished;
        }
    }

    /// Whether commands can be started now.
    pub(super) const fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Records that init has stopped everything by a signal, to end a process. Once is enough.
    pub(super) const fn stopped_by_init(&mut self) {
        self.thaw = matches!(
            self.phase,
            Phase::Stopping { by: Method::Group, .. } | Phase::Stopped { by: Method::Group }
        );
    }

    fn is_wanted(&self) -> bool {
        self.is_requested || !self.holders.is_empty()
    }

    /// Takes one step. Call this whenever something has changed, until there is nothing to do.
    pub(super) fn step(&mut self, group: &Group, init: i32, commands: Commands) -> Step {
        match self.phase {
            Phase::Running if self.is_wanted() => {
                self.phase = Phase::Settling;
                self.step(group, init, commands)
            }
            Phase::Running => Step::Nothing,
            Phase::Settling | Phase::Emptying { .. } if !self.is_wanted() => {
                self.resume(group, init)
            }
            Phase::Settling if commands == Commands::Start => Step::Nothing,
            Phase::Settling if self.renames == Renames::Possible => {
                self.renames = Renames::Finishing { since: BootTime::now() };
                Step::Send(Request::FinishRenames)
            }
            Phase::Settling if !self.renames_may_take().is_zero() => {
                Step::Poll(self.renames_may_take())
            }
            Phase::Settling if commands == Commands::Idle && has_others(group, init) => {
                self.phase =
                    Phase::Emptying { since: BootTime::now(), poll_after: FIRST_EMPTY_POLL };
                Step::Send(Request::Stop { by_signal: false })
            }
            Phase::Emptying { since, poll_after: look }
                if has_others(group, init) && BootTime::now().since(since) < EMPTY_TIMEOUT =>
            {
                self.phase = Phase::Emptying { since, poll_after: look * 2 };
                Step::Poll(look)
            }
            Phase::Settling | Phase::Emptying { .. } => {
                let by = stop(group, init);
                self.phase = Phase::Stopping { by, since: BootTime::now(), poll_after: FIRST_POLL };
                Step::Send(Request::Stop { by_signal: by == Method::Signal })
            }
            Phase::Stopping { .. } | Phase::Stopped { .. } if !self.is_wanted() => {
                self.resume(group, init)
            }
            // A client that copies files has exclusive access to them.
            Phase::Stopping { .. } | Phase::Stopped { .. }
                if self.thaw && self.holders.is_empty() =>
            {
                self.thaw = false;
                if let Phase::Stopping { by, .. } | Phase::Stopped { by } = &mut self.phase {
                    *by = Method::Signal;
                }
                // If thawing fails, the process that is to be ended waits.
                let _ = group.resume(init);
                self.step(group, init, commands)
            }
            Phase::Stopping { by, since, poll_after: look } => {
                match timed(|| have_stopped(by, group, init)) {
                    (Ok(true), _) => {
                        self.phase = Phase::Stopped { by };
                        Step::Stopped
                    }
                    (Ok(false), took) if BootTime::now().since(since) < STOP_TIMEOUT => {
                        // With many processes, a check takes long; the pause between checks gives
                        // others their turn.
                        let next = (look * 2).min(MAX_POLL).max(took * 4);
                        self.phase = Phase::Stopping { by, since, poll_after: next };
                        Step::Poll(look)
                    }
                    (Ok(false) | Err(_), _) => {
                        self.is_requested = false;
                        self.holders.clear();
                        Step::Failed
                    }
                }
            }
            Phase::Stopped { .. } if !self.waiting.is_empty() => Step::Stopped,
            Phase::Stopped { .. } => Step::Nothing,
        }
    }

    /// How long the renames that are under way may still take.
    fn renames_may_take(&self) -> Duration {
        match self.renames {
            Renames::Finishing { since } => {
                RENAMES_TIMEOUT.saturating_sub(BootTime::now().since(since))
            }
            Renames::None | Renames::Possible | Renames::Finished => Duration::ZERO,
        }
    }

    fn resume(&mut self, group: &Group, init: i32) -> Step {
        let phase = std::mem::take(&mut self.phase);
        self.thaw = false;
        if self.renames != Renames::None {
            self.renames = Renames::Possible;
        }
        let was_stopped = !matches!(
            phase,
            Phase::Stopping { by: Method::None, .. } | Phase::Stopped { by: Method::None }
        );
        if was_stopped && group.can_stop() {
            // If the group was not stopped, nothing happens. If init cannot move back into its
            // group, it is not stopped the next time either.
            let _ = group.resume(init);
        }
        Step::Resumed
    }
}

/// Whether there are processes besides init that a group can stop.
fn has_others(group: &Group, init: i32) -> bool {
    group.can_stop() && !group.contains_only(init).unwrap_or(true)
}

fn stop(group: &Group, init: i32) -> Method {
    if group.contains_only(init).unwrap_or(false) {
        Method::None
    } else if group.can_stop() && group.stop(init).is_ok() {
        Method::Group
    } else {
        Method::Signal
    }
}

fn timed<T>(poll: impl FnOnce() -> T) -> (T, Duration) {
    let start = BootTime::now();
    (poll(), BootTime::now().since(start))
}

fn have_stopped(by: Method, group: &Group, init: i32) -> io::Result<bool> {
    match by {
        Method::None => Ok(true),
        Method::Group => group.has_stopped(),
        Method::Signal => watch::have_stopped(init),
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
        assert_eq!(pause.step(&group, NOBODY, Commands::Idle), Step::Nothing);
        pause.is_requested = true;
        assert_eq!(pause.step(&group, NOBODY, Commands::Start), Step::Nothing);
        assert!(!pause.is_running());
        let step = pause.step(&group, NOBODY, Commands::Idle);
        assert_eq!(step, Step::Send(Request::Stop { by_signal: true }));
        assert_eq!(pause.step(&group, NOBODY, Commands::Idle), Step::Stopped);
        assert_eq!(pause.step(&group, NOBODY, Commands::Idle), Step::Nothing);
        // Another client that wants the same is notified immediately.
        pause.waiting.push(ClientId(1));
        assert_eq!(pause.step(&group, NOBODY, Commands::Idle), Step::Stopped);
    }

    #[test]
    fn it_goes_on_when_the_last_lets_go() {
        let group = Group::default();
        let mut pause = Pause::default();
        pause.was_paused();
        pause.holders.insert(ClientId(1));
        pause.is_requested = false;
        assert_eq!(pause.step(&group, NOBODY, Commands::Idle), Step::Nothing);
        pause.holders.clear();
        assert_eq!(pause.step(&group, NOBODY, Commands::Idle), Step::Resumed);
        assert!(pause.is_running());
        pause.is_requested = true;
        assert_eq!(pause.step(&group, NOBODY, Commands::Start), Step::Nothing);
        pause.is_requested = false;
        assert_eq!(pause.step(&group, NOBODY, Commands::Start), Step::Resumed);
    }

    #[test]
    fn renames_are_finished_before_anything_is_stopped() {
        let group = Group::default();
        let mut pause = Pause::following_renames(true);
        // Before it was asked, init has nothing to say.
        pause.renames_finished();
        pause.is_requested = true;
        for _ in 0..2 {
            let step = pause.step(&group, NOBODY, Commands::Run);
            assert_eq!(step, Step::Send(Request::FinishRenames));
            let step = pause.step(&group, NOBODY, Commands::Run);
            assert!(matches!(step, Step::Poll(left) if left <= RENAMES_TIMEOUT), "{step:?}");
            // Nobody wants it any more, and then somebody does.
            pause.is_requested = false;
            assert_eq!(pause.step(&group, NOBODY, Commands::Run), Step::Resumed);
            pause.is_requested = true;
        }
        let step = pause.step(&group, NOBODY, Commands::Run);
        assert_eq!(step, Step::Send(Request::FinishRenames));
        pause.renames_finished();
        let step = pause.step(&group, NOBODY, Commands::Run);
        assert_eq!(step, Step::Send(Request::Stop { by_signal: true }));
        assert_eq!(pause.step(&group, NOBODY, Commands::Run), Step::Stopped);
    }

    #[test]
    fn who_copies_files_is_not_disturbed_by_what_is_to_end() {
        let group = Group::default();
        let mut pause = Pause::default();
        pause.was_paused();
        pause.holders.insert(ClientId(1));
        pause.stopped_by_init();
        assert_eq!(pause.step(&group, NOBODY, Commands::Idle), Step::Nothing);
        assert!(pause.thaw);
        pause.holders.clear();
        assert_eq!(pause.step(&group, NOBODY, Commands::Idle), Step::Nothing);
        assert!(!pause.thaw && !pause.is_running());
        // The group is thawed once, whatever is reported again.
        pause.stopped_by_init();
        assert!(!pause.thaw);
    }
}
