//! The egress proxy: the only network access of a sandbox. It receives listeners in the sandbox's
//! own network, decides by the sandbox's policy which connections are allowed, connects outside,
//! and relays bytes.
//!
//! ```text
//!   inside                          here                                 outside
//!   name ────── datagrams, streams ── dns ──┐                        ┌── name servers
//!   CONNECT ─── proxy ───── proxy, socks ───┤── sandbox ── resolve ──┘
//!   any TCP ─── everything ──────── arrival ┘       └──── connect, relay ── a checked address
//! ```
//!
//! Reading order: `sandbox` (policy, resolve, check, connect), `name_table` (the addresses that stand
//! for names), `accept`, `proxy` and `socks` (the ways to connect), `first_bytes` (the host that the first
//! bytes name), `relay`, `sending`, `dns`; then `intercept`, `credentials`, `round_trip` and `redaction`, which
//! are invisible to programs inside. `learning` reports what a policy can be learned from. `process` serves many sandboxes, on requests of its owner over a
//! socket; `stockade-egress-control` contains the messages and the owner's side.
//!
//! Traffic from inside is hostile: it is bounded, parsed defensively, and cannot reach a host that
//! the policy does not allow. The process opens no file and starts no process: its owner sends it
//! what it needs to know of this machine.

mod accept;
mod activity;
mod authority;
mod body;
mod carried;
mod credentials;
pub mod dns;
pub mod first_bytes;
mod http2;
mod intercept;
#[cfg(test)]
mod intercept_tests;
mod learning;
mod limits;
mod listeners;
mod meter;
#[cfg(test)]
mod misuse_tests;
#[cfg(test)]
mod name_forms_tests;
mod name_table;
mod negotiation;
mod placeholders;
mod process;
mod proxy;
mod record;
mod redaction;
mod rejection;
mod relay;
#[cfg(test)]
mod request_tests;
mod resolve;
mod response;
mod round_trip;
mod sandbox;
mod sending;
mod serve;
mod socks;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod traffic_tests;
mod trust;
mod upstream;
mod watch;

pub use credentials::Error as CredentialError;
pub use limits::Limits;
pub use listeners::{InvalidListeners, Listeners};
pub use process::{Error, serve};
pub use record::{Queue, Record};
pub use resolve::{NotFound, Resolution, Resolve};
pub use sandbox::{Options, Sandbox};
pub use trust::Trust;
