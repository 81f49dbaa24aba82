//! The dialects in which clients can request the operations on sandboxes. Translates and
//! authenticates requests, and makes no decisions: each request becomes one operation of
//! `stockade_api`.
//!
//! `auth` determines the owner of a connection. `local` is Stockade's own dialect, on a socket of
//! the data directory's owner. `mcp` is the protocol of agents, over a pair of streams;
//! `opensandbox` defines only the states of a sandbox so far.

pub mod auth;
pub mod local;
pub mod mcp;
pub mod opensandbox;
mod stream;
