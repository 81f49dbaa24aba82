//! Workflow files: TypeScript and TSX of the user, run in a realm. Each run has its own realm in a
//! jailed process. After a crash, the realm is created again from the same sources.
//!
//! Reading order: `modules` (which files), `aliases` (their names), `portable` (the program of a sandbox), `realm` (the host's
//! side), `wire` (the messages), `serve` (the process's side), `library` (what files import).

mod aliases;
mod answers;
mod documents;
mod error;
mod json_text;
mod library;
mod modules;
mod portable;
mod processes;
mod realm;
mod serve;
mod sources;
mod wire;

pub use error::Error;
pub use processes::Processes;
pub use realm::{Console, Realm};
pub use sources::Sources;

pub(crate) use answers::{ModuleLocation, OpenAnswer, OriginAnswer, RenderAnswer};
pub(crate) use modules::{Program, project_of};
pub(crate) use portable::{WorkflowOrigin, pack};
pub(crate) use sources::Modules;
pub(crate) use wire::{ChildRequest, Message, ModelAnswer, ModelRequest, Scheme, TokenUsage};

/// Serves a realm on standard input and output until they are closed. Must be called before any other
/// thread exists, in a process whose memory contains nothing that a workflow must not read.
pub fn process() -> u8 {
    match stockade_script::persistent_realm::serve::<serve::RealmServer>() {
        Ok(code) => code,
        Err(error) => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            // The process that started this one reads the message.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
            1
        }
    }
}
