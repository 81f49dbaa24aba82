//! How a sandbox is ended, and what remains of it.

use std::os::fd::AsFd as _;

use super::ClientId;
use super::command::Stage;
use super::desk::{Desk, Reply};
use super::record::{self, Ended};
use super::sandbox::{Life, Sandbox};
use crate::wire::{Answer, Failure};
use stockade_runtime::{Ending, State};

impl Sandbox {
    /// Ends it, whatever runs in it. It is [`Life::Ended`] immediately or when its pidfd reports
    /// the end of init.
    pub(super) fn kill(&mut self, desk: &mut Desk, reason: &str) {
        self.reason.get_or_insert_with(|| reason.to_owned());
        if self.is_joining() && !self.doomed {
            self.find_untold();
        }
        match std::mem::replace(&mut self.life, Life::Ended) {
            Life::Joining(mut jail) | Life::Held(mut jail) => {
                jail.kill();
                self.life = Life::Dying(jail);
            }
            Life::Dying(jail) => self.life = Life::Dying(jail),
            // Dropping the launch ends it.
            Life::Launching(_) => self.ended(desk),
            Life::Ended => {}
        }
    }

    /// Ends a jail whose init broke the protocol.
    pub(super) fn distrust(&mut self, desk: &mut Desk, why: &str) {
        desk.metrics.distrusted += 1;
        desk.note(&format!("{} was ended: {why}", self.name));
        self.kill(desk, why);
    }

    /// Ends it and removes all its data; the client is notified when that is done.
    pub(super) fn destroy(&mut self, desk: &mut Desk, client: Option<ClientId>) {
        self.doomed = true;
        self.destroyers.extend(client);
        self.kill(desk, "it was destroyed");
        self.name = desk.set_aside(&self.name);
    }

    /// Checks whether its init is dead, and so all its processes.
    pub(super) fn look_at_life(&mut self, desk: &mut Desk) {
        let (Life::Joining(jail) | Life::Held(jail) | Life::Dying(jail)) = &self.life else {
            return;
        };
        if !jail.is_dead() {
            return;
        }
        let (Life::Joining(mut jail) | Life::Held(mut jail) | Life::Dying(mut jail)) =
            std::mem::replace(&mut self.life, Life::Ended)
        else {
            return;
        };
        self.reason.get_or_insert_with(|| "its init exited or was killed".to_owned());
        jail.disconnect();
        let waiting = std::mem::take(&mut jail.pause.waiting);
        desk.answer_all(waiting, &Answer::Failed(Failure::WrongState(State::Ended)));
        // As long as the groups exist, a record must name them.
        self.doomed |= self.id().is_none();
        let told_by = self.doomed.then(|| self.name.clone());
        self.discarded = told_by.is_some();
        if desk.remove_groups(std::mem::take(&mut jail.group), told_by) {
            self.record.groups = Vec::new();
        }
        self.record.stage = record::Stage::Ended(Ended {
            reason: String::new(),
            host_start: jail.held.host_start,
            isolation: Some(jail.held.isolation.clone()),
            commands: Vec::new(),
        });
        drop(jail);
        self.ended(desk);
    }

    /// Notifies every waiting client that nothing more comes, and stores what remains.
    fn ended(&mut self, desk: &mut Desk) {
        if !self.doomed {
            self.find_untold();
        }
        let directory = self.place.as_fd();
        for command in self.commands.values_mut() {
            if let Stage::Starting(clients) = &mut command.stage {
                let clients = std::mem::take(clients);
                let failure = Failure::WrongState(State::Ended);
                desk.answer_all(clients, &Answer::Failed(failure));
            }
            command.end(directory, Ending::SandboxEnded, &mut desk.bench);
            command.gone = true;
            command.close_streams();
            desk.answer_all(std::mem::take(&mut command.killers), &Answer::Done);
            desk.stirred.extend(command.subscribers());
        }
        for (_, (client, target)) in std::mem::take(&mut self.connections) {
            let errno = rustix::io::Errno::CONNREFUSED.raw_os_error();
            desk.refuse(client, Failure::Connect { target, errno });
        }
        self.refuse_listeners(desk, &Failure::WrongState(State::Ended));
        for deferred in std::mem::take(&mut self.deferred) {
            desk.refuse(deferred.client, Failure::WrongState(State::Ended));
        }
        let text = self.reason.clone().unwrap_or_default();
        let creators = std::mem::take(&mut self.creators);
        let failure = Failure::Exhausted(format!("the sandbox ended during its creation: {text}"));
        if !creators.is_empty() {
            desk.answer_all(creators, &Answer::Failed(failure));
            self.doomed = true;
        }
        if self.doomed || self.id().is_none() {
            self.doomed = true;
            return;
        }
        let (host_start, isolation) = match &self.record.stage {
            record::Stage::Ended(ended) => (ended.host_start, ended.isolation.clone()),
            _ => (None, None),
        };
        let commands = self.commands.values().map(super::command::Command::status).collect();
        let ended = Ended { reason: text, host_start, isolation, commands };
        self.record.stage = record::Stage::Ended(ended);
        if let Err(failure) = self.write_down() {
            // The next keeper finds a jail that no longer exists, and knows less about its
            // commands.
            desk.note(&format!("{}: {failure:?}", self.name));
        }
    }

    /// Notifies the clients that still wait, when everything of it is removed.
    pub(super) fn farewell(mut self, desk: &mut Desk) {
        for command in self.commands.values_mut() {
            let ending = match &command.stage {
                Stage::Ended(ending) => ending.clone(),
                Stage::Starting(_) | Stage::Running => Ending::SandboxEnded,
            };
            for (client, unheard) in command.leave_subscribers() {
                desk.replies.push_back((client, Reply::Gone(unheard, ending.clone())));
            }
        }
        if !self.discarded {
            desk.discard(&self.name);
        }
        desk.answer_all(std::mem::take(&mut self.destroyers), &Answer::Done);
    }
}
