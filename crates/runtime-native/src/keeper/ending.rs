//! How a sandbox is ended, and what remains of it.

use std::os::fd::AsFd as _;

use super::ClientId;
use super::command::Stage;
use super::context::{Context, Reply};
use super::record::{self, EndedRecord};
use super::sandbox::{Lifecycle, Sandbox};
use crate::wire::{Answer, Failure};
use stockade_runtime::{EndCause, Ending, State};

impl Sandbox {
    /// Ends it, whatever runs in it. It is [`Lifecycle::Ended`] immediately or when its pidfd reports
    /// the end of init.
    pub(super) fn kill(&mut self, context: &mut Context, reason: &str) {
        self.reason.get_or_insert_with(|| reason.to_owned());
        if self.is_joining() && !self.doomed {
            self.add_unreported();
        }
        match std::mem::replace(&mut self.life, Lifecycle::Ended) {
            Lifecycle::Connecting(mut jail) | Lifecycle::Running(mut jail) => {
                jail.kill();
                self.life = Lifecycle::Dying(jail);
            }
            Lifecycle::Dying(jail) => self.life = Lifecycle::Dying(jail),
            // Dropping the launch ends it.
            Lifecycle::Launching(_) => self.finish(context),
            Lifecycle::Ended => {}
        }
    }

    /// Ends its processes and keeps its files; the client is notified when they have ended.
    pub(super) fn end(&mut self, context: &mut Context, client: ClientId) {
        if !self.is_alive() {
            context.answer(client, Answer::Done);
            return;
        }
        self.enders.push(client);
        self.end_cause.get_or_insert(EndCause::Requested);
        self.kill(context, "a client ended it");
    }

    /// Ends its processes because its lease has expired. Its files remain: they may hold work that
    /// no client has collected, and no client may be running now.
    pub(super) fn expire(&mut self, context: &mut Context) {
        if self.is_alive() {
            context.metrics.expired += 1;
            self.end_cause.get_or_insert(EndCause::LeaseExpired);
            self.kill(context, "its lease expired");
        }
    }

    /// Ends a jail whose init broke the protocol.
    pub(super) fn distrust(&mut self, context: &mut Context, why: &str) {
        context.metrics.distrusted += 1;
        context.log(&format!("{} was ended: {why}", self.name));
        self.kill(context, why);
    }

    /// Ends it and removes all its data; the client is notified when that is done.
    pub(super) fn destroy(&mut self, context: &mut Context, client: Option<ClientId>) {
        self.doomed = true;
        self.destroyers.extend(client);
        self.kill(context, "it was destroyed");
        self.name = context.set_aside(&self.name);
    }

    /// Checks whether its init is dead, and so all its processes.
    pub(super) fn check_init(&mut self, context: &mut Context) {
        let (Lifecycle::Connecting(jail) | Lifecycle::Running(jail) | Lifecycle::Dying(jail)) =
            &self.life
        else {
            return;
        };
        if !jail.is_dead() {
            return;
        }
        let (Lifecycle::Connecting(mut jail)
        | Lifecycle::Running(mut jail)
        | Lifecycle::Dying(mut jail)) = std::mem::replace(&mut self.life, Lifecycle::Ended)
        else {
            return;
        };
        self.reason.get_or_insert_with(|| "its init exited or was killed".to_owned());
        jail.disconnect();
        let waiting = std::mem::take(&mut jail.pause.waiting);
        context.answer_all(waiting, &Answer::Failed(Failure::WrongState(State::Ended)));
        // As long as the groups exist, a record must name them.
        self.doomed |= self.id().is_none();
        let told_by = self.doomed.then(|| self.name.clone());
        self.discarded = told_by.is_some();
        if context.remove_groups(std::mem::take(&mut jail.group), told_by) {
            self.record.groups = Vec::new();
        }
        self.record.stage = record::Stage::Ended(EndedRecord {
            reason: String::new(),
            cause: self.end_cause.unwrap_or_default(),
            host_start: jail.record.host_start,
            isolation: Some(jail.record.isolation.clone()),
            commands: Vec::new(),
        });
        drop(jail);
        self.finish(context);
    }

    /// Notifies every waiting client that nothing more comes, and stores what remains.
    fn finish(&mut self, context: &mut Context) {
        if !self.doomed {
            self.add_unreported();
        }
        let directory = self.dir.as_fd();
        for command in self.commands.values_mut() {
            if let Stage::Starting(clients) = &mut command.stage {
                let clients = std::mem::take(clients);
                let failure = Failure::WrongState(State::Ended);
                context.answer_all(clients, &Answer::Failed(failure));
            }
            command.end(directory, Ending::SandboxEnded, &mut context.spool_context);
            command.gone = true;
            command.close_streams();
            context.answer_all(std::mem::take(&mut command.killers), &Answer::Done);
            context.dirty_clients.extend(command.subscribers());
        }
        for killers in std::mem::take(&mut self.killers_of_acknowledged).into_values() {
            context.answer_all(killers, &Answer::Done);
        }
        for (_, (client, target)) in std::mem::take(&mut self.connections) {
            let errno = rustix::io::Errno::CONNREFUSED.raw_os_error();
            context.refuse(client, Failure::Connect { target, errno });
        }
        self.refuse_listeners(context, &Failure::WrongState(State::Ended));
        for deferred in std::mem::take(&mut self.deferred) {
            context.refuse(deferred.client, Failure::WrongState(State::Ended));
        }
        context.answer_all(std::mem::take(&mut self.enders), &Answer::Done);
        let text = self.reason.clone().unwrap_or_default();
        let creators = std::mem::take(&mut self.creators);
        let failure = Failure::Exhausted(format!("the sandbox ended during its creation: {text}"));
        if !creators.is_empty() {
            context.answer_all(creators, &Answer::Failed(failure));
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
        let cause = self.end_cause.unwrap_or_default();
        let ended = EndedRecord { reason: text, cause, host_start, isolation, commands };
        self.record.stage = record::Stage::Ended(ended);
        if let Err(failure) = self.write_record() {
            // The next keeper finds a jail that no longer exists, and knows less about its
            // commands.
            context.log(&format!("{}: {failure:?}", self.name));
        }
    }

    /// Notifies the clients that still wait, when everything of it is removed.
    pub(super) fn notify_removed(mut self, context: &mut Context) {
        for command in self.commands.values_mut() {
            let ending = match &command.stage {
                Stage::Ended(ending) => ending.clone(),
                Stage::Starting(_) | Stage::Running => Ending::SandboxEnded,
            };
            for (client, unheard) in command.drop_subscribers() {
                context.replies.push_back((client, Reply::Gone(unheard, ending.clone())));
            }
        }
        if !self.discarded {
            context.discard(&self.name);
        }
        context.answer_all(std::mem::take(&mut self.destroyers), &Answer::Done);
    }
}
