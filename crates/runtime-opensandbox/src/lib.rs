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
//! Reading order: `address` (where the server is), `http` (one request, with its deadline), `upload` (a body
//! that is read while it is sent), `failure` (what an answer means), `repeat` (what is sent again), `lifecycle` and `execd` (the operations), `record`
//! (what is known of a sandbox here), `client`, `creation` and `state`, `script`, `commands`, `follow` and `feed`
//! (commands), `files`, `tree`, `runtime` (the trait).

mod address;
mod client;
mod commands;
mod creation;
mod execd;
mod failure;
mod feed;
mod files;
mod follow;
mod http;
mod lifecycle;
mod record;
mod repeat;
mod request;
mod runtime;
mod script;
mod state;
mod status;
mod tree;
mod upload;

pub use address::{Address, Protocol};
pub use client::{OpenSandbox, Options};
