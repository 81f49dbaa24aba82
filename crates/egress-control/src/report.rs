//! What the owner reports ([`Report`]).

use stockade_core::SandboxId;

use crate::error::Error;
use crate::event::Event;

/// What the owner reports. `T` is what the caller gave with its request.
#[derive(Debug)]
pub enum Report<T> {
    /// A new process runs, and serves no sandbox yet: each of the source's is to be served anew.
    Started,
    /// The process has ended, or cannot be started: no sandbox is served. Unless the source has no
    /// sandbox, another process is started at the owner's
    /// deadline.
    Ended(Error),
    /// A request was carried out or not.
    Answered {
        /// The request.
        token: T,
        /// The sandbox that it was about.
        sandbox: SandboxId,
        /// Where credentials were given: all certificates (PEM) that programs inside have to trust.
        outcome: Result<Option<String>, Error>,
    },
    /// Something that happened.
    Event(Box<Event>),
}
