//! What the owner reports ([`Report`]).

use stockade_core::SandboxId;

use crate::error::Error;
use crate::event::Event;
use crate::message::Installed;

/// A report of the owner. `T` is the token that the caller passed with its request.
#[derive(Debug)]
pub enum Report<T> {
    /// A new process runs, and serves no sandbox yet: each sandbox of the source must be served
    /// again.
    Started,
    /// The process has ended, or cannot be started: no sandbox is served. Unless the source has no
    /// sandbox, another process is started at the owner's
    /// deadline.
    Ended(Error),
    /// A request was carried out or not.
    Answered {
        /// The request.
        token: T,
        /// The sandbox.
        sandbox: SandboxId,
        /// If it was about credentials: their state.
        outcome: Result<Option<Installed>, Error>,
    },
    /// An event.
    Event(Box<Event>),
}
