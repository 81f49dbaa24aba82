//! The keeper's state of one sandbox.
//!
//! ```text
//!   Launching ──► Joining ──► Held ──► Dying ──► Ended
//!   (jail is      (init has            (init was
//!    launched)     not                  killed)
//!                  reported)
//! ```
//!
//! A sandbox whose creation fails is removed with its directory, and so is a destroyed one, from
//! every state. `launch` leads to `Held`, `reports` handles the reports of init, `execute` acts on
//! commands, and `ending` ends a sandbox.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use stockade_core::{ExecId, Isolation, Level, SandboxId};
use stockade_jail::Launching;

use super::command::{Command, Stage};
use super::desk::{Desk, Reply};
use super::execute::Deferred;
use super::jail::Jail;
use super::launch::Reports;
use super::moment::Moment;
use super::network::Awaited;
use super::pause::{Commands, Step};
use super::reactor::Watched;
use super::record::{self, Record};
use super::timers::Timer;
use super::usage::Excess;
use super::{ClientId, Key};
use crate::wire::{Answer, Failure};
use stockade_plan::LEASE;
use stockade_plan::limits::Watched as Limits;
use stockade_runtime::{State, Status};

/// One sandbox.
#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) key: Key,
    /// The name of its directory.
    pub(super) name: String,
    /// Its directory.
    pub(super) place: OwnedFd,
    pub(super) record: Record,
    pub(super) life: Life,
    pub(super) commands: BTreeMap<u64, Command>,
    /// The clients that wait until it can be used.
    pub(super) creators: Vec<ClientId>,
    /// The clients that wait until it is removed.
    pub(super) destroyers: Vec<ClientId>,
    /// Its data is to be removed once its processes have ended.
    pub(super) doomed: bool,
    /// Its directory was discarded.
    pub(super) discarded: bool,
    /// The time of the next check of its lease.
    pub(super) lease_watched: Option<Moment>,
    /// Since when the keeper waits for its init.
    pub(super) joining_since: Option<Moment>,
    /// Whether it would be usable too early after the initial state of its workspace was recorded.
    pub(super) is_early: bool,
    /// Why it ends or has ended.
    pub(super) reason: Option<String>,
    /// The clients that wait for a connection, and its address.
    pub(super) connections: BTreeMap<u64, (ClientId, String)>,
    /// The clients that wait for the egress listeners, if these were requested from init.
    pub(super) listeners: Option<Awaited>,
    /// Commands of which it is unknown whether init has received the request.
    pub(super) unsure: BTreeSet<u64>,
    /// Commands that are to be started when its processes are resumed, or when its disk use is
    /// known.
    pub(super) deferred: VecDeque<Deferred>,
    /// How its limits are enforced, until that is reported.
    pub(super) reports: Reports,
    /// Which of its limits are watched.
    pub(super) watched: Limits,
    /// Whether a helper measures its disk use.
    pub(super) measuring: bool,
    /// Its excess on disk, if there is one.
    pub(super) excess: Option<Excess>,
    /// Its disk use was measured just now, so commands may be started.
    pub(super) admits: bool,
    /// The name of the skeleton that is its root's lower layer, while it is launched.
    pub(super) skeleton: Option<String>,
}

/// The life cycle state of a sandbox.
#[derive(Debug)]
pub(super) enum Life {
    /// Its jail is being launched.
    Launching(Box<Watched<Launching>>),
    /// All walls are enabled, and its init has not reported yet.
    Joining(Box<Jail>),
    /// Commands can be started in it.
    Held(Box<Jail>),
    /// Its init was killed, but is not dead yet.
    Dying(Box<Jail>),
    /// Its processes have ended.
    Ended,
}

impl Sandbox {
    /// A sandbox that was not launched yet.
    pub(super) fn new(key: Key, name: String, place: OwnedFd, record: Record) -> Self {
        Self {
            key,
            name,
            place,
            record,
            life: Life::Ended,
            commands: BTreeMap::new(),
            creators: Vec::new(),
            destroyers: Vec::new(),
            doomed: false,
            discarded: false,
            lease_watched: None,
            joining_since: None,
            is_early: false,
            reason: None,
            connections: BTreeMap::new(),
            listeners: None,
            unsure: BTreeSet::new(),
            deferred: VecDeque::new(),
            reports: Reports::new(),
            watched: Limits::default(),
            measuring: false,
            excess: None,
            admits: false,
            skeleton: None,
        }
    }

    /// Its id; none for a sandbox of the pool.
    pub(super) const fn id(&self) -> Option<&SandboxId> {
        self.record.id.as_ref()
    }

    /// The jail, while it can be used.
    pub(super) fn jail(&mut self) -> Option<&mut Jail> {
        match &mut self.life {
            Life::Held(jail) => Some(jail),
            _ => None,
        }
    }

    /// The jail, or the failure of an operation that needs it.
    pub(super) fn usable(&mut self) -> Result<&mut Jail, Failure> {
        let state = self.state();
        match (&mut self.life, state) {
            (Life::Held(jail), State::Running) => Ok(jail),
            _ => Err(Failure::WrongState(state)),
        }
    }

    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.place.as_fd()
    }

    pub(super) fn command(&mut self, id: &ExecId) -> Result<&mut Command, Failure> {
        self.commands.values_mut().find(|command| command.id == *id).ok_or(Failure::NoExec)
    }

    /// Its state.
    pub(super) fn state(&self) -> State {
        match &self.life {
            Life::Launching(_) | Life::Joining(_) => State::Creating,
            Life::Held(jail) if jail.pause.asked => State::Paused,
            Life::Held(_) => State::Running,
            Life::Dying(_) | Life::Ended => State::Ended,
        }
    }

    /// Whether it has processes, or will have.
    pub(super) const fn is_alive(&self) -> bool {
        !matches!(self.life, Life::Ended)
    }

    /// The name of the skeleton that is its root's lower layer, as long as it has processes.
    pub(super) fn skeleton(&self) -> Option<&str> {
        match &self.life {
            Life::Launching(_) => self.skeleton.as_deref(),
            Life::Joining(jail) | Life::Held(jail) | Life::Dying(jail) => {
                jail.held.skeleton.as_deref()
            }
            Life::Ended => None,
        }
    }

    /// Whether its init has not reported yet.
    pub(super) const fn is_joining(&self) -> bool {
        matches!(self.life, Life::Joining(_))
    }

    /// Whether a client waits until it can be used.
    pub(super) const fn is_awaited(&self) -> bool {
        !self.creators.is_empty()
    }

    /// Its status; none for a sandbox of the pool.
    pub(super) fn status(&self) -> Option<Status> {
        let unknown =
            Isolation { level: Level::Full, walls: vec![], limits: vec![], reasons: vec![] };
        let isolation = match (&self.life, &self.record.stage) {
            (Life::Held(jail) | Life::Joining(jail) | Life::Dying(jail), _) => {
                jail.held.isolation.clone()
            }
            (_, record::Stage::Ended(ended)) => ended.isolation.clone().unwrap_or(unknown),
            _ => unknown,
        };
        let state = self.state();
        Some(Status {
            id: self.record.id.clone()?,
            state,
            reason: self.reason.clone().filter(|_| state == State::Ended),
            labels: self.record.spec.labels.clone(),
            created_at_ms: self.record.created_at_ms,
            lease_left: self.record.lease.map(|lease| lease.end().since(Moment::now())),
            isolation,
            execs: self.commands.values().map(Command::status).collect(),
        })
    }

    /// Stores its current record.
    pub(super) fn write_down(&mut self) -> Result<(), Failure> {
        if let Life::Held(jail) = &self.life {
            self.record.stage = record::Stage::Held(jail.held.clone());
        }
        self.record.write(self.place.as_fd()).map_err(|error| {
            Failure::Exhausted(format!("the sandbox's record cannot be written: {error}"))
        })
    }

    /// Sends a request to its init. An init that does not read is not trusted.
    pub(super) fn say(
        &mut self,
        desk: &mut Desk,
        request: stockade_jail::control::Request,
        descriptors: Vec<OwnedFd>,
    ) {
        if let Life::Held(jail) | Life::Joining(jail) = &mut self.life
            && jail.say(request, descriptors).is_err()
        {
            self.distrust(desk, "its init does not listen");
        }
    }

    /// Sends the requests that wait for its init.
    pub(super) fn say_what_waits(&mut self, desk: &mut Desk) {
        if let Life::Held(jail) | Life::Joining(jail) = &mut self.life
            && jail.say_what_waits().is_err()
        {
            self.distrust(desk, "its init does not listen");
        }
    }

    /// Renews the lease of its init, and requests an answer.
    pub(super) fn renew_init(&mut self, desk: &mut Desk) {
        if let Life::Held(jail) = &mut self.life
            && !jail.renew(LEASE)
        {
            self.distrust(desk, "its init does not answer");
        }
    }

    /// Stops its processes as long as a client wants that, and resumes them.
    pub(super) fn step_pause(&mut self, desk: &mut Desk) {
        loop {
            let commands = self.what_commands_do();
            let Some(jail) = self.jail() else { return };
            match jail.pause.step(&jail.group, jail.held.init, commands) {
                Step::Nothing => return,
                Step::Say(request) => self.say(desk, request, Vec::new()),
                Step::Look(delay) => {
                    desk.timers.after(delay, Timer::Stop(self.key));
                    return;
                }
                Step::Stopped => self.tell_stopped(desk),
                Step::Failed => {
                    let waiting = std::mem::take(&mut jail.pause.waiting);
                    desk.answer_all(waiting, &Answer::Failed(Failure::Deadline));
                }
                Step::GoesOn => {
                    self.say(desk, stockade_jail::control::Request::Continue, Vec::new());
                    for deferred in std::mem::take(&mut self.deferred) {
                        self.execute(desk, deferred);
                    }
                }
            }
        }
    }

    fn what_commands_do(&self) -> Commands {
        let stages = || self.commands.values().map(|command| &command.stage);
        if stages().any(|stage| matches!(stage, Stage::Starting(_))) {
            Commands::Start
        } else if stages().any(|stage| *stage == Stage::Running) {
            Commands::Run
        } else {
            Commands::Rest
        }
    }

    fn tell_stopped(&mut self, desk: &mut Desk) {
        let Life::Held(jail) = &mut self.life else { return };
        let waiting = std::mem::take(&mut jail.pause.waiting);
        let (holders, pausers): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|client| jail.pause.holders.contains(client));
        let answer = Answer::Held {
            root: self.record.root.clone(),
            workspace: self.record.spec.workspace.is_some(),
            host_start: jail.held.host_start,
            begun: self.record.begun.clone(),
            whole: self.record.whole.clone(),
        };
        for client in holders {
            let answer = Box::new(answer.clone());
            desk.replies.push_back((client, Reply::Held { sandbox: self.key, answer }));
        }
        if jail.pause.asked && !jail.held.paused {
            jail.held.paused = true;
            if let Err(failure) = self.write_down() {
                // The next keeper would resume it, so this one does.
                if let Some(jail) = self.jail() {
                    jail.held.paused = false;
                    jail.pause.asked = false;
                }
                desk.answer_all(pausers, &Answer::Failed(failure));
                return;
            }
        }
        desk.answer_all(pausers, &Answer::Done);
    }

    /// Stops its processes until a client resumes them.
    pub(super) fn pause(&mut self, desk: &mut Desk, client: ClientId) -> Result<(), Failure> {
        let state = self.state();
        let jail = self.jail().ok_or(Failure::WrongState(state))?;
        jail.pause.asked = true;
        jail.pause.waiting.push(client);
        self.step_pause(desk);
        Ok(())
    }

    /// Resumes its processes.
    pub(super) fn resume(&mut self, desk: &mut Desk) -> Result<(), Failure> {
        let state = self.state();
        let jail = self.jail().ok_or(Failure::WrongState(state))?;
        jail.pause.asked = false;
        if std::mem::take(&mut jail.held.paused) {
            self.write_down().inspect_err(|_| {
                // The old state, for the next keeper too.
                if let Life::Held(jail) = &mut self.life {
                    jail.held.paused = true;
                    jail.pause.asked = true;
                }
            })?;
        }
        self.step_pause(desk);
        Ok(())
    }

    /// Keeps its processes stopped until the client releases it.
    pub(super) fn hold(&mut self, desk: &mut Desk, client: ClientId) -> Result<(), Failure> {
        let state = self.state();
        if !self.is_alive() && !self.doomed {
            // No process is left that could change its files.
            let answer = Box::new(Answer::Held {
                root: self.record.root.clone(),
                workspace: self.record.spec.workspace.is_some(),
                host_start: self.host_start(),
                begun: self.record.begun.clone(),
                whole: self.record.whole.clone(),
            });
            desk.replies.push_back((client, Reply::Held { sandbox: self.key, answer }));
            return Ok(());
        }
        let jail = self.jail().ok_or(Failure::WrongState(state))?;
        jail.pause.holders.insert(client);
        jail.pause.waiting.push(client);
        self.step_pause(desk);
        Ok(())
    }

    /// Records that the client does not hold it any more.
    pub(super) fn release(&mut self, desk: &mut Desk, client: ClientId) {
        if let Some(jail) = self.jail()
            && jail.pause.holders.remove(&client)
        {
            self.step_pause(desk);
        }
    }

    fn host_start(&self) -> Option<u32> {
        match &self.record.stage {
            record::Stage::Ended(ended) => ended.host_start,
            record::Stage::Held(held) => held.host_start,
            record::Stage::Starting => None,
        }
    }

    /// Sets its lease to this length from now on.
    pub(super) fn renew(
        &mut self,
        desk: &mut Desk,
        length: Option<std::time::Duration>,
    ) -> Result<(), Failure> {
        let before = std::mem::replace(&mut self.record.lease, length.map(record::Lease::from_now));
        self.write_down().inspect_err(|_| self.record.lease = before)?;
        self.watch_lease(desk);
        Ok(())
    }

    /// Schedules the check of its lease.
    pub(super) fn watch_lease(&mut self, desk: &mut Desk) {
        let Some(end) = self.record.lease.map(|lease| lease.end()) else { return };
        if self.lease_watched.is_none_or(|watched| end < watched) {
            self.lease_watched = Some(end);
            desk.timers.at(end, Timer::Lease(self.key));
        }
    }

    /// Whether its lease has ended; if not, schedules the next check.
    pub(super) fn look_at_lease(&mut self, desk: &mut Desk) -> bool {
        self.lease_watched = None;
        let expired = self.record.lease.is_some_and(|lease| lease.end() <= Moment::now());
        if !expired {
            self.watch_lease(desk);
        }
        expired
    }
}
