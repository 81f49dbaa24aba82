//! The program `stockade-server`, and its composition root: puts the rooms together on a data directory.
//!
//! Only here is decided which runtime, which store and which processes there are. Nothing of the
//! product is decided here. What the program prints goes through `stockade_cli`.
//!
//! Reading order: `options` (what a host is made of), `host` (how it is put together), `serve` (the
//! local server); `confined` is for a process that is in a sandbox itself. `processes` lists what is
//! started by its first argument, `programs` how that is done, and `commands` has what only this program can do; `in_process` has
//! the operations without a server.

mod commands;
mod confined;
mod egress;
mod host;
mod in_process;
mod options;
mod processes;
mod programs;
mod serve;
mod server;
mod settings;

use std::ffi::OsString;

use stockade_cli::Engine;

/// Does what the arguments behind the program's name ask; the exit code.
#[must_use]
pub fn run(words: &[OsString]) -> u8 {
    let engine = Engine { command: commands::run, launch: in_process::launch };
    processes::run(words).unwrap_or_else(|| stockade_cli::run(words, Some(engine)))
}
