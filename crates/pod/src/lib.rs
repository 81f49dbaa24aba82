//! What runs in a pod of a cluster, and how it is spoken to.
//!
//! ```text
//!   pod ── process 1 (`process`) ──┬── keeper of `runtime-native`
//!          │                       └── init of `jail` ── commands
//!          └── exec: a call (`call`) ── keeper
//! ```
//!
//! A call is a process that the cluster starts for one request: it reads the request from its standard input
//! (`frame`, `wire`), lets the keeper do it, and writes the reply to its standard output. `fault` carries errors.
//! All three are the program `stockade`, which an init container has copied into the pod ([`run`]).

mod call;
mod events;
mod fault;
mod first;
mod frame;
mod install;
mod process;
mod start;
mod wire;

use std::ffi::OsString;
use std::path::Path;

pub use fault::Fault;
pub use frame::{Frame, read_frame, write_frame};
pub use wire::{CommandForm, Reply, Request};

/// The first argument of the program as one of these processes.
pub const ARGUMENT: &str = "__pod";
/// The second argument: the init container, which copies the program to a directory.
pub const INSTALL: &str = "install";
/// The second argument: process 1.
pub const FIRST: &str = "first";
/// The second argument: a call.
pub const CALL: &str = "call";
/// The second argument: the init of the commands.
const INIT: &str = "init";
/// The second argument: what a call starts in place of a keeper, which is for process 1 to start.
const AWAIT_KEEPER: &str = "await-keeper";

/// The directory with the program in a pod.
pub const PROGRAMS: &str = "/stockade/bin";
/// The name of the program there.
pub const PROGRAM: &str = "stockade";
/// Where the volume for the records of the keeper is in a pod.
pub const VOLUME: &str = "/stockade/data";
/// The directory with the records: everybody may write to the volume of a cluster itself.
const DATA: &str = "/stockade/data/keeper";
/// The first argument of the program as a keeper.
const KEEPER: &str = "__keeper";

/// Runs one of these processes, from the arguments after [`ARGUMENT`]; returns its exit code.
#[must_use]
pub fn run(arguments: &[OsString]) -> u8 {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [INSTALL, to] => install::run(Path::new(to)),
        [FIRST] => process::run(),
        [CALL] => call::run(),
        [INIT, socket] => process::init(Path::new(socket)),
        // The keeper of process 1 has the lock of the directory, or will have it in a moment.
        [AWAIT_KEEPER, ..] => 0,
        _ => 2,
    }
}
