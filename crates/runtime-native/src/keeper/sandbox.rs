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

use stockade_core::{ExecId, Isolation, Level, LimitReport, SandboxId};
use stockade_jail::Launching;

use super::boot_time::BootTime;
use super::command::{Command, Stage};
use super::context::{Context, Reply};
use super::excess::Excess;
use super::jail::Jail;
use super::pause::{Commands, Step};
use super::reactor::Watched;
use super::record::{self, Record};
use super::timers::Timer;
use super::{ClientId, Key};
use crate::input_file::InputFile;
use crate::wire::{Answer, CommandHead, CommandStrings, Failure};
use stockade_plan::LEASE;
use stockade_plan::limits::WatchedLimits as Limits;
use stockade_runtime::{EndCause, State, Status};

/// One sandbox.
#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) key: Key,
    /// The name of its directory.
    pub(super) name: String,
    /// Its directory.
    pub(super) dir: OwnedFd,
    pub(super) record: Record,
    pub(super) life: Lifecycle,
    pub(super) commands: BTreeMap<u64, Command>,
    /// The clients that wait until all processes of commands have ended whose end was acknowledged before that.
    pub(super) killers_of_acknowledged: BTreeMap<u64, Vec<ClientId>>,
    /// The clients that wait until it can be used.
    pub(super) creators: Vec<ClientId>,
    /// The clients that wait until its processes have ended.
    pub(super) enders: Vec<ClientId>,
    /// The clients that wait until it is removed.
    pub(super) destroyers: Vec<ClientId>,
    /// Its data is to be removed once its processes have ended.
    pub(super) doomed: bool,
    /// Its directory was discarded.
    pub(super) discarded: bool,
    /// The time of the next check of its lease.
    pub(super) lease_watched: Option<BootTime>,
    /// Since when the keeper waits for its init.
    pub(super) joining_since: Option<BootTime>,
    /// Whether it would be usable too early after the initial state of its workspace was recorded.
    pub(super) is_early: bool,
    /// Why it ends or has ended, in words.
    pub(super) reason: Option<String>,
    /// Why it ends or has ended; its processes are lost if there is no other cause.
    pub(super) end_cause: Option<EndCause>,
    /// The clients that wait for a connection, and its address.
    pub(super) connections: BTreeMap<u64, (ClientId, String)>,
    /// The clients that wait for the egress listeners, if these were requested from init.
    pub(super) listeners: Option<PendingListeners>,
    /// Commands of which it is unknown whether init has received the request.
    pub(super) unsure: BTreeSet<u64>,
    /// Commands that are to be started when its processes are resumed, or when its disk use is
    /// known.
    pub(super) deferred: VecDeque<PendingCommand>,
    /// How its limits are enforced, until that is reported.
    pub(super) reports: Vec<LimitReport>,
    /// Which of its limits are watched.
    pub(super) watched: Limits,
    /// Whether a helper measures its disk use.
    pub(super) measuring: bool,
    /// Its excess on disk, if there is one.
    pub(super) excess: Option<Excess>,
    /// Its disk use was measured just now, so commands may be started.
    pub(super) is_admitting: bool,
    /// The name of the skeleton that is its root's lower layer, while it is launched.
    pub(super) skeleton: Option<String>,
    /// The isolation of its container, until that is reported.
    pub(super) isolation: Option<Isolation>,
}

/// The life cycle state of a sandbox.
#[derive(Debug)]
pub(super) enum Lifecycle {
    /// Its jail is being launched.
    Launching(Box<Watched<Launching>>),
    /// All walls are enabled, and its init has not reported yet.
    Connecting(Box<Jail>),
    /// Commands can be started in it.
    Running(Box<Jail>),
    /// Its init was killed, but is not dead yet.
    Dying(Box<Jail>),
    /// Its processes have ended.
    Ended,
}

/// A command that a client wants to start.
#[derive(Debug)]
pub(super) struct PendingCommand {
    pub(super) client: ClientId,
    pub(super) exec: ExecId,
    pub(super) head: CommandHead,
    pub(super) words: CommandStrings,
    /// Its input, if that is given whole.
    pub(super) input: Option<InputFile>,
}

/// Listeners that were requested from init and have not arrived yet.
#[derive(Debug)]
pub(super) struct PendingListeners {
    pub(super) since: BootTime,
    pub(super) clients: Vec<ClientId>,
}

impl Sandbox {
    /// A sandbox that was not launched yet.
    pub(super) fn new(key: Key, name: String, dir: OwnedFd, record: Record) -> Self {
        Self {
            key,
            name,
            dir,
            record,
            life: Lifecycle::Ended,
            commands: BTreeMap::new(),
            killers_of_acknowledged: BTreeMap::new(),
            creators: Vec::new(),
            enders: Vec::new(),
            destroyers: Vec::new(),
            doomed: false,
            discarded: false,
            lease_watched: None,
            joining_since: None,
            is_early: false,
            reason: None,
            end_cause: None,
            connections: BTreeMap::new(),
            listeners: None,
            unsure: BTreeSet::new(),
            deferred: VecDeque::new(),
            reports: Vec::new(),
            watched: Limits::default(),
            measuring: false,
            excess: None,
            is_admitting: false,
            skeleton: None,
            isolation: None,
        }
    }

    /// Its id; none for a sandbox of the pool.
    pub(super) const fn id(&self) -> Option<&SandboxId> {
        self.record.id.as_ref()
    }

    /// The jail, while it can be used.
    pub(super) fn jail(&mut self) -> Option<&mut Jail> {
        match &mut self.life {
            Lifecycle::Running(jail) => Some(jail),
            _ => None,
        }
    }

    /// The jail, or the failure of an operation that needs it.
    pub(super) fn usable(&mut self) -> Result<&mut Jail, Failure> {
        let state = self.state();
        match (&mut self.life, state) {
            (Lifecycle::Running(jail), State::Running) => Ok(jail),
            _ => Err(Failure::WrongState(state)),
        }
    }

    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    pub(super) fn command(&mut self, id: &ExecId) -> Result<&mut Command, Failure> {
        self.commands.values_mut().find(|command| command.id == *id).ok_or(Failure::NoExec)
    }

    /// Its state.
    pub(super) fn state(&self) -> State {
        match &self.life {
            Lifecycle::Launching(_) | Lifecycle::Connecting(_) => State::Creating,
            Lifecycle::Running(jail) if jail.pause.is_requested => State::Paused,
            Lifecycle::Running(_) => State::Running,
            Lifecycle::Dying(_) | Lifecycle::Ended => State::Ended,
        }
    }

    /// Whether it has processes, or will have.
    pub(super) const fn is_alive(&self) -> bool {
        !matches!(self.life, Lifecycle::Ended)
    }

    /// The name of the skeleton that is its root's lower layer, as long as it has processes.
    pub(super) fn skeleton(&self) -> Option<&str> {
        match &self.life {
            Lifecycle::Launching(_) => self.skeleton.as_deref(),
            Lifecycle::Connecting(jail) | Lifecycle::Running(jail) | Lifecycle::Dying(jail) => {
                jail.record.skeleton.as_deref()
            }
            Lifecycle::Ended => None,
        }
    }

    /// Whether its init has not reported yet.
    pub(super) const fn is_joining(&self) -> bool {
        matches!(self.life, Lifecycle::Connecting(_))
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
            (
                Lifecycle::Running(jail) | Lifecycle::Connecting(jail) | Lifecycle::Dying(jail),
                _,
            ) => jail.record.isolation.clone(),
            (_, record::Stage::Ended(ended)) => ended.isolation.clone().unwrap_or(unknown),
            _ => unknown,
        };
        let state = self.state();
        Some(Status {
            id: self.record.id.clone()?,
            state,
            reason: self.reason.clone().filter(|_| state == State::Ended),
            end_cause: (state == State::Ended).then(|| self.end_cause.unwrap_or_default()),
            labels: self.record.spec.labels.clone(),
            created_at_ms: self.record.created_at_ms,
            lease_left: self.record.lease.map(|lease| lease.end().since(BootTime::now())),
            isolation,
            execs: self.commands.values().map(Command::status).collect(),
        })
    }

    /// Stores its current record.
    pub(super) fn write_record(&mut self) -> Result<(), Failure> {
        if let Lifecycle::Running(jail) = &self.life {
            self.record.stage = record::Stage::Held(jail.record.clone());
        }
        self.record.write(self.dir.as_fd()).map_err(|error| {
            Failure::Exhausted(format!("the sandbox's record cannot be written: {error}"))
        })
    }

    /// Sends a request to its init. An init that does not read is not trusted.
    pub(super) fn send(
        &mut self,
        context: &mut Context,
        request: stockade_jail::control::Request,
        descriptors: Vec<OwnedFd>,
    ) {
        if let Lifecycle::Running(jail) | Lifecycle::Connecting(jail) = &mut self.life
            && jail.send(request, descriptors).is_err()
        {
            self.distrust(context, "its init does not listen");
        }
    }

    /// Sends the requests that wait for its init.
    pub(super) fn flush(&mut self, context: &mut Context) {
        if let Lifecycle::Running(jail) | Lifecycle::Connecting(jail) = &mut self.life
            && jail.flush().is_err()
        {
            self.distrust(context, "its init does not listen");
        }
    }

    /// Renews the lease of its init, and requests an answer.
    pub(super) fn renew_init(&mut self, context: &mut Context) {
        if let Lifecycle::Running(jail) = &mut self.life
            && !jail.renew(LEASE)
        {
            self.distrust(context, "its init does not answer");
        }
    }

    /// Stops its processes as long as a client wants that, and resumes them.
    pub(super) fn step_pause(&mut self, context: &mut Context) {
        loop {
            let commands = self.command_activity();
            let Some(jail) = self.jail() else { return };
            let init = jail.record.serving.unwrap_or(jail.record.init);
            match jail.pause.step(&jail.group, init, commands) {
                Step::Nothing => return,
                Step::Send(request) => self.send(context, request, Vec::new()),
                Step::Poll(delay) => {
                    context.timers.after(delay, Timer::Stop(self.key));
                    return;
                }
                Step::Stopped => self.report_stopped(context),
                Step::Failed => {
                    let waiting = std::mem::take(&mut jail.pause.waiting);
                    context.answer_all(waiting, &Answer::Failed(Failure::Deadline));
                }
                Step::Resumed => {
                    self.send(context, stockade_jail::control::Request::Continue, Vec::new());
                    for deferred in std::mem::take(&mut self.deferred) {
                        self.execute(context, deferred);
                    }
                }
            }
        }
    }

    fn command_activity(&self) -> Commands {
        let stages = || self.commands.values().map(|command| &command.stage);
        if stages().any(|stage| matches!(stage, Stage::Starting(_))) {
            Commands::Start
        } else if stages().any(|stage| *stage == Stage::Running) {
            Commands::Run
        } else {
            Commands::Idle
        }
    }

    fn report_stopped(&mut self, context: &mut Context) {
        let Lifecycle::Running(jail) = &mut self.life else { return };
        let waiting = std::mem::take(&mut jail.pause.waiting);
        let (holders, pausers): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|client| jail.pause.holders.contains(client));
        let answer = Answer::Held {
            root: self.record.root.clone(),
            workspace: self.record.spec.workspace.is_some(),
            host_start: jail.record.host_start,
            begun: self.record.begun.clone(),
            whole: self.record.whole.clone(),
        };
        for client in holders {
            let answer = Box::new(answer.clone());
            context.replies.push_back((client, Reply::Paused { sandbox: self.key, answer }));
        }
        if jail.pause.is_requested && !jail.record.paused {
            jail.record.paused = true;
            if let Err(failure) = self.write_record() {
                // The next keeper would resume it, so this one does.
                if let Some(jail) = self.jail() {
                    jail.record.paused = false;
                    jail.pause.is_requested = false;
                }
                context.answer_all(pausers, &Answer::Failed(failure));
                return;
            }
        }
        context.answer_all(pausers, &Answer::Done);
    }

    /// Stops its processes until a client resumes them.
    pub(super) fn pause(&mut self, context: &mut Context, client: ClientId) -> Result<(), Failure> {
        let state = self.state();
        let jail = self.jail().ok_or(Failure::WrongState(state))?;
        jail.pause.is_requested = true;
        jail.pause.waiting.push(client);
        self.step_pause(context);
        Ok(())
    }

    /// Resumes its processes.
    pub(super) fn resume(&mut self, context: &mut Context) -> Result<(), Failure> {
        let state = self.state();
        let jail = self.jail().ok_or(Failure::WrongState(state))?;
        jail.pause.is_requested = false;
        if std::mem::take(&mut jail.record.paused) {
            self.write_record().inspect_err(|_| {
                // The old state, for the next keeper too.
                if let Lifecycle::Running(jail) = &mut self.life {
                    jail.record.paused = true;
                    jail.pause.is_requested = true;
                }
            })?;
        }
        self.step_pause(context);
        Ok(())
    }

    /// Keeps its processes stopped until the client releases it.
    pub(super) fn hold_paused(
        &mut self,
        context: &mut Context,
        client: ClientId,
    ) -> Result<(), Failure> {
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
            context.replies.push_back((client, Reply::Paused { sandbox: self.key, answer }));
            return Ok(());
        }
        let jail = self.jail().ok_or(Failure::WrongState(state))?;
        jail.pause.holders.insert(client);
        jail.pause.waiting.push(client);
        self.step_pause(context);
        Ok(())
    }

    /// Records that the client does not hold it any more.
    pub(super) fn release(&mut self, context: &mut Context, client: ClientId) {
        if let Some(jail) = self.jail()
            && jail.pause.holders.remove(&client)
        {
            self.step_pause(context);
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
        context: &mut Context,
        length: Option<std::time::Duration>,
    ) -> Result<(), Failure> {
        let before = std::mem::replace(&mut self.record.lease, length.map(record::Lease::from_now));
        self.write_record().inspect_err(|_| self.record.lease = before)?;
        self.watch_lease(context);
        Ok(())
    }

    /// Schedules the check of its lease.
    pub(super) fn watch_lease(&mut self, context: &mut Context) {
        let Some(end) = self.record.lease.map(|lease| lease.end()) else { return };
        if self.lease_watched.is_none_or(|watched| end < watched) {
            self.lease_watched = Some(end);
            context.timers.at(end, Timer::Lease(self.key));
        }
    }

    /// Whether its lease has ended; if not, schedules the next check.
    pub(super) fn check_lease(&mut self, context: &mut Context) -> bool {
        self.lease_watched = None;
        let expired = self.record.lease.is_some_and(|lease| lease.end() <= BootTime::now());
        if !expired {
            self.watch_lease(context);
        }
        expired
    }
}
