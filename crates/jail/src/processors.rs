//! On which processor a process begins. The kernel's scheduler takes a processor of a virtual machine
//! that the host has halted for a busy one: so a new process waits until its maker blocks, beside a
//! processor that does nothing, or begins where another one is at work while its maker's goes idle.
//!
//! All this is help, no more: what cannot be said leaves the process where the kernel puts it. It
//! allocates nothing and makes bare calls.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The processors that a process may run on, where they are several.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Processors(Option<CpuSet>);

/// All of them but one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elsewhere {
    taken: usize,
    others: Option<CpuSet>,
}

impl Processors {
    /// Those of the caller.
    pub(crate) fn own() -> Self {
        Self(sched_getaffinity(None).ok().filter(|all| all.count() > 1))
    }

    /// Whether there are several, so that who waits on one keeps nobody from working on another.
    pub(crate) fn are_several(&self) -> bool {
        self.0.is_some()
    }

    /// All but the one that the caller is on.
    pub(crate) fn elsewhere(&self) -> Elsewhere {
        let (taken, mut others) = (sched_getcpu(), self.0);
        if let Some(others) = &mut others {
            others.unset(taken);
        }
        Elsewhere { taken, others }
    }

    /// Ties the caller to the processor that it is on, and so what it makes until
    /// [`Processors::free`].
    pub(crate) fn tie(&self) {
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        place(None, self.0.map(|_| here));
    }

    /// Lets the caller run on all of them again.
    pub(crate) fn free(&self) {
        place(None, self.0);
    }
}

impl Elsewhere {
    /// Has a process begin on one of these, or go on there once it is woken.
    pub(crate) fn send(&self, process: libc::pid_t) {
        place(Pid::from_raw(process), self.others);
    }

    /// The same for that process itself, which may have begun before its maker could say it.
    pub(crate) fn go(&self) {
        if sched_getcpu() == self.taken {
            place(None, self.others);
        }
    }
}

/// Has a process, or the caller, run on these only.
fn place(process: Option<Pid>, processors: Option<CpuSet>) {
    if let Some(processors) = processors {
        let _ = sched_setaffinity(process, &processors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ended, in_child, skipped};

    #[test]
    fn a_process_is_tied_sent_elsewhere_and_freed() {
        let ended = in_child(|| {
            let all = sched_getaffinity(None).unwrap();
            if all.count() < 2 {
                return 77;
            }
            let own = Processors::own();
            own.tie();
            let here = sched_getcpu();
            let tied = sched_getaffinity(None).unwrap();
            let alone = tied.count() == 1 && tied.is_set(here) && Processors::own().0.is_none();
            own.elsewhere().go();
            let left = sched_getcpu() != here;
            own.free();
            i32::from(!(alone && left && sched_getaffinity(None).unwrap() == all))
        });
        if ended == Ended::Exited(77) {
            skipped("there is one processor");
            return;
        }
        assert_eq!(ended, Ended::Exited(0));
    }
}
