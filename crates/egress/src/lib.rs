//! The only way out of a sandbox. Listeners in the sandbox's own network are given to this room; it
//! decides by the sandbox's policy who may be reached, connects outside, and carries bytes between.
//!
//! ```text
//!   inside                          here                                 outside
//!   name ────── datagrams, streams ── dns ──┐                        ┌── name servers
//!   CONNECT ─── proxy ───────────── proxy ──┤── sandbox ── resolve ──┘
//!   any TCP ─── everything ──────── arrival ┘       └──── connect, relay ── a checked address
//! ```
//!
//! Reading order: `sandbox` (who may be reached: policy, resolve, check, connect), `names` (the
//! addresses that stand for names), `arrival` and `proxy` (the two ways to connect), `opening` (what
//! the first bytes say of the host), `relay`, `dns`; then `intercept`,
//! `credentials` and `redaction`, which programs inside never see. `process` is all of it for many
//! sandboxes, on request of its owner over a socket; `stockade-egress-control` has the messages and the
//! owner's side.
//!
//! What comes from inside is hostile: it is bounded, parsed defensively, and has no way to a host
//! that the policy does not name. The process opens no file and starts nothing: its owner, which does,
//! sends it what it has to know of this machine.

mod arrival;
mod authority;
mod credentials;
pub mod dns;
mod intercept;
#[cfg(test)]
mod intercept_tests;
mod limits;
mod listeners;
mod names;
pub mod opening;
mod process;
mod proxy;
mod record;
mod redaction;
mod refuse;
mod relay;
mod resolve;
mod sandbox;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod traffic_tests;
mod trust;

pub use credentials::Error as CredentialError;
pub use limits::Limits;
pub use listeners::{InvalidListeners, Listeners};
pub use process::{Error, serve};
pub use record::{Queue, Record};
pub use resolve::{Found, NotFound, Resolve};
pub use sandbox::{Options, Sandbox};
pub use trust::Trust;
