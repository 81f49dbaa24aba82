//! What the init of a persistent jail does about calls that the filter asks about: which commands a
//! refused one is reported for, and when no rename may be under way.

use std::os::fd::OwnedFd;
use std::time::Instant;

use super::command::Command;
use super::inside::FIRST_NUMBER;
use super::{Init, Users};
use crate::control::Report;
use crate::init::calls::{CallSource, Calls};
use crate::init::renames::{Families, Rights};

impl Init {
    /// Answers the calls that this listener hears of.
    pub(crate) fn answering(mut self, listener: Option<OwnedFd>) -> Self {
        let rights = match self.users {
            Users::Own(..) => Rights::OfInit,
            Users::Below(below) => Rights::OfThread { below },
        };
        self.calls = listener.map(|listener| Calls::new(listener, rights, self.ruleset.clone()));
        self
    }

    /// Handles events of these sources. A refused call is recorded for every command that runs.
    pub(super) fn handle_calls(&mut self, sources: &[CallSource]) {
        // What has ended no longer runs.
        self.collect_finished(Instant::now());
        let Some(calls) = &mut self.calls else { return };
        let commands = &mut self.commands;
        let subreapers: Vec<_> = commands.values().filter_map(Command::subreaper).collect();
        for source in sources {
            calls.handle(*source, Families::Of(&subreapers), |call| {
                let running = commands.range_mut(..FIRST_NUMBER);
                running.for_each(|(_, command)| command.note_refused(call));
            });
        }
    }

    /// Lets the renames that are under way end, and begins no other.
    pub(super) fn finish_renames(&mut self) {
        if let Some(calls) = &mut self.calls {
            calls.finish();
        }
        self.awaits_renames = true;
    }

    /// Follows renames again.
    pub(super) fn resume_renames(&mut self) {
        if let Some(calls) = &mut self.calls {
            calls.resume();
        }
        self.awaits_renames = false;
    }

    /// Reports once that no rename is under way.
    pub(super) fn report_finished_renames(&mut self) {
        if self.awaits_renames && self.calls.as_ref().is_none_or(Calls::has_finished) {
            self.awaits_renames = false;
            self.reports.push_back((Report::RenamesFinished, Vec::new()));
        }
    }
}
