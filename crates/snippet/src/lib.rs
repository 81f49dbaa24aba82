//! Snippets: small programs of one or several files that are checked, run in a jailed realm, and
//! reported in a transcript. The rules, limits and texts of snippets come from the reference
//! sandbox; the walls do not depend on them.

pub mod documents;
mod imports;
mod keys;
pub mod library;
mod payload;
mod queue;
mod run;
mod runner;
mod stack;
mod transcript;
mod validator;
pub mod worker;

pub use imports::Imports;
pub use keys::derivation_keys;
pub use payload::{Input, InvalidInput, Payload};
pub use run::execute;
pub use runner::{Error, Options, Runner};
pub use stack::sanitize_stack;
pub use stockade_script::SourceFile;
pub use transcript::{ErrorCode, Phase, Transcript, UsedLibrary};
pub use validator::{check, check_file};
