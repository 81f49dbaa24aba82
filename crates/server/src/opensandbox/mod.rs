//! The dialect of OpenSandbox. So far it contains only the names of a sandbox's states.

mod status;

pub use status::Status;
