//! The shared state of all parts of the keeper, with the queue of replies to clients.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use stockade_bundle::beneath::{Dir, Rename};
use stockade_jail::cgroup::{Group, ParentGroup};

use super::boot_time::{self, BootTime};
use super::pipes::{Pipe, PipePool, Pipes};
use super::reactor::Reactor;
use super::spool::SpoolContext;
use super::timers::{Timer, Timers};
use super::{ClientId, Error, Key, Options};
use crate::bubblewrap::Launcher;
use crate::directory::{self, Directory};
use crate::wire::{Answer, Failure, Metrics};
use stockade_plan::Programs;
use stockade_plan::Users;
use stockade_runtime::{Ending, Offsets};

/// How many descriptors a new sandbox leaves for the commands of existing sandboxes. These are
/// maxima: a fraction of them applies if the descriptor limit is low.
const SANDBOX_RESERVE: u64 = 192;
/// How many a command leaves for work that must continue: spooling output, and launches in
/// progress.
const COMMAND_RESERVE: u64 = 96;
/// How many a client leaves. Some client must be able to destroy a sandbox.
const CLIENT_RESERVE: u64 = 32;
/// The prefix of directories with the files of sandboxes whose records are lost. No id has it.
pub(super) const KEPT: &str = ".kept-";
/// How long new sandboxes are collected before a helper stores them on the disk.
pub(super) const STORE_DELAY: Duration = Duration::from_millis(100);
/// How long until the keeper retries to remove control groups that were in use.
const GROUP_RETRY: Duration = Duration::from_millis(50);

/// The shared state.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) reactor: Reactor,
    pub(super) timers: Timers,
    pub(super) spool_context: SpoolContext,
    pub(super) pipe_pool: PipePool,
    pub(super) metrics: Metrics,
    /// Queued replies, in this order.
    pub(super) replies: VecDeque<(ClientId, Reply)>,
    /// Clients that may have new events of the command that they are subscribed to.
    pub(super) dirty_clients: BTreeSet<ClientId>,
    /// The data directory.
    pub(super) data: PathBuf,
    pub(super) directory: Directory,
    pub(super) sandboxes: Dir,
    /// The host's own programs that sandboxes see.
    pub(super) programs: Programs,
    /// The id of this boot of the host.
    pub(super) host_start: String,
    /// The control group below which groups are created.
    pub(super) parent_group: ParentGroup,
    pub(super) last_number: u64,
    /// Groups that were still in use when they were to be removed, and the directories whose
    /// records name them, which are discarded with them.
    pub(super) leftovers: Vec<(Group, Option<String>)>,
    pub(super) users: Users,
    /// What makes the innermost namespaces of the sandboxes.
    pub(super) launcher: Launcher,
    /// This process's limit of descriptors.
    pub(super) descriptors: u64,
    pub(super) log: File,
    /// Sandboxes whose init has started to serve.
    pub(super) joined: Vec<Key>,
    /// Networks with a policy are available here.
    pub(super) has_network: bool,
    /// The trash is not empty.
    pub(super) has_trash: bool,
    /// New sandboxes that are not known to be on the disk.
    pub(super) unstored: Vec<String>,
    /// How many listeners for refused system calls rest.
    pub(super) resting_listeners: u32,
}

/// A reply to a client.
#[derive(Debug)]
pub(super) enum Reply {
    /// The response to its request, with its descriptors.
    Answer(Box<Answer>, Vec<OwnedFd>),
    /// It is subscribed to a command from these offsets on; the descriptor is that of the command's
    /// input.
    Attached { sandbox: Key, number: u64, from: Offsets, input: Option<OwnedFd> },
    /// The sandbox is held for the client.
    Paused { sandbox: Key, answer: Box<Answer> },
    /// The command that it is subscribed to has ended like this, and its output is no longer
    /// stored, including the part that the client has not received.
    Gone(Vec<Answer>, Ending),
}

impl Context {
    pub(super) fn new(
        options: &Options,
        directory: Directory,
        users: Users,
        descriptors: u64,
    ) -> Result<Self, Error> {
        let step = |step| move |source| Error::Kernel { step, source };
        Ok(Self {
            reactor: Reactor::new().map_err(step("make an event queue"))?,
            timers: Timers::default(),
            spool_context: SpoolContext::new().map_err(step("open /dev/null"))?,
            pipe_pool: PipePool::default(),
            metrics: Metrics::default(),
            replies: VecDeque::new(),
            dirty_clients: BTreeSet::new(),
            launcher: options.launcher,
            sandboxes: directory.sandboxes()?,
            programs: Programs::new(directory.skeletons()?, options.data.clone()),
            data: options.data.clone(),
            log: directory.log()?,
            directory,
            host_start: boot_time::host_start().map_err(step("read the boot id of the host"))?,
            parent_group: ParentGroup::prepare(),
            last_number: 0,
            leftovers: Vec::new(),
            users,
            descriptors,
            joined: Vec::new(),
            has_network: false,
            // An earlier keeper may have left entries there.
            has_trash: true,
            unstored: Vec::new(),
            resting_listeners: 0,
        })
    }

    pub(super) fn answer(&mut self, client: ClientId, answer: Answer) {
        self.replies.push_back((client, Reply::Answer(Box::new(answer), Vec::new())));
    }

    pub(super) fn refuse(&mut self, client: ClientId, failure: Failure) {
        self.answer(client, Answer::Failed(failure));
    }

    /// Sends the same response to several clients.
    pub(super) fn answer_all(&mut self, clients: Vec<ClientId>, answer: &Answer) {
        for client in clients {
            self.answer(client, answer.clone());
        }
    }

    /// Whether the directory of all sandboxes was removed.
    pub(super) fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.sandboxes).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// A number that no keeper of this host has used before.
    pub(super) fn next_number(&mut self) -> u64 {
        let now = u64::try_from(BootTime::now().after_host_start().as_nanos()).unwrap_or(u64::MAX);
        self.last_number = now.max(self.last_number + 1);
        self.last_number
    }

    /// Writes a line into the log.
    pub(super) fn log(&mut self, text: &str) {
        let line = format!("{} {text}\n", boot_time::wall_ms());
        // If the log cannot be written, everything else continues.
        let _ = self.log.write_all(line.as_bytes());
    }

    /// Refuses a new sandbox when few descriptors are left. The kernel assigns the lowest free
    /// number, so a new descriptor shows how many are in use.
    pub(super) fn afford_sandbox(&self, newest: &impl AsRawFd) -> Result<(), Failure> {
        self.check_descriptors(newest, SANDBOX_RESERVE.min(self.descriptors / 2))
    }

    /// Refuses an operation in a sandbox when still fewer are left.
    pub(super) fn afford_command(&self, newest: &impl AsRawFd) -> Result<(), Failure> {
        self.check_descriptors(newest, COMMAND_RESERVE.min(self.descriptors / 4))
    }

    /// Refuses a client when almost none are left.
    pub(super) fn afford_client(&self, newest: &impl AsRawFd) -> Result<(), Failure> {
        self.check_descriptors(newest, CLIENT_RESERVE.min(self.descriptors / 8))
    }

    fn check_descriptors(&self, newest: &impl AsRawFd, left: u64) -> Result<(), Failure> {
        let number = u64::from(newest.as_raw_fd().unsigned_abs());
        if number.saturating_add(left) < self.descriptors {
            return Ok(());
        }
        Err(Failure::Exhausted(format!(
            "the keeper may open only {} files, and has none left for this",
            self.descriptors
        )))
    }

    /// Removes control groups, now or when no process is in them any more, and then discards the
    /// directory whose record names them, if there is one. Returns false if that is still to be
    /// done.
    pub(super) fn remove_groups(&mut self, mut groups: Group, directory: Option<String>) -> bool {
        let removed = groups.try_remove().is_ok();
        if removed {
            groups.release();
            directory.iter().for_each(|name| self.discard(name));
        } else {
            self.leftovers.push((groups, directory));
            self.timers.after(GROUP_RETRY, Timer::Groups);
        }
        removed
    }

    /// Retries to remove the leftover groups.
    pub(super) fn remove_leftovers(&mut self) {
        for (groups, directory) in std::mem::take(&mut self.leftovers) {
            self.remove_groups(groups, directory);
        }
    }

    /// Renames a sandbox's directory, so that its id is free. The next keeper sees from the record
    /// that no client needs the sandbox any more.
    pub(super) fn set_aside(&mut self, name: &str) -> String {
        let new = format!(".gone-{}-{}", std::process::id(), self.next_number());
        let renamed = directory::name(name).and_then(|from| {
            let to = directory::name(&new)?;
            self.sandboxes.rename(&from, &self.sandboxes, &to, Rename::NoReplace)
        });
        match renamed {
            Ok(()) => new,
            Err(error) => {
                self.log(&format!("cannot rename {name}: {error}"));
                name.to_owned()
            }
        }
    }

    /// Makes a helper store a new sandbox on the disk a moment later, with others.
    pub(super) fn store_soon(&mut self, name: &str) {
        if self.unstored.is_empty() {
            self.timers.after(STORE_DELAY, Timer::Store);
        }
        self.unstored.push(name.to_owned());
    }

    /// Renames the directory of a sandbox whose record is lost, so that its files remain and its id
    /// is free. Only the user removes such a directory.
    pub(super) fn keep_files(&mut self, name: &str) {
        let new = format!("{KEPT}{name}-{}", self.next_number());
        let renamed = directory::name(name).and_then(|from| {
            let to = directory::name(&new)?;
            self.sandboxes.rename(&from, &self.sandboxes, &to, Rename::NoReplace)
        });
        match renamed {
            Ok(()) => self.log(&format!("the files of {name} are kept in sandboxes/{new}")),
            Err(error) => self.log(&format!("cannot rename {name}: {error}")),
        }
    }

    /// Discards a sandbox's directory.
    pub(super) fn discard(&mut self, name: &str) {
        match self.directory.discard(&self.sandboxes, name) {
            Ok(_) => self.has_trash = true,
            Err(error) => self.log(&format!("cannot move {name} to the trash directory: {error}")),
        }
    }
}

impl Context {
    /// Pipes for a command.
    pub(super) fn pipes(&mut self) -> Result<Pipes, Failure> {
        match self.pipe_pool.pipes.take() {
            Some(pipes) => Ok(pipes),
            None => self.make_pipes(),
        }
    }

    /// Makes pipes for the next command if one was started, since another may follow.
    pub(super) fn refill_pipe_pool(&mut self) {
        if std::mem::take(&mut self.pipe_pool.is_wanted) && self.pipe_pool.pipes.is_none() {
            // The next command reports the error.
            self.pipe_pool.pipes = self.make_pipes().ok();
        }
    }

    fn make_pipes(&self) -> Result<Pipes, Failure> {
        let pipes = Pipes::new(&self.reactor).map_err(|error| {
            Failure::Exhausted(format!("cannot create the command's pipes: {error}"))
        })?;
        let Pipes { nothing, output, error } = &pipes;
        let ends = nothing.iter().chain([output, error].into_iter().flat_map(Pipe::ends));
        ends.into_iter().try_for_each(|end| self.afford_command(end))?;
        Ok(pipes)
    }
}
