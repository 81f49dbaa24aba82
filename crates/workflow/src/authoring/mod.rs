//! Workflow files: TypeScript and TSX of the user, run in a realm. Each run has a realm of its own, in a
//! jailed process; it is made again from the same sources after a crash.
//!
//! Reading order: `modules` (which files), `portable` (the program of a sandbox), `realm` (the host's
//! side), `wire` (the messages), `serve` (the process's side), `library` (what files import).

mod answers;
mod error;
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

pub(crate) use answers::{ModulePlace, OpenAnswer, OriginAnswer, RenderAnswer};
pub(crate) use modules::Program;
pub(crate) use portable::{WorkflowOrigin, pack};
pub(crate) use sources::Modules;
pub(crate) use wire::{ChildRequest, Word};

/// Serves as the process of a realm, on standard input and output, until they end. Must be called
/// before any thread exists, in a process with nothing in memory that a workflow may not know.
pub fn process() -> u8 {
    match stockade_script::lasting::serve::<serve::RealmServer>() {
        Ok(code) => code,
        Err(error) => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            // The process that started it reads this.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
            1
        }
    }
}
