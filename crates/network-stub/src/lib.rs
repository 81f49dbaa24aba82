//! The process that refuses what a sandbox without network access asks for: each name does not exist,
//! and each request to the proxy gets a 403 with the reason, both at once. It records what was
//! wanted, so that a user reads it at the end.
//!
//! It parses bytes of untrusted programs, so it runs confined: it holds the sockets that it was
//! started with and makes no other. Nothing is resolved and nothing is connected to. There is no TLS
//! and no engine here.
//!
//! Reading order: `dns` and `http` (one message each, without I/O), `connection`, then `serve` (the
//! loop), and `records` (how it reports).

mod connection;
mod dns;
mod http;
mod records;
mod serve;

pub use records::{Records, receive};
pub use serve::{Sockets, serve};
