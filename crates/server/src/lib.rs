//! The dialects in which clients can request the operations on sandboxes. Translates and
//! authenticates requests, and makes no decisions: each request becomes one operation of
//! `stockade_api`.
//!
//! `auth` determines the owner of a connection or request. `local` is Stockade's own dialect, on a
//! socket of the data directory's owner. `opensandbox` is for the clients of OpenSandbox, and `e2b` for
//! those of E2B, on the listener of `tcp`; `inside` is what both need of a sandbox, and `code` runs
//! code for both. `cluster` is for the other servers on the same database, and `handover` for requests that one of these serves as a whole. `web` is for browsers: ports under host names of their own, logins, and the
//! playground. `relay` passes requests on to ports. `mcp` is the protocol of agents, over a pair of
//! streams or HTTP. `served` combines what is served over TCP, and `admission` admits each request there.

mod admission;
pub mod auth;
pub mod cluster;
mod code;
mod cookies;
mod e2b;
mod failure;
mod handover;
mod handover_hosts;
mod inside;
mod limits;
pub mod local;
pub mod mcp;
mod metered;
mod metrics;
mod observe;
mod openapi;
pub mod opensandbox;
mod relay;
mod renewal;
mod served;
mod source;
mod stream;
pub mod tcp;
mod traffic_limits;
pub mod web;

pub use handover_hosts::Hosts;
pub use limits::Limits;
pub use observe::Watch;
pub use opensandbox::Pool;
pub use served::{Backend, openapi, routes};
