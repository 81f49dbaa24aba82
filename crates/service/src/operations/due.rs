//! When a sandbox changes by itself, and how: the decisions of its watcher. No code here acts.

use std::time::Duration;

use stockade_api::{ExpiryAction, IdleAction};
use stockade_core::State;
use stockade_core::event::Reason;

use crate::store::sandboxes::SandboxRow;

/// How long the files of a sandbox remain that stopped by itself.
pub(crate) const RETENTION: Duration = Duration::from_hours(24);

/// How long until the removal of files is tried again whose changes could not be stored.
const RETRY: Duration = Duration::from_hours(1);

/// What a watcher does with its sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing any more: the sandbox is terminated.
    Ended,
    /// Its processes end, and its files remain.
    Stop(Reason),
    /// It is terminated.
    Terminate(Reason),
    /// It is paused.
    PauseIdle,
    /// It is paused, and does not expire any more.
    PauseExpired,
}

impl SandboxRow {
    /// The action when it expires, and when its processes are lost.
    pub(crate) fn on_expiry(&self) -> ExpiryAction {
        self.request.on_expiry.unwrap_or_default()
    }

    /// When its files are removed, in milliseconds since 1970; `None` if they remain until it is
    /// killed, and while it has processes.
    pub(crate) fn removal(&self) -> Option<i64> {
        let has_files = match self.state {
            State::Stopped => true,
            State::Error => self.files.is_some(),
            _ => false,
        };
        if !has_files {
            return None;
        }
        match self.on_expiry() {
            ExpiryAction::Stop | ExpiryAction::Pause if self.request.keep => None,
            ExpiryAction::Stop | ExpiryAction::Pause => {
                self.remove_at.or_else(|| self.expires_at.map(|at| later(at, RETENTION)))
            }
            ExpiryAction::Terminate => self.remove_at.or(self.expires_at),
        }
    }

    /// Schedules the removal of its files, now that it stops by itself.
    pub(crate) fn schedule_removal(&mut self, now: i64) {
        self.remove_at = (!self.request.keep).then(|| later(now, RETENTION));
    }

    /// Postpones the removal of its files until some time after `end`, as if it expired then.
    pub(crate) fn extend_removal(&mut self, end: i64) {
        let at = later(end, RETENTION);
        self.remove_at = self.remove_at.map(|before| before.max(at));
    }

    /// Schedules another attempt to remove its files.
    pub(crate) fn postpone_removal(&mut self, now: i64) {
        self.remove_at = (!self.request.keep).then(|| later(now, RETRY));
    }
}

/// The verdict for a sandbox whose TTL has expired or whose processes have ended.
pub(crate) fn ending(row: &SandboxRow, reason: Reason) -> Verdict {
    let has_run = matches!(row.state, State::Running | State::Paused);
    match row.on_expiry() {
        ExpiryAction::Pause if row.state == State::Running && reason == Reason::Expired => {
            Verdict::PauseExpired
        }
        ExpiryAction::Stop | ExpiryAction::Pause if has_run => Verdict::Stop(reason),
        ExpiryAction::Stop | ExpiryAction::Pause | ExpiryAction::Terminate => {
            Verdict::Terminate(reason)
        }
    }
}

/// The times at which a sandbox changes by itself, in milliseconds since 1970. `last_used` is the
/// time of its last use.
pub(crate) fn due(row: &SandboxRow, last_used: i64) -> Vec<(i64, Verdict)> {
    if row.damaged {
        // What it holds is unknown, so only its owner may end it.
        return Vec::new();
    }
    let expired = row.expires_at.map(|at| (at, ending(row, Reason::Expired)));
    match row.state {
        State::Terminated => Vec::new(),
        State::Stopped => removal(row),
        State::Error if row.files.is_some() => removal(row),
        State::New if row.request.keep => Vec::new(),
        State::New | State::Creating | State::Error | State::Paused => {
            expired.into_iter().collect()
        }
        State::Running => expired.into_iter().chain(idle(row, last_used)).collect(),
    }
}

fn removal(row: &SandboxRow) -> Vec<(i64, Verdict)> {
    row.removal().map(|at| (at, Verdict::Terminate(Reason::Expired))).into_iter().collect()
}

fn idle(row: &SandboxRow, last_used: i64) -> Option<(i64, Verdict)> {
    let verdict = match row.on_idle {
        IdleAction::Pause => Verdict::PauseIdle,
        IdleAction::Stop => Verdict::Stop(Reason::Idle),
        IdleAction::Terminate => Verdict::Terminate(Reason::Idle),
    };
    Some((last_used.saturating_add(row.idle_timeout_ms?), verdict))
}

fn later(at: i64, length: Duration) -> i64 {
    at.saturating_add(i64::try_from(length.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use stockade_api::CreateSandbox;
    use stockade_core::access::Rules;
    use stockade_core::{OwnerId, SandboxId, SnapshotId};

    use super::*;

    const DAY: i64 = 24 * 3600 * 1000;

    fn row(state: State, change: impl FnOnce(&mut SandboxRow)) -> SandboxRow {
        let mut row = SandboxRow {
            incarnation: String::new(),
            id: SandboxId::new("a").unwrap(),
            owner: OwnerId::new("u1").unwrap(),
            state,
            reason: None,
            image: "host".to_owned(),
            visibility: "private".to_owned(),
            requested_runtime: None,
            runtime: "fake".to_owned(),
            execution_id: None,
            workflow_id: None,
            workspace_id: None,
            rules: Rules::default(),
            created_at: 0,
            expires_at: Some(1000),
            terminated_at: None,
            request: CreateSandbox::default(),
            idle_timeout_ms: None,
            on_idle: IdleAction::Pause,
            last_used_at: 0,
            idle_paused: false,
            files: None,
            remove_at: None,
            bundle: None,
            is_bundled: false,
            generation: 1,
            host: "local".to_owned(),
            damaged: false,
        };
        change(&mut row);
        row
    }

    fn terminating(row: &mut SandboxRow) {
        row.request.on_expiry = Some(ExpiryAction::Terminate);
    }

    fn kept(row: &mut SandboxRow) {
        row.request.keep = true;
    }

    fn at(end: i64, verdict: Verdict) -> Vec<(i64, Verdict)> {
        vec![(end, verdict)]
    }

    #[test]
    fn an_expired_sandbox_stops_where_it_has_run_and_ends_where_it_has_not() {
        use State::{Creating, Error, New, Paused, Running, Stopped, Terminated};
        let stop = Verdict::Stop(Reason::Expired);
        let end = Verdict::Terminate(Reason::Expired);
        for (state, by_default, terminating_, kept_) in [
            (New, at(1000, end), at(1000, end), vec![]),
            (Creating, at(1000, end), at(1000, end), at(1000, end)),
            (Running, at(1000, stop), at(1000, end), at(1000, stop)),
            (Paused, at(1000, stop), at(1000, end), at(1000, stop)),
            (Stopped, at(1000 + DAY, end), at(1000, end), vec![]),
            (Error, at(1000, end), at(1000, end), at(1000, end)),
            (Terminated, vec![], vec![], vec![]),
        ] {
            assert_eq!(due(&row(state, |_| {}), 0), by_default, "{state}");
            assert_eq!(due(&row(state, terminating), 0), terminating_, "{state}");
            assert_eq!(due(&row(state, kept), 0), kept_, "{state}");
            assert_eq!(due(&row(state, |row| row.damaged = true), 0), [], "{state}");
            let endless = row(state, |row| row.expires_at = None);
            assert_eq!(due(&endless, 0), [], "{state}");
        }
    }

    #[test]
    fn files_are_removed_a_day_after_a_sandbox_stopped_by_itself() {
        let end = Verdict::Terminate(Reason::Expired);
        let mut stopped = row(State::Stopped, |row| row.expires_at = None);
        assert_eq!(stopped.removal(), None, "its owner has stopped it");
        stopped.schedule_removal(5000);
        assert_eq!((stopped.removal(), due(&stopped, 0)), (Some(5000 + DAY), at(5000 + DAY, end)));
        stopped.extend_removal(4000);
        assert_eq!(stopped.removal(), Some(5000 + DAY));
        stopped.extend_removal(6000);
        assert_eq!(stopped.removal(), Some(6000 + DAY));
        stopped.postpone_removal(7000);
        assert_eq!(stopped.removal(), Some(7000 + 3600 * 1000));
        let mut kept = row(State::Stopped, kept);
        kept.schedule_removal(5000);
        assert_eq!((kept.remove_at, kept.removal()), (None, None));
        // A start that failed has left the files in a snapshot.
        let with_files = |row: &mut SandboxRow| row.files = SnapshotId::new("s").ok();
        assert_eq!(row(State::Error, with_files).removal(), Some(1000 + DAY));
        assert_eq!(row(State::Running, |row| row.remove_at = Some(1)).removal(), None);
    }

    #[test]
    fn a_running_sandbox_may_be_paused_when_it_expires() {
        let pausing = |row: &mut SandboxRow| row.request.on_expiry = Some(ExpiryAction::Pause);
        assert_eq!(due(&row(State::Running, pausing), 0), at(1000, Verdict::PauseExpired));
        let stop = Verdict::Stop(Reason::Expired);
        assert_eq!(due(&row(State::Paused, pausing), 0), at(1000, stop));
        let lost = Reason::ProcessesLost;
        assert_eq!(ending(&row(State::Running, pausing), lost), Verdict::Stop(lost));
    }

    #[test]
    fn only_a_running_sandbox_is_idle() {
        for (on_idle, verdict) in [
            (IdleAction::Pause, Verdict::PauseIdle),
            (IdleAction::Stop, Verdict::Stop(Reason::Idle)),
            (IdleAction::Terminate, Verdict::Terminate(Reason::Idle)),
        ] {
            let idle = |row: &mut SandboxRow| {
                row.expires_at = None;
                row.idle_timeout_ms = Some(50);
                row.on_idle = on_idle;
            };
            assert_eq!(due(&row(State::Running, idle), 200), at(250, verdict));
            assert_eq!(due(&row(State::Paused, idle), 200), []);
        }
    }

    #[test]
    fn lost_processes_stop_a_sandbox_unless_it_is_to_be_terminated() {
        let lost = Reason::ProcessesLost;
        for state in [State::Running, State::Paused] {
            assert_eq!(ending(&row(state, |_| {}), lost), Verdict::Stop(lost));
            assert_eq!(ending(&row(state, kept), lost), Verdict::Stop(lost));
            assert_eq!(ending(&row(state, terminating), lost), Verdict::Terminate(lost));
        }
    }
}
