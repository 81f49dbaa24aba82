//! The egress listeners of a sandbox's network. Init retains them; the keeper requests them from
//! init and checks them before it sends them to the process that enforces the policy. Also tests
//! whether this host can have such networks at all.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use stockade_jail::control::Request;
use stockade_jail::network::Listeners;
use stockade_plan::TRUSTED_FILE;

use super::boot_time::BootTime;
use super::context::{Context, Reply};
use super::helpers::Outcome;
use super::jail::INIT_TIMEOUT;
use super::reports::ProtocolViolation;
use super::sandbox::{Lifecycle, PendingListeners, Sandbox};
use super::timers::Timer;
use super::{ClientId, Keeper};
use crate::wire::{Answer, Failure};

/// How often the network test is started when its process is killed.
const PROOFS: u32 = 3;

impl Sandbox {
    /// Sends the client the egress listeners of its network, once init has sent them.
    pub(super) fn hand_out_listeners(
        &mut self,
        context: &mut Context,
        client: ClientId,
    ) -> Result<(), Failure> {
        if self.record.spec.network.is_none() {
            return Err(Failure::Invalid("the sandbox has no network policy".to_owned()));
        }
        let state = self.state();
        self.jail().ok_or(Failure::WrongState(state))?;
        // The descriptors that init sends must find room.
        let newest = self.dir.try_clone().map_err(|error| exhausted(&error))?;
        context.afford_command(&newest)?;
        if let Some(awaited) = &mut self.listeners {
            awaited.clients.push(client);
            return Ok(());
        }
        self.listeners = Some(PendingListeners { since: BootTime::now(), clients: vec![client] });
        context.timers.after(INIT_TIMEOUT, Timer::Listeners(self.key));
        self.send(context, Request::Listeners, Vec::new());
        Ok(())
    }

    /// Sends the client a descriptor of the file of the certificates that programs inside trust. The
    /// client writes it: the keeper waits for no disk.
    pub(super) fn hand_out_trusted(
        &mut self,
        context: &mut Context,
        client: ClientId,
    ) -> Result<(), Failure> {
        let none =
            || Failure::Invalid("the sandbox has no file of trusted certificates".to_owned());
        if self.record.spec.network.is_none() {
            return Err(none());
        }
        let state = self.state();
        self.jail().ok_or(Failure::WrongState(state))?;
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Sandboxes of an older program get the file when they are started again.
        let file = rustix::fs::openat(self.directory(), TRUSTED_FILE, flags, Mode::empty())
            .map_err(|_| none())?;
        context.afford_command(&file)?;
        let answer = Box::new(Answer::Trusted);
        context.replies.push_back((client, Reply::Answer(answer, vec![file])));
        Ok(())
    }

    /// Repeats a request that was sent on a connection that init has closed.
    pub(super) fn request_listeners_again(&mut self, context: &mut Context) {
        if self.listeners.is_some() {
            self.send(context, Request::Listeners, Vec::new());
        }
    }

    /// Takes the listeners that init sends, and sends them to every waiting client.
    pub(super) fn take_listeners(
        &mut self,
        context: &mut Context,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), ProtocolViolation> {
        if self.listeners.is_none() {
            return Err(ProtocolViolation("unexpected egress listeners"));
        }
        if descriptors.is_empty() {
            let text = "the sandbox's init is out of file descriptors".to_owned();
            self.refuse_listeners(context, &Failure::Exhausted(text));
            return Ok(());
        }
        let listeners = Listeners::from_descriptors(descriptors)
            .map_err(|_| ProtocolViolation("the egress listeners are invalid"))?;
        let network = match &self.life {
            Lifecycle::Running(jail) | Lifecycle::Connecting(jail) => jail.record.network,
            Lifecycle::Launching(_) | Lifecycle::Dying(_) | Lifecycle::Ended => None,
        };
        if network.is_none() || listeners.network().ok() != network {
            return Err(ProtocolViolation("the egress listeners are in another network namespace"));
        }
        for client in self.listeners.take().into_iter().flat_map(|awaited| awaited.clients) {
            match listeners.try_clone() {
                Ok(copy) => {
                    let descriptors = copy.into_descriptors().into();
                    let answer = Box::new(Answer::Listeners);
                    context.replies.push_back((client, Reply::Answer(answer, descriptors)));
                }
                Err(error) => context.refuse(client, exhausted(&error)),
            }
        }
        Ok(())
    }

    /// Ends a jail whose init does not send the requested listeners.
    pub(super) fn check_listeners(&mut self, context: &mut Context) {
        let waits_long =
            |awaited: &PendingListeners| BootTime::now().since(awaited.since) >= INIT_TIMEOUT;
        if self.listeners.as_ref().is_some_and(waits_long) {
            self.distrust(context, "its init does not send the egress listeners");
        }
    }

    /// Refuses all clients that wait for listeners.
    pub(super) fn refuse_listeners(&mut self, context: &mut Context, failure: &Failure) {
        if let Some(PendingListeners { clients, .. }) = self.listeners.take() {
            context.answer_all(clients, &Answer::Failed(failure.clone()));
        }
    }
}

impl Keeper {
    /// Reports whether a sandbox can have a network with a policy. A positive result is not tested
    /// again.
    pub(super) fn prove_network(&mut self, client: ClientId) -> Result<(), Failure> {
        if self.context.has_network {
            self.context.answer(client, Answer::Done);
            return Ok(());
        }
        if self.provers.is_empty() {
            self.proofs = 1;
            self.helpers.prove(&self.context.reactor).map_err(|error| exhausted(&error))?;
        }
        self.provers.push(client);
        Ok(())
    }

    /// Takes the result of the helper that has run the test.
    pub(super) fn network_proved(&mut self, outcome: Outcome, output: &str) {
        if outcome == Outcome::Killed && self.proofs < PROOFS {
            self.proofs += 1;
            if self.helpers.prove(&self.context.reactor).is_ok() {
                return;
            }
        }
        self.context.has_network = outcome == Outcome::Done;
        let answer = if self.context.has_network {
            Answer::Done
        } else {
            let untold = |_| Failure::Exhausted("the network could not be tested".to_owned());
            Answer::Failed(serde_json::from_str(output).unwrap_or_else(untold))
        };
        self.context.answer_all(std::mem::take(&mut self.provers), &answer);
    }
}

fn exhausted(error: &io::Error) -> Failure {
    Failure::Exhausted(format!("cannot obtain the egress listeners: {error}"))
}
