//! The guarantees of the engine on PostgreSQL: the tests of `contract` on a real server, and in
//! `several` and `server` what only this store has: other processes on the same tables, and a server
//! that goes away.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

#[path = "../contract/cancellation.rs"]
mod cancellation;
#[path = "../contract/children.rs"]
mod children;
#[path = "../contract/collection.rs"]
mod collection;
#[path = "../contract/fencing.rs"]
mod fencing;
#[path = "../contract/messages.rs"]
mod messages;
#[path = "../contract/mortal.rs"]
mod mortal;
mod place;
#[path = "../contract/places.rs"]
mod places;
#[path = "../contract/queues.rs"]
mod queues;
#[path = "../contract/replay.rs"]
mod replay;
mod server;
mod several;
#[path = "../contract/steps.rs"]
mod steps;
#[path = "../contract/streams.rs"]
mod streams;
#[path = "../contract/timers.rs"]
mod timers;
mod transfer;
#[path = "../contract/workflows.rs"]
mod workflows;
#[path = "../contract/world.rs"]
mod world;
