//! The code of a workflow file.

mod code;
mod console;
mod loaded_realm;
mod origin;
mod provider;

pub(super) use code::ScriptCode;
