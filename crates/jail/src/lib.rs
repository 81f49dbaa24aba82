//! Turns a complete [`JailSpec`] into one confined process tree, and contains the small init that
//! is pid 1 of it.
//!
//! This is the only crate with `unsafe`. It knows nothing of sandboxes, bundles, HTTP or databases,
//! and uses no other crate of the workspace. It fails closed: if a wall cannot be enabled, the
//! launch ends with the wall's name and nothing of the command has run.
//!
//! Reading order: `spec` (the input), `launch` (the outer half), `inside` (the inner half), `init`
//! (pid 1, of one command or of many), `command` (up to the exec). Around a jail of one command,
//! `supervise` relays streams, waits and ends the jail; `refused_calls` hears what the filter
//! refuses, `init/renames` does for programs what an overlay cannot. A persistent jail is controlled through
//! `control`, one that forks workers through `zygote`.

#![expect(unsafe_code, reason = "the one room that talks to the kernel directly")]

mod access_mounts;
mod address_space;
mod attach;
mod boot_id;
pub mod capabilities;
pub mod cgroup;
mod channel;
mod command;
pub mod confined;
pub mod container;
pub mod control;
mod deferred_close;
mod dev_proc;
mod executed;
mod file_user;
mod helper_step;
mod host_overlay;
pub mod identity;
mod init;
mod init_allocator;
mod inside;
pub mod interrupt;
pub mod landlock;
mod launch;
mod mounts;
pub mod network;
mod nodes;
mod optional_mount;
mod pty;
mod raw;
mod read_only;
mod refused_calls;
mod relay;
pub mod rlimits;
pub mod seccomp;
mod spec;
pub mod subordinate;
mod supervise;
mod sys;
pub mod system;
#[cfg(test)]
mod testing;
mod vm_helper;
mod walls;
pub mod watch;
pub mod zygote;
mod zygote_messages;

/// Marks every file descriptor beyond the three standard streams close-on-exec, whichever code
/// opened it, so that no program started from now on inherits it.
///
/// # Errors
/// The error of `close_range(2)`.
pub fn inherit_nothing() -> std::io::Result<()> {
    sys::close_on_exec_from(3)
}

pub use executed::{ARGUMENT as EXECUTED_INIT, run as executed_init};
pub use file_user::{as_file_user, with_caller_rights};
pub use identity::{Identity, Range};
pub use init_allocator::InitAllocator;
pub use launch::{
    Error, Jail, Launching, PersistentJail, launch, launch_in_container, launch_persistent,
};
pub use refused_calls::{
    CallListener, CallsState, REST as REFUSED_CALLS_REST, RefusedCall, RefusedCalls,
};
pub use relay::{Captured, Sink};
pub use spec::{
    Access, AccessMount, AccessMounts, Bubblewrap, Command, ContainerSettings, HostTree, JailSpec,
    Mount, Network, OptionalMount, Overlay, Owners, Payload, Rights, Scratch, Serve, Source,
    Streams, Task, WindowSize, ZygoteTask,
};
pub use supervise::{
    Ending, FirstRequest, Outcome, Signals, Supervision, Teardown, Watch, supervise,
};
pub use walls::Wall;
pub use zygote_messages::{Confinement, WorkerExit, decode_exit};
