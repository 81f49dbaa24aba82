//! The composition root: puts the rooms together on a data directory. A program gives [`Options`],
//! launches a [`Host`], and uses its operations itself or has it serve a socket ([`run`]).
//!
//! Only here is decided which runtime, which store and which processes there are. Nothing of the
//! product is decided here, and nothing is printed.
//!
//! Reading order: `options` (what a host is made of), `host` (how it is put together), then `serve`;
//! `confined` is for a process that is in a sandbox itself.

mod confined;
mod host;
mod options;
mod serve;
mod settings;

pub use confined::Child;
pub use host::Host;
pub use options::{Options, Programs, Realms};
pub use serve::{Lifetime, run};
pub use settings::Settings;
