//! Each operation on sandboxes, exactly once: owner check, act, record. Implements
//! [`stockade_api::Sandboxes`] on a durable engine and a runtime.
//!
//! HTTP, MCP, the command line and workflows call this room and decide nothing themselves. Nothing
//! here prints, listens, or knows how a sandbox is made.
//!
//! Reading order: `row` (what is kept of a sandbox), `guard` (the owner check), `operation` (how
//! an operation becomes a recorded workflow), then `operations`, one file each; `watcher` and
//! `reaper` do what nobody asks for, and `egress` lets out who may be.

mod activity;
mod clock;
mod dooms;
mod egress;
mod events;
mod failure;
mod guard;
mod handshake;
mod held;
mod locks;
mod migrations;
mod operation;
mod operations;
mod options;
mod pending;
mod reaper;
mod row;
mod sandboxes;
mod service;
mod spec;
pub mod streams;
mod tail;
mod text;
mod tools;
mod watcher;

pub use migrations::MIGRATIONS;
pub use options::{Home, Options, Quotas};
pub use service::Service;
pub use spec::requested;
pub use tools::{AllowlistTool, CodeTool, FilesystemTool, Handler, TerminalTool, ToolCall};
