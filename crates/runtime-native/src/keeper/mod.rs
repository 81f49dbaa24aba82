//! The keeper: the small process that starts and supervises jails for every client of a data
//! directory. It outlives its clients, and the successor of a keeper that was killed continues its
//! work.
//!
//! One thread, one loop, and no step takes longer than a system call. Reading order: this file (the
//! process and its loop), `connections` and `requests` (the client interface), `sandbox` with
//! `launch`, `reports`, `execute`, `limits`, `ending` (one jail), `command` and `spool` (one command),
//! `adopt` and `record` (what a successor finds). Longer work is done by `helpers`.

mod adopt;
mod boot_time;
mod client;
mod command;
mod connections;
mod container;
mod context;
mod disk_reserve;
mod ending;
mod excess;
mod execute;
pub mod helpers;
mod jail;
mod launch;
mod limits;
mod network;
mod pause;
mod pipes;
mod pool;
mod reactor;
pub(super) mod record;
mod refused_calls;
mod reports;
mod requests;
mod sandbox;
mod spool;
#[cfg(test)]
mod tests;
mod timers;
mod usage;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use stockade_core::SandboxId;
use stockade_core::sandbox::LimitName;
use stockade_jail::{Identity, cgroup};
use stockade_plan::Users;

use self::boot_time::BootTime;
use self::client::Client;
use self::command::Command;
use self::context::{Context, STORE_DELAY};
use self::disk_reserve::DiskReserve;
use self::helpers::{Helpers, Job, Layers, Outcome};
use self::pool::Pool;
use self::reactor::{Interest, Source, Watched};
use self::sandbox::{Lifecycle, Sandbox};
use self::timers::Timer;
pub(crate) use self::usage::STARTER;
use self::usage::{DISK_INTERVAL, MEMORY_INTERVAL};
use super::bubblewrap::Launcher;
use super::directory::{self, Directory};
use super::socket::Listener;
use stockade_runtime::{Ending, Stream};

/// How often the leases of inits are renewed. Three renewals may be missed.
const RENEWAL: Duration = Duration::from_secs(15);
/// How long an unused keeper keeps running.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest wait when nothing is to be done.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// How long until a failed removal is retried.
const SWEEP_AGAIN: Duration = Duration::from_secs(60);
/// How long discarded entries are collected before they are removed.
const SWEEP_DELAY: Duration = Duration::from_millis(100);
/// How many new sandboxes one helper stores on the disk.
const MAX_STORED: usize = 256;
/// How long the pool's jails may take to end when the keeper exits.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long until a new keeper fills its pool: a client has started it to use it.
const FIRST_FILL_DELAY: Duration = Duration::from_millis(20);

/// What a keeper is started with.
#[derive(Debug)]
pub struct Options {
    /// The data directory.
    pub data: PathBuf,
    /// How many unused jails it keeps ready.
    pub pool: usize,
    /// What makes the innermost namespaces of its sandboxes.
    pub launcher: Launcher,
    /// The program of helpers: the keeper's own, whose entry point is [`helpers::run`] after
    /// [`helpers::ARGUMENT`].
    pub program: PathBuf,
}

#[cfg(test)]
impl Options {
    /// Options for a data directory of a test.
    fn for_tests(data: PathBuf) -> Self {
        Self { data, pool: 0, launcher: Launcher::Own, program: PathBuf::new() }
    }
}

/// Why a keeper has exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Another keeper is running.
    Another,
    /// It was unused.
    Idle,
    /// It drained for another version.
    Drained,
}

/// Why a keeper cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory cannot be used.
    #[error("cannot use the data directory")]
    Data(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// An entry of the keeper's directory cannot be used.
    #[error("cannot use the keeper's directory")]
    Use(#[from] stockade_bundle::beneath::Error),
    /// No identity for jails is available.
    #[error("cannot determine the identity of jails")]
    Identity(#[from] stockade_jail::identity::Error),
    /// A system call failed.
    #[error("cannot {step}")]
    Kernel {
        /// The step that failed.
        step: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Identifies a sandbox within one keeper process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key(u64);

/// Identifies a client within one keeper process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ClientId(u64);

/// The keeper.
#[derive(Debug)]
struct Keeper {
    context: Context,
    listener: Option<Watched<Listener>>,
    clients: HashMap<ClientId, Client>,
    next_client: u64,
    sandboxes: BTreeMap<Key, Sandbox>,
    next_sandbox: u64,
    by_id: BTreeMap<SandboxId, Key>,
    pool: Pool,
    helpers: Helpers,
    disk_reserve: DiskReserve,
    /// Clients that wait for the result of the network test, which a helper runs.
    provers: Vec<ClientId>,
    /// How often the test was started for them.
    proofs: u32,
    /// A buffer for output to a client.
    buffer: Vec<u8>,
    /// It accepts no new sandboxes.
    draining: bool,
    /// It accepts no new requests at all.
    ending: bool,
    /// Whether the removal of trash is scheduled.
    gathers_trash: bool,
    /// Since when it is unused.
    idle_since: Option<BootTime>,
    /// The lock, held while it runs, so that there is no second keeper.
    _lock: OwnedFd,
}

/// Runs a keeper until it is unused: the whole of its process, which must have a single thread.
///
/// # Errors
/// Why the keeper cannot start. Later errors are in its log.
pub fn run(options: &Options) -> Result<StopReason, Error> {
    let step = |step| move |source: io::Error| Error::Kernel { step, source };
    let directory = Directory::open(&options.data, options.launcher)
        .map_err(|error| Error::Data(error.into()))?;
    let Some(lock) = directory.lock()? else { return Ok(StopReason::Another) };
    daemonize(&directory)?;
    let users = Users::for_identity(&Identity::for_caller()?);
    let descriptors = raise_descriptors().map_err(step("raise the number of open files"))?;
    let pool = Pool::new(options.pool, descriptors);
    let context = Context::new(options, directory, users, descriptors)?;
    let mut keeper = Keeper {
        context,
        listener: None,
        clients: HashMap::new(),
        next_client: 1,
        sandboxes: BTreeMap::new(),
        next_sandbox: 1,
        by_id: BTreeMap::new(),
        pool,
        helpers: Helpers::new(options.program.clone()),
        disk_reserve: DiskReserve::default(),
        provers: Vec::new(),
        proofs: 0,
        buffer: vec![0; connections::OUTPUT_BYTES],
        draining: false,
        ending: false,
        gathers_trash: false,
        idle_since: None,
        _lock: lock,
    };
    keeper.context.log(&format!("keeper {} starts", std::process::id()));
    keeper.adopt()?;
    keeper.listen().map_err(step("listen for clients"))?;
    let ended = keeper.serve().map_err(step("wait for events"))?;
    keeper.shut_down().map_err(step("wait for events"))?;
    keeper.context.log(&format!("keeper {} exits: {ended:?}", std::process::id()));
    Ok(ended)
}

/// Detaches from its starter: session, directory, streams.
fn daemonize(directory: &Directory) -> Result<(), Error> {
    let step = |step| move |errno: rustix::io::Errno| Error::Kernel { step, source: errno.into() };
    // This fails for the leader of a process group, which is already separate from its starter.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/").map_err(step("leave the current directory"))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let log = directory.log()?;
    rustix::stdio::dup2_stdout(&log).map_err(step("write to the log"))?;
    rustix::stdio::dup2_stderr(&log).map_err(step("write to the log"))?;
    Ok(())
}

/// Raises this process's descriptor limit to its maximum, and returns that.
fn raise_descriptors() -> io::Result<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.unwrap_or(u64::MAX))
}

impl Keeper {
    fn next_key(&mut self) -> Key {
        self.next_sandbox += 1;
        Key(self.next_sandbox)
    }

    /// Runs a function on a sandbox, and removes the sandbox when nothing of it remains.
    fn with<T>(
        &mut self,
        key: Key,
        operation: impl FnOnce(&mut Sandbox, &mut Context) -> T,
    ) -> Option<T> {
        let sandbox = self.sandboxes.get_mut(&key)?;
        let result = operation(sandbox, &mut self.context);
        if sandbox.doomed && !sandbox.is_alive() {
            self.remove_sandbox(key);
        }
        Some(result)
    }

    fn remove_sandbox(&mut self, key: Key) {
        let Some(sandbox) = self.sandboxes.remove(&key) else { return };
        if let Some(id) = sandbox.id().filter(|id| self.by_id.get(id) == Some(&key)).cloned() {
            self.by_id.remove(&id);
        }
        self.pool.forget(key);
        sandbox.notify_removed(&mut self.context);
        self.refill_later();
    }

    /// Adopts what an earlier keeper has left, and waits until all inits have reported everything.
    fn adopt(&mut self) -> Result<(), Error> {
        for (name, _) in self.context.sandboxes.entries()? {
            let key = self.next_key();
            let Ok(name) = String::from_utf8(name) else { continue };
            let Some(sandbox) = Sandbox::adopt(&mut self.context, key, name) else { continue };
            if let Some(id) = sandbox.id() {
                self.by_id.insert(id.clone(), key);
            }
            self.sandboxes.insert(key, sandbox);
        }
        self.clear_staging()?;
        cgroup::sweep();
        let since = BootTime::now();
        while adopt::may_wait(since) && self.sandboxes.values().any(Sandbox::is_joining) {
            self.turn(adopt::ADOPT_TIMEOUT)
                .map_err(|source| Error::Kernel { step: "wait for events", source })?;
        }
        let silent = |sandbox: &&Sandbox| sandbox.is_joining();
        let silent: Vec<_> =
            self.sandboxes.values().filter(silent).map(|sandbox| sandbox.key).collect();
        for key in silent {
            self.with(key, |sandbox, context| {
                sandbox.distrust(context, "its init does not answer");
            });
        }
        Ok(())
    }

    /// Discards what clients have started to prepare and abandoned.
    fn clear_staging(&mut self) -> Result<(), Error> {
        let staging = self.context.directory.staging()?;
        for (name, _) in staging.entries()? {
            let path = directory::name(&name)?;
            let Ok(entry) = staging.open_dir(&path) else { continue };
            use rustix::fs::{FlockOperation, flock};
            if flock(entry.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok()
                && let Ok(name) = String::from_utf8(name)
            {
                let thrown = self.context.directory.discard(&staging, &name)?;
                self.context.has_trash |= thrown.is_some();
            }
        }
        Ok(())
    }

    fn listen(&mut self) -> io::Result<()> {
        let listener = self.context.directory.listen()?;
        self.listener =
            Some(self.context.reactor.watch(listener, Source::Listener, Interest::IN)?);
        self.context.timers.after(RENEWAL, Timer::RenewLeases);
        self.context.timers.at(BootTime::now(), Timer::DiskReserve);
        self.context.timers.after(FIRST_FILL_DELAY, Timer::Pool);
        Ok(())
    }

    /// Serves until it is unused.
    fn serve(&mut self) -> io::Result<StopReason> {
        loop {
            self.turn(LONGEST_WAIT)?;
            let needed = self.sandboxes.values().any(|box_| box_.is_alive() && box_.id().is_some());
            if self.draining && !needed {
                return Ok(StopReason::Drained);
            }
            if needed || !self.clients.is_empty() {
                self.idle_since = None;
                continue;
            }
            let now = BootTime::now();
            match self.idle_since {
                None => {
                    self.idle_since = Some(now);
                    self.context.timers.after(IDLE_TIMEOUT, Timer::Idle);
                }
                Some(since) if now.since(since) >= IDLE_TIMEOUT => return Ok(StopReason::Idle),
                Some(_) => {}
            }
        }
    }

    /// Ends the unused jails, and releases the others.
    fn shut_down(&mut self) -> io::Result<()> {
        self.ending = true;
        self.listener = None;
        self.context.directory.unlink_socket();
        self.clients.clear();
        let keys: Vec<_> = self.sandboxes.keys().copied().collect();
        for key in keys {
            self.with(key, |sandbox, context| {
                if sandbox.id().is_none() {
                    sandbox.destroy(context, None);
                }
            });
        }
        // Trash that was to be collected for a moment longer.
        self.sweep();
        let since = BootTime::now();
        let busy = |keeper: &Self| {
            keeper.sandboxes.values().any(Sandbox::is_alive)
                || keeper.helpers.sweeps()
                || !keeper.context.leftovers.is_empty()
        };
        while busy(self) && BootTime::now().since(since) < SHUTDOWN_TIMEOUT {
            self.turn(SHUTDOWN_TIMEOUT)?;
        }
        self.helpers.end();
        cgroup::sweep();
        Ok(())
    }

    /// Ends everything: the directory with the records was removed, so no keeper will find the
    /// sandboxes again.
    fn end_all(&mut self) {
        self.draining = true;
        let keys: Vec<_> = self.sandboxes.keys().copied().collect();
        for key in keys {
            self.with(key, |sandbox, context| sandbox.destroy(context, None));
        }
        self.by_id.clear();
        self.clients.clear();
    }

    /// Waits for an event, and handles it.
    fn turn(&mut self, longest: Duration) -> io::Result<()> {
        let wait = if self.context.dirty_clients.is_empty() && self.context.replies.is_empty() {
            self.context.timers.next(BootTime::now()).map_or(longest, |next| next.min(longest))
        } else {
            Duration::ZERO
        };
        for (source, happened) in self.context.reactor.wait(wait)? {
            self.event(source, happened);
        }
        let now = BootTime::now();
        while let Some(timer) = self.context.timers.due(now) {
            self.timer(timer);
        }
        self.add_joined();
        self.deliver();
        if self.context.programs.have_changed() {
            self.collect_skeletons();
        }
        self.context.refill_pipe_pool();
        self.sweep();
        Ok(())
    }

    fn event(&mut self, source: Source, happened: Interest) {
        match source {
            Source::Listener => self.accept(),
            Source::Client(id) => self.client_event(id, happened),
            Source::Launch(key) => {
                self.with(key, Sandbox::advance);
            }
            Source::Init(key) => {
                self.with(key, |sandbox, context| {
                    if happened.contains(Interest::OUT) {
                        sandbox.flush(context);
                    }
                    sandbox.receive_reports(context);
                });
            }
            Source::Exit(key) => {
                self.with(key, Sandbox::check_init);
            }
            Source::RefusedCalls(key) => {
                self.with(key, Sandbox::answer_refused_calls);
            }
            Source::Stream(key, number, stream) => self.read(key, number, stream),
            // No process writes to it.
            Source::PipePool => {}
            Source::Helper(number) => self.helper_ended(number),
        }
    }

    /// Reads what a command has written.
    fn read(&mut self, key: Key, number: u64, stream: Stream) {
        self.with(key, |sandbox, context| {
            let Some(command) = sandbox.commands.get_mut(&number) else { return };
            match command.read_stream(sandbox.dir.as_fd(), stream, &mut context.spool_context) {
                command::ReadOutcome::Nothing => {}
                command::ReadOutcome::More => context.dirty_clients.extend(command.subscribers()),
                command::ReadOutcome::Blocked => {
                    sandbox.distrust(context, "a terminal blocks its reader");
                }
                command::ReadOutcome::TooMuch => {
                    command.force_ending(sandbox.dir.as_fd(), Ending::OutputExceeded);
                    let kill = stockade_jail::control::Request::Kill { number };
                    sandbox.send(context, kill, Vec::new());
                }
            }
        });
    }

    fn timer(&mut self, timer: Timer) {
        match timer {
            Timer::RenewLeases if self.context.is_removed() => self.end_all(),
            Timer::RenewLeases => {
                let keys: Vec<_> = self.sandboxes.keys().copied().collect();
                for key in keys {
                    self.with(key, Sandbox::renew_init);
                }
                // An earlier keeper may have died before it recorded the groups that it created.
                cgroup::sweep();
                self.collect_skeletons();
                // A client may die and leave what it has started to prepare.
                if let Err(error) = self.clear_staging() {
                    self.context.log(&format!("cannot remove temporary files of clients: {error}"));
                }
                self.context.timers.after(RENEWAL, Timer::RenewLeases);
            }
            Timer::RefusedCalls(key) => {
                self.context.resting_listeners = self.context.resting_listeners.saturating_sub(1);
                self.with(key, Sandbox::listen_again);
            }
            Timer::Lease(key) => {
                self.with(key, |sandbox, context| {
                    if sandbox.check_lease(context) {
                        sandbox.expire(context);
                    }
                });
            }
            Timer::Launch(key) => {
                self.with(key, Sandbox::advance);
            }
            Timer::Stop(key) => {
                self.with(key, Sandbox::step_pause);
            }
            Timer::Listeners(key) => {
                self.with(key, Sandbox::check_listeners);
            }
            Timer::Return(key) => {
                self.with(key, |sandbox, _| {
                    sandbox.commands.values_mut().for_each(Command::stop_awaiting);
                });
            }
            Timer::Memory(key) => self.watch_memory(key),
            Timer::Disk(key) => self.measure(key),
            Timer::DiskReserve => self.watch_disk_reserve(),
            Timer::Groups => self.context.remove_leftovers(),
            Timer::Store => self.store(),
            Timer::Sweep => {
                self.gathers_trash = false;
                self.start_sweeping();
            }
            Timer::SweepAgain => self.context.has_trash = true,
            Timer::Pool => self.fill_pool(),
            Timer::PoolRest => self.shrink_pool(),
            Timer::Accept => {
                if let Some(listener) = &mut self.listener {
                    let _ = listener.set_interest(Interest::IN);
                }
            }
            Timer::Idle => {}
        }
    }

    /// Discards the skeletons that no root uses or will use, because the host has changed.
    fn collect_skeletons(&mut self) {
        let used = self.sandboxes.values().filter_map(Sandbox::skeleton);
        let used: BTreeSet<_> = used.chain(self.context.programs.skeletons()).collect();
        match self.context.directory.discard_unused_skeletons(&used) {
            Ok(discarded) => self.context.has_trash |= discarded,
            Err(error) => self.context.log(&format!("cannot remove old skeletons: {error}")),
        }
    }

    /// Starts to store new sandboxes on the disk.
    fn store(&mut self) {
        if self.helpers.stores() {
            self.context.timers.after(STORE_DELAY, Timer::Store);
            return;
        }
        let rest = self.context.unstored.split_off(MAX_STORED.min(self.context.unstored.len()));
        let names = std::mem::replace(&mut self.context.unstored, rest);
        if !self.context.unstored.is_empty() {
            self.context.timers.after(STORE_DELAY, Timer::Store);
        }
        let sandboxes = self.context.directory.path().join("sandboxes");
        if let Err(error) = self.helpers.store(&self.context.reactor, &sandboxes, &names) {
            self.context.log(&format!("cannot store new sandboxes on the disk: {error}"));
        }
    }

    /// Schedules the removal of trash a moment later: it needs a new process, and more entries are
    /// often discarded soon.
    fn sweep(&mut self) {
        if !self.context.has_trash || self.helpers.sweeps() {
            return;
        }
        if self.ending {
            self.start_sweeping();
        } else if !std::mem::replace(&mut self.gathers_trash, true) {
            self.context.timers.after(SWEEP_DELAY, Timer::Sweep);
        }
    }

    fn start_sweeping(&mut self) {
        if !self.context.has_trash || self.helpers.sweeps() {
            return;
        }
        self.context.has_trash = false;
        let trash = self.context.directory.path().join("trash");
        if let Err(error) = self.helpers.sweep(&self.context.reactor, &trash) {
            self.context.log(&format!("cannot empty the trash directory: {error}"));
        }
    }

    /// Starts the polling of the memory of a sandbox's processes.
    fn watch_memory(&mut self, key: Key) {
        let Some(sandbox) = self.sandboxes.get(&key) else { return };
        let (Some(limit), Lifecycle::Running(jail)) = (sandbox.watched.memory_bytes, &sandbox.life)
        else {
            return;
        };
        if let Err(error) = self.helpers.watch(&self.context.reactor, key, jail.record.init, limit)
        {
            self.context.log(&format!("{}: cannot watch its memory: {error}", sandbox.name));
            self.context.timers.after(MEMORY_INTERVAL, Timer::Memory(key));
        }
    }

    /// Starts the measurement of a sandbox's disk use.
    fn measure(&mut self, key: Key) {
        let Some(sandbox) = self.sandboxes.get_mut(&key) else { return };
        let Some(limit) = sandbox.watched.disk_bytes else { return };
        if !matches!(sandbox.life, Lifecycle::Running(_)) || sandbox.measuring {
            return;
        }
        if sandbox.is_active() || sandbox.is_waited_for() {
            let dir = self.context.directory.path().join("sandboxes").join(&sandbox.name);
            let layers = Layers { dir: &dir, subordinate: sandbox.record.subordinate };
            let started = self.helpers.measure(&self.context.reactor, key, layers, limit);
            sandbox.measuring = matches!(started, Ok(true));
        }
        if !sandbox.measuring {
            self.context.timers.after(DISK_INTERVAL, Timer::Disk(key));
        }
    }

    fn helper_ended(&mut self, number: u64) {
        let Some((job, outcome, said)) = self.helpers.ended(number) else { return };
        match job {
            Job::Prove => self.network_proved(outcome, &said),
            Job::Store if outcome == Outcome::Done => {}
            Job::Store => self.context.log("new sandboxes cannot be stored on the disk"),
            Job::Sweep if outcome == Outcome::Killed => self.context.has_trash = true,
            Job::Sweep => {
                if outcome == Outcome::Failed {
                    self.context.log("a file in the trash directory cannot be removed");
                    self.context.timers.after(SWEEP_AGAIN, Timer::SweepAgain);
                }
            }
            Job::Watch(key) => {
                self.with(key, |sandbox, context| {
                    // The limit was reported as watched, but can no longer be measured.
                    let is_over = matches!(outcome, Outcome::TooMuch | Outcome::Failed);
                    if is_over && sandbox.is_active() {
                        sandbox.used_too_much(context, LimitName::Memory);
                    }
                    context.timers.after(MEMORY_INTERVAL, Timer::Memory(key));
                });
            }
            Job::Share(key) => self.share_measured(key, outcome),
            Job::Measure(key) => {
                let taken = said.trim().parse().ok();
                self.with(key, |sandbox, context| sandbox.disk_measured(context, outcome, taken));
            }
        }
    }
}
