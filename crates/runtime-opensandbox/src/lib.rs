//! The backend of sandboxes that a server elsewhere holds: one of OpenSandbox, or another Stockade. It
//! uses only the documented interfaces of OpenSandbox 1.1: the life cycle below `/v1`, and `execd`
//! inside, for commands and files.
//!
//! A command is a script of ours that writes its output to files inside, which are read by their
//! offsets: so output is complete byte by byte, and found again after a crash of this process. What
//! the interface cannot do is declared as missing, and refused.
//!
//! The key of the server is sent to the server only, in requests about the life cycle: never to the
//! address of a sandbox, and never into one. What a sandbox answers is not trusted.
//!
//! Reading order: `address` (where the server is), `lifecycle` and `execd` (the operations), `record`
//! (what is known of a sandbox here), `client`, `creation` and `state`, `script`, `commands`, `follow` and `feed`
//! (commands), `files`, `tree`, `runtime` (the trait). Requests, records and archives are those of
//! `runtime-remote`.

mod address;
mod client;
mod commands;
mod copies;
mod creation;
mod execd;
mod feed;
mod files;
mod follow;
mod lifecycle;
mod record;
mod request;
mod runtime;
mod script;
mod state;
mod status;
mod tree;

pub use address::Address;
pub use client::{OpenSandbox, Options};

/// The server, as errors name it.
const SERVICE: stockade_runtime_remote::Service = stockade_runtime_remote::Service {
    name: "the server of OpenSandbox",
    key_remedy: "OPENSANDBOX_API_KEY=KEY stockade serve",
};
