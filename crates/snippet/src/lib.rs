//! Snippets: small programs of one or several files that are checked, run behind the walls of a
//! realm, and answered with a transcript. What a snippet may say, its limits and every text come
//! from the reference sandbox; the walls do not depend on any of them.

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
