//! Renames of directories where the overlay cannot do them: one that an ordinary user has mounted fails
//! with `EXDEV` for each directory of its lower layer (the kernel's `filesystems/overlayfs.rst`,
//! `redirect_dir`).
//!
//! ```text
//!   thread inside ── rename ──► init ── fork ──► a child: which names? ── a directory of an overlay: moves it ──┐
//!                 ◄── the kernel makes the call ──── all else ──┘                                               │
//!                 ◄── errno ──────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The child has the rights of the thread and no more. So it does not matter if a process changes a name
//! while it is read. Every doubt lets the kernel make the call, with the result that it has without any of
//! this. Whatever can take time happens in the child, and init goes on.

mod called;
mod family;
mod ids;
mod moved_directory;
mod place;
mod thread;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use libc::c_long;

use self::called::CalledRename;
pub(crate) use self::family::Families;
use self::family::Restricted;
use self::thread::CallingThread;
use crate::landlock::Ruleset;
use crate::refused_calls::{CallListener, FollowedCall};
use crate::sys::{self, ForkResult};

/// How many renames may be under way. More of them wait.
const MAX_UNDER_WAY: usize = 16;
/// How many may wait until the kernel makes further ones.
const MAX_WAITING: usize = 1024;
/// The exit code of a child that leaves the call to the kernel. No error number is as high.
const LEFT_TO_KERNEL: i32 = 255;
/// How many seconds a child may take to find out what is renamed. Memory can be a file of the host that
/// does not answer.
const SECONDS_TO_READ: u32 = 5;

/// Whose rights a child of init takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// It keeps init's ids, and threads with others get no help.
    OfInit,
    /// It takes on the ids of the thread, which are below this one.
    OfThread {
        /// Init's id.
        below: u32,
    },
}

/// The renames of a jail that are not left to the kernel.
#[derive(Debug)]
pub(super) struct Renames {
    rights: Rights,
    ruleset: Option<Rc<Ruleset>>,
    waiting: VecDeque<(FollowedCall, CalledRename)>,
    /// By the process that makes it.
    under_way: BTreeMap<libc::pid_t, FollowedCall>,
    /// For whom nothing is renamed, because a process has given up rights that init still has.
    restricted: Restricted,
}

impl Renames {
    pub(super) fn new(rights: Rights, ruleset: Option<Rc<Ruleset>>) -> Self {
        Self {
            rights,
            ruleset,
            waiting: VecDeque::new(),
            under_way: BTreeMap::new(),
            restricted: Restricted::default(),
        }
    }

    /// Decides about one call: the kernel makes it, or a child of init looks at it.
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

    /// A child of init has ended with this status of `wait(2)`; false if it made no rename.
    pub(super) fn ended(
        &mut self,
        listener: Option<&CallListener>,
        child: libc::pid_t,
        status: i32,
    ) -> bool {
        let Some(call) = self.under_way.remove(&child) else { return false };
        let Some(listener) = listener else { return true };
        match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
            (true, LEFT_TO_KERNEL) => listener.proceed(&call),
            (true, errno) => listener.complete(&call, errno),
            // It took too long to read.
            _ if libc::WTERMSIG(status) == libc::SIGALRM => listener.proceed(&call),
            _ => listener.complete(&call, libc::EIO),
        }
        self.start(listener);
        true
    }

    /// Whether this process makes a rename.
    pub(super) fn has(&self, child: libc::pid_t) -> bool {
        self.under_way.contains_key(&child)
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.waiting.is_empty()
    }

    /// Starts as many of the waiting renames as may be under way.
    fn start(&mut self, listener: &CallListener) {
        while self.under_way.len() < MAX_UNDER_WAY
            && let Some((call, rename)) = self.waiting.pop_front()
        {
            let thread = CallingThread::open(call.thread(), self.rights);
            let Some(thread) = thread.filter(|_| listener.is_waiting(&call)) else {
                listener.proceed(&call);
                continue;
            };
            // SAFETY: init has a single thread, and the processes that share its memory hold no lock.
            match unsafe { sys::fork() } {
                Ok(ForkResult::Child) => {
                    let made = self.make(listener, &call, &thread, &rename);
                    sys::exit_now(made.unwrap_or(LEFT_TO_KERNEL));
                }
                Ok(ForkResult::Parent(child, _)) => _ = self.under_way.insert(child, call),
                Err(_) => listener.proceed(&call),
            }
        }
    }

    /// In a child of init: the errno of a rename, or 0. `None` if the kernel is to make it.
    fn make(
        &self,
        listener: &CallListener,
        call: &FollowedCall,
        thread: &CallingThread,
        rename: &CalledRename,
    ) -> Option<i32> {
        sys::set_alarm(SECONDS_TO_READ);
        thread.take_on_file_ids()?;
        let (old, new) = rename.find(thread)?;
        // Only now is it certain that all of it belongs to the thread that has made the call.
        if !listener.is_waiting(call) {
            return None;
        }
        listener.close_copy();
        thread.take_on_ids()?;
        sys::set_alarm(0);
        if let Some(rules) = &self.ruleset {
            rules.restrict().ok()?;
        }
        Some(match moved_directory::rename(&old, &new, rename.flags) {
            Ok(()) => 0,
            Err(error) => error.raw_os_error(),
        })
    }
}
