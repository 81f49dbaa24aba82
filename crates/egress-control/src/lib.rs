//! The protocol between the egress process and its owner, and the owner's side: how the process is
//! started, which requests it receives, and what a restarted process is sent again.
//!
//! ```text
//!   owner (`stockade run`, the server)                         egress process (`stockade-egress`)
//!   Source: policy, credentials ── Owner ── requests, descriptors ──► serves sandboxes
//!                                    ▲ ──── responses, events ──────┘
//! ```
//!
//! Reading order: `message` (requests, responses, events), `socket` (how they travel), `process` (the
//! child process), then `owner` and `running`: the one state machine for both owners. It waits for
//! nothing by itself. `stockade run` drives it with the blocking calls in `blocking`; the server waits on its
//! socket in an async task.
//!
//! There is no TLS here, no name is resolved and nothing is connected to: the engine that does those
//! is `stockade-egress`, and an owner need not link it.

mod authorities;
mod blocking;
mod credential;
mod error;
mod event;
mod message;
mod owner;
mod process;
mod report;
mod restart;
mod running;
mod socket;
mod source;

pub use authorities::Authorities;
pub use credential::{Credential, Values};
pub use error::{Error, not_served};
pub use event::{Event, Outcome};
pub use message::{Envelope, Installed, LISTENERS, MESSAGE_BYTES, Message, Request, VERSION};
pub use owner::Owner;
pub use process::{Process, Program};
pub use report::Report;
pub use socket::{OwnerSocket, receive, send};
pub use source::Source;
