//! Executes each operation on sandboxes exactly once: owner check, act, record. Implements
//! [`stockade_api::Sandboxes`] on a durable engine and a runtime.
//!
//! HTTP, MCP, the command line and workflows call this crate and decide nothing themselves. No code
//! here prints, listens, or depends on how a sandbox is made.
//!
//! Reading order, from the bottom up: `store` (the records, with all SQL), `owned_sandbox` (the owner
//! check), `inner` (the shared state of operations), `operation` (how an operation becomes a
//! recorded workflow), `service`, then `operations`, one file each, among them `watch`, which
//! watches one sandbox. `reaper` removes what has no record, `hosts`, `placement` and `possessions` are about
//! several servers on one database, `launch` puts all of it together.
//! `egress` serves the network of sandboxes, `ssh_agents` their ssh agents. `orbiter`, `fireflow` and `nodes` hold the terms of these
//! systems.

mod activity;
mod attachments;
mod clock;
mod connection;
mod delivery;
mod downloads;
mod egress;
mod elsewhere;
mod events;
mod failure;
pub mod fireflow;
mod first_events;
mod handoff;
mod handshake;
mod host_paths;
mod hosts;
mod image_source;
mod images;
mod inner;
mod key_source;
mod kill_notices;
mod launch;
mod link_keys;
mod locks;
pub mod nodes;
mod operation;
mod operations;
mod options;
pub mod orbiter;
mod owned_sandbox;
mod paths;
mod placement;
mod possession;
mod possessions;
mod published;
mod random;
mod reaper;
mod remains;
mod reserve;
mod row;
mod sandboxes;
mod selection;
mod service;
mod shared_link_keys;
mod spec;
mod ssh_agents;
mod starts;
mod store;
pub mod streams;
mod sync_bases;
mod tail;
mod terminations;
mod text;
mod tools;
mod vault;
mod wakers;

pub use host_paths::allowed as allowed_host_path;
pub use image_source::{ImageSource, Report};
pub use key_source::KeySource;
pub use operations::QUEUE;
pub use options::{Cluster, Home, Options, Quotas};
pub use placement::{Destination, Lookup, Placement, Unrecorded};
pub use possession::Kind as PossessionKind;
pub use service::Service;
pub use spec::requested_spec;
pub use store::{MIGRATIONS, sandboxes_in_use, stopped_sandboxes};
pub use tools::{AllowlistTool, CodeTool, FilesystemTool, Handler, TerminalTool, ToolCall};
