//! Limits that the kernel enforces for each process (setrlimit(2)).
//!
//! They bound single processes, not the jail: control groups bound what many processes use
//! together. The exception is `processes`, which a user namespace counts as a whole.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The maximal values for each process; `None` leaves the caller's limit.
///
/// A limit is never raised: where the caller has a lower one, that remains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Bytes of a core dump. Default 1, which for the kernel means none at all (`core(5)`): 0 would
    /// still start a handler that the host has configured, and that runs as root outside the jail.
    pub core_bytes: Option<u64>,
    /// Open file descriptors. Default 65 536: enough for servers, and cheap to close one by one.
    pub open_files: Option<u64>,
    /// Processes and threads of the user. In a user namespace whose ids are not host root's the
    /// kernel counts each user's within the namespace (since Linux 5.14). So this bounds a jail
    /// with one user as a whole, even where no control group can be created.
    pub processes: Option<u64>,
    /// Bytes of a written file.
    pub file_bytes: Option<u64>,
    /// Bytes of address space. Seldom useful: garbage-collected languages reserve far more than
    /// they use.
    pub address_space_bytes: Option<u64>,
    /// Bytes of private writable memory of a process, counted at allocation.
    pub data_bytes: Option<u64>,
    /// Bytes of the stack.
    pub stack_bytes: Option<u64>,
    /// Seconds of processor time.
    pub cpu_seconds: Option<u64>,
    /// Bytes that may be locked in memory. Default 8 MiB, the kernel's own.
    pub locked_bytes: Option<u64>,
    /// Bytes in POSIX message queues. Default 819 200, the kernel's own.
    pub message_queue_bytes: Option<u64>,
    /// The best nice value, as 20 minus the value. Default 0: no process can raise its priority.
    pub nice: Option<u64>,
    /// The highest real-time priority. Default 0: none.
    pub real_time_priority: Option<u64>,
    /// Signals that may be queued.
    pub pending_signals: Option<u64>,
}

/// How many limits there are.
pub(crate) const LIMITS: usize = 13;

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            core_bytes: Some(1),
            open_files: Some(65_536),
            processes: None,
            file_bytes: None,
            address_space_bytes: None,
            data_bytes: None,
            stack_bytes: None,
            cpu_seconds: None,
            locked_bytes: Some(8 << 20),
            message_queue_bytes: Some(819_200),
            nice: Some(0),
            real_time_priority: Some(0),
            pending_signals: None,
        }
    }
}

impl ResourceLimits {
    /// Lowers the limits of the calling process and of all processes that it will start. Allocates
    /// nothing.
    ///
    /// # Errors
    /// The error of setrlimit(2).
    pub fn apply(&self) -> io::Result<()> {
        for (resource, limit) in self.each() {
            if let Some(limit) = limit {
                lower(resource, limit)?;
            }
        }
        Ok(())
    }

    /// The limits as numbers, in the order of the fields.
    pub(crate) const fn to_numbers(self) -> [Option<u64>; LIMITS] {
        [
            self.core_bytes,
            self.open_files,
            self.processes,
            self.file_bytes,
            self.address_space_bytes,
            self.data_bytes,
            self.stack_bytes,
            self.cpu_seconds,
            self.locked_bytes,
            self.message_queue_bytes,
            self.nice,
            self.real_time_priority,
            self.pending_signals,
        ]
    }

    /// The inverse of [`ResourceLimits::to_numbers`].
    pub(crate) const fn from_numbers(numbers: [Option<u64>; LIMITS]) -> Self {
        let [
            core_bytes,
            open_files,
            processes,
            file_bytes,
            address_space_bytes,
            data_bytes,
            stack_bytes,
            cpu_seconds,
            locked_bytes,
            message_queue_bytes,
            nice,
            real_time_priority,
            pending_signals,
        ] = numbers;
        Self {
            core_bytes,
            open_files,
            processes,
            file_bytes,
            address_space_bytes,
            data_bytes,
            stack_bytes,
            cpu_seconds,
            locked_bytes,
            message_queue_bytes,
            nice,
            real_time_priority,
            pending_signals,
        }
    }

    const fn each(&self) -> [(Resource, Option<u64>); LIMITS] {
        [
            (Resource::Core, self.core_bytes),
            (Resource::Nofile, self.open_files),
            (Resource::Nproc, self.processes),
            (Resource::Fsize, self.file_bytes),
            (Resource::As, self.address_space_bytes),
            (Resource::Data, self.data_bytes),
            (Resource::Stack, self.stack_bytes),
            (Resource::Cpu, self.cpu_seconds),
            (Resource::Memlock, self.locked_bytes),
            (Resource::Msgqueue, self.message_queue_bytes),
            (Resource::Nice, self.nice),
            (Resource::Rtprio, self.real_time_priority),
            (Resource::Sigpending, self.pending_signals),
        ]
    }
}

/// Lowers one limit, both the soft and the hard one.
fn lower(resource: Resource, limit: u64) -> io::Result<()> {
    // Absent means unlimited.
    let at_most = |now: Option<u64>| Some(now.map_or(limit, |now| now.min(limit)));
    let now = getrlimit(resource);
    let lowered = Rlimit { current: at_most(now.current), maximum: at_most(now.maximum) };
    if lowered == now {
        return Ok(());
    }
    setrlimit(resource, lowered).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ChildExit, become_other_user, enter_user_namespace, in_child};

    #[test]
    fn limits_are_lowered_for_good_and_never_raised() {
        let limits = ResourceLimits { open_files: Some(50), ..ResourceLimits::default() };
        let before = getrlimit(Resource::Stack);
        let ended = in_child(|| {
            limits.apply().unwrap();
            for (resource, wanted) in limits.each() {
                let now = getrlimit(resource);
                if let Some(wanted) = wanted {
                    assert!(now.current.is_some_and(|now| now <= wanted), "{resource:?} {now:?}");
                    assert!(now.maximum.is_some_and(|now| now <= wanted), "{resource:?} {now:?}");
                }
            }
            assert_eq!(getrlimit(Resource::Stack), before);
            // A higher limit changes nothing.
            ResourceLimits { open_files: Some(60), ..limits }.apply().unwrap();
            assert_eq!(getrlimit(Resource::Nofile).maximum, Some(50));
            let files: Vec<_> =
                std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).take(100).collect();
            i32::from(files.len() >= 50)
        });
        assert_eq!(ended, ChildExit::Exited(0));
    }

    #[test]
    fn a_file_cannot_grow_past_its_limit() {
        let file = tempfile::tempfile().unwrap();
        let limits = ResourceLimits { file_bytes: Some(4096), ..ResourceLimits::default() };
        let ended = in_child(|| {
            limits.apply().unwrap();
            use std::io::Write as _;
            (&file).write_all(&[0; 8192]).map_or(1, |()| 0)
        });
        assert_eq!(ended, ChildExit::Killed(libc::SIGXFSZ));
        assert_eq!(file.metadata().unwrap().len(), 4096);
    }

    /// This stops a fork bomb where no control group can be created.
    #[test]
    fn processes_are_counted_within_the_user_namespace() {
        let ended = in_child(|| {
            become_other_user();
            enter_user_namespace();
            // Any number of processes of our user may run outside: they do not count.
            ResourceLimits { processes: Some(10), ..ResourceLimits::default() }.apply().unwrap();
            rustix::process::setsid().unwrap();
            let mut made = 0;
            while made < 20 {
                // SAFETY: the child only waits for the signal that ends it.
                match unsafe { libc::fork() } {
                    // SAFETY: as above.
                    0 => unsafe {
                        libc::pause();
                        libc::_exit(0)
                    },
                    -1 => break,
                    _ => made += 1,
                }
            }
            let refused = io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
            // SAFETY: the group is the session that was created above: this process and the
            // children.
            unsafe {
                libc::signal(libc::SIGTERM, libc::SIG_IGN);
                libc::kill(0, libc::SIGTERM);
            }
            assert!(refused);
            made
        });
        assert_eq!(ended, ChildExit::Exited(9));
    }
}
