//! Pid 1 of a jail, in its three kinds. None has a capability that reaches beyond the jail, nor any
//! file descriptor of the host but its socket and the locks that must be held as long as it lives.

pub(crate) mod calls;
pub(crate) mod fork;
pub(crate) mod once;
pub(crate) mod renames;
pub(crate) mod serve;
