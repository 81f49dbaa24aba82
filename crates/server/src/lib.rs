//! The dialects in which the operations on sandboxes can be asked for. Translates and
//! authenticates, and decides nothing: each request becomes one operation of `stockade_api`.
//!
//! `local` is Stockade's own dialect, on a socket of the data directory's owner.

pub mod local;
mod stream;
