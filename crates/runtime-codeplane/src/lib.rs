//! The backend of workspaces that Codeplane holds: their life cycle is the documented HTTP interface,
//! commands and files go over SSH.
//!
//! A command is a script of ours that writes its output to files inside, which are read by their
//! offsets: so output is complete byte by byte, and found again after a crash of this process.
//!
//! The key is sent to Codeplane only, the token of a workspace only to a host whose key is known. Both
//! are in no record, no error and no argument of a process. What a workspace answers is not trusted.
//! Workspaces that are kept belong to the user: they are neither renamed nor deleted.
//!
//! Reading order: `address` (the variables), `api` (workspaces at Codeplane), `host_key` and `shell` (a
//! connection), `client`, `record` (what is known of a sandbox here), `creation`, `script`, `commands`,
//! `follow` and `feed` (commands), `operations` and `files`, `tree` and `changes` (directories),
//! `forward` (ports), `runtime`.

mod address;
mod api;
mod changes;
mod client;
mod commands;
mod creation;
mod feed;
mod files;
mod follow;
mod forward;
mod host_key;
mod operations;
mod record;
mod runtime;
mod script;
mod shell;
mod status;
mod tree;

pub use address::Address;
pub use client::{Codeplane, Options};
