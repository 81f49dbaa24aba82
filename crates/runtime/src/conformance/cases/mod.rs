//! The cases, by topic. `list` defines what each needs; a case that is not listed there is dead
//! code, which is a warning.

pub(super) mod again;
pub(super) mod agents;
pub(super) mod capabilities;
pub(super) mod commands;
pub(super) mod environment;
pub(super) mod files;
pub(super) mod holder;
pub(super) mod input;
pub(super) mod leases;
pub(super) mod lifecycle;
pub(super) mod limits;
pub(super) mod links;
pub(super) mod many;
pub(super) mod names;
pub(super) mod network;
pub(super) mod pause;
pub(super) mod ports;
pub(super) mod recovery;
pub(super) mod snapshots;
pub(super) mod streams;
pub(super) mod survivors;
pub(super) mod terminal;
pub(super) mod transfer;
pub(super) mod usage;
pub(super) mod users;
pub(super) mod workspaces;
