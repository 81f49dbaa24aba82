//! The user that a process acts for, where it is in a user namespace of its own, in which it has another
//! id. The process sets it once, before it acts.

use std::sync::OnceLock;

static OUTSIDE: OnceLock<u32> = OnceLock::new();

/// Records the user's id outside of the namespace that this process has made.
pub fn set_outside_user(uid: u32) {
    // A process makes one such namespace.
    let _ = OUTSIDE.set(uid);
}

/// The user's id outside, if this process is in a namespace that it has made for more ids.
pub fn outside_user() -> Option<u32> {
    OUTSIDE.get().copied()
}
