//! The dialects in which the operations on sandboxes can be asked for. Translates and
//! authenticates, and decides nothing: each request becomes one operation of `stockade_api`.
//!
//! `auth` says whose a connection is. `local` is Stockade's own dialect, on a socket of the data
//! directory's owner. `mcp` is that of agents, over a pair of streams; of `opensandbox` only the states of a sandbox are here yet.

pub mod auth;
pub mod local;
pub mod mcp;
pub mod opensandbox;
mod stream;
