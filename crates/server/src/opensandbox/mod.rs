//! The dialect of OpenSandbox. Only its words for the states of a sandbox are here yet.

mod status;

pub use status::Status;
