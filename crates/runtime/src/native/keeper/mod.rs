//! x
mod spool;
