//! The program `stockade-server`, and its composition root: it combines the crates on a data
//! directory.
//!
//! Only this crate chooses the runtime, the store and the processes. It contains no product logic.
//! The output of the program goes through `stockade_cli`.
//!
//! Reading order: `options` (the configuration of a host), `host` (its construction), `serve` (the
//! server), `listener` (its listener over TCP), `log` and `traces` (what it reports about requests), `web`
//! (what browsers use);
//! `cluster` is for several servers on one database, `confined` for a process inside a sandbox. `processes` lists the processes by
//! their first argument, `programs` how they are started, and `commands` contains the commands that
//! only this program has; `in_process` has the operations without a server, `offline` a data directory
//! that no server uses,
//! `agents` what agents are offered, and `snippets` the runner of snippets.

mod agents;
mod audit;
mod cluster;
mod commands;
mod confined;
mod connector;
mod database;
mod download;
mod egress;
mod host;
mod images;
mod in_process;
mod listener;
mod log;
mod log_file;
mod offline;
mod options;
mod processes;
mod programs;
mod serve;
mod serve_options;
mod server;
mod servers;
mod settings;
mod snippets;
mod takeover;
mod traces;
mod vault_key;
mod web;

use std::ffi::OsString;

use stockade_cli::Engine;

/// Runs the command in the arguments after the program's name; returns the exit code.
#[must_use]
pub fn run(arguments: &[OsString]) -> u8 {
    let engine = Engine { command: commands::run, launch: in_process::launch };
    processes::run(arguments).unwrap_or_else(|| stockade_cli::run(arguments, Some(engine)))
}
