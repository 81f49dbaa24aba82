//! Orbiter's terms for a sandbox: its states, its parameters, and a sandbox as an object over any
//! [`stockade_api::Sandboxes`]. Orbiter's tools are among the tools of the service.

mod object;
mod settings;
mod status;

pub use object::{Builder, ScopedSandbox};
pub use settings::{Description, Settings};
pub use status::{Call, Status};
