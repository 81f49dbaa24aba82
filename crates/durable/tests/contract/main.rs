//! What the engine promises on every store. Each file holds one kind of promise; `world` opens
//! the store that they run on, and is the only place that knows which one it is.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod cancellation;
mod children;
mod collection;
mod fencing;
mod messages;
mod mortal;
mod queues;
mod replay;
mod steps;
mod streams;
mod timers;
mod workflows;
mod world;
