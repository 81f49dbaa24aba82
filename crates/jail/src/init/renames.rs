//! Renames of directories where the overlay cannot do them: one that an ordinary user has mounted fails
//! with `EXDEV` for each directory of its lower layer (the kernel's `filesystems/overlayfs.rst`,
//! `redirect_dir`).
//!
//! ```text
//!   thread inside ── rename ──► init ── registers, memory ──► worker: which names?
//!                 ◄── the kernel makes the call ◄── all else ────┤
//!                 ◄── errno ◄──── it moves a directory of an overlay, and ends
//! ```
//!
//! The worker has the rights of the thread and no more. So it does not matter if a process changes a name
//! while it is read. Every doubt lets the kernel make the call, with the result that it has without any of
//! this. Whatever can take time happens in the worker, and init waits for none of it.

mod called;
mod family;
mod ids;
mod moved_directory;
mod place;
mod thread;
mod worker;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use libc::c_long;

use self::called::CalledRename;
pub(crate) use self::family::Families;
use self::family::Restricted;
use self::worker::{Answer, Ending, Means, Worker};
use crate::landlock::Ruleset;
use crate::refused_calls::{CallListener, FollowedCall};

/// How many renames may be under way. More of them wait.
const MAX_UNDER_WAY: usize = 16;
/// How many may wait until the kernel makes further ones.
const MAX_WAITING: usize = 1024;
/// How long a worker waits for its next rename: in a jail without activity, init is alone.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Whose rights the rename of a thread is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Init's ids, and threads with others get no help.
    OfInit,
    /// The ids of the thread, which are below this one.
    OfThread {
        /// Init's id.
        below: u32,
    },
}

/// The renames of a jail that are not left to the kernel.
#[derive(Debug)]
pub(super) struct Renames {
    means: Means,
    waiting: VecDeque<(FollowedCall, CalledRename)>,
    /// By worker, which says nothing more once it ends.
    under_way: BTreeMap<libc::pid_t, (Option<Worker>, FollowedCall)>,
    /// A worker for the next rename, and when it must end.
    idle: Option<(libc::pid_t, Worker, Instant)>,
    /// Workers that end.
    leaving: Vec<libc::pid_t>,
    /// For whom nothing is renamed, because a process has given up rights that init still has.
    restricted: Restricted,
}

impl Renames {
    pub(super) fn new(rights: Rights, ruleset: Option<Rc<Ruleset>>) -> Self {
        Self {
            means: Means { rights, ruleset },
            waiting: VecDeque::new(),
            under_way: BTreeMap::new(),
            idle: None,
            leaving: Vec::new(),
            restricted: Restricted::default(),
        }
    }

    /// Decides about one call: the kernel makes it, or a worker looks at it.
    pub(super) fn follow(
        &mut self,
        listener: &CallListener,
        families: Families<'_>,
        call: FollowedCall,
    ) {
        if c_long::from(call.number()) == libc::SYS_landlock_restrict_self {
            self.restricted.insert(call.thread(), families);
        }
        let rename = CalledRename::of(&call).filter(|_| self.waiting.len() < MAX_WAITING);
        match rename.filter(|_| !self.restricted.contains(call.thread(), families)) {
            Some(rename) => {
                self.waiting.push_back((call, rename));
                self.start(listener);
            }
            None => listener.proceed(&call),
        }
    }

    /// Nothing is left of this family.
    pub(super) fn forget_family(&mut self, family: libc::pid_t) {
        self.restricted.forget(family);
    }

    /// The workers that may say something.
    pub(super) fn workers(&self) -> impl Iterator<Item = (libc::pid_t, BorrowedFd<'_>)> {
        let all = self.under_way.iter();
        all.filter_map(|(process, (worker, _))| Some((*process, worker.as_ref()?.as_fd())))
    }

    /// Hears what a worker says.
    pub(super) fn hear(&mut self, listener: &CallListener, process: libc::pid_t) {
        let Some((end, _)) = self.under_way.get_mut(&process) else { return };
        let Some(worker) = end else { return };
        match worker.answer() {
            Answer::None => {}
            // Its exit code says what has become of the rename.
            Answer::Ends => *end = None,
            Answer::LeftToKernel => {
                let idle =
                    end.take().map(|worker| (process, worker, Instant::now() + IDLE_TIMEOUT));
                if let Some((_, call)) = self.under_way.remove(&process) {
                    listener.proceed(&call);
                }
                self.release();
                self.idle = idle;
                self.start(listener);
            }
        }
    }

    /// A child of init has ended with this status of `wait(2)`; false if it was no worker.
    pub(super) fn ended(
        &mut self,
        listener: Option<&CallListener>,
        process: libc::pid_t,
        status: i32,
    ) -> bool {
        if self.idle.take_if(|(idle, ..)| *idle == process).is_some() {
            return true;
        }
        if let Some(at) = self.leaving.iter().position(|leaving| *leaving == process) {
            self.leaving.swap_remove(at);
            return true;
        }
        let Some((_, call)) = self.under_way.remove(&process) else { return false };
        let Some(listener) = listener else { return true };
        match Ending::of(status) {
            Ending::Made(errno) => listener.complete(&call, errno),
            Ending::Unused => listener.proceed(&call),
        }
        self.start(listener);
        true
    }

    /// Whether this process is a worker.
    pub(super) fn has(&self, process: libc::pid_t) -> bool {
        self.under_way.contains_key(&process)
            || self.leaving.contains(&process)
            || self.idle.as_ref().is_some_and(|(idle, ..)| *idle == process)
    }

    /// Whether no worker is left.
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
            && self.waiting.is_empty()
            && self.leaving.is_empty()
            && self.idle.is_none()
    }

    /// When a worker has been idle for too long.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.idle.as_ref().map(|(.., until)| *until)
    }

    /// Makes the idle worker end once its time is over.
    pub(super) fn enforce_deadline(&mut self, now: Instant) {
        if self.next_deadline().is_some_and(|until| until <= now) {
            self.release();
        }
    }

    /// Makes the idle worker end.
    pub(super) fn release(&mut self) {
        // It ends when its channel does.
        self.leaving.extend(self.idle.take().map(|(process, ..)| process));
    }

    /// Starts as many of the waiting renames as may be under way.
    fn start(&mut self, listener: &CallListener) {
        while self.under_way.len() < MAX_UNDER_WAY
            && let Some((call, rename)) = self.waiting.pop_front()
        {
            // Once it no longer waits, its number may be that of another thread.
            let memory = thread::open_memory(rename.thread, self.means.rights)
                .filter(|_| listener.is_waiting(rename.id));
            let given = memory.map(|memory| self.give(listener, &rename, &memory));
            match given {
                Some(Ok((process, worker))) => {
                    self.under_way.insert(process, (Some(worker), call));
                }
                Some(Err(_)) | None => listener.proceed(&call),
            }
        }
    }

    /// Gives a rename to the idle worker, or to a new one.
    fn give(
        &mut self,
        listener: &CallListener,
        rename: &CalledRename,
        memory: &File,
    ) -> io::Result<(libc::pid_t, Worker)> {
        if let Some((process, worker, _)) = self.idle.take() {
            if worker.give(rename, memory).is_ok() {
                return Ok((process, worker));
            }
            self.leaving.push(process);
        }
        let (process, worker) = Worker::start(listener, &self.means)?;
        match worker.give(rename, memory) {
            Ok(()) => Ok((process, worker)),
            Err(error) => {
                self.leaving.push(process);
                Err(error)
            }
        }
    }
}
